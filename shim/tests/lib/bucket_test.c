/* The bucket of device time. links: lib/compute/bucket.c lib/compute/correction.c */
#include <stdlib.h>
#include <string.h>

#include "compute/bucket.h"
#include "compute/correction.h"
#include "expect.h"

#define US HAMI_MICROSECOND
#define MS HAMI_MILLISECOND
#define S HAMI_SECOND
#define PERCENT (HAMI_WHOLE / 100)

static void it_fills_at_its_share_of_the_time(void)
{
    struct hami_bucket bucket = {0};

    hami_bucket_refill(&bucket, 10 * S, 50 * PERCENT);
    EXPECT(hami_bucket_level(&bucket) == HAMI_BUCKET_FULL);
    EXPECT(!hami_bucket_charge(&bucket, HAMI_BUCKET_FULL + 100 * MS, true));
    EXPECT(hami_bucket_level(&bucket) == -100 * MS);
    hami_bucket_refill(&bucket, 10 * S + 100 * MS, 50 * PERCENT);
    EXPECT(hami_bucket_level(&bucket) == -50 * MS);
    EXPECT(hami_bucket_opens_in(&bucket, 50 * PERCENT) == 2 * (50 * MS + HAMI_BUCKET_OPEN) + 1);
    hami_bucket_refill(&bucket, 12 * S, 50 * PERCENT);
    EXPECT(hami_bucket_level(&bucket) == HAMI_BUCKET_FULL);
    EXPECT(bucket.charged == (uint64_t)(HAMI_BUCKET_FULL + 100 * MS));
    hami_bucket_charge(&bucket, -HAMI_BUCKET_FULL, true);
    EXPECT(bucket.charged == (uint64_t)(100 * MS));
    EXPECT(hami_bucket_level(&bucket) == HAMI_BUCKET_FULL);
}

static void small_refills_lose_nothing(void)
{
    struct hami_bucket bucket = {0};

    hami_bucket_refill(&bucket, S, 1 * PERCENT);
    hami_bucket_charge(&bucket, S, true);
    for (int64_t now = S; now <= 3 * S; now += 3 * US)
        hami_bucket_refill(&bucket, now, 1 * PERCENT);
    EXPECT(llabs(hami_bucket_level(&bucket) - (HAMI_BUCKET_FULL - S + 20 * MS)) < 200 * US);
}

static void debt_has_an_end(void)
{
    struct hami_bucket bucket = {0};

    hami_bucket_refill(&bucket, S, 10 * PERCENT);
    EXPECT(!hami_bucket_charge(&bucket, S, true));
    EXPECT(hami_bucket_charge(&bucket, 100 * S, true));
    EXPECT(hami_bucket_level(&bucket) == -HAMI_BUCKET_DEBT);
    EXPECT(!hami_bucket_charge(&bucket, 100 * S, false));
    EXPECT(bucket.charged == (uint64_t)(201 * S));
}

/* The region is any program's of the container to scribble over. */
static void nonsense_in_the_bucket_is_survived(void)
{
    static const int64_t values[] = {INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX};

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        for (size_t j = 0; j < sizeof(values) / sizeof(values[0]); j++) {
            struct hami_bucket bucket = {.level = values[i],
                                         .refilled_at = (uint64_t)values[j],
                                         .charged = (uint64_t)values[i],
                                         .correction = (uint64_t)values[j]};

            hami_bucket_charge(&bucket, values[j] / 2, true);
            hami_bucket_refill(&bucket, 5 * S, 30 * PERCENT);
            hami_bucket_refill(&bucket, 6 * S, 30 * PERCENT);
            hami_bucket_correct(&bucket, (uint64_t)values[i]);
            EXPECT(llabs(hami_bucket_level(&bucket)) <= HAMI_BUCKET_DEBT);
            EXPECT(hami_bucket_opens_in(&bucket, 0) > 0);
            /* It is a bucket again after at most two seconds of its own time. */
            hami_bucket_correct(&bucket, 0);
            hami_bucket_refill(&bucket, 5 * S + 8 * S, 30 * PERCENT);
            EXPECT(hami_bucket_level(&bucket) == HAMI_BUCKET_FULL);
        }
}

static void a_correction_restates_debt(void)
{
    struct hami_bucket bucket = {0};

    hami_bucket_refill(&bucket, S, 10 * PERCENT);
    hami_bucket_charge(&bucket, HAMI_BUCKET_FULL + S, true);
    hami_bucket_correct(&bucket, HAMI_CORRECTION_ONE / 4);
    EXPECT(hami_bucket_level(&bucket) == -250 * MS);
    hami_bucket_charge(&bucket, 100 * MS, true);
    EXPECT(hami_bucket_level(&bucket) == -275 * MS);
    hami_bucket_correct(&bucket, 0);
    EXPECT(hami_bucket_level(&bucket) == -1100 * MS);
    hami_bucket_correct(&bucket, UINT64_MAX); /* as 16 */
    EXPECT(hami_bucket_corrected(&bucket, MS) == 16 * MS);
    EXPECT(hami_bucket_level(&bucket) == -HAMI_BUCKET_DEBT);
}

/* Several processes read the same figures at about the same time: one of them settles. */
static void one_settles_at_a_time(void)
{
    struct hami_bucket bucket = {0};

    EXPECT(hami_bucket_claim(&bucket, 5 * S) && !hami_bucket_claim(&bucket, 5 * S + 500 * MS));
    EXPECT(!hami_bucket_claim(&bucket, 5 * S - 100 * MS)); /* it asked for the time before */
    EXPECT(hami_bucket_claim(&bucket, 6 * S) && hami_bucket_claim(&bucket, 60 * S));
    bucket.settled = UINT64_MAX / 2; /* some program wrote that */
    EXPECT(hami_bucket_claim(&bucket, 61 * S) && !hami_bucket_claim(&bucket, 61 * S));
}

int main(void)
{
    one_settles_at_a_time();
    it_fills_at_its_share_of_the_time();
    small_refills_lose_nothing();
    debt_has_an_end();
    nonsense_in_the_bucket_is_survived();
    a_correction_restates_debt();
    return failures != 0;
}
