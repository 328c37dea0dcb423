/* links: lib/compute/bucket.c lib/compute/estimate.c lib/compute/correction.c lib/compute/compute.c lib/compute/horizon.c lib/compute/settle.c */
/* The parts of the compute share one by one; bucket_model_test.c has them all at work. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "compute/compute.h"
#include "expect.h"

#define US HAMI_MICROSECOND
#define MS HAMI_MILLISECOND
#define S HAMI_SECOND

/* ---- The bucket ------------------------------------------------------------------------------ */

static void it_fills_at_its_share_of_the_time(void)
{
    struct hami_bucket bucket = {0};

    hami_bucket_refill(&bucket, 10 * S, 50);
    EXPECT(hami_bucket_level(&bucket) == HAMI_BUCKET_FULL);
    EXPECT(!hami_bucket_charge(&bucket, HAMI_BUCKET_FULL + 100 * MS, true));
    EXPECT(hami_bucket_level(&bucket) == -100 * MS);
    hami_bucket_refill(&bucket, 10 * S + 100 * MS, 50);
    EXPECT(hami_bucket_level(&bucket) == -50 * MS);
    EXPECT(hami_bucket_opens_in(&bucket, 50) == 2 * (50 * MS + HAMI_BUCKET_OPEN) + 1);
    hami_bucket_refill(&bucket, 12 * S, 50);
    EXPECT(hami_bucket_level(&bucket) == HAMI_BUCKET_FULL);
    EXPECT(bucket.charged == (uint64_t)(HAMI_BUCKET_FULL + 100 * MS));
    hami_bucket_charge(&bucket, -HAMI_BUCKET_FULL, true);
    EXPECT(bucket.charged == (uint64_t)(100 * MS));
    EXPECT(hami_bucket_level(&bucket) == HAMI_BUCKET_FULL);
}

static void small_refills_lose_nothing(void)
{
    struct hami_bucket bucket = {0};

    hami_bucket_refill(&bucket, S, 1);
    hami_bucket_charge(&bucket, S, true);
    for (int64_t now = S; now <= 3 * S; now += 3 * US)
        hami_bucket_refill(&bucket, now, 1);
    EXPECT(llabs(hami_bucket_level(&bucket) - (HAMI_BUCKET_FULL - S + 20 * MS)) < 200 * US);
}

static void debt_has_an_end(void)
{
    struct hami_bucket bucket = {0};

    hami_bucket_refill(&bucket, S, 10);
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
            hami_bucket_refill(&bucket, 5 * S, 30);
            hami_bucket_refill(&bucket, 6 * S, 30);
            hami_bucket_correct(&bucket, (uint64_t)values[i]);
            EXPECT(llabs(hami_bucket_level(&bucket)) <= HAMI_BUCKET_DEBT);
            EXPECT(hami_bucket_opens_in(&bucket, 0) > 0);
            /* It is a bucket again after at most two seconds of its own time. */
            hami_bucket_correct(&bucket, 0);
            hami_bucket_refill(&bucket, 5 * S + 8 * S, 30);
            EXPECT(hami_bucket_level(&bucket) == HAMI_BUCKET_FULL);
        }
}

