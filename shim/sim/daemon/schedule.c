/* Simulated time. Each unit is given to one process at a time for a slice, in turn; what that
 * process has runs side by side as far as its widths fit, first come first.
 *
 * Every instant is computed, not observed: an item starts at the later of its submission and the
 * moment its resources became free, however late this daemon looks. A unit's state therefore holds
 * for an instant (`now_ns`) at or before the clock, moves from event to event, and stays at the last
 * event while nothing happens, so that work submitted in between is not too late for it. */
#include "daemon.h"

/* ---- What can go on ---- */

static struct item *first(const struct line *line)
{
    return &line->client->items[line->first];
}

/* Whether the first item may be looked at: a wait or a hold may end, a run may start. */
static uint64_t ready_at(const struct line *line)
{
    const struct item *item = first(line);

    if (item->kind == SIM_ITEM_HOLD) {
        if (line->released < item->number)
            return NEVER;
        return line->released_ns > line->ready_ns ? line->released_ns : line->ready_ns;
    }
    if (item->kind == SIM_ITEM_WAIT) {
        const struct line *other = line->client->lines[item->other];

        return other && other->done < item->number ? NEVER : line->ready_ns;
    }
    return line->ready_ns;
}

static bool needs_slice(const struct line *line)
{
    return first(line)->kind == SIM_ITEM_RUN || first(line)->kind == SIM_ITEM_MARK;
}

static bool runnable(const struct seat *seat, uint64_t now)
{
    if (seat->running > 0)
        return true;
    for (const struct line *line = seat->lines; line; line = line->next)
        if (needs_slice(line) && line->ready_ns <= now)
            return true;
    return false;
}

static struct seat *next_runnable(const struct unit *unit, struct seat *from)
{
    struct seat *seat = from;

    if (!seat)
        return NULL;
    do {
        if (runnable(seat, unit->now_ns))
            return seat;
        seat = seat->next;
    } while (seat != from);
    return NULL;
}

static bool others_runnable(const struct unit *unit)
{
    for (const struct seat *seat = unit->active->next; seat != unit->active; seat = seat->next)
        if (runnable(seat, unit->now_ns))
            return true;
    return false;
}

/* ---- The ring of seats with work ---- */

/* At the end of the round: before whoever has the slice, or would have it. */
static void join(struct unit *unit, struct seat *seat)
{
    struct seat *before = unit->active ? unit->active : unit->turn;

    if (!before) {
        seat->next = seat->previous = seat;
        unit->turn = seat;
        return;
    }
    seat->next = before;
    seat->previous = before->previous;
    seat->previous->next = seat;
    before->previous = seat;
}

static void leave(struct unit *unit, struct seat *seat)
{
    struct seat *next = seat->next == seat ? NULL : seat->next;

    if (unit->active == seat) {
        unit->active = NULL;
        unit->turn = next;
    } else if (unit->turn == seat) {
        unit->turn = next;
    }
    seat->previous->next = seat->next;
    seat->next->previous = seat->previous;
    seat->next = seat->previous = NULL;
}

static void line_begins(struct unit *unit, struct line *line)
{
    struct seat *seat = line->seat;

    if (!seat->lines)
        join(unit, seat);
    line->previous = NULL;
    line->next = seat->lines;
    if (line->next)
        line->next->previous = line;
    seat->lines = line;
}

static void line_ends(struct unit *unit, struct line *line)
{
    struct seat *seat = line->seat;

    if (line->previous)
        line->previous->next = line->next;
    else
        seat->lines = line->next;
    if (line->next)
        line->next->previous = line->previous;
    line->next = line->previous = NULL;
    if (!seat->lines)
        leave(unit, seat);
}

/* ---- Events ---- */

static bool is_foreign(const struct line *line, const struct item *item)
{
    const struct line *other;

    if (item->kind != SIM_ITEM_WAIT)
        return false;
    other = line->client->lines[item->other];
    return other && other->seat->unit != line->seat->unit;
}

/* The first item is done; the second, if any, is now the first. */
static void complete(struct daemon *daemon, struct unit *unit, struct line *line)
{
    struct seat *seat = line->seat;
    struct item *item = first(line);

    if (line->running) {
        line->running = false;
        seat->running--;
        seat->width -= item->width;
    }
    if (is_foreign(line, item))
        daemon->foreign_waits--;
    rings_complete(daemon, line, unit->now_ns);
    if (line->first == NONE)
        line_ends(unit, line);
    else
        line->ready_ns = first(line)->submitted_ns > unit->now_ns ? first(line)->submitted_ns
                                                                   : unit->now_ns;
}

