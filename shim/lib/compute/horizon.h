/* Until when a process's streams, and the device for it, have work. */
#ifndef HAMI_HORIZON_H
#define HAMI_HORIZON_H

#include "compute/compute.h"

/* Where a monitor sees more use than the share allows, and so much more in all, the container's
 * bucket is not what it should be. */
#define HAMI_MOST_EXCESS (300 * HAMI_MILLISECOND)

/* The stream of a key; made where it is not there and `make` says so, else NULL. */
struct hami_stream *hami_stream_find(struct hami_compute *compute, uint64_t key, bool make);
/* It was not forgotten since the launch. */
static inline bool hami_stream_lives(const struct hami_work *work)
{
    return atomic_load_explicit(&work->stream->key, memory_order_relaxed) == work->stream_key;
}
/* The end of a stream, or of the queue, is put off by `time`, from `since` at the earliest. */
void hami_extend(_Atomic int64_t *end, int64_t since, int64_t time);
/* A launch ends so much later (or, negative, earlier) than was thought, of which the queue does not
 * know `unforeseen` yet. By how much the end of all work of the device moves with that; measured
 * work runs until `others` in any case. */
int64_t hami_restate(struct hami_compute *compute, const struct hami_work *work, int64_t others,
                     int64_t later, int64_t unforeseen);
/* Of the time that the queue will take from now on, `part` in `of` is left. */
int64_t hami_rescale(struct hami_compute *compute, const struct hami_work *work, int64_t others,
                     int64_t now, int64_t part, int64_t of);
/* All work of the device that is yet to be done ends so much later. */
void hami_restate_all(struct hami_compute *compute, const struct hami_work *work, int64_t now,
                      int64_t later);

/* The stream goes. */
void hami_compute_forget_stream(struct hami_compute *compute, uint64_t stream_key);

/* The part of work that does not run beside other work, of HAMI_OVERLAP_ALL. */
static inline int64_t hami_alone(const struct hami_share *share)
{
    return (int64_t)(HAMI_OVERLAP_ALL -
                     atomic_load_explicit(&share->overlap, memory_order_relaxed));
}

static inline int64_t hami_queued(const struct hami_share *share, int64_t time)
{
    return time * hami_alone(share) / (int64_t)HAMI_OVERLAP_ALL;
}

/* The same of one launch. Whether something of which nothing is known runs beside other work, what
 * other launches did says nothing of: it is taken to run alone until it is measured. */
static inline int64_t hami_queued_of(const struct hami_work *work, int64_t time)
{
    return work->known ? hami_queued(work->share, time) : time;
}

/* Charge the container; true when debt was forgiven. */
static inline bool hami_charge_time(const struct hami_work *work, int64_t time)
{
    atomic_fetch_add_explicit(&work->share->charged, time, memory_order_relaxed);
    hami_bucket_charge(&work->share->own, time, work->limited);
    return hami_bucket_charge(work->bucket, time, work->limited);
}

#endif
