/* The token bucket of one device, in the container's usage region: how much device time its
 * processes may still take. Every word may be changed at any moment by another process of the
 * container, and by a program that writes nonsense into it: what is read is clamped, and a lost
 * update costs accuracy and nothing else. */
#ifndef HAMI_BUCKET_H
#define HAMI_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/terms.h"
#include "hami_slice.h"

#define HAMI_MICROSECOND INT64_C(1000)
#define HAMI_MILLISECOND INT64_C(1000000)
#define HAMI_SECOND INT64_C(1000000000)

/* A bucket that fills while nobody launches holds so much: what a program misses because it gets no
 * processor for a while, or has nothing to do, it may make up for soon after. A gate that closed opens
 * again only when the level is well above nothing: tenants then take turns on the card in bursts
 * longer than its time slices, and a waiting thread wakes up seldom. */
#define HAMI_BUCKET_FULL (100 * HAMI_MILLISECOND)
#define HAMI_BUCKET_OPEN (10 * HAMI_MILLISECOND)
/* More debt than this is forgiven: a kernel of minutes must not stop a tenant for hours. */
#define HAMI_BUCKET_DEBT (2 * HAMI_SECOND)

/* Correction factors are fixed-point numbers of this unit; 0 stands for "not known". */
#define HAMI_CORRECTION_ONE UINT64_C(65536)
#define HAMI_CORRECTION_MOST (HAMI_CORRECTION_ONE * 16)
#define HAMI_CORRECTION_LEAST (HAMI_CORRECTION_ONE / 16)

static inline uint64_t hami_between(uint64_t value, uint64_t low, uint64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* Fill up to `now` at a rate of the device's time, HAMI_WHOLE for all of it. The first call ever
 * fills it to the brim. */
void hami_bucket_refill(struct hami_bucket *bucket, int64_t now, uint32_t rate);

/* Device time left, negative for debt. */
int64_t hami_bucket_level(const struct hami_bucket *bucket);

/* Count `time` as used (negative: give it back), and take it, corrected, from the level if
 * `limited`. True when debt was forgiven. */
bool hami_bucket_charge(struct hami_bucket *bucket, int64_t time, bool limited);

/* Time as it is counted, times a correction; times the one in force. */
int64_t hami_corrected(uint64_t correction, int64_t time);
int64_t hami_bucket_corrected(const struct hami_bucket *bucket, int64_t time);

/* Replace the correction, 0 for none. Debt was made by the old one and is restated. */
void hami_bucket_correct(struct hami_bucket *bucket, uint64_t correction);
/* Of the container's processes, one at a time puts the level right, and then none for a while: true
 * for that one. */
bool hami_bucket_claim(struct hami_bucket *bucket, int64_t now);
/* Replace the correction where it is nearly right: restate what was charged for work that is `ahead`
 * still, and give back (or take) `time` for what is done. */
void hami_bucket_settle(struct hami_bucket *bucket, uint64_t correction, int64_t ahead,
                        int64_t time);

/* Nothing was saved up until `now`: the level is HAMI_BUCKET_OPEN at most. */
void hami_bucket_spend(struct hami_bucket *bucket, int64_t now, uint32_t rate);

/* Nanoseconds until the level is HAMI_BUCKET_OPEN, at least 1. */
int64_t hami_bucket_opens_in(const struct hami_bucket *bucket, uint32_t rate);

#endif