/* Waits and holds need no slice: they end wherever they are. */
static bool end_waits(struct daemon *daemon, struct unit *unit)
{
    struct seat *seat = unit->active ? unit->active : unit->turn, *start = seat;

    if (!seat)
        return false;
    do {
        struct line *next, *line = seat->lines;

        for (; line; line = next) {
            next = line->next;
            if (!needs_slice(line) && ready_at(line) <= unit->now_ns) {
                /* It may have been the seat's last line, and the seat is then out of the ring. */
                complete(daemon, unit, line);
                return true;
            }
        }
        seat = seat->next;
    } while (seat != start);
    return false;
}

/* A slice that nobody contested began anew each time it was over. */
static void turn_over(struct daemon *daemon, struct unit *unit)
{
    uint64_t slice = daemon->settings.slice_ns, gone;

    if (unit->active) {
        gone = unit->now_ns - unit->slice_ns;
        if (gone > slice)
            unit->slice_ns += (gone - 1) / slice * slice;
        if (!runnable(unit->active, unit->now_ns) ||
            (unit->now_ns - unit->slice_ns == slice && others_runnable(unit))) {
            unit->turn = unit->active->next;
            unit->active = NULL;
        }
    }
    if (!unit->active) {
        unit->active = next_runnable(unit, unit->turn);
        unit->slice_ns = unit->now_ns;
    }
}

/* The line of the active seat whose first item is ready for longest and does not run yet. */
static struct line *oldest(const struct unit *unit)
{
    struct line *found = NULL;

    for (struct line *line = unit->active->lines; line; line = line->next) {
        if (line->running || !needs_slice(line) || line->ready_ns > unit->now_ns)
            continue;
        if (!found || line->ready_ns < found->ready_ns ||
            (line->ready_ns == found->ready_ns && first(line)->ticket < first(found)->ticket))
            found = line;
    }
    return found;
}

/* Note marks and start what fits. A run that does not fit holds back younger runs, not marks. */
static bool start(struct daemon *daemon, struct unit *unit)
{
    struct line *line;

    for (line = unit->active->lines; line; line = line->next) {
        if (first(line)->kind == SIM_ITEM_MARK && line->ready_ns <= unit->now_ns) {
            complete(daemon, unit, line);
            return true;
        }
    }
    while ((line = oldest(unit)) != NULL) {
        struct seat *seat = line->seat;

        if (seat->width + first(line)->width > SIM_WIDTH_MAX)
            return false;
        line->running = true;
        seat->running++;
        seat->width += first(line)->width;
        if (first(line)->remaining_ns == 0) {
            complete(daemon, unit, line);
            return true;
        }
    }
    return false;
}

/* Time passes for what runs: nothing ends before `now`, by the choice of `now`. */
static void pass(struct unit *unit, uint64_t now)
{
    uint64_t gone = now - unit->now_ns;
    struct seat *seat = unit->active;

    unit->now_ns = now;
    if (!seat || seat->running == 0 || gone == 0)
        return;
    for (struct line *line = seat->lines; line; line = line->next)
        if (line->running)
            first(line)->remaining_ns -= gone;
    seat->wall_ns += gone;
    seat->sm_work += gone * seat->width;
    seat->holding->wall_ns += gone;
    seat->holding->sm_work += gone * seat->width;
    unit->wall_ns += gone;
    unit->sm_work += gone * seat->width;
}

static bool end_runs(struct daemon *daemon, struct unit *unit)
{
    if (!unit->active)
        return false;
    for (struct line *line = unit->active->lines; line; line = line->next) {
        if (line->running && first(line)->remaining_ns == 0) {
            complete(daemon, unit, line);
            return true;
        }
    }
    return false;
}

static void step(struct daemon *daemon, struct unit *unit, uint64_t now)
{
    pass(unit, now);
    unit->dirty = true;
    unit->poked = false;
    while (end_runs(daemon, unit))
        ;
    do {
        while (end_waits(daemon, unit))
            ;
        turn_over(daemon, unit);
    } while (unit->active && start(daemon, unit));
}

/* ---- When ---- */

