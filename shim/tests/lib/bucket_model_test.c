/* links: tests/lib/model_card.c tests/lib/model_tenant.c lib/compute/bucket.c lib/compute/estimate.c lib/compute/correction.c lib/compute/compute.c lib/compute/horizon.c lib/compute/settle.c lib/compute/samples.c */
/* Does the compute share hold? The library's own code for estimates, horizon, bucket, correction
 * and measurements, in several processes at once, on a card in virtual time: hours of it in
 * seconds, and the same each time. The truth is the card's count of who had it for how long.
 *
 * With arguments it prints a line of CSV per tenant of each case that has the first one in its
 * name: case, the monitor's delay, tenant, cap, expected share, share, correction; or, where
 * somebody writes over the bucket: case, delay, window, cap, share. */
#include <string.h>

#include "compute/settle.h"
#include "expect.h"
#include "model_scenes.h"

/* The monitor writes each second, or more often, what it saw in a second that ended a little earlier,
 * in ticks. */
#define TICK (100 * MS)
#define TICKS 10 /* in a second */
#define OFTEN 5
#define HISTORY 64
/* Sanitizers look at what the code does and not at shares, and are slow: some cases will do. */
#if defined(__SANITIZE_THREAD__)
#define CASE_STEP 16
#elif defined(__SANITIZE_ADDRESS__)
#define CASE_STEP 4
#else
#define CASE_STEP 1
#endif
#define DELAY_STEP 3

static struct host hosts[MODEL_PROCESSES];
static struct container containers[4];
static int host_count, container_of[MODEL_PROCESSES];
static struct model_card card;
static int64_t ticks;
static int delay = 1; /* of the monitor's figures, in ticks */
static int period = TICKS;
static bool verbose;

/* ---- The world ------------------------------------------------------------------------------- */

static void add_host(int tenant, const struct tenant *its, int number)
{
    struct host *host = &hosts[host_count];

    host->tenant = its;
    host->container = &containers[tenant];
    host->random = (uint32_t)(12345 + host_count * 77);
    host->launcher.random = (uint32_t)(99 + host_count);
    host->since = its->starts + (its->in_turn ? number * its->on : 0);
    host->wakes = S + host_count * 10 * US + host->since;
    card.processes[card.count++] = &host->device;
    container_of[host_count++] = tenant;
}

static void begin(const struct scene *scene)
{
    for (int i = 0; i < host_count; i++)
        model_end(&hosts[i]);
    memset(hosts, 0, sizeof(hosts));
    memset(containers, 0, sizeof(containers));
    card = (struct model_card){.current = -1, .now = S};
    host_count = 0;
    ticks = 0;
    for (int i = 0; i < 4 && scene->tenants[i].percent; i++)
        for (int p = 0; p == 0 || p < scene->tenants[i].processes; p++)
            add_host(i, &scene->tenants[i], p);
}

static int64_t busy(int tenant)
{
    int64_t sum = 0;

    for (int i = 0; i < host_count; i++)
        if (container_of[i] == tenant)
            sum += hosts[i].device.busy;
    return sum;
}

static int64_t past[HISTORY][MODEL_PROCESSES];

static uint64_t seen_of(int host, int64_t tick)
{
    int64_t to = past[(tick - delay + HISTORY) % HISTORY][host];
    int64_t from = past[(tick - delay - TICKS + HISTORY) % HISTORY][host];

    return (uint64_t)(to - from) * 100 / (uint64_t)(TICKS * TICK);
}

/* NVML's figures are whole percents of each process; the monitor adds up those of a container. */
static void monitor(int64_t tick, bool writes)
{
    uint64_t percent[4] = {0};

    if (tick == 0)
        memset(past, 0, sizeof(past));
    for (int i = 0; i < host_count; i++)
        past[tick % HISTORY][i] = hosts[i].device.busy;
    if (!writes || tick % period)
        return;
    for (int i = 0; i < host_count; i++)
        percent[container_of[i]] += seen_of(i, tick);
    for (int i = 0; i < 4; i++) {
        containers[i].utilisation = percent[i] * 100;
        containers[i].contention = 0;
        for (int other = 0; other < 4; other++)
            if (other != i && percent[other] > 0)
                containers[i].contention = HAMI_CONTENTION_OTHERS;
        containers[i].heartbeat = (uint64_t)(100 + tick / period);
    }
}

static void run_until(int64_t to, bool monitored)
{
    while (card.now < to) {
        int64_t next = to < S + ticks * TICK ? to : S + ticks * TICK;
        int who = -1;

        for (int i = 0; i < host_count; i++)
            if (hosts[i].wakes < next) {
                next = hosts[i].wakes;
                who = i;
            }
        model_run(&card, next);
        if (who >= 0)
            model_step(&hosts[who], &card);
        else if (next < to)
            monitor(ticks++, monitored);
    }
}

