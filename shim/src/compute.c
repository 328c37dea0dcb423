#include "compute.h"

#include "compute_parts.h"

/* Measuring may cost 1/300 of the time of what is launched. */
#define LAUNCHED_PER_MEASURED 300
/* Events cost the device something too. */
#define LEAST_SAMPLE_COST (2 * HAMI_MICROSECOND)
/* Streams may be taken to run side by side for so much work at a time, for want of a look at the
 * clock, which for launches of less would be the greater part of what they cost. */
#define UNTIMED (2 * HAMI_MICROSECOND)

/* ---- A thread's own view --------------------------------------------------------------------- */

/* Tell the stream what this thread launched on it, and turn to another one. */
static void flush(struct hami_launcher *launcher)
{
    if (launcher->unflushed > 0)
        hami_stream_extend(launcher->stream, launcher->first, launcher->unflushed);
    if (launcher->stream_key != 0 && launcher->lease_used < launcher->end)
        launcher->lease_used = launcher->end;
    launcher->unflushed = 0;
    launcher->stream_key = 0;
}

/* What this thread took ahead and did not use, it gives back before it takes more; unless others
 * built on it. Returns the horizon. */
static int64_t give_back(struct hami_launcher *launcher, const struct hami_work *work)
{
    struct hami_share *share = work->share;
    int64_t horizon = atomic_load_explicit(&share->horizon, memory_order_relaxed);
    int64_t unused = launcher->lease_end - launcher->lease_used;

    if (launcher->lease_end != 0 && horizon == launcher->lease_end && unused > 0 &&
        atomic_compare_exchange_strong_explicit(&share->horizon, &horizon, launcher->lease_used,
                                                memory_order_relaxed, memory_order_relaxed)) {
        hami_charge_time(work, -unused);
        horizon = launcher->lease_used;
    }
    launcher->lease_end = 0;
    return horizon;
}

/* Not for the first launch of a thread: one that ends after it would never give it back. */
static int64_t lease(const struct hami_launcher *launcher, const struct hami_work *work)
{
    int64_t ahead = work->estimate * (HAMI_LAUNCHES_AHEAD - 1);

    if (!launcher->launched)
        return 0;
    /* Also for work longer than that: what is launched beside it a moment later ends a moment
     * later. */
    return ahead < HAMI_LEASE ? ahead : HAMI_LEASE;
}

/* ---- Admission ------------------------------------------------------------------------------- */

static int64_t gate(struct hami_share *share, struct hami_bucket *bucket,
                    const struct hami_terms *terms, int64_t now)
{
    bool closed = atomic_load_explicit(&share->closed, memory_order_relaxed);
    bool open = true;

    hami_bucket_refill(bucket, now, terms->percent);
    if (terms->limited) {
        int64_t level = hami_bucket_level(bucket);

        open = closed ? level >= HAMI_BUCKET_OPEN : level > 0;
    }
    if (closed == open)
        atomic_store_explicit(&share->closed, !open, memory_order_relaxed);
    return open ? 0 : hami_bucket_opens_in(bucket, terms->percent);
}

/* Move the horizon so that it covers `end`, and pay for it; 0, or how long to wait. */
static int64_t put_off(struct hami_launcher *launcher, struct hami_work *work,
                       const struct hami_terms *terms, int64_t now, int64_t start)
{
    struct hami_share *share = work->share;
    int64_t horizon = atomic_load_explicit(&share->horizon, memory_order_relaxed);
    int64_t end = start + work->estimate;
    int64_t target, base, wait;

    if (end > horizon) {
        horizon = give_back(launcher, work);
        wait = gate(share, work->bucket, terms, now);
        if (wait > 0)
            return wait;
        target = end + lease(launcher, work);
    }
    do {
        if (end <= horizon) { /* other work of this process runs as long */
            launcher->covered = horizon;
            work->charged = 0;
            return 0;
        }
        base = horizon > start ? horizon : start;
    } while (!atomic_compare_exchange_weak_explicit(&share->horizon, &horizon, target,
                                                    memory_order_relaxed, memory_order_relaxed));
    work->charged = end - base;
    work->forgiven = hami_charge_time(work, target - base);
    launcher->covered = launcher->lease_end = target;
    launcher->lease_used = end;
    return 0;
}

