/* Simulated time, over all units.
 *
 * Every instant is computed, not observed: an item starts at the later of its submission and the
 * moment its resources became free, however late this daemon looks. A unit's state therefore holds
 * for an instant (`now_ns`) at or before the clock, moves from event to event, and stays at the
 * last event while nothing happens, so that work submitted in between is not too late for it. */
#include "unit.h"

static struct unit *soonest(struct daemon *daemon)
{
    struct unit *found = NULL;

    for (int i = 0; i < SIM_MAX_UNITS; i++) {
        struct unit *unit = &daemon->units[i];

        if (unit->dirty) {
            unit->next_ns = unit_next(daemon, unit);
            unit->dirty = false;
        }
        if (unit->next_ns != NEVER && (!found || unit->next_ns < found->next_ns))
            found = unit;
    }
    return found;
}

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
    if (unit_is_foreign(line, added))
        daemon->foreign_waits++;
    if (line->first == NONE) {
        line->first = line->last = item;
        line->ready_ns = added->submitted_ns;
        unit_line_begins(unit, line);
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

        unit_step(daemon, unit, now);
        if (daemon->foreign_waits == 0)
            continue;
        /* What ended here may be what another unit's queue waits for. */
        for (int i = 0; i < SIM_MAX_UNITS; i++)
            if (daemon->units[i].seats && daemon->units[i].now_ns <= now)
                unit_step(daemon, &daemon->units[i], now);
    }
}

void schedule_account(struct daemon *daemon, uint64_t now)
{
    schedule_advance(daemon, now);
    for (int i = 0; i < SIM_MAX_UNITS; i++)
        if (daemon->units[i].active && daemon->units[i].now_ns < now)
            unit_pass(&daemon->units[i], now);
}

void schedule_remove(struct daemon *daemon, struct line *line)
{
    struct unit *unit = &daemon->units[line->seat->unit];

    if (line->first == NONE)
        return;
    if (line->running) {
        line->running = false;
        line->seat->running--;
        line->seat->width -= unit_first(line)->width;
    }
    for (uint16_t at = line->first; at != NONE; at = line->client->items[at].next)
        if (unit_is_foreign(line, &line->client->items[at]))
            daemon->foreign_waits--;
    line->first = line->last = NONE;
    unit_line_ends(unit, line);
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
        bool exact = false;

        if (unit->next_ns == NEVER)
            continue;
        for (const struct seat *seat = unit->seats; seat && !exact; seat = seat->next)
            for (const struct line *line = seat->lines; line && !exact; line = line->next)
                exact = awaited(line);
        next = sooner(next, exact || unit->next_ns > lazy ? unit->next_ns : lazy);
    }
    return next;
}
