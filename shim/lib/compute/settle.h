/* What is put right once a launch was measured, or the monitor has seen more. */
#ifndef HAMI_COMPUTE_SETTLE_H
#define HAMI_COMPUTE_SETTLE_H

#include "compute/compute.h"

/* A launch that hami_admit let go is not measured: should its time not be known, it is settled when
 * another launch of the same thing is measured. */
void hami_admit_unmeasured(const struct hami_work *work);
/* It is measured: hami_settle follows, or hami_settle_nothing. */
void hami_sampling(const struct hami_work *work);

/* A measured launch has taken `taken` so far, or in all if `ended`, where it was said to take
 * `said`: at first how long it lasts, later what the call before said. Other measured work of the
 * share is expected to run until `others`. */
void hami_settle(struct hami_compute *compute, struct hami_work *work, int64_t now, int64_t others,
                 int64_t said, int64_t taken, bool ended);
/* The measurement came to nothing. */
void hami_settle_nothing(const struct hami_work *work);

/* The monitor's reading for the device, or none (`heartbeat` 0), and a count that changes when
 * launches were not charged for a while. Never waits. */
struct hami_sight {
    uint64_t heartbeat, utilisation, uncharged;
    uint32_t rate; /* of the device's time that the container may use; HAMI_WHOLE: all */
};
void hami_share_observe(struct hami_compute *compute, struct hami_share *share,
                        struct hami_bucket *bucket, int64_t now, const struct hami_sight *sight);

/* What measuring and launching cost the thread that did both. */
void hami_compute_costs(struct hami_compute *compute, int64_t sample, int64_t launch);

#endif
