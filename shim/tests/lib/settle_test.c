/* What measurements and the monitor put right. links: lib/compute/bucket.c lib/compute/estimate.c lib/compute/correction.c lib/compute/compute.c lib/compute/horizon.c lib/compute/settle.c */
#include "compute_fixture.h"

static void what_took_longer_is_charged_longer(void)
{
    struct hami_launcher launcher = {0};
    struct hami_work work;

    with_function(7, 5 * MS);
    work = admitted(&launcher, 7, 100);
    hami_sampling(&work);
    hami_settle(compute, &work, S, 0, 5 * MS, 30 * MS, false);
    EXPECT(charged(&launcher) == 30 * MS);
    hami_settle(compute, &work, S, 0, 30 * MS, 20 * MS, true);
    EXPECT(charged(&launcher) == 20 * MS);
    EXPECT(horizon(&launcher) == S + 20 * MS);
    EXPECT(work.entry->mean > 5 * MS && work.entry->pending == 0);
}

/* Of two launches side by side the longer one counts, whichever was charged. */
static void the_longest_of_streams_counts(void)
{
    for (int order = 0; order < 2; order++) {
        struct hami_launcher launcher = {0};
        struct hami_work first, second;

        with_function(7, 8 * MS);
        side_by_side();
        first = admitted(&launcher, 7, 100);
        second = admitted(&launcher, 7, 200);
        EXPECT(charged(&launcher) == 8 * MS);
        hami_settle(compute, order ? &second : &first, S, 0, 8 * MS, MS, true);
        EXPECT(charged(&launcher) == 8 * MS);
        hami_settle(compute, order ? &first : &second, S, 0, 8 * MS, 3 * MS, true);
        EXPECT(charged(&launcher) == 3 * MS);
    }
}

/* However many streams come and go, one that stays is not lost sight of. */
static void the_end_of_a_stream_counts_as_long_as_it_is_there(void)
{
    struct hami_launcher launcher = {0};
    struct hami_work first;

    with_function(7, 8 * MS);
    side_by_side();
    first = admitted(&launcher, 7, 100);
    for (uint64_t i = 0; i < 3 * HAMI_STREAMS_LISTED; i++)
        hami_compute_forget_stream(compute, admitted(&launcher, 7, 1000 + i).stream_key);
    EXPECT(charged(&launcher) == 8 * MS * (3 * HAMI_STREAMS_LISTED + 1) / 64);
    hami_settle(compute, &first, S, 0, 8 * MS, 48 * MS, true);
    EXPECT(charged(&launcher) == 48 * MS);
}

static void the_first_measurement_settles_what_went_before(void)
{
    struct hami_launcher launcher = {0};
    struct hami_work works[6];

    with_function(7, MS);
    for (int i = 0; i < 6; i++) {
        works[i] = admitted(&launcher, 9, 100);
        EXPECT(works[i].first == (i == 0));
        EXPECT(works[i].sample == (i < 2));
        if (works[i].sample)
            hami_sampling(&works[i]);
        else
            hami_admit_unmeasured(&works[i]);
    }
    hami_settle(compute, &works[0], S, 0, works[0].estimate, 40 * MS, true);
    EXPECT(works[0].entry->samples == 0);
    hami_settle(compute, &works[1], S, 0, works[1].estimate, 30 * MS, true);
    EXPECT(llabs(charged(&launcher) - (40 + 30 + 4 * 30) * MS) < 10 * US);
    EXPECT(works[0].entry->samples == 1 && works[0].entry->mean == 30 * MS);
    EXPECT(llabs(horizon(&launcher) - (S + 190 * MS)) < 10 * US);
}

static void what_cannot_be_measured_is_like_the_rest(void)
{
    struct hami_launcher launcher = {0};

    with_function(7, MS);
    for (int i = 0; i < 50; i++) {
        struct hami_work work = work_of(9, 100);

        half.limited = false;
        EXPECT(hami_admit(compute, &launcher, &work, &half, S) == 0);
        half.limited = true;
        hami_admit_unmeasured(&work);
    }
    EXPECT(charged(&launcher) <= 50 * MS + 20 * MS);
}