static uint64_t sooner(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

static uint64_t next_event(const struct daemon *daemon, const struct unit *unit)
{
    const struct seat *seat = unit->active ? unit->active : unit->turn, *start_at = seat;
    uint64_t next = NEVER;
    bool contested = false;

    if (!seat)
        return NEVER;
    do {
        for (const struct line *line = seat->lines; line; line = line->next) {
            uint64_t at = ready_at(line);

            if (line->running && seat == unit->active)
                next = sooner(next, unit->now_ns + first(line)->remaining_ns);
            else if (at > unit->now_ns)
                next = sooner(next, at);
            else if (unit->poked)
                next = unit->now_ns;
        }
        contested |= seat != unit->active && runnable(seat, unit->now_ns);
        seat = seat->next;
    } while (seat != start_at);
    if (contested && unit->active) {
        uint64_t slice = daemon->settings.slice_ns, gone = unit->now_ns - unit->slice_ns;

        next = sooner(next, unit->slice_ns + (gone / slice + 1) * slice);
    }
    return next;
}

static struct unit *soonest(struct daemon *daemon)
{
    struct unit *found = NULL;

    for (int i = 0; i < SIM_MAX_UNITS; i++) {
        struct unit *unit = &daemon->units[i];

        if (unit->dirty) {
            unit->next_ns = next_event(daemon, unit);
            unit->dirty = false;
        }
        if (unit->next_ns != NEVER && (!found || unit->next_ns < found->next_ns))
            found = unit;
    }
    return found;
}

/* ---- For the rest of the daemon ---- */

/* An item that was submitted before the instant that the unit has reached, a hold that was released
 * before it. */
void schedule_touch(struct daemon *daemon, int unit)
{
    daemon->units[unit].dirty = daemon->units[unit].poked = true;
}

void schedule_add(struct daemon *daemon, struct line *line, uint16_t item)
{
    struct unit *unit = &daemon->units[line->seat->unit];
    struct item *added = &line->client->items[item];

    added->next = NONE;
    if (is_foreign(line, added))
        daemon->foreign_waits++;
    if (line->first == NONE) {
        line->first = line->last = item;
        line->ready_ns = added->submitted_ns;
        line_begins(unit, line);
    } else {
        line->client->items[line->last].next = item;
        line->last = item;
        return; /* it comes to nobody's notice before those in front of it are done */
    }
    schedule_touch(daemon, line->seat->unit);
}

void schedule_advance(struct daemon *daemon, uint64_t until)
{
    struct unit *unit;

    while ((unit = soonest(daemon)) != NULL && unit->next_ns <= until) {
        uint64_t now = unit->next_ns;

        step(daemon, unit, now);
        if (daemon->foreign_waits == 0)
            continue;
        /* What ended here may be what another unit's queue waits for. */
        for (int i = 0; i < SIM_MAX_UNITS; i++)
            if ((daemon->units[i].active || daemon->units[i].turn) &&
                daemon->units[i].now_ns <= now)
                step(daemon, &daemon->units[i], now);
    }
}

void schedule_account(struct daemon *daemon, uint64_t now)
{
    schedule_advance(daemon, now);
    for (int i = 0; i < SIM_MAX_UNITS; i++)
        if (daemon->units[i].active && daemon->units[i].now_ns < now)
            pass(&daemon->units[i], now);
}

void schedule_remove(struct daemon *daemon, struct line *line)
{
    struct unit *unit = &daemon->units[line->seat->unit];

    if (line->first == NONE)
        return;
    if (line->running) {
        line->running = false;
        line->seat->running--;
        line->seat->width -= first(line)->width;
    }
    for (uint16_t at = line->first; at != NONE; at = line->client->items[at].next)
        if (is_foreign(line, &line->client->items[at]))
            daemon->foreign_waits--;
    line->first = line->last = NONE;
    line_ends(unit, line);
    schedule_touch(daemon, line->seat->unit);
}

/* Whether somebody waits for one of the next few items of a line: then its end must not be noticed
 * late. Who waits for the last of a long row is content to be looked after from time to time. */
static bool awaited(const struct line *line)
{
    const struct sim_channel *channel = &line->client->shared->queues[line->place];
    uint64_t wanted = atomic_load_explicit(&channel->wanted, memory_order_relaxed);

    return wanted != NEVER && wanted <= line->done + 4;
}

uint64_t schedule_next(const struct daemon *daemon, uint64_t lazy)
{
    uint64_t next = NEVER;

    for (int i = 0; i < SIM_MAX_UNITS; i++) {
        const struct unit *unit = &daemon->units[i];
        const struct seat *seat = unit->active ? unit->active : unit->turn, *start_at = seat;
        bool exact = false;

        if (!seat || unit->next_ns == NEVER)
            continue;
        do {
            for (const struct line *line = seat->lines; line && !exact; line = line->next)
                exact = awaited(line);
            seat = seat->next;
        } while (!exact && seat != start_at);
        next = sooner(next, exact || unit->next_ns > lazy ? unit->next_ns : lazy);
    }
    return next;
}
