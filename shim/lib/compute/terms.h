/* What holds for a device now: by the limits page, and by what the monitor says of it. */
#ifndef HAMI_TERMS_H
#define HAMI_TERMS_H

#include <stdbool.h>

#include "hami_slice.h"

/* Rates are in 1/100 percent of a device's time; this is all of it. */
#define HAMI_WHOLE UINT32_C(10000)

struct hami_terms {
    uint32_t rate; /* what may be used of its time */
    bool counted;  /* launches are charged, whether it is limited now or not */
    bool limited;
    bool yields;  /* to a slice of higher priority, for as long as that computes */
    bool watched; /* a monitor says what is used, and corrects what is charged */
};

/* Whether the page limits this slice's compute on a device. */
bool hami_is_limited(const struct hami_limits *limits, unsigned int row);
/* Whether the monitor may hold it there, limited by the page or not. */
bool hami_may_be_held(const struct hami_limits *limits, unsigned int row);

/* `observed`: NULL where there is no monitor. */
struct hami_terms hami_terms_of(const struct hami_limits *limits,
                                const struct hami_observed *observed, unsigned int row);

#endif