/* ---- The monitor ----------------------------------------------------------------------------- */

static uint64_t corrected_after(int readings, int64_t charge, uint64_t percent)
{
    struct hami_correction correction = {0};
    struct hami_reading reading = {.now = S, .heartbeat = 40, .utilisation = percent * 100};

    memset((void *)&bucket, 0, sizeof(bucket));
    for (int i = 0; i < readings; i++) {
        hami_correction_use(&correction, &bucket, &reading);
        hami_correction_use(&correction, &bucket, &reading); /* the same again says nothing */
        hami_bucket_charge(&bucket, charge, true);
        reading.in_force = bucket.correction;
        reading.now += S;
        reading.heartbeat++;
    }
    return bucket.correction;
}

static void charges_are_corrected_by_what_the_monitor_sees(void)
{
    uint64_t half_of_it = corrected_after(12, 600 * MS, 30);
    uint64_t twice_that = corrected_after(12, 300 * MS, 60);

    EXPECT(half_of_it > HAMI_CORRECTION_ONE * 48 / 100 &&
           half_of_it < HAMI_CORRECTION_ONE * 52 / 100);
    EXPECT(twice_that > HAMI_CORRECTION_ONE * 196 / 100 &&
           twice_that < HAMI_CORRECTION_ONE * 204 / 100);
    EXPECT(corrected_after(1, 500 * MS, 50) == 0);
    EXPECT(corrected_after(20, 30 * MS, 100) == HAMI_CORRECTION_MOST);
    EXPECT(corrected_after(20, 1000 * MS, 3) >= HAMI_CORRECTION_LEAST);
    EXPECT(corrected_after(12, 10 * MS, 50) == 0); /* too little to tell */
}

/* MPS has no figures per process: what cannot be seen is not free. */
static void a_monitor_that_sees_nothing_corrects_nothing(void)
{
    EXPECT(corrected_after(12, 500 * MS, 0) == 0);
}

static void without_a_monitor_nothing_is_corrected(void)
{
    struct hami_share *share;

    fresh();
    memset((void *)&bucket, 0, sizeof(bucket));
    share = &compute->shares[0];
    for (int i = 1; i < 12; i++) {
        hami_bucket_charge(&bucket, 600 * MS, true);
        observe(share, i * S, i, 3000, 1);
        observe(share, i * S + MS, i, 3000, 1);
    }
    EXPECT(bucket.correction > 0 && bucket.correction < HAMI_CORRECTION_ONE * 6 / 10);
    observe(share, 13 * S, 0, 0, 1);
    EXPECT(bucket.correction == 0);
}

static bool is_about_one(uint64_t correction)
{
    return correction > HAMI_CORRECTION_ONE * 90 / 100 &&
           correction < HAMI_CORRECTION_ONE * 110 / 100;
}

/* While there was no limit nothing was charged, and the monitor saw a busy device: that says nothing
 * of what charges are worth. */
static void what_was_free_corrects_nothing(void)
{
    struct hami_share *share;

    fresh();
    memset((void *)&bucket, 0, sizeof(bucket));
    share = &compute->shares[0];
    for (int i = 1; i < 20; i++) {
        hami_bucket_charge(&bucket, 300 * MS, true);
        observe(share, i * S, i, 3000, 1);
    }
    EXPECT(is_about_one(bucket.correction));
    for (int i = 22; i < 30; i++) {
        hami_bucket_charge(&bucket, 300 * MS, true);
        observe(share, i * S, i, i < 24 ? 10000 : 3000, 2);
        EXPECT(is_about_one(bucket.correction));
    }
}

int main(void)
{
    what_took_longer_is_charged_longer();
    the_longest_of_streams_counts();
    the_end_of_a_stream_counts_as_long_as_it_is_there();
    the_first_measurement_settles_what_went_before();
    what_cannot_be_measured_is_like_the_rest();
    charges_are_corrected_by_what_the_monitor_sees();
    a_monitor_that_sees_nothing_corrects_nothing();
    without_a_monitor_nothing_is_corrected();
    what_was_free_corrects_nothing();
    free(compute);
    return failures != 0;
}