/* Whether as much was launched since the last measurement as pays for another. */
static bool measurement_due(const struct hami_compute *compute, struct hami_launcher *launcher,
                            int64_t estimate)
{
    int64_t cost = atomic_load_explicit(&compute->sample_cost, memory_order_relaxed);
    int64_t between = LAUNCHED_PER_MEASURED * (cost > LEAST_SAMPLE_COST ? cost : LEAST_SAMPLE_COST);

    launcher->launch_cost = atomic_load_explicit(&compute->launch_cost, memory_order_relaxed);
    if (launcher->credit >= 0)
        launcher->credit -= estimate > launcher->launch_cost ? estimate : launcher->launch_cost;
    if (launcher->credit >= 0)
        return false;
    /* At random distances: in a loop, equal ones would meet the same few launches all the time. */
    if (launcher->random == 0)
        launcher->random = (uint32_t)((uintptr_t)launcher >> 4) | 1;
    launcher->random ^= launcher->random << 13;
    launcher->random ^= launcher->random >> 17;
    launcher->random ^= launcher->random << 5;
    launcher->credit = between / 2 + (int64_t)launcher->random % between;
    return true;
}

static bool to_measure(const struct hami_compute *compute, struct hami_launcher *launcher,
                       struct hami_work *work)
{
    bool due = measurement_due(compute, launcher, work->estimate);
    bool measuring = atomic_load_explicit(&work->entry->pending, memory_order_relaxed) > 0;
    uint32_t before = 0;

    if (!work->known)
        before = atomic_fetch_add_explicit(&work->entry->launches, 1, memory_order_relaxed);
    /* The first launch of a function loads its code: good for what it itself is charged, no
     * more. */
    work->first = !work->known && before == 0 &&
                  atomic_load_explicit(&work->entry->samples, memory_order_relaxed) == 0;
    return !work->unmeasurable && (work->known ? due : work->first || !measuring);
}

bool hami_admit_beside(struct hami_compute *compute, struct hami_launcher *launcher,
                       unsigned int row, uint64_t stream_key, int64_t estimate)
{
    int64_t cost = estimate > launcher->launch_cost ? estimate : launcher->launch_cost;
    struct hami_stream *stream;
    int64_t ends, start;

    if (launcher->share != &compute->shares[row] || launcher->launches >= HAMI_LAUNCHES_AHEAD ||
        launcher->beside + estimate > UNTIMED || launcher->credit < cost)
        return false;
    stream = hami_stream_find(compute, stream_key, true);
    ends = atomic_load_explicit(&stream->end, memory_order_relaxed);
    start = ends > launcher->first ? ends : launcher->first;
    if (start + estimate > launcher->covered)
        return false;
    flush(launcher);
    launcher->credit -= cost;
    launcher->stream = stream;
    launcher->stream_key = stream_key;
    launcher->end = start + estimate;
    launcher->unflushed = estimate;
    launcher->beside += estimate;
    launcher->launches++;
    return true;
}

int64_t hami_admit(struct hami_compute *compute, struct hami_launcher *launcher,
                   struct hami_work *work, const struct hami_terms *terms, int64_t now)
{
    int64_t ends, start, wait;

    flush(launcher);
    if (launcher->share != work->share) {
        launcher->share = work->share;
        launcher->lease_end = 0;
        launcher->launched = false;
    }
    work->entry = hami_estimate_make(&compute->estimates, &work->what);
    work->known = hami_estimate_known(&compute->estimates, work->entry);
    work->estimate =
        work->known ? atomic_load_explicit(&work->entry->mean, memory_order_relaxed) : 0;
    if (work->estimate <= 0) /* another thread may have forgotten it just now */
        work->estimate = hami_estimate_guess(&compute->estimates, work->entry);
    work->limited = terms->limited;
    if (!terms->limited)
        atomic_store_explicit(&work->share->unpaid, true, memory_order_relaxed);
    work->stream = hami_stream_find(compute, work->stream_key, true);
    ends = atomic_load_explicit(&work->stream->end, memory_order_relaxed);
    work->idle = ends <= now;
    start = work->idle ? now : ends;
    wait = put_off(launcher, work, terms, now, start);
    if (wait > 0)
        return wait;
    launcher->stream = work->stream;
    launcher->stream_key = work->stream_key;
    launcher->end = start + work->estimate;
    launcher->first = now;
    launcher->launched = true;
    hami_stream_extend(work->stream, now, work->estimate);
    launcher->launches = 0;
    launcher->beside = 0;
    work->place = atomic_load_explicit(&work->share->charged, memory_order_relaxed);
    work->sample = to_measure(compute, launcher, work);
    return 0;
}

void hami_admit_undo(struct hami_launcher *launcher, const struct hami_work *work)
{
    launcher->end -= work->estimate;
    if (!work->stream) { /* hami_admit_quickly */
        launcher->unflushed -= work->estimate;
        return;
    }
    atomic_fetch_sub_explicit(&work->stream->end, work->estimate, memory_order_relaxed);
    if (work->charged > 0) { /* the lease that came with it goes back as any other */
        hami_charge_time(work, -work->charged);
        atomic_fetch_sub_explicit(&work->share->horizon, work->charged, memory_order_relaxed);
        launcher->covered -= work->charged;
        launcher->lease_end -= work->charged;
        launcher->lease_used -= work->charged;
    }
}
