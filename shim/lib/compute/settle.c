/* What launches really took, what that says of those to come, and what the monitor says of all. */
#include "compute/settle.h"

#include "compute/horizon.h"

/* Longer than any of the calls themselves: the thread was interrupted, or the driver's queue
 * full. */
#define LONGEST_SAMPLE (40 * HAMI_MICROSECOND)
#define LONGEST_LAUNCH (10 * HAMI_MICROSECOND)

/* Not below nothing: the entry may have been given to something else meanwhile. */
static void one_less(_Atomic uint32_t *count)
{
    uint32_t found = atomic_load_explicit(count, memory_order_relaxed);

    while (found > 0 && !atomic_compare_exchange_weak_explicit(count, &found, found - 1,
                                                               memory_order_relaxed,
                                                               memory_order_relaxed))
        ;
}

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

void hami_settle_nothing(const struct hami_work *work)
{
    one_less(&work->share->measuring);
    if (work->trial)
        one_less(&work->share->trying);
    /* Trials that could not be measured. */
    if (atomic_load_explicit(&work->share->measuring, memory_order_relaxed) == 0)
        atomic_store_explicit(&work->share->trying, 0, memory_order_relaxed);
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

static bool has_waited(const struct hami_work *work, int64_t taken)
{
    return taken > work->estimate * 5 / 4;
}

/* By how much the queue is wrong about the end of a launch that took `taken`. One that its stream
 * came to at once tells the whole error, of which others before it may have told since. One that
 * waited in its stream tells that of a few launches, as do those beside it. */
static int64_t unforeseen(const struct hami_work *work, int64_t behind, int64_t taken)
{
    int64_t alone = hami_alone(work->share);
    int64_t late = work->start + taken -
                   atomic_load_explicit(&work->share->queue, memory_order_relaxed);
    int64_t lasts;

    /* No stream tells of it any more, and its end is known to the instant. */
    if (work->idle && late > 0 && has_waited(work, taken) && !hami_stream_lives(work))
        return work->settled + late;
    if (!work->mixed)
        return hami_queued_of(work, taken - work->lasts);
    lasts = (int64_t)((__int128)behind * alone / work->alone) +
            hami_queued_of(work, work->estimate);
    if (lasts < work->estimate)
        lasts = work->estimate;
    return work->idle ? taken - lasts
                      : (int64_t)((__int128)(taken - lasts) * work->estimate / lasts);
}

/* A launch was to wait for `behind`, going by the part of work that was known to run beside no other;
 * how long it did wait says what that part is. */
static int64_t learn_overlap(const struct hami_work *work, int64_t behind, int64_t taken)
{
    const int64_t least = HAMI_OVERLAP_ALL - HAMI_OVERLAP_MOST;
    int64_t alone = hami_alone(work->share);
    int64_t waited = taken > work->estimate ? taken - work->estimate : 0;

    if (waited > 64 * behind)
        waited = 64 * behind;
    alone = (alone + work->alone * waited / behind) / 2;
    if (alone > (int64_t)HAMI_OVERLAP_ALL)
        alone = HAMI_OVERLAP_ALL;
    if (alone < least)
        alone = least;
    atomic_store_explicit(&work->share->overlap, HAMI_OVERLAP_ALL - (uint32_t)alone,
                          memory_order_relaxed);
    return alone;
}

/* What a measurement says of launches of the same thing to come; 0: nothing. */
static int64_t lesson(const struct hami_work *work, int64_t behind, int64_t taken)
{
    uint32_t overlap = atomic_load_explicit(&work->share->overlap, memory_order_relaxed);

    if (!work->mixed)
        return taken;
    if (!work->known)
        return taken - behind > taken / 2 ? taken - behind : taken / 2;
    /* The part that is alone cannot be more than all: the launches were taken to be too short. */
    return overlap == 0 ? (int64_t)((__int128)work->estimate * taken / work->lasts) : 0;
}

void hami_settle(struct hami_compute *compute, struct hami_work *work, int64_t now, int64_t others,
                 int64_t said, int64_t taken, bool ended)
{
    int64_t since = atomic_load_explicit(&work->share->restated, memory_order_relaxed) -
                    work->restated - work->settled;
    int64_t behind = work->behind + (work->idle ? since : 0);
    int64_t off = unforeseen(work, behind, taken);
    int64_t time, owed;

    charge_more(work, hami_restate(compute, work, others, taken - said, off - work->settled));
    work->settled = off;
    if (!ended)
        return;
    if (work->known && behind > 0 &&
        (work->mixed || (work->idle && work->behind > 0 && has_waited(work, taken)))) {
        int64_t before = hami_alone(work->share);
        int64_t after = learn_overlap(work, behind, taken);

        /* What is on its way was charged by the old one. */
        charge_more(work, hami_rescale(compute, work, others, now, after, before));
    }
    time = lesson(work, behind, taken);
    done_up_to(work, now);
    if (atomic_load_explicit(&work->entry->key, memory_order_relaxed) != hami_what_key(&work->what))
        return;
    if (work->first) {
        hami_estimate_guessed(work->entry, taken);
    } else if (time > 0) {
        owed = hami_estimate_measured(&compute->estimates, work->entry, time);
        hami_restate_all(compute, work, now, owed);
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
        /* More than all of it nobody has: what was charged too little costs no one anything. */
        .most = sight->rate < HAMI_WHOLE ? 0 : HAMI_CORRECTION_ONE,
        .ahead = ahead(share, now),
        .launch = atomic_load_explicit(&compute->estimates.mean, memory_order_relaxed),
    };
}

/* A figure may be off by so many hundredths of a percent. */
#define UNSURE 300
#define MOST_AT_ONCE (5 * HAMI_SECOND)

/* Who comes after more than a period in which it launched nothing has saved up no more than the
 * container has: little, where the monitor sees three quarters of the share in use. */
#define LONG_PAUSE (HAMI_SECOND * 3 / 2)

/* What was saved up of a larger share is not there to be spent beside those that want it back. */
static void follow_rate(struct hami_share *share, struct hami_bucket *bucket, int64_t now,
                        uint32_t rate)
{
    uint32_t before = atomic_load_explicit(&share->rate, memory_order_relaxed);

    if (rate > atomic_load_explicit(&share->highest, memory_order_relaxed))
        atomic_store_explicit(&share->highest, rate, memory_order_relaxed);
    if (rate == before)
        return;
    atomic_store_explicit(&share->rate, rate, memory_order_relaxed);
    if (before != 0 && (rate < before / 8 * 7 || before < rate / 8 * 7))
        atomic_store_explicit(&share->unpaid, true, memory_order_relaxed);
    if (rate < before / 8 * 7) {
        hami_bucket_spend(bucket, now, rate);
        hami_bucket_spend(&share->own, now, rate);
    }
}

/* The highest of the rates that the figures of now may be about. A container that was seen idle has
 * launched whatever it likes since. */
static uint32_t highest_rate(struct hami_share *share, uint64_t used)
{
    uint32_t rate = atomic_exchange_explicit(
        &share->highest, atomic_load_explicit(&share->rate, memory_order_relaxed),
        memory_order_relaxed);
    uint32_t highest = rate;

    if (share->rates[0] == 0)
        for (int i = 0; i < HAMI_RATES_KEPT; i++)
            share->rates[i] = used > 0 ? rate : HAMI_WHOLE;
    for (int i = HAMI_RATES_KEPT - 1; i > 0; i--) {
        share->rates[i] = share->rates[i - 1];
        highest = share->rates[i] > highest ? share->rates[i] : highest;
    }
    share->rates[0] = rate;
    return highest;
}

static void judge(struct hami_share *share, int64_t now, const struct hami_sight *sight)
{
    int64_t excess = atomic_load_explicit(&share->excess, memory_order_relaxed);
    int64_t passed = now - share->judged_at;
    uint64_t used = sight->utilisation < HAMI_WHOLE ? sight->utilisation : HAMI_WHOLE;
    int64_t most = (int64_t)highest_rate(share, used) + UNSURE;

    if (passed > LONG_PAUSE && sight->rate < HAMI_WHOLE && used > sight->rate / 4 * 3)
        hami_bucket_spend(&share->own, now, sight->rate);
    share->judged_at = now;
    if (sight->heartbeat == 0 || passed > MOST_AT_ONCE)
        excess = 0;
    else
        excess += passed / HAMI_WHOLE * ((int64_t)used - most);
    if (excess > HAMI_BUCKET_DEBT)
        excess = HAMI_BUCKET_DEBT;
    atomic_store_explicit(&share->excess, excess > 0 ? excess : 0, memory_order_relaxed);
    if (excess > HAMI_MOST_EXCESS &&
        !atomic_exchange_explicit(&share->distrusts, true, memory_order_relaxed))
        hami_bucket_correct(&share->own, HAMI_CORRECTION_ONE);
}

static void use(struct hami_correction *correction, struct hami_bucket *bucket,
                const struct hami_reading *reading, bool same)
{
    if (reading->heartbeat == 0)
        hami_correction_drop(correction, bucket, reading);
    else if (!same)
        hami_correction_restart(correction, reading->heartbeat);
    else
        hami_correction_use(correction, bucket, reading);
}

/* So low a correction of the container's is believed: that of four tenants which overlap all the
 * time. Where more do, this process's own readings say so. */
#define TRUSTED (HAMI_CORRECTION_ONE / 4)

/* The monitor sees the whole container, and what part of that is this process's is not known. As long
 * as all keep to the share it pays no more than the container does for the same; once they did not,
 * it pays for all that the monitor sees, and so does each of them. */
static void use_for_own(struct hami_share *share, const struct hami_bucket *container,
                        struct hami_reading reading, bool same)
{
    const uint64_t theirs =
        (uint64_t)hami_bucket_corrected(container, (int64_t)HAMI_CORRECTION_ONE);

    if (!atomic_load_explicit(&share->distrusts, memory_order_relaxed))
        reading.most = hami_between(theirs, TRUSTED, HAMI_CORRECTION_ONE);
    if (reading.heartbeat == 0)
        hami_bucket_correct(&share->own, 0);
    else if (atomic_load_explicit(&share->seen, memory_order_relaxed) == 0) /* none knows better */
        atomic_store_explicit(&share->own.correction, reading.most, memory_order_relaxed);
    reading.in_force = atomic_load_explicit(&share->own.correction, memory_order_relaxed);
    /* Readings were missed, which may be just those of what this process did. */
    if (reading.now - share->of_own.at > LONG_PAUSE)
        share->of_own.at = 0;
    use(&share->of_own, &share->own, &reading, same);
}

/* Each figure is about a second. A monitor may beat more often, for the sake of what it hands out. */
#define SHORTEST_READING (900 * HAMI_MILLISECOND)

static bool is_new(const struct hami_share *share, int64_t now, const struct hami_sight *sight)
{
    return sight->heartbeat == 0 || share->judged_at == 0 ||
           now - share->judged_at >= SHORTEST_READING;
}

void hami_share_observe(struct hami_compute *compute, struct hami_share *share,
                        struct hami_bucket *bucket, int64_t now, const struct hami_sight *sight)
{
    bool same = sight->uncharged == atomic_load_explicit(&share->uncharged, memory_order_relaxed);
    struct hami_reading reading;

    follow_rate(share, bucket, now, sight->rate);
    if (same && sight->heartbeat + 1 == atomic_load_explicit(&share->seen, memory_order_relaxed)) {
        atomic_store_explicit(&share->in_force,
                              atomic_load_explicit(&bucket->correction, memory_order_relaxed),
                              memory_order_relaxed);
        return;
    }
    if (!hami_lock_try(&share->correcting))
        return;
    if (!same || is_new(share, now, sight)) {
        judge(share, now, sight);
        reading = reading_of(compute, share, now, sight);
        use(&share->correction, bucket, &reading, same);
        use_for_own(share, bucket, reading, same);
        atomic_store_explicit(&share->uncharged, sight->uncharged, memory_order_relaxed);
    }
    atomic_store_explicit(&share->seen, sight->heartbeat + 1, memory_order_relaxed);
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