/* ---- Shares ---------------------------------------------------------------------------------- */

/* Whether a tenant's share is right: within 3 points, or what two of its launches make out. */
static bool judge(const struct scene *scene, int tenant, double share, int64_t window)
{
    const struct tenant *its = &scene->tenants[tenant];
    double right = its->share > 0 ? its->share : its->percent;
    double least = its->least > 0 ? its->least : right;
    double launch = (double)its->kernel * (its->graph ? its->graph : 1);
    double rule = 200.0 * launch / (double)window;
    double tolerance = rule > 3 ? rule : 3;

    if (verbose)
        printf("\"%s\",%d,%d,%u,%.2f,%.2f,%.3f\n", scene->name, delay, tenant, its->percent, right,
               share, (double)containers[tenant].bucket.correction / (double)HAMI_CORRECTION_ONE);
    if (share <= right + tolerance && share >= least - tolerance)
        return true;
    fprintf(stderr, "%s, figures %d ms old: tenant %d has %.1f %%, right is %.1f +- %.1f\n",
            scene->name, delay * 100, tenant, share, right, tolerance);
    return false;
}

/* Windows of ten seconds, after five. */
static void run(const struct scene *scene)
{
    const int64_t window = 10 * S;
    double shares = 0, caps = 0;
    bool backlogged = !scene->without_monitor;
    int64_t from[4];

    begin(scene);
    run_until(6 * S, !scene->without_monitor);
    for (int i = 0; i < 4; i++)
        from[i] = busy(i);
    run_until(6 * S + window, !scene->without_monitor);
    for (int i = 0; i < 4 && scene->tenants[i].percent; i++) {
        const struct tenant *tenant = &scene->tenants[i];
        double share = 100.0 * (double)(busy(i) - from[i]) / (double)window;

        EXPECT(judge(scene, i, share, window));
        shares += share;
        caps += tenant->share > 0 ? tenant->share : tenant->percent;
        backlogged = backlogged && tenant->style == BACKLOGGED;
    }
    /* Nobody who keeps to the rules is taken for somebody who does not. */
    for (int i = 0; i < host_count; i++)
        EXPECT(!hosts[i].compute.shares[0].distrusts);
    if (!backlogged || caps < 99 || shares >= 95)
        return;
    fprintf(stderr, "%s: the card is used for %.1f %% only\n", scene->name, shares);
    EXPECT(shares >= 95);
}

/* ---- What is written over the bucket --------------------------------------------------------- */

/* The monitor needs a while to see it, and what was taken until then a while to be paid for; after
 * that it holds in every window of ten seconds. The figures are whole percents of each process,
 * rounded down. */
static void run_scribbled(const struct scene *scene)
{
    const struct tenant *tenant = &scene->tenants[0];
    const int64_t window = 10 * S;
    double most = tenant->percent + (tenant->processes > 1 ? 2.5 + 0.5 * tenant->processes : 3);
    double share = 0;

    begin(scene);
    run_until(21 * S, true);
    for (int n = 0; n < 3; n++) {
        int64_t from = busy(0);

        run_until(card.now + window, true);
        share = 100.0 * (double)(busy(0) - from) / (double)window;
        if (verbose)
            printf("\"%s\",%d,%d,%u,%.2f\n", scene->name, delay, n, tenant->percent, share);
        if (share > most)
            fprintf(stderr, "%s, figures %d ms old: %.1f %%\n", scene->name, delay * 100, share);
        EXPECT(share <= most);
    }
    EXPECT(share >= tenant->percent / 2 || tenant->style == BURSTY);
}

/* ---- Throughput ------------------------------------------------------------------------------ */

static int64_t kernels_of(const struct tenant *tenant, uint32_t percent)
{
    struct scene scene = {.name = "throughput", .tenants = {*tenant}};
    int64_t from;

    scene.tenants[0].percent = percent;
    begin(&scene);
    run_until(4 * S, true);
    from = hosts[0].device.kernels;
    run_until(9 * S, true);
    return hosts[0].device.kernels - from;
}

