/* What the tests of compute have in common. */
#ifndef HAMI_TESTS_COMPUTE_FIXTURE_H
#define HAMI_TESTS_COMPUTE_FIXTURE_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "compute/compute.h"
#include "compute/horizon.h"
#include "compute/settle.h"
#include "expect.h"

#define US HAMI_MICROSECOND
#define MS HAMI_MILLISECOND
#define S HAMI_SECOND

/* ---- Estimates ------------------------------------------------------------------------------- */

static struct hami_compute *compute;

static inline struct hami_estimates *fresh(void)
{
    free(compute);
    compute = aligned_alloc(64, (sizeof(*compute) + 63) / 64 * 64);
    if (!compute)
        abort();
    memset((void *)compute, 0, sizeof(*compute));
    return &compute->estimates;
}

/* ---- Charging -------------------------------------------------------------------------------- */

static struct hami_bucket bucket;
static struct hami_terms half = {.rate = HAMI_WHOLE / 2, .counted = true, .limited = true};

static inline struct hami_work work_of(uint64_t function, uint64_t stream)
{
    return (struct hami_work){.what = {function, 1, 0},
                              .stream_key = hami_stream_key(stream, 0, NULL),
                              .bucket = &bucket,
                              .share = &compute->shares[0]};
}

/* Begin anew, with a function of `time`. */
static inline void with_function(uint64_t function, int64_t time)
{
    struct hami_what what = {function, 1, 0};

    fresh();
    memset((void *)&bucket, 0, sizeof(bucket));
    hami_estimate_measured(&compute->estimates, hami_estimate_make(&compute->estimates, &what),
                           time);
    compute->sample_cost = 1000 * S; /* no measurement unless a test wants one */
}

/* What a thread took ahead and did not use. */
static inline int64_t unused(const struct hami_launcher *launcher)
{
    int64_t used = launcher->end > launcher->lease_used ? launcher->end : launcher->lease_used;

    return launcher->lease_end > used ? launcher->lease_end - used : 0;
}

/* What was charged for launches. */
static inline int64_t charged(const struct hami_launcher *launcher)
{
    EXPECT(unused(launcher) <= HAMI_LEASE);
    return (int64_t)bucket.charged - unused(launcher);
}

static inline int64_t horizon(const struct hami_launcher *launcher)
{
    return compute->shares[0].horizon - unused(launcher);
}

/* All streams' work is known to run side by side. */
static inline void side_by_side(void)
{
    compute->shares[0].overlap = HAMI_OVERLAP_MOST;
}

/* ---- Settling -------------------------------------------------------------------------------- */

static inline struct hami_work admitted(struct hami_launcher *launcher, uint64_t function,
                                        uint64_t stream)
{
    struct hami_work work = work_of(function, stream);

    half.limited = false;
    EXPECT(hami_admit(compute, launcher, &work, &half, S) == 0);
    half.limited = true;
    return work;
}

static inline void observe(struct hami_share *share, int64_t now, int heartbeat,
                           uint64_t utilisation, uint64_t uncharged)
{
    struct hami_sight sight = {.heartbeat = (uint64_t)heartbeat,
                               .utilisation = utilisation,
                               .uncharged = uncharged};

    hami_share_observe(compute, share, &bucket, now, &sight);
}

#endif
