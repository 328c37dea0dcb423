/* Time as the compute share sees it. A model with a clock of its own defines these two itself. */
#ifndef HAMI_CLOCK_H
#define HAMI_CLOCK_H

#include <stdint.h>

int64_t hami_now(void);                  /* CLOCK_MONOTONIC, in nanoseconds */
void hami_sleep(int64_t nanoseconds);    /* or less, when a signal was handled */

#endif
