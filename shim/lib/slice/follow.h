#ifndef HAMI_FOLLOW_H
#define HAMI_FOLLOW_H

#include "hami_slice.h"

/* These limits hold from now on; `page` is where they change, or NULL. */
void hami_limits_start(const struct hami_limits_page *page, const union hami_limits_copy *first);

#endif
