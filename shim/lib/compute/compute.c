#include "compute/compute.h"

#include "compute/horizon.h"

/* Measuring may cost 1/300 of the time of what is launched. */
#define LAUNCHED_PER_MEASURED 300
/* Events cost the device something too. */
#define LEAST_SAMPLE_COST (2 * HAMI_MICROSECOND)
/* Streams may be taken to run side by side for so much work at a time, for want of a look at the
 * clock, which for launches of less would be the greater part of what they cost. */
#define UNTIMED (2 * HAMI_MICROSECOND)

/* Beyond HAMI_MOST_EXCESS all wait for the monitor's next words. */
#define NEXT_READING (10 * HAMI_MILLISECOND)

/* ---- A thread's own view --------------------------------------------------------------------- */

/* Tell the stream what this thread launched on it, and turn to another one. */
static void flush(struct hami_launcher *launcher)
{
    if (launcher->unflushed > 0) {
        hami_extend(&launcher->stream->end, launcher->since, launcher->unflushed);
        hami_extend(&launcher->stream->alone, launcher->first, launcher->unflushed);
        hami_extend(&launcher->share->queue, launcher->first,
                    hami_queued(launcher->share, launcher->unflushed));
    }
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
    int64_t level;

    hami_bucket_refill(bucket, now, terms->rate);
    hami_bucket_refill(&share->own, now, terms->rate);
    if (hami_bucket_level(&share->own) < hami_bucket_level(bucket))
        bucket = &share->own;
    if (terms->watched && terms->limited &&
        atomic_load_explicit(&share->excess, memory_order_relaxed) > HAMI_MOST_EXCESS)
        return NEXT_READING;
    if (terms->limited) {
        level = hami_bucket_level(bucket);
        open = closed ? level >= HAMI_BUCKET_OPEN : level > 0;
    }
    if (closed == open)
        atomic_store_explicit(&share->closed, !open, memory_order_relaxed);
    return open ? 0 : hami_bucket_opens_in(bucket, terms->rate);
}

/* Work that waits at the gate for as long as there is other work never shows that it could run
 * beside that. So one launch may go that would then be done with what is paid for, and the more,
 * the less each turns out to take of its own. What it really takes is charged. */
static bool may_try(struct hami_work *work, int64_t start, int64_t horizon)
{
    struct hami_share *share = work->share;

    work->trial = work->known && work->behind > 0 && start + work->estimate <= horizon &&
                  atomic_load_explicit(&share->trying, memory_order_relaxed) <
                      HAMI_OVERLAP_ALL / hami_alone(share);
    if (work->trial)
        atomic_fetch_add_explicit(&share->trying, 1, memory_order_relaxed);
    return work->trial;
}

/* Move the horizon so that it covers `end`, and pay for it; 0, or how long to wait. */
static int64_t put_off(struct hami_launcher *launcher, struct hami_work *work,
                       const struct hami_terms *terms, int64_t now, int64_t start)
{
    struct hami_share *share = work->share;
    int64_t horizon = atomic_load_explicit(&share->horizon, memory_order_relaxed);
    int64_t end = start + work->lasts;
    int64_t target, base, wait;

    if (end > horizon) {
        horizon = give_back(launcher, work);
        wait = gate(share, work->bucket, terms, now);
        if (wait > 0 && !may_try(work, start, horizon))
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
    return work->known ? due || work->trial : work->first || !measuring;
}

static int64_t later_of(const _Atomic int64_t *end, int64_t now)
{
    int64_t found = atomic_load_explicit(end, memory_order_relaxed);

    return found > now ? found : now;
}

static int64_t later_of_both(int64_t one, int64_t other)
{
    return one > other ? one : other;
}

bool hami_admit_beside(struct hami_compute *compute, struct hami_launcher *launcher,
                       unsigned int row, uint64_t stream_key, int64_t estimate)
{
    int64_t cost = estimate > launcher->launch_cost ? estimate : launcher->launch_cost;
    int64_t beside = launcher->beside + estimate;
    struct hami_stream *stream;
    int64_t end;

    if (launcher->share != &compute->shares[row] || launcher->launches >= HAMI_LAUNCHES_AHEAD ||
        launcher->credit < cost)
        return false;
    beside -= hami_queued(launcher->share, estimate);
    if (beside > UNTIMED)
        return false;
    stream = hami_stream_find(compute, stream_key, true);
    end = later_of_both(later_of(&stream->end, launcher->first) + estimate,
                        later_of(&launcher->share->queue, launcher->first) +
                            hami_queued(launcher->share, launcher->unflushed) +
                            hami_queued(launcher->share, estimate));
    if (end > launcher->covered)
        return false;
    flush(launcher);
    launcher->credit -= cost;
    launcher->stream = stream;
    launcher->stream_key = stream_key;
    launcher->since = end - estimate;
    launcher->end = end;
    launcher->unflushed = estimate;
    launcher->beside = beside;
    launcher->launches++;
    return true;
}

int64_t hami_admit(struct hami_compute *compute, struct hami_launcher *launcher,
                   struct hami_work *work, const struct hami_terms *terms, int64_t now)
{
    int64_t queue, start, end, wait;

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
    start = later_of(&work->stream->end, now);
    queue = later_of(&work->share->queue, now);
    end = later_of_both(start + work->estimate, queue + hami_queued_of(work, work->estimate));
    work->idle = start == now;
    work->behind = queue > start ? queue - start : 0;
    work->mixed = work->behind > work->estimate / 4;
    work->start = start;
    work->lasts = end - start;
    work->alone = hami_alone(work->share);
    work->restated = atomic_load_explicit(&work->share->restated, memory_order_relaxed);
    wait = put_off(launcher, work, terms, now, start);
    if (wait > 0)
        return wait;
    launcher->stream = work->stream;
    launcher->stream_key = work->stream_key;
    launcher->end = end;
    launcher->since = end - work->estimate;
    launcher->first = now;
    launcher->launched = true;
    hami_extend(&work->stream->end, launcher->since, work->estimate);
    hami_extend(&work->stream->alone, now, work->estimate);
    hami_extend(&work->share->queue, now, hami_queued_of(work, work->estimate));
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
    atomic_fetch_sub_explicit(&work->stream->alone, work->estimate, memory_order_relaxed);
    atomic_fetch_sub_explicit(&work->share->queue, hami_queued_of(work, work->estimate),
                              memory_order_relaxed);
    if (work->charged > 0) { /* the lease that came with it goes back as any other */
        hami_charge_time(work, -work->charged);
        atomic_fetch_sub_explicit(&work->share->horizon, work->charged, memory_order_relaxed);
        launcher->covered -= work->charged;
        launcher->lease_end -= work->charged;
        launcher->lease_used -= work->charged;
    }
}
