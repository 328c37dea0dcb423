#include "compute/correction.h"

#include "compute/bucket.h"

/* Of what was gathered before, this much is kept at each reading: about two seconds count. */
#define KEPT_OF_10 5
/* But not less than so many launches: a tenant that has one long kernel every few seconds. */
#define FEWEST 3
/* A reading covers about one period. A process that did not look for longer missed some. */
#define LONGEST (5 * HAMI_SECOND)
/* Below this share of the time, whole percents say too little. */
#define LEAST_OF 50
/* So many readings of zero in a row while time is charged: the card has no figures per process
 * (under MPS), and what cannot be seen cannot correct. */
#define UNSEEN 3
/* Of what was charged too much or too little, so much is given back or taken at the next reading:
 * the figures are late, and what one seems to miss the next one often has. */
#define SETTLED_OF_10 6
/* What was charged while the correction was further off than this is no measure of anything. */
#define FAR_BELOW(correction) ((correction) / 2)
#define FAR_ABOVE(correction) ((correction) * 2)
/* Work that was launched without a limit may run for so many readings after one is imposed. */
#define UNPAID 3

static void begin(struct hami_correction *correction, const struct hami_bucket *bucket,
                  const struct hami_reading *reading)
{
    uint64_t charged = atomic_load_explicit(&bucket->charged, memory_order_relaxed);

    *correction = (struct hami_correction){.heartbeat = reading->heartbeat,
                                           .at = reading->now,
                                           .done = (int64_t)charged - reading->ahead,
                                           .unpaid = correction->unpaid};
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

/* The monitor's figures are late by anything up to a period: the truth lies between what comes of
 * taking them as fresh and as a period old, which are one once the load is steady. 0: too little
 * was seen to say anything. */
static uint64_t found(const struct hami_correction *correction, uint64_t before)
{
    int64_t least = correction->passed / LEAST_OF;
    uint64_t fresh, old, low, high;

    if (correction->busy <= least || correction->counted <= least ||
        correction->counted_before <= least)
        return 0;
    fresh = quotient(correction->busy, correction->counted);
    old = quotient(correction->busy, correction->counted_before);
    low = fresh < old ? fresh : old;
    high = fresh < old ? old : fresh;
    return high - low < low / 2 ? (low + high) / 2 : hami_between(before, low, high);
}

/* Beside the rate for what comes, what the last period was charged wrongly is made good. Not only
 * for its own sake: the more the tenants of a full card may launch the more they overlap, and the
 * more their elapsed time exceeds what they get. A rate alone follows that for long, one tenant
 * after the other.
 *
 * Except what was charged before the rate was nearly right, as when several tenants begin at once:
 * debt of that time is restated, and what it kept the tenant from is lost. To give it back over the
 * next ten seconds would take it from the others. */
static void publish(struct hami_correction *correction, struct hami_bucket *bucket,
                    const struct hami_reading *reading, int64_t counted, int64_t busy)
{
    uint64_t known = atomic_load_explicit(&bucket->correction, memory_order_relaxed);
    uint64_t before = known ? known : HAMI_CORRECTION_ONE;
    uint64_t now = found(correction, before);
    int64_t wrong = hami_corrected(reading->in_force, counted) - busy;

    if (reading->most != 0) {
        known = known < reading->most ? known : reading->most;
        now = now < reading->most ? now : reading->most;
        wrong = wrong > 0 ? wrong : 0;
    }
    if ((now == 0 && correction->busy == 0) || !hami_bucket_claim(bucket, reading->now))
        return;
    if (now != 0 && (now < FAR_BELOW(before) || now > FAR_ABOVE(before)))
        hami_bucket_correct(bucket, now);
    else
        hami_bucket_settle(bucket, now ? now : known, reading->ahead,
                           correction->unpaid > 0 ? 0 : wrong * SETTLED_OF_10 / 10);
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
        begin(correction, bucket, reading);
        return;
    }
    busy = passed / 10000 * (int64_t)(reading->utilisation < 10000 ? reading->utilisation : 10000);
    if (correction->counted * KEPT_OF_10 / 10 <
        FEWEST * hami_corrected(reading->in_force, reading->launch))
        kept = 10;
    gather(&correction->passed, kept, passed);
    gather(&correction->busy, kept, busy);
    gather(&correction->counted, kept, counted);
    gather(&correction->counted_before, kept, correction->previous);
    correction->heartbeat = reading->heartbeat;
    correction->at = reading->now;
    correction->done = done;
    correction->previous = counted;
    if (reading->unpaid)
        correction->unpaid = UNPAID;
    else if (correction->unpaid > 0)
        correction->unpaid--;
    correction->unseen = busy == 0 && counted > passed / LEAST_OF ? correction->unseen + 1 : 0;
    if (correction->unseen >= UNSEEN) {
        hami_bucket_correct(bucket, 0);
        begin(correction, bucket, reading);
    } else {
        publish(correction, bucket, reading, counted, busy);
    }
}

void hami_correction_restart(struct hami_correction *correction, uint64_t heartbeat)
{
    *correction = (struct hami_correction){.heartbeat = heartbeat, .unpaid = UNPAID};
}

void hami_correction_drop(struct hami_correction *correction, struct hami_bucket *bucket,
                          const struct hami_reading *reading)
{
    if (correction->at != 0)
        hami_bucket_correct(bucket, 0);
    begin(correction, bucket, reading);
}