/* What runs side by side without a limit does so under one. */
static void streams_are_not_serialised(void)
{
    static const struct tenant tenants[] = {
        {.kernel = 500 * US, .streams = 8, .width = 125, FORCED},
        {.kernel = 2 * MS, .streams = 8, .width = 125, FORCED},
        {.kernel = 10 * MS, .streams = 8, .width = 125, FORCED},
        {.kernel = 20 * US, .streams = 8, .width = 125, FORCED},
        {.kernel = 20 * MS, .streams = 4, .width = 250, FORCED},
        {.kernel = MS, .streams = 16, .width = 125, FORCED},
        {.kernel = 500 * US, .streams = 8, FORCED},
        {.kernel = 2 * MS, .functions = 40, .streams = 6, .width = 300, FORCED},
    };

    for (size_t i = 0; i < sizeof(tenants) / sizeof(tenants[0]); i += CASE_STEP) {
        int64_t all = kernels_of(&tenants[i], 100);

        for (uint32_t percent = 20; percent <= 80; percent += 30) {
            double part = 100.0 * (double)kernels_of(&tenants[i], percent) / (double)all;

            if (verbose)
                printf("throughput %zu at %u: %.1f %%\n", i, percent, part);
            EXPECT(part >= 0.9 * percent && part <= percent + 3);
        }
    }
}

/* ---- Moments --------------------------------------------------------------------------------- */

/* A limit that changes holds within a tenth of a second. */
static void a_change_holds_soon(void)
{
    struct scene scene = {.name = "change",
                          .tenants = {{.percent = 20, .kernel = 100 * US, FORCED,
                                       .percent_later = 80, .later = 5 * S}}};
    int64_t from;

    begin(&scene);
    run_until(5 * S + 100 * MS, true);
    from = busy(0);
    run_until(5 * S + 600 * MS, true);
    EXPECT(busy(0) - from > 370 * MS && busy(0) - from < 430 * MS);

    scene.tenants[0].percent = 80;
    scene.tenants[0].percent_later = 20;
    begin(&scene);
    run_until(5 * S + 100 * MS, true);
    from = busy(0);
    run_until(5 * S + 600 * MS, true);
    EXPECT(busy(0) - from > 70 * MS && busy(0) - from < 130 * MS);
}

/* A share that becomes smaller is kept at once: nothing that was saved of the larger one is spent. */
static void what_was_saved_of_more_is_not_spent(void)
{
    struct hami_sight sight = {.heartbeat = 1, .rate = HAMI_WHOLE};
    struct hami_bucket bucket = {0};
    struct host *host = &hosts[0];

    begin(&(struct scene){.name = "saved"});
    hami_bucket_refill(&bucket, S, HAMI_WHOLE);
    hami_bucket_refill(&host->compute.shares[0].own, S, HAMI_WHOLE);
    hami_share_observe(&host->compute, &host->compute.shares[0], &bucket, S, &sight);
    sight.rate = HAMI_WHOLE * 9 / 10; /* by a little */
    hami_share_observe(&host->compute, &host->compute.shares[0], &bucket, S, &sight);
    EXPECT(hami_bucket_level(&bucket) == HAMI_BUCKET_FULL);
    sight.rate = HAMI_WHOLE / 10;
    hami_share_observe(&host->compute, &host->compute.shares[0], &bucket, S, &sight);
    EXPECT(hami_bucket_level(&bucket) == HAMI_BUCKET_OPEN);
    EXPECT(hami_bucket_level(&host->compute.shares[0].own) == HAMI_BUCKET_OPEN);
}

/* A program that begins by queueing long kernels is held back before anything is known of them. */
static void the_unknown_is_not_free(void)
{
    struct scene scene = {.name = "unknown",
                          .tenants = {{.percent = 10, .kernel = 200 * MS, FORCED}}};

    begin(&scene);
    run_until(S + 300 * MS, true);
    EXPECT(hosts[0].launched == 2);
    run_until(5 * S, true);
    EXPECT(busy(0) >= 200 * MS && busy(0) <= 800 * MS);
}

int main(int argc, char **argv)
{
    size_t count = sizeof(scenes) / sizeof(scenes[0]);

    verbose = argc > 1;
    for (size_t i = 0; i < count; i += CASE_STEP)
        for (delay = 1; (argc < 2 || strstr(scenes[i].name, argv[1])) && delay <= 7;
             delay += DELAY_STEP)
            run(&scenes[i]);
    delay = 4;
    period = OFTEN;
    for (size_t i = 0; i < count; i += CASE_STEP)
        if (argc < 2 || strstr(scenes[i].name, argv[1]))
            run(&scenes[i]);
    period = TICKS;
    count = sizeof(scribbled) / sizeof(scribbled[0]);
    for (size_t i = 0; i < count; i += CASE_STEP)
        for (delay = 1; (argc < 2 || strstr(scribbled[i].name, argv[1])) && delay <= 7;
             delay += DELAY_STEP)
            run_scribbled(&scribbled[i]);
    delay = 2;
    streams_are_not_serialised();
    a_change_holds_soon();
    what_was_saved_of_more_is_not_spent();
    the_unknown_is_not_free();
    begin(&(struct scene){.name = "end"});
    return failures != 0;
}
