/* What happens on one unit. It is given to one process at a time for a slice, in turn; what that
 * process has runs side by side as far as its widths fit, first come first. */
#include "unit.h"

/* ---- What can go on ---- */

struct item *unit_first(const struct line *line)
{
    return &line->client->items[line->first];
}

/* Whether the first item may be looked at: a wait or a hold may end, a run may start. */
static uint64_t ready_at(const struct line *line)
{
    const struct item *item = unit_first(line);

    if (item->kind == SIM_ITEM_HOLD)
        return item->remaining_ns > line->ready_ns ? item->remaining_ns : line->ready_ns;
    if (item->kind == SIM_ITEM_WAIT) {
        const struct line *other = line->client->lines[item->other];

        return other && other->done < item->number ? NEVER : line->ready_ns;
    }
    return line->ready_ns;
}

static bool needs_slice(const struct line *line)
{
    return unit_first(line)->kind == SIM_ITEM_RUN || unit_first(line)->kind == SIM_ITEM_MARK;
}

/* Since when a seat could run, NEVER if it cannot now: since it lost its slice, or since something
 * of it became ready. */
static uint64_t runnable_since(const struct seat *seat, uint64_t now)
{
    uint64_t ready = NEVER;

    if (seat->running > 0)
        return seat->off_ns;
    for (const struct line *line = seat->lines; line; line = line->next)
        if (needs_slice(line) && line->ready_ns <= now)
            ready = sooner(ready, line->ready_ns);
    return ready == NEVER || ready > seat->off_ns ? ready : seat->off_ns;
}

static bool runnable(const struct seat *seat, uint64_t now)
{
    return runnable_since(seat, now) != NEVER;
}

/* Whoever waits for longest: taking turns, by what happened when and not by when it was seen. */
static struct seat *next_runnable(const struct unit *unit)
{
    struct seat *found = NULL;
    uint64_t longest = NEVER;

    for (struct seat *seat = unit->seats; seat; seat = seat->next) {
        uint64_t since = runnable_since(seat, unit->now_ns);

        if (since < longest ||
            (since == longest && found && seat->client->id < found->client->id)) {
            longest = since;
            found = seat;
        }
    }
    return found;
}

static bool others_runnable(const struct unit *unit)
{
    for (const struct seat *seat = unit->seats; seat; seat = seat->next)
        if (seat != unit->active && runnable(seat, unit->now_ns))
            return true;
    return false;
}

/* ---- The seats with work, and their lines with items ---- */

static void join(struct unit *unit, struct seat *seat)
{
    seat->previous = NULL;
    seat->next = unit->seats;
    if (seat->next)
        seat->next->previous = seat;
    unit->seats = seat;
}

static void switch_off(struct unit *unit)
{
    unit->active->off_ns = unit->now_ns;
    unit->active = NULL;
}

static void leave(struct unit *unit, struct seat *seat)
{
    if (unit->active == seat)
        switch_off(unit);
    if (seat->previous)
        seat->previous->next = seat->next;
    else
        unit->seats = seat->next;
    if (seat->next)
        seat->next->previous = seat->previous;
    seat->next = seat->previous = NULL;
}

void unit_line_begins(struct unit *unit, struct line *line)
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

void unit_line_ends(struct unit *unit, struct line *line)
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

bool unit_is_foreign(const struct line *line, const struct item *item)
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
    struct item *item = unit_first(line);

    if (line->running) {
        line->running = false;
        seat->running--;
        seat->width -= item->width;
    }
    if (unit_is_foreign(line, item))
        daemon->foreign_waits--;
    rings_complete(daemon, line, unit->now_ns);
    if (line->first == NONE) {
        unit_line_ends(unit, line);
        return;
    }
    line->ready_ns = unit_first(line)->submitted_ns;
    if (line->ready_ns < unit->now_ns)
        line->ready_ns = unit->now_ns;
}

/* Waits and holds need no slice: they end wherever they are. */
static bool end_waits(struct daemon *daemon, struct unit *unit)
{
    for (struct seat *seat = unit->seats; seat; seat = seat->next) {
        for (struct line *line = seat->lines; line; line = line->next) {
            if (!needs_slice(line) && ready_at(line) <= unit->now_ns) {
                /* It may have been the seat's last line, and the seat is then out of the list. */
                complete(daemon, unit, line);
                return true;
            }
        }
    }
    return false;
}

static void turn_over(struct daemon *daemon, struct unit *unit)
{
    uint64_t slice = daemon->settings.slice_ns, gone;

    if (unit->active) {
        /* A slice that nobody contested began anew each time it was over. */
        gone = unit->now_ns - unit->slice_ns;
        if (gone > slice)
            unit->slice_ns += (gone - 1) / slice * slice;
        if (!runnable(unit->active, unit->now_ns) ||
            (unit->now_ns - unit->slice_ns == slice && others_runnable(unit)))
            switch_off(unit);
    }
    if (!unit->active) {
        unit->active = next_runnable(unit);
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
            (line->ready_ns == found->ready_ns &&
             unit_first(line)->ticket < unit_first(found)->ticket))
            found = line;
    }
    return found;
}

/* Note marks and start what fits. A run that does not fit holds back younger runs, not marks. */
static bool start(struct daemon *daemon, struct unit *unit)
{
    struct line *line;

    for (line = unit->active->lines; line; line = line->next) {
        if (unit_first(line)->kind == SIM_ITEM_MARK && line->ready_ns <= unit->now_ns) {
            complete(daemon, unit, line);
            return true;
        }
    }
    while ((line = oldest(unit)) != NULL) {
        struct seat *seat = line->seat;

        if (seat->width + unit_first(line)->width > SIM_WIDTH_MAX)
            return false;
        line->running = true;
        seat->running++;
        seat->width += unit_first(line)->width;
        if (unit_first(line)->remaining_ns == 0) {
            complete(daemon, unit, line);
            return true;
        }
    }
    return false;
}

void unit_pass(struct unit *unit, uint64_t now)
{
    uint64_t gone = now - unit->now_ns;
    struct seat *seat = unit->active;

    unit->now_ns = now;
    if (!seat || seat->running == 0 || gone == 0)
        return;
    for (struct line *line = seat->lines; line; line = line->next)
        if (line->running)
            unit_first(line)->remaining_ns -= gone;
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
        if (line->running && unit_first(line)->remaining_ns == 0) {
            complete(daemon, unit, line);
            return true;
        }
    }
    return false;
}

void unit_step(struct daemon *daemon, struct unit *unit, uint64_t now)
{
    unit_pass(unit, now);
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

uint64_t unit_next(const struct daemon *daemon, const struct unit *unit)
{
    uint64_t next = NEVER;
    bool contested = false;

    for (const struct seat *seat = unit->seats; seat; seat = seat->next) {
        for (const struct line *line = seat->lines; line; line = line->next) {
            uint64_t at = ready_at(line);

            if (line->running && seat == unit->active)
                next = sooner(next, unit->now_ns + unit_first(line)->remaining_ns);
            else if (at > unit->now_ns)
                next = sooner(next, at);
            else if (unit->poked)
                next = unit->now_ns;
        }
        contested |= seat != unit->active && runnable(seat, unit->now_ns);
    }
    if (contested && unit->active) {
        uint64_t slice = daemon->settings.slice_ns, gone = unit->now_ns - unit->slice_ns;

        next = sooner(next, unit->slice_ns + (gone / slice + 1) * slice);
    }
    return next;
}
