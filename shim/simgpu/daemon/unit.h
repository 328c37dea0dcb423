/* Between schedule.c, which decides when, and unit.c, which knows what happens then. */
#ifndef SIM_DAEMON_UNIT_H
#define SIM_DAEMON_UNIT_H

#include "daemon.h"

static inline uint64_t sooner(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

struct item *unit_first(const struct line *line); /* there must be one */
/* A wait for a queue of another unit. */
bool unit_is_foreign(const struct line *line, const struct item *item);
/* A line has items from now on; it has none any more. */
void unit_line_begins(struct unit *unit, struct line *line);
void unit_line_ends(struct unit *unit, struct line *line);
/* Time passes for what runs. Nothing may end before `now`. */
void unit_pass(struct unit *unit, uint64_t now);
/* Time passes, and whatever can end or begin at `now` does. */
void unit_step(struct daemon *daemon, struct unit *unit, uint64_t now);
/* When the next step is due if nothing is submitted, NEVER if none is. */
uint64_t unit_next(const struct daemon *daemon, const struct unit *unit);

#endif
