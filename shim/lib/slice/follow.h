/* The limits as they change under a running process, and what the monitor sees from outside. */
#ifndef HAMI_FOLLOW_H
#define HAMI_FOLLOW_H

#include "hami_slice.h"

/* These limits hold from now on; `page` is where they change, or NULL. */
void hami_limits_start(const struct hami_limits_page *page, const union hami_limits_copy *first);

/* The limits in force now; never NULL in HAMI_MODE_SLICE. A few loads when nothing changed. What
 * it points to stays whole for the length of one call; ask again after a wait. */
const struct hami_limits *hami_limits(void);
/* The monitor's words, or NULL: without a page, or when its heartbeat was not seen to change within
 * the last 10 s. */
const struct hami_observed *hami_observed(void);
/* The monitor's last heartbeat, however old; 0: without a page. */
uint64_t hami_heartbeat(void);

#endif
