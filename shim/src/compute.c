#include "compute.h"

/* Measuring may cost 1/300 of the time of what is launched. */
#define LAUNCHED_PER_MEASURED 300
#define LIKELY_SAMPLE_COST (4 * HAMI_MICROSECOND)
/* Longer than any of the calls themselves: the thread was interrupted, or the driver's queue full. */
#define LONGEST_SAMPLE (40 * HAMI_MICROSECOND)
#define LONGEST_LAUNCH (10 * HAMI_MICROSECOND)

/* Streams may be taken to run side by side for so much work at a time, for want of a look at the
 * clock, which for launches of less would be the greater part of what they cost. */
#define UNTIMED (2 * HAMI_MICROSECOND)

#define STREAM_PROBES 16
#define STREAM_GONE UINT64_MAX

/* ---- Streams -------------------------------------------------------------------------------- */

static struct hami_stream *stream_at(struct hami_compute *compute, uint64_t key, unsigned int probe)
{
    uint64_t hash = key * UINT64_C(0x9e3779b97f4a7c15) >> 32;

    return &compute->streams[(hash + probe) & (HAMI_STREAMS - 1)];
}

static struct hami_stream *stream_find(struct hami_compute *compute, uint64_t key, bool make)
{
    struct hami_stream *place = NULL;
    uint64_t found;

    for (unsigned int i = 0; i < STREAM_PROBES; i++) {
        struct hami_stream *stream = stream_at(compute, key, i);

        found = atomic_load_explicit(&stream->key, memory_order_relaxed);
        if (found == key)
            return stream;
        if (!place && (found == 0 || found == STREAM_GONE))
            place = stream;
        if (found == 0)
            break;
    }
    if (!make)
        return NULL;
    if (!place)
        return &compute->crowd;
    found = atomic_load_explicit(&place->key, memory_order_relaxed);
    if ((found == 0 || found == STREAM_GONE) &&
        atomic_compare_exchange_strong_explicit(&place->key, &found, key, memory_order_relaxed,
                                                memory_order_relaxed))
        atomic_store_explicit(&place->end, 0, memory_order_relaxed);
    /* Else somebody else took the place just now: rare enough to share it, in the crowd. */
    return atomic_load_explicit(&place->key, memory_order_relaxed) == key ? place
                                                                          : &compute->crowd;
}

void hami_compute_forget_stream(struct hami_compute *compute, uint64_t key)
{
    struct hami_stream *stream = stream_find(compute, key, false);

    if (stream)
        atomic_store_explicit(&stream->key, STREAM_GONE, memory_order_relaxed);
}

static void stream_extend(struct hami_stream *stream, int64_t since, int64_t time)
{
    int64_t found = atomic_load_explicit(&stream->end, memory_order_relaxed);
    int64_t end;

    do
        end = (found > since ? found : since) + time;
    while (!atomic_compare_exchange_weak_explicit(&stream->end, &found, end, memory_order_relaxed,
                                                  memory_order_relaxed));
}

/* ---- Charging ------------------------------------------------------------------------------- */

/* True when debt was forgiven. */
static bool charge(const struct hami_work *work, int64_t time)
{
    atomic_fetch_add_explicit(&work->share->charged, time, memory_order_relaxed);
    return hami_bucket_charge(work->bucket, time, work->limited);
}

/* ---- A thread's own view -------------------------------------------------------------------- */

/* Tell the stream what this thread launched on it. */
static void flush(struct hami_launcher *launcher)
{
    if (launcher->unflushed > 0) {
        stream_extend(launcher->stream, launcher->first, launcher->unflushed);
        if (launcher->lease_used < launcher->end)
            launcher->lease_used = launcher->end;
    }
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
        charge(work, -unused);
        horizon = launcher->lease_used;
    }
    launcher->lease_end = 0;
    return horizon;
}

static int64_t lease(const struct hami_work *work)
{
    int64_t ahead = work->estimate * (HAMI_LAUNCHES_AHEAD - 1);
    int64_t level;

    if (ahead > HAMI_LEASE)
        ahead = HAMI_LEASE;
    if (!work->limited)
        return ahead;
    level = hami_bucket_level(work->bucket);
    if (level <= 0)
        return 0;
    return hami_bucket_corrected(work->bucket, ahead) < level ? ahead : 0;
}

/* ---- Admission ------------------------------------------------------------------------------ */

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
        target = end + lease(work);
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
    work->forgiven = charge(work, target - base);
    launcher->covered = launcher->lease_end = target;
    launcher->lease_used = end;
    return 0;
}