static void a_correction_restates_debt(void)
{
    struct hami_bucket bucket = {0};

    hami_bucket_refill(&bucket, S, 10);
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

/* ---- Estimates ------------------------------------------------------------------------------- */

static struct hami_compute *compute;

static struct hami_estimates *fresh(void)
{
    free(compute);
    compute = aligned_alloc(64, (sizeof(*compute) + 63) / 64 * 64);
    if (!compute)
        abort();
    memset((void *)compute, 0, sizeof(*compute));
    return &compute->estimates;
}

static void estimates_are_of_a_function_a_context_and_a_size(void)
{
    struct hami_estimates *table = fresh();

    for (uint64_t handle = 0; handle < 20; handle++)
        for (uint64_t context = 0; context < 4; context++)
            for (uint32_t size = 0; size < 10; size++) {
                struct hami_what what = {0x7f0000001000 + handle * 16, context, size};
                struct hami_estimate *entry = hami_estimate_make(table, &what);

                EXPECT(!hami_estimate_known(table, entry));
                hami_estimate_measured(table, entry,
                                       (int64_t)(handle * 1000 + context * 100 + size + 1) * US);
            }
    for (uint64_t handle = 0; handle < 20; handle++)
        for (uint64_t context = 0; context < 4; context++)
            for (uint32_t size = 0; size < 10; size++) {
                struct hami_what what = {0x7f0000001000 + handle * 16, context, size};
                struct hami_estimate *entry = hami_estimate_find(table, hami_what_key(&what));

                EXPECT(entry && entry->mean ==
                                    (int64_t)(handle * 1000 + context * 100 + size + 1) * US);
            }
}

static void sizes_are_orders_of_magnitude(void)
{
    EXPECT(hami_grid_size(1, 1, 1) == 0 && hami_grid_size(2, 1, 1) == 1);
    EXPECT(hami_grid_size(1024, 1024, 64) == 26 && hami_grid_size(0, 5, 5) == 0);
    EXPECT(hami_grid_size(65536, 65536, 1) == 32);
    EXPECT(hami_grid_size(UINT32_MAX, UINT32_MAX, UINT32_MAX) < HAMI_ESTIMATE_GRAPH);
}

static void an_interruption_is_not_believed_a_change_is(void)
{
    struct hami_estimates *table = fresh();
    struct hami_what what = {1, 1, 1};
    struct hami_estimate *entry = hami_estimate_make(table, &what);

    for (int i = 0; i < 30; i++)
        hami_estimate_measured(table, entry, 10 * US);
    hami_estimate_measured(table, entry, 2 * MS);
    EXPECT(entry->mean < 12 * US);
    for (int i = 0; i < 200; i++)
        hami_estimate_measured(table, entry, 2 * MS);
    EXPECT(entry->mean > 1900 * US);
    for (int i = 0; i < 200; i++)
        hami_estimate_measured(table, entry, 0);
    EXPECT(entry->mean > 0 && entry->mean < 30 * US);
}

static void what_is_forgotten_is_a_guess(void)
{
    struct hami_estimates *table = fresh();
    struct hami_what what = {1, 1, 7};
    struct hami_what graph = {2, 0, HAMI_ESTIMATE_GRAPH};
    struct hami_estimate *entry = hami_estimate_make(table, &what);
    struct hami_estimate *exec = hami_estimate_make(table, &graph);

    EXPECT(hami_estimate_guess(table, entry) == HAMI_BUCKET_FULL * 2 / 3);
    for (int i = 0; i < 10; i++) {
        hami_estimate_measured(table, entry, 3 * MS);
        hami_estimate_measured(table, exec, 5 * MS);
    }
    hami_estimate_suspect_all(table);
    EXPECT(!hami_estimate_known(table, entry) && hami_estimate_guess(table, entry) == 3 * MS);
    hami_estimate_measured(table, entry, 50 * US); /* something else by now: taken at its word */
    EXPECT(hami_estimate_known(table, entry) && entry->mean == 50 * US);
    hami_estimate_forget(table, &graph);
    EXPECT(!hami_estimate_known(table, exec) && exec->mean == 0);
    /* What was never seen is taken to be like the rest at first, then to be longer and longer, for
     * as long as a measurement is under way; and like the rest when there can be none. */
    exec->pending = 1;
    for (exec->launches = 0; exec->launches < 20; exec->launches++)
        EXPECT(hami_estimate_guess(table, exec) >= table->mean);
    EXPECT(hami_estimate_guess(table, exec) == HAMI_BUCKET_FULL * 2 / 3);
    exec->pending = 0;
    EXPECT(hami_estimate_guess(table, exec) == table->mean);
}

static void a_new_size_is_guessed_from_its_neighbours(void)
{
    struct hami_estimates *table = fresh();
    struct hami_what what = {1, 1, 10};

    hami_estimate_measured(table, hami_estimate_make(table, &what), MS);
    what.size = 12;
    EXPECT(hami_estimate_guess(table, hami_estimate_make(table, &what)) == 4 * MS);
    what.size = 8;
    EXPECT(hami_estimate_guess(table, hami_estimate_make(table, &what)) == MS);
}

static void a_full_table_gives_way(void)
{
    struct hami_estimates *table = fresh();

    for (uint64_t handle = 1; handle <= 3 * HAMI_ESTIMATES; handle++) {
        struct hami_what what = {handle * 4096, 1, 3};
        struct hami_estimate *entry = hami_estimate_make(table, &what);

        EXPECT(entry == hami_estimate_find(table, hami_what_key(&what)));
        hami_estimate_measured(table, entry, (int64_t)handle);
    }
}

/* ---- Charging -------------------------------------------------------------------------------- */

static struct hami_bucket bucket;
static struct hami_terms half = {.percent = 50, .counted = true, .limited = true};

static struct hami_work work_of(uint64_t function, uint64_t stream)
{
    return (struct hami_work){.what = {function, 1, 0},
                              .stream_key = hami_stream_key(stream, 0, NULL),
                              .bucket = &bucket,
                              .share = &compute->shares[0]};
}

/* Begin anew, with a function of `time`. */
static void with_function(uint64_t function, int64_t time)
{
    struct hami_what what = {function, 1, 0};

    fresh();
    memset((void *)&bucket, 0, sizeof(bucket));
    hami_estimate_measured(&compute->estimates, hami_estimate_make(&compute->estimates, &what),
                           time);
    compute->sample_cost = 1000 * S; /* no measurement unless a test wants one */
}

static int64_t launch(struct hami_launcher *launcher, uint64_t function, uint64_t stream,
                      int64_t now)
{
    struct hami_work work = work_of(function, stream);

    if (launcher->credit == 0)
        launcher->credit = 1000 * S;
    if (hami_admit_quickly(
            launcher, work.stream_key,
            hami_estimate_find(&compute->estimates, hami_what_key(&work.what))->mean))
        return 0;
    return hami_admit(compute, launcher, &work, &half, now);
}

/* What a thread took ahead and did not use. */
static int64_t unused(const struct hami_launcher *launcher)
{
    int64_t used = launcher->end > launcher->lease_used ? launcher->end : launcher->lease_used;

    return launcher->lease_end > used ? launcher->lease_end - used : 0;
}

/* What was charged for launches. */
static int64_t charged(const struct hami_launcher *launcher)
{
    EXPECT(unused(launcher) <= HAMI_LEASE);
    return (int64_t)bucket.charged - unused(launcher);
}

static int64_t horizon(const struct hami_launcher *launcher)
{
    return compute->shares[0].horizon - unused(launcher);
}

static void one_stream_pays_for_each_launch(void)
{
    struct hami_launcher launcher = {0};

    with_function(7, 2 * MS);
    for (int i = 0; i < 5; i++)
        EXPECT(launch(&launcher, 7, 100, S) == 0);
    EXPECT(charged(&launcher) == 10 * MS);
}

/* All streams' work is known to run side by side. */
static void side_by_side(void)
{
    compute->shares[0].overlap = HAMI_OVERLAP_MOST;
}

static void streams_side_by_side_pay_once(void)
{
    struct hami_launcher launcher = {0};

    with_function(7, 2 * MS);
    side_by_side();
    for (int i = 0; i < 40; i++)
        EXPECT(launch(&launcher, 7, 100 + (uint64_t)(i % 8), S) == 0);
    EXPECT(charged(&launcher) == 10 * MS);
    /* A device of its own is another horizon. */
    EXPECT(compute->shares[1].horizon == 0);
}

/* As long as that is not known they pay one after another, whether they are kept or not. */
static void new_streams_are_no_new_time(void)
{
    for (int kept = 0; kept < 2; kept++) {
        struct hami_launcher launcher = {0};

        with_function(7, 2 * MS);
        for (uint64_t i = 0; i < 40; i++) {
            half.limited = false;
            EXPECT(launch(&launcher, 7, kept ? 100 + i % 8 : 100 + i, S) == 0);
            half.limited = true;
            if (!kept)
                hami_compute_forget_stream(compute, hami_stream_key(100 + i, 0, NULL));
        }
        EXPECT(charged(&launcher) == 80 * MS);
    }
}

/* Work that waits at the gate for other work would never be seen beside it. */
static void one_launch_may_try(void)
{
    struct hami_launcher launcher = {0};
    struct hami_work work;

    with_function(7, 200 * MS);
    EXPECT(launch(&launcher, 7, 100, S) == 0);
    work = work_of(7, 200);
    EXPECT(hami_admit(compute, &launcher, &work, &half, S) == 0 && work.trial && work.sample);
    EXPECT(launch(&launcher, 7, 300, S) > 0);
    EXPECT(charged(&launcher) == 400 * MS);
    /* It did not wait: that is given back, and more may try. */
    hami_sampling(&work);
    hami_settle(compute, &work, S + 200 * MS, 0, work.lasts, 200 * MS, true);
    EXPECT(llabs(charged(&launcher) - 200 * MS) <= MS);
    EXPECT(compute->shares[0].trying == 0 && compute->shares[0].overlap >= HAMI_OVERLAP_ALL / 2);
}

/* Where streams wait for each other, whoever has gone meanwhile, all that they wait for is charged. */
static void what_waited_is_charged_when_its_stream_is_gone(void)
{
    struct hami_launcher launcher = {0};
    struct hami_work works[10];

    with_function(7, MS);
    side_by_side(); /* so it was */
    half.limited = false;
    for (uint64_t i = 0; i < 10; i++) {
        works[i] = work_of(7, 100 + i);
        EXPECT(hami_admit(compute, &launcher, &works[i], &half, S) == 0);
        hami_sampling(&works[i]);
        hami_compute_forget_stream(compute, works[i].stream_key);
    }
    half.limited = true;
    for (int64_t i = 0; i < 10; i++)
        hami_settle(compute, &works[i], S + (i + 1) * 8 * MS, 0, works[i].lasts, (i + 1) * 8 * MS,
                    true);
    EXPECT(charged(&launcher) >= 78 * MS);
}

static void idle_time_costs_nothing_and_is_not_saved_up(void)
{
    struct hami_launcher launcher = {0};

    with_function(7, 2 * MS);
    EXPECT(launch(&launcher, 7, 100, S) == 0);
    EXPECT(launch(&launcher, 7, 100, 50 * S) == 0);
    EXPECT(charged(&launcher) == 4 * MS);
    EXPECT(horizon(&launcher) == 50 * S + 2 * MS);
}

static void the_gate_closes_at_nothing_and_opens_well_above(void)
{
    struct hami_launcher launcher = {0};
    int64_t now = S;
    int64_t wait = 0;
    int admitted = 0;

    with_function(7, 2 * MS);
    while ((wait = launch(&launcher, 7, 100, now)) == 0)
        admitted++;
    EXPECT(admitted == (int)(HAMI_BUCKET_FULL / (2 * MS)));
    EXPECT(wait > 0 && wait <= 2 * HAMI_BUCKET_OPEN + 2 * MS);
    EXPECT(launch(&launcher, 7, 100, now + wait / 2) > 0);
    EXPECT(launch(&launcher, 7, 100, now + wait) == 0);
    /* Without a limit, or with more of one, it opens at once. */
    while (launch(&launcher, 7, 100, now + wait) == 0)
        ;
    half.limited = false;
    EXPECT(launch(&launcher, 7, 100, now + wait) == 0);
    half.limited = true;
}

/* Work that runs beside what is paid for need not wait, even when the gate is closed. */
static void what_is_paid_for_may_run(void)
{
    struct hami_launcher launcher = {0};
    struct hami_what small = {8, 1, 0};

    with_function(7, 500 * MS);
    side_by_side();
    hami_estimate_measured(&compute->estimates, hami_estimate_make(&compute->estimates, &small),
                           50 * US);
    EXPECT(launch(&launcher, 7, 100, S) == 0);
    EXPECT(launch(&launcher, 7, 100, S) > 0);
    for (int i = 0; i < 1000; i++)
        EXPECT(launch(&launcher, 8, 200, S) == 0);
    EXPECT(charged(&launcher) == 500 * MS);
}

/* A thread takes at most a millisecond ahead, and gives back what it did not use; with its first
 * launch, which may be its last, it takes nothing ahead. */
static void a_lease_is_short_and_comes_back(void)
{
    struct hami_launcher launcher = {0};

    with_function(7, 10 * US);
    EXPECT(launch(&launcher, 7, 100, S) == 0);
    EXPECT((int64_t)bucket.charged == 10 * US);
    EXPECT(launch(&launcher, 7, 100, S) == 0);
    EXPECT((int64_t)bucket.charged > 20 * US && (int64_t)bucket.charged <= 20 * US + HAMI_LEASE);
    launcher.launches = HAMI_LAUNCHES_AHEAD; /* time passes */
    EXPECT(launch(&launcher, 7, 100, 2 * S) == 0);
    launcher.launches = HAMI_LAUNCHES_AHEAD;
    EXPECT(launch(&launcher, 7, 100, 3 * S) == 0);
    EXPECT(charged(&launcher) == 40 * US);
    EXPECT((int64_t)bucket.charged <= 40 * US + HAMI_LEASE);
}

static void a_refused_launch_is_not_charged(void)
{
    struct hami_launcher launcher = {0};
    struct hami_work work;

    with_function(7, 5 * MS);
    EXPECT(launch(&launcher, 7, 100, S) == 0);
    work = work_of(7, 100);
    EXPECT(hami_admit(compute, &launcher, &work, &half, S) == 0);
    hami_admit_undo(&launcher, &work);
    EXPECT(charged(&launcher) == 5 * MS);
    EXPECT(launch(&launcher, 7, 100, S) == 0);
    EXPECT(charged(&launcher) == 10 * MS);
    EXPECT(horizon(&launcher) == S + 10 * MS);
}

/* ---- Settling -------------------------------------------------------------------------------- */

static struct hami_work admitted(struct hami_launcher *launcher, uint64_t function, uint64_t stream)
{
    struct hami_work work = work_of(function, stream);

    half.limited = false;
    EXPECT(hami_admit(compute, launcher, &work, &half, S) == 0);
    half.limited = true;
    return work;
}

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

static void observe(struct hami_share *share, int64_t now, int heartbeat, uint64_t utilisation,
                    uint64_t uncharged)
{
    struct hami_sight sight = {.heartbeat = (uint64_t)heartbeat,
                               .utilisation = utilisation,
                               .uncharged = uncharged};

    hami_share_observe(compute, share, &bucket, now, &sight);
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

/* ---- Threads --------------------------------------------------------------------------------- */

#define THREADS 4
#define EACH 20000

static pthread_barrier_t together;

static void *launch_many(void *argument)
{
    struct hami_launcher launcher = {.random = (uint32_t)(uintptr_t)argument};

    for (int i = 0; i < EACH; i++) {
        struct hami_work work = work_of(7 + (uint64_t)(i % 3), (uint64_t)(uintptr_t)argument);
        struct hami_terms free_terms = {.percent = 50, .counted = true};

        /* The clock stands still: nobody must get far ahead of the others. */
        if (i % 250 == 0)
            pthread_barrier_wait(&together);
        EXPECT(hami_admit(compute, &launcher, &work, &free_terms, S) == 0);
        if (work.sample) {
            hami_sampling(&work);
            hami_settle(compute, &work, S, 0, work.estimate, 100 * US, true);
        } else {
            hami_admit_unmeasured(&work);
        }
        if (i % 100 == 0)
            observe(work.share, S, i, 3000, 1);
        if (i % 500 == 0) {
            struct hami_work other = work_of(7, 1000 + (uint64_t)i);

            EXPECT(hami_admit(compute, &launcher, &other, &free_terms, S) == 0);
            hami_compute_forget_stream(compute, other.stream_key);
        }
        if (i % 7000 == 0)
            hami_estimate_suspect_all(&compute->estimates);
    }
    return NULL;
}

/* Streams side by side are as long as one of them, whoever was charged for what. */
static void threads_pay_once(void)
{
    const int64_t right = EACH * 100 * US;
    pthread_t threads[THREADS];

    fresh();
    side_by_side();
    memset((void *)&bucket, 0, sizeof(bucket));
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, launch_many, (void *)(uintptr_t)(i + 1));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    EXPECT((int64_t)bucket.charged > right * 9 / 10 && (int64_t)bucket.charged < right * 11 / 10);
}

int main(void)
{
    it_fills_at_its_share_of_the_time();
    small_refills_lose_nothing();
    debt_has_an_end();
    nonsense_in_the_bucket_is_survived();
    a_correction_restates_debt();
    estimates_are_of_a_function_a_context_and_a_size();
    sizes_are_orders_of_magnitude();
    an_interruption_is_not_believed_a_change_is();
    what_is_forgotten_is_a_guess();
    a_new_size_is_guessed_from_its_neighbours();
    a_full_table_gives_way();
    one_stream_pays_for_each_launch();
    streams_side_by_side_pay_once();
    new_streams_are_no_new_time();
    one_launch_may_try();
    what_waited_is_charged_when_its_stream_is_gone();
    idle_time_costs_nothing_and_is_not_saved_up();
    the_gate_closes_at_nothing_and_opens_well_above();
    what_is_paid_for_may_run();
    a_lease_is_short_and_comes_back();
    a_refused_launch_is_not_charged();
    what_took_longer_is_charged_longer();
    the_longest_of_streams_counts();
    the_end_of_a_stream_counts_as_long_as_it_is_there();
    the_first_measurement_settles_what_went_before();
    what_cannot_be_measured_is_like_the_rest();
    charges_are_corrected_by_what_the_monitor_sees();
    a_monitor_that_sees_nothing_corrects_nothing();
    without_a_monitor_nothing_is_corrected();
    what_was_free_corrects_nothing();
    threads_pay_once();
    free(compute);
    return failures != 0;
}
