/* compute_fixture.h links: lib/compute/bucket.c lib/compute/estimate.c lib/compute/correction.c lib/compute/compute.c lib/compute/horizon.c lib/compute/settle.c */
#include "compute_fixture.h"

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

static void one_stream_pays_for_each_launch(void)
{
    struct hami_launcher launcher = {0};

    with_function(7, 2 * MS);
    for (int i = 0; i < 5; i++)
        EXPECT(launch(&launcher, 7, 100, S) == 0);
    EXPECT(charged(&launcher) == 10 * MS);
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

/* ---- Threads --------------------------------------------------------------------------------- */

#define THREADS 4
#define EACH 20000

static pthread_barrier_t together;

static void *launch_many(void *argument)
{
    struct hami_launcher launcher = {.random = (uint32_t)(uintptr_t)argument};

    for (int i = 0; i < EACH; i++) {
        struct hami_work work = work_of(7 + (uint64_t)(i % 3), (uint64_t)(uintptr_t)argument);
        struct hami_terms free_terms = {.rate = HAMI_WHOLE / 2, .counted = true};

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
    threads_pay_once();
    free(compute);
    return failures != 0;
}
