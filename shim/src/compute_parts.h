/* What the compute share's own files need of each other. */
#ifndef HAMI_COMPUTE_PARTS_H
#define HAMI_COMPUTE_PARTS_H

#include "compute.h"

/* The stream of a key; made where it is not there and `make` says so, else NULL. */
struct hami_stream *hami_stream_find(struct hami_compute *compute, uint64_t key, bool make);
/* It runs for `time` more, from `since` at the earliest. */
void hami_stream_extend(struct hami_stream *stream, int64_t since, int64_t time);
/* Its end was thought to be so much too early (or, negative, too late). By how much the end of all
 * streams of the device moves with that. */
int64_t hami_stream_restate(struct hami_compute *compute, const struct hami_work *work,
                            int64_t later);
/* The same for all work of the device that is yet to be done. */
void hami_streams_restate(struct hami_compute *compute, const struct hami_work *work, int64_t now,
                          int64_t later);

/* Charge the container; true when debt was forgiven. */
static inline bool hami_charge_time(const struct hami_work *work, int64_t time)
{
    atomic_fetch_add_explicit(&work->share->charged, time, memory_order_relaxed);
    return hami_bucket_charge(work->bucket, time, work->limited);
}

#endif
