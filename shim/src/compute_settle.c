/* What launches really took, what that says of those to come, and what the monitor says of all. */
#include "compute_parts.h"

/* Longer than any of the calls themselves: the thread was interrupted, or the driver's queue
 * full. */
#define LONGEST_SAMPLE (40 * HAMI_MICROSECOND)
#define LONGEST_LAUNCH (10 * HAMI_MICROSECOND)

void hami_admit_unmeasured(const struct hami_work *work)
{
    if (atomic_load_explicit(&work->entry->samples, memory_order_relaxed) > 0 || work->charged <= 0)
        return;
    atomic_fetch_add_explicit(&work->entry->guessed, work->charged, memory_order_relaxed);
    atomic_fetch_add_explicit(&work->entry->guesses,
                              (int64_t)((__int128)work->charged * HAMI_GUESS / work->estimate),
                              memory_order_relaxed);
}

void hami_sampling(const struct hami_work *work)
{
    atomic_fetch_add_explicit(&work->share->measuring, 1, memory_order_relaxed);
    if (!work->first)
        atomic_fetch_add_explicit(&work->entry->pending, 1, memory_order_relaxed);
}

/* Not below nothing: the entry may have been given to something else meanwhile. */
static void one_less(_Atomic uint32_t *count)
{
    uint32_t found = atomic_load_explicit(count, memory_order_relaxed);

    while (found > 0 && !atomic_compare_exchange_weak_explicit(count, &found, found - 1,
                                                               memory_order_relaxed,
                                                               memory_order_relaxed))
        ;
}

void hami_settle_nothing(const struct hami_work *work)
{
    one_less(&work->share->measuring);
    if (!work->first)
        one_less(&work->entry->pending);
}

/* The horizon moves by what it turns out to have been charged wrongly. */
static void charge_more(const struct hami_work *work, int64_t time)
{
    hami_charge_time(work, time);
    atomic_fetch_add_explicit(&work->share->horizon, time, memory_order_relaxed);
}

static void done_up_to(const struct hami_work *work, int64_t now)
{
    struct hami_share *share = work->share;
    int64_t done = atomic_load_explicit(&share->done, memory_order_relaxed);

    if (work->place > done) {
        atomic_store_explicit(&share->done, work->place, memory_order_relaxed);
        atomic_store_explicit(&share->done_at, now, memory_order_relaxed);
    }
    hami_settle_nothing(work);
}

void hami_settle(struct hami_compute *compute, const struct hami_work *work, int64_t now,
                 int64_t said, int64_t taken, bool ended)
{
    int64_t owed;

    charge_more(work, hami_stream_restate(compute, work, taken - said));
    if (ended)
        done_up_to(work, now);
    if (!ended || atomic_load_explicit(&work->entry->key, memory_order_relaxed) !=
                      hami_what_key(&work->what))
        return;
    if (work->first) {
        hami_estimate_guessed(work->entry, taken);
    } else {
        owed = hami_estimate_measured(&compute->estimates, work->entry, taken);
        hami_streams_restate(compute, work, now, owed);
        charge_more(work, owed);
    }
}

/* What was charged for work that has yet to be done: by the horizon, which knows nothing of what
 * the device does for others; and by the measurements, while there are any, which do not tell
 * how far the work is that runs now. */
static int64_t ahead(const struct hami_share *share, int64_t now)
{
    int64_t horizon = atomic_load_explicit(&share->horizon, memory_order_relaxed) - now;
    int64_t measured = 0;

    if (atomic_load_explicit(&share->measuring, memory_order_relaxed) > 0)
        measured = atomic_load_explicit(&share->charged, memory_order_relaxed) -
                   atomic_load_explicit(&share->done, memory_order_relaxed) -
                   (now - atomic_load_explicit(&share->done_at, memory_order_relaxed));
    if (measured > horizon)
        horizon = measured;
    return horizon > 0 ? horizon : 0;
}

static struct hami_reading reading_of(struct hami_compute *compute, struct hami_share *share,
                                      int64_t now, const struct hami_sight *sight)
{
    return (struct hami_reading){
        .now = now,
        .heartbeat = sight->heartbeat,
        .utilisation = sight->utilisation,
        .in_force = atomic_load_explicit(&share->in_force, memory_order_relaxed),
        .unpaid = atomic_exchange_explicit(&share->unpaid, false, memory_order_relaxed),
        .ahead = ahead(share, now),
        .launch = atomic_load_explicit(&compute->estimates.mean, memory_order_relaxed),
    };
}

void hami_share_observe(struct hami_compute *compute, struct hami_share *share,
                        struct hami_bucket *bucket, int64_t now, const struct hami_sight *sight)
{
    bool same = sight->uncharged == atomic_load_explicit(&share->uncharged, memory_order_relaxed);
    struct hami_reading reading;

    if (same && sight->heartbeat + 1 == atomic_load_explicit(&share->seen, memory_order_relaxed)) {
        atomic_store_explicit(&share->in_force,
                              atomic_load_explicit(&bucket->correction, memory_order_relaxed),
                              memory_order_relaxed);
        return;
    }
    if (!hami_lock_try(&share->correcting))
        return;
    reading = reading_of(compute, share, now, sight);
    if (sight->heartbeat == 0)
        hami_correction_drop(&share->correction, bucket, &reading);
    else if (!same)
        hami_correction_restart(&share->correction, sight->heartbeat);
    else
        hami_correction_use(&share->correction, bucket, &reading);
    atomic_store_explicit(&share->seen, sight->heartbeat + 1, memory_order_relaxed);
    atomic_store_explicit(&share->uncharged, sight->uncharged, memory_order_relaxed);
    hami_unlock(&share->correcting);
}

/* Interruptions, and a driver that waits for room in its queue, only ever make a call look
 * longer. */
static void follow(_Atomic int64_t *cost, int64_t value, int64_t longest)
{
    int64_t found = atomic_load_explicit(cost, memory_order_relaxed);

    if (value > longest)
        value = longest;
    if (found > 0)
        value = found + (value - found) / (value < found ? 4 : 32);
    atomic_store_explicit(cost, value > 0 ? value : 1, memory_order_relaxed);
}

void hami_compute_costs(struct hami_compute *compute, int64_t sample, int64_t launch)
{
    follow(&compute->sample_cost, sample, LONGEST_SAMPLE);
    follow(&compute->launch_cost, launch, LONGEST_LAUNCH);
}
