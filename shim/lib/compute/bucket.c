#include "compute/bucket.h"

/* What an idle bucket is filled for at most, so that the multiplication cannot overflow: enough for
 * the greatest debt at one percent. */
#define LONGEST_REFILL (400 * HAMI_SECOND)
/* Refills of less are left for later: at one percent they would round to nothing. */
#define SHORTEST_REFILL (20 * HAMI_MICROSECOND)
/* Each process reads the figures of about a second, one a little earlier than another. */
#define SOONEST_CLAIM (700 * HAMI_MILLISECOND)

static int64_t clamp(int64_t level)
{
    if (level > HAMI_BUCKET_FULL)
        return HAMI_BUCKET_FULL;
    return level < -HAMI_BUCKET_DEBT ? -HAMI_BUCKET_DEBT : level;
}

int64_t hami_bucket_level(const struct hami_bucket *bucket)
{
    return clamp(atomic_load_explicit(&bucket->level, memory_order_relaxed));
}

/* True when debt was forgiven. */
static bool add(struct hami_bucket *bucket, int64_t time)
{
    int64_t found = atomic_load_explicit(&bucket->level, memory_order_relaxed);
    int64_t sum;

    do {
        if (__builtin_add_overflow(clamp(found), time, &sum))
            sum = time < 0 ? -HAMI_BUCKET_DEBT - 1 : HAMI_BUCKET_FULL;
    } while (!atomic_compare_exchange_weak_explicit(&bucket->level, &found, clamp(sum),
                                                    memory_order_relaxed, memory_order_relaxed));
    return sum < -HAMI_BUCKET_DEBT;
}

void hami_bucket_refill(struct hami_bucket *bucket, int64_t now, uint32_t rate)
{
    uint64_t found = atomic_load_explicit(&bucket->refilled_at, memory_order_relaxed);
    int64_t elapsed = (int64_t)((uint64_t)now - found);

    /* Refilled in the future: by a program's nonsense, or before the machine was restarted. */
    if (elapsed > 0 && elapsed < SHORTEST_REFILL)
        return;
    if (elapsed <= 0 && elapsed > -HAMI_SECOND)
        return;
    /* Whoever moves the time on is the one to add what it is worth. */
    if (!atomic_compare_exchange_strong_explicit(&bucket->refilled_at, &found, (uint64_t)now,
                                                 memory_order_relaxed, memory_order_relaxed))
        return;
    if (found == 0)
        add(bucket, HAMI_BUCKET_FULL);
    else if (elapsed > 0)
        add(bucket, (elapsed < LONGEST_REFILL ? elapsed : LONGEST_REFILL) * rate / HAMI_WHOLE);
}

static int64_t effective(uint64_t correction)
{
    if (correction == 0)
        return (int64_t)HAMI_CORRECTION_ONE;
    if (correction > HAMI_CORRECTION_MOST)
        return (int64_t)HAMI_CORRECTION_MOST;
    return (int64_t)(correction < HAMI_CORRECTION_LEAST ? HAMI_CORRECTION_LEAST : correction);
}

int64_t hami_corrected(uint64_t correction, int64_t time)
{
    const int64_t most = 1000 * HAMI_SECOND; /* so that the product fits */

    time = time > most ? most : time < -most ? -most : time;
    return time * effective(correction) / (int64_t)HAMI_CORRECTION_ONE;
}

int64_t hami_bucket_corrected(const struct hami_bucket *bucket, int64_t time)
{
    return hami_corrected(atomic_load_explicit(&bucket->correction, memory_order_relaxed), time);
}

bool hami_bucket_charge(struct hami_bucket *bucket, int64_t time, bool limited)
{
    if (time == 0)
        return false;
    atomic_fetch_add_explicit(&bucket->charged, (uint64_t)time, memory_order_relaxed);
    return limited && add(bucket, -hami_bucket_corrected(bucket, time));
}

void hami_bucket_correct(struct hami_bucket *bucket, uint64_t correction)
{
    uint64_t found = atomic_load_explicit(&bucket->correction, memory_order_relaxed);
    int64_t level = hami_bucket_level(bucket);

    /* Several processes of the container come to the same figure at about the same time: each
     * restates the debt from what it replaced, so that their steps make up one. */
    if (found == correction ||
        !atomic_compare_exchange_strong_explicit(&bucket->correction, &found, correction,
                                                 memory_order_relaxed, memory_order_relaxed))
        return;
    if (level < 0)
        add(bucket, level * effective(correction) / effective(found) - level);
}

bool hami_bucket_claim(struct hami_bucket *bucket, int64_t now)
{
    uint64_t found = atomic_load_explicit(&bucket->settled, memory_order_relaxed);
    int64_t elapsed = (int64_t)((uint64_t)now - found);

    if (found != 0 && elapsed > -SOONEST_CLAIM && elapsed < SOONEST_CLAIM)
        return false;
    return atomic_compare_exchange_strong_explicit(&bucket->settled, &found, (uint64_t)now,
                                                   memory_order_relaxed, memory_order_relaxed);
}

void hami_bucket_settle(struct hami_bucket *bucket, uint64_t correction, int64_t ahead,
                        int64_t time)
{
    uint64_t found =
        atomic_exchange_explicit(&bucket->correction, correction, memory_order_relaxed);

    add(bucket, hami_corrected(found, ahead) - hami_corrected(correction, ahead) + time);
}

void hami_bucket_spend(struct hami_bucket *bucket, int64_t now, uint32_t rate)
{
    int64_t saved;

    hami_bucket_refill(bucket, now, rate);
    saved = hami_bucket_level(bucket) - HAMI_BUCKET_OPEN;
    if (saved > 0)
        add(bucket, -saved);
}

int64_t hami_bucket_opens_in(const struct hami_bucket *bucket, uint32_t rate)
{
    int64_t missing = HAMI_BUCKET_OPEN - hami_bucket_level(bucket);

    if (missing <= 0)
        return 1;
    return missing * HAMI_WHOLE / (rate > 0 ? (int64_t)rate : 1) + 1;
}
