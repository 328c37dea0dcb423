#include "correction.h"

#include "bucket.h"

/* Of what was gathered before, this much is kept at each reading: about two seconds count. */
#define KEPT_OF_10 5
/* But not less than so many launches: a tenant that has one long kernel every few seconds. */
#define FEWEST 2
/* A reading covers about one period. A process that did not look for longer missed some. */
#define LONGEST (5 * HAMI_SECOND)
/* Below this share of the time, whole percents say too little. */
#define LEAST_OF 50
/* So many readings of zero in a row while time is charged: the card has no figures per process
 * (under MPS), and what cannot be seen cannot correct. */
#define UNSEEN 3
/* By how much a correction may run ahead of the figures. */
#define LEAST_BOOST (HAMI_CORRECTION_ONE * 6 / 7)
#define MOST_BOOST (HAMI_CORRECTION_ONE * 8 / 7)
/* What was charged while the correction was further off than this is no measure of anything. */
#define FAR_BELOW(correction) ((correction) * 2 / 3)
#define FAR_ABOVE(correction) ((correction) * 3 / 2)

static void begin(struct hami_correction *correction, const struct hami_reading *reading,
                  int64_t done)
{
    *correction = (struct hami_correction){.heartbeat = reading->heartbeat,
                                           .at = reading->now,
                                           .done = done};
}

static void gather(int64_t *sum, int64_t kept_of_10, int64_t time)
{
    *sum = *sum * kept_of_10 / 10 + (time > 0 ? time : 0);
}

static uint64_t quotient(int64_t busy, int64_t counted)
{
    uint64_t factor = (uint64_t)busy * HAMI_CORRECTION_ONE / (uint64_t)counted;

    if (factor > HAMI_CORRECTION_MOST)
        return HAMI_CORRECTION_MOST;
    return factor > HAMI_CORRECTION_LEAST ? factor : HAMI_CORRECTION_LEAST;
}

static uint64_t between(uint64_t value, uint64_t low, uint64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* The monitor's figures are late by anything up to a period: the truth lies between what comes of
 * taking them as fresh and as a period old, which are one once the load is steady.
 *
 * Then, what the last seconds were charged too much is given back with the next ones. Not for
 * the sake of those: the more the tenants of a full card may launch the more they overlap, and
 * the more their elapsed time exceeds what they get. Following that without getting ahead of it
 * takes long.
 *
 * Except what was charged before the correction was nearly right, as when several tenants begin at
 * once: debt of that time is restated, and what it kept the tenant from is lost. To give it back over
 * the next ten seconds would take it from the others. */
static void publish(struct hami_correction *correction, struct hami_bucket *bucket)
{
    uint64_t used = atomic_load_explicit(&bucket->correction, memory_order_relaxed);
    uint64_t before = used ? used : HAMI_CORRECTION_ONE;
    int64_t least = correction->passed / LEAST_OF;
    uint64_t fresh, old, low, high;

    if (correction->busy <= least || correction->counted <= least ||
        correction->counted_before <= least || correction->paid <= least)
        return;
    fresh = quotient(correction->busy, correction->counted);
    old = quotient(correction->busy, correction->counted_before);
    low = fresh < old ? fresh : old;
    high = fresh < old ? old : fresh;
    used = between(used ? used : HAMI_CORRECTION_ONE, low, high);
    if (high - low < low / 2) {
        used = (low + high) / 2;
        used = used * between(quotient(correction->busy, correction->paid), LEAST_BOOST,
                              MOST_BOOST) / HAMI_CORRECTION_ONE;
    }
    used = between(used, HAMI_CORRECTION_LEAST, HAMI_CORRECTION_MOST);
    hami_bucket_correct(bucket, used);
    if (used < FAR_BELOW(before) || used > FAR_ABOVE(before))
        correction->paid = correction->busy;
}

void hami_correction_use(struct hami_correction *correction, struct hami_bucket *bucket,
                         const struct hami_reading *reading)
{
    uint64_t charged = atomic_load_explicit(&bucket->charged, memory_order_relaxed);
    int64_t done = (int64_t)charged - reading->ahead;
    int64_t passed = reading->now - correction->at;
    int64_t counted = done - correction->done;
    int64_t kept = KEPT_OF_10;
    int64_t busy;

    if (reading->heartbeat == correction->heartbeat)
        return;
    atomic_store_explicit(&bucket->observed, charged, memory_order_relaxed);
    if (correction->at == 0 || passed > LONGEST) {
        begin(correction, reading, done);
        return;
    }
    busy = passed / 10000 * (int64_t)(reading->utilisation < 10000 ? reading->utilisation : 10000);
    if (correction->counted * KEPT_OF_10 / 10 < FEWEST * reading->launch)
        kept = 10;
    gather(&correction->passed, kept, passed);
    gather(&correction->busy, kept, busy);
    gather(&correction->counted, kept, counted);
    gather(&correction->paid, kept, hami_corrected(reading->in_force, counted));
    gather(&correction->counted_before, kept, correction->previous);
    correction->heartbeat = reading->heartbeat;
    correction->at = reading->now;
    correction->done = done;
    correction->previous = counted;
    correction->unseen = busy == 0 && counted > passed / LEAST_OF ? correction->unseen + 1 : 0;
    if (correction->unseen >= UNSEEN) {
        hami_bucket_correct(bucket, 0);
        begin(correction, reading, done);
    } else {
        publish(correction, bucket);
    }
}

void hami_correction_restart(struct hami_correction *correction, uint64_t heartbeat)
{
    *correction = (struct hami_correction){.heartbeat = heartbeat};
}

void hami_correction_drop(struct hami_correction *correction, struct hami_bucket *bucket)
{
    if (correction->at == 0)
        return;
    *correction = (struct hami_correction){0};
    hami_bucket_correct(bucket, 0);
}