/* Whether as much was launched since the last measurement as pays for another. */
static bool measurement_due(const struct hami_compute *compute, struct hami_launcher *launcher,
                            int64_t estimate)
{
    int64_t cost = atomic_load_explicit(&compute->sample_cost, memory_order_relaxed);
    int64_t between = LAUNCHED_PER_MEASURED * (cost > 0 ? cost : LIKELY_SAMPLE_COST);

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
    /* The first launch of a function loads its code: good for what it itself is charged, no more. */
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
    stream = stream_find(compute, stream_key, true);
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
    }
    work->entry = hami_estimate_make(&compute->estimates, &work->what);
    work->known = hami_estimate_known(&compute->estimates, work->entry);
    work->estimate = work->known ? atomic_load_explicit(&work->entry->mean, memory_order_relaxed)
                                 : hami_estimate_guess(&compute->estimates, work->entry);
    work->limited = terms->limited;
    work->stream = stream_find(compute, work->stream_key, true);
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
    launcher->unflushed = work->estimate;
    launcher->launches = 0;
    launcher->beside = 0;
    work->place = atomic_load_explicit(&work->share->charged, memory_order_relaxed);
    work->sample = to_measure(compute, launcher, work);
    return 0;
}

void hami_admit_undo(struct hami_launcher *launcher, const struct hami_work *work)
{
    launcher->end -= work->estimate;
    launcher->unflushed -= work->estimate;
    if (work->charged > 0) {
        charge(work, -work->charged);
        atomic_fetch_sub_explicit(&work->share->horizon, work->charged, memory_order_relaxed);
        launcher->lease_end = 0;
        launcher->covered = 0;
    }
}

/* ---- What launches really took -------------------------------------------------------------- */

void hami_admit_unmeasured(const struct hami_work *work)
{
    if (atomic_load_explicit(&work->entry->samples, memory_order_relaxed) > 0 || work->charged <= 0)
        return;
    atomic_fetch_add_explicit(&work->entry->guessed, work->charged, memory_order_relaxed);
    atomic_fetch_add_explicit(&work->entry->guesses,
                              (int64_t)((__int128)work->charged * HAMI_GUESS / work->estimate),
                              memory_order_relaxed);
}

/* The stream is busy for `longer` than was thought, the device for its part of that. */
static void restate(const struct hami_work *work, int64_t longer, int64_t charged)
{
    charge(work, charged);
    atomic_fetch_add_explicit(&work->share->horizon, charged, memory_order_relaxed);
    if (atomic_load_explicit(&work->stream->key, memory_order_relaxed) == work->stream_key)
        atomic_fetch_add_explicit(&work->stream->end, longer, memory_order_relaxed);
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

    /* Work that ran beside other work in part pays for the other part of the difference too. */
    restate(work, taken - said,
            (int64_t)((__int128)(taken - said) * work->charged / work->estimate));
    if (ended)
        done_up_to(work, now);
    if (!ended || atomic_load_explicit(&work->entry->key, memory_order_relaxed) !=
                      hami_what_key(&work->what))
        return;
    if (work->first) {
        hami_estimate_guessed(work->entry, taken);
    } else {
        owed = hami_estimate_measured(&compute->estimates, work->entry, taken);
        restate(work, owed, owed);
    }
}

/* What was charged for work that has yet to be done: by the horizon, which knows nothing of what the
 * device does for others; and by the measurements, while there are any, which do not tell how far
 * the work is that runs now. */
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

void hami_share_observe(struct hami_compute *compute, struct hami_share *share,
                        struct hami_bucket *bucket, int64_t now, uint64_t heartbeat,
                        uint64_t utilisation)
{
    if (heartbeat == atomic_load_explicit(&share->heartbeat, memory_order_relaxed)) {
        atomic_store_explicit(&share->in_force,
                              atomic_load_explicit(&bucket->correction, memory_order_relaxed),
                              memory_order_relaxed);
        return;
    }
    if (!hami_lock_try(&share->correcting))
        return;
    if (heartbeat == 0) {
        hami_correction_drop(&share->correction, bucket);
    } else {
        struct hami_reading reading = {
            .now = now,
            .heartbeat = heartbeat,
            .utilisation = utilisation,
            .in_force = atomic_load_explicit(&share->in_force, memory_order_relaxed),
            .ahead = ahead(share, now),
            .launch = atomic_load_explicit(&compute->estimates.mean, memory_order_relaxed),
        };

        hami_correction_use(&share->correction, bucket, &reading);
    }
    atomic_store_explicit(&share->heartbeat, heartbeat, memory_order_relaxed);
    hami_unlock(&share->correcting);
}

/* Interruptions, and a driver that waits for room in its queue, only ever make a call look longer. */
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
