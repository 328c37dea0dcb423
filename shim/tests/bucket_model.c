/* links: src/bucket.c src/estimate.c src/correction.c src/compute.c src/samples.c tests/model_card.c
 *
 * Does the compute share hold? The library's own code for estimates, horizon, bucket, correction and
 * measurements, in several processes at once, on a card in virtual time: minutes of it in seconds,
 * and the same each time. The truth is the card's count of who had it for how long.
 *
 * With an argument, prints a line of CSV per tenant of each case that has the argument in its name. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/clock.h"
#include "../src/compute.h"
#include "../src/real.h"
#include "../src/samples.h"
#include "model_card.h"

#define US INT64_C(1000)
#define MS INT64_C(1000000)
#define S INT64_C(1000000000)

/* What calls of the driver cost the launching thread, as on a real machine. */
#define LAUNCH_COST (2 * US)
#define EVENT_COST (1 * US)
#define SLEEP_SLACK (60 * US)
/* The monitor writes each second what it saw in a second that ended a little earlier: in units of
 * TICK, from one to ten of which the delay is. */
#define TICK (100 * MS)
#define TICKS 10 /* in a period */
#define HISTORY 64

enum style {
    BACKLOGGED, /* launches as fast as it may */
    WAITING,    /* waits for each launch's end */
    BURSTY,     /* works `on`, then pauses `off` */
};

struct tenant {
    uint32_t percent;
    enum style style;
    int64_t kernel; /* how long one runs alone */
    int width;      /* of it, in thousandths; 0: all of the card */
    int streams;    /* 0: one */
    int functions;  /* with times from kernel / 2 to kernel * 3 / 2; 0: one */
    int spread;     /* a kernel's time varies by up to so many percent */
    int graph;      /* kernels launched together as a graph; 0: none */
    int64_t on, off;
    int processes; /* of the container; 0: one */
    enum hami_policy policy;
    int64_t starts;
    /* What is expected of it; 0: its cap. */
    double share;
    double least; /* lowest share that is right where `share` is an upper bound; 0: as `share` */
};

struct scene {
    const char *name;
    bool without_monitor;
    struct tenant tenants[4];
    double tolerance; /* points, where the general rule is not meant; 0: the rule */
};

/* ---- A process ------------------------------------------------------------------------------ */

struct host {
    struct hami_compute compute;
    struct hami_samples samples;
    struct hami_launcher launcher;
    struct model_process device;
    const struct tenant *tenant;
    struct hami_bucket *bucket;
    int64_t wakes;
    bool asked; /* a launch waits for its turn: work is in progress */
    struct hami_work work;
    int64_t time; /* of the kernel in work */
    int stream;
    uint64_t launched;
    uint32_t random;
};

struct container {
    struct hami_bucket bucket;
    uint64_t utilisation, contention;
    int64_t busy[HISTORY];
};

static struct host hosts[MODEL_PROCESSES];
static struct host *running; /* whose code runs */
static int64_t clock_now;
static struct model_card card;
static uint64_t heartbeat;
static int delay; /* of the monitor's figures, in ticks */

int64_t hami_now(void)
{
    return clock_now;
}

/* ---- The driver, as far as measurements need it ---------------------------------------------- */

static CUresult fake_exchange(CUstreamCaptureMode *mode)
{
    *mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    return CUDA_SUCCESS;
}

static CUresult fake_current(CUcontext *context)
{
    *context = (CUcontext)running;
    return CUDA_SUCCESS;
}

static CUresult fake_stream_context(CUstream stream, CUcontext *context)
{
    (void)stream;
    return fake_current(context);
}

static CUresult fake_create(CUevent *event, unsigned int flags)
{
    (void)flags;
    *event = calloc(1, sizeof(struct model_mark));
    return *event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult fake_destroy(CUevent event)
{
    free(event);
    return CUDA_SUCCESS;
}

static CUresult fake_record(CUevent event, CUstream stream)
{
    clock_now += EVENT_COST;
    model_submit(&running->device, (int)(uintptr_t)stream - 16,
                 (struct model_item){.mark = (struct model_mark *)event, .ready = clock_now});
    return CUDA_SUCCESS;
}

static CUresult fake_query(CUevent event)
{
    const struct model_mark *mark = (const struct model_mark *)event;

    clock_now += EVENT_COST;
    model_run(&card, clock_now);
    return mark->recorded && !mark->done ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult fake_elapsed(float *milliseconds, CUevent start, CUevent end)
{
    const struct model_mark *from = (const struct model_mark *)start;
    const struct model_mark *to = (const struct model_mark *)end;

    clock_now += EVENT_COST;
    assert(from->done && to->done);
    *milliseconds = (float)((double)(to->at - from->at) / 1e6);
    return CUDA_SUCCESS;
}

static const struct hami_real fake_driver = {
    .cuThreadExchangeStreamCaptureMode = fake_exchange,
    .cuCtxGetCurrent = fake_current,
    .cuStreamGetCtx = fake_stream_context,
    .cuEventCreate = fake_create,
    .cuEventDestroy_v2 = fake_destroy,
    .cuEventRecord = fake_record,
    .cuEventQuery = fake_query,
    .cuEventElapsedTime = fake_elapsed,
};
const struct hami_real *_Atomic hami_real_found = &fake_driver;

const struct hami_real *hami_real_load(void)
{
    return &fake_driver;
}

/* ---- A program ------------------------------------------------------------------------------ */

static uint32_t chance(struct host *host, uint32_t below)
{
    host->random = host->random * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)(host->random >> 8) * below >> 24);
}

/* Decide what is launched next. */
static void choose_work(struct host *host, struct hami_share *share)
{
    const struct tenant *tenant = host->tenant;
    uint32_t functions = tenant->functions ? (uint32_t)tenant->functions : 1;
    uint32_t function = chance(host, functions);

    host->time = tenant->kernel;
    if (functions > 1)
        host->time = tenant->kernel / 2 + tenant->kernel * function / (functions - 1);
    if (tenant->spread)
        host->time += host->time * ((int64_t)chance(host, 2000) - 1000) / 1000 * tenant->spread / 100;
    if (tenant->graph)
        host->time *= tenant->graph;
    host->stream = (int)(host->launched % (uint64_t)(tenant->streams ? tenant->streams : 1));
    host->work = (struct hami_work){
        .what = {.handle = 1000 + function, .context = 1,
                 .size = tenant->graph ? HAMI_ESTIMATE_GRAPH : 8},
        .stream_key = hami_stream_key((uint64_t)host->stream + 16, 0, NULL),
        .bucket = host->bucket,
        .share = share,
    };
    host->asked = true;
}

static struct hami_terms terms(const struct host *host, const struct container *container)
{
    bool alone = host->tenant->policy == HAMI_POLICY_DEFAULT && heartbeat &&
                 !(container->contention & HAMI_CONTENTION_OTHERS);

    return (struct hami_terms){.percent = host->tenant->percent,
                               .limited = host->tenant->percent < 100 && !alone &&
                                          host->tenant->policy != HAMI_POLICY_DISABLE};
}

/* As launch.c does it. 0: launched; else when to ask again. */
static int64_t launch(struct host *host, struct container *container)
{
    struct hami_measuring measuring = {0};
    struct hami_terms now = terms(host, container);
    struct hami_estimate *entry =
        hami_estimate_find(&host->compute.estimates, hami_what_key(&host->work.what));
    CUstream stream = (CUstream)((uintptr_t)host->stream + 16);
    bool quick = entry && hami_estimate_known(&host->compute.estimates, entry) &&
                 hami_admit_quickly(&host->launcher, host->work.stream_key,
                                    atomic_load(&entry->mean));
    int64_t wait;

    if (!quick) {
        hami_share_observe(&host->compute, host->work.share, host->bucket, clock_now, heartbeat,
                           container->utilisation);
        wait = hami_admit(&host->compute, &host->launcher, &host->work, &now, clock_now);
        if (wait > 0) {
            bool measured = hami_samples_poll(&host->samples, &host->compute, clock_now);

            if (wait > (measured ? MS : 10 * MS))
                wait = measured ? MS : 10 * MS;
            return clock_now + wait + SLEEP_SLACK;
        }
        if (!host->work.sample ||
            !hami_sample_begin(&host->samples, &host->compute, &measuring, &host->work, stream,
                               false)) {
            measuring.sample = NULL;
            hami_admit_unmeasured(&host->work);
        }
    }
    clock_now += LAUNCH_COST;
    model_submit(&host->device, host->stream,
                 (struct model_item){.ready = clock_now, .left = host->time,
                                     .width = host->tenant->width ? host->tenant->width : 1000});
    if (measuring.sample)
        hami_sample_end(&host->samples, &host->compute, &measuring, stream, false, CUDA_SUCCESS);
    host->launched++;
    host->asked = false;
    return 0;
}

/* One step of the program, at host->wakes; sets when the next one is. */
static void step(struct host *host, struct container *container)
{
    const struct tenant *tenant = host->tenant;
    int64_t again;

    running = host;
    clock_now = host->wakes;
    if (!host->asked) {
        if (tenant->style == BURSTY && (clock_now - tenant->starts) % (tenant->on + tenant->off) > tenant->on) {
            host->wakes += tenant->on + tenant->off -
                           (clock_now - tenant->starts) % (tenant->on + tenant->off) + 1;
            return;
        }
        if (host->device.outstanding >= (tenant->style == WAITING ? 1 : MODEL_OUTSTANDING)) {
            host->wakes += tenant->kernel / 16 > 5 * US ? (tenant->kernel / 16 < 500 * US ? tenant->kernel / 16 : 500 * US) : 5 * US;
            return;
        }
        choose_work(host, &host->compute.shares[0]);
    }
    again = launch(host, container);
    host->wakes = again ? again : clock_now;
}

/* ---- The world ------------------------------------------------------------------------------ */

static struct container containers[4];
static int host_count, container_of[MODEL_PROCESSES];

static void begin(const struct scene *scene)
{
    for (int i = 0; i < host_count; i++)
        for (int s = 0; s < HAMI_SAMPLES; s++) {
            free(hosts[i].samples.all[s].start);
            free(hosts[i].samples.all[s].end);
        }
    memset(hosts, 0, sizeof(hosts));
    memset(containers, 0, sizeof(containers));
    card = (struct model_card){.current = -1, .now = S};
    heartbeat = 0;
    host_count = 0;
    for (int i = 0; i < 4 && scene->tenants[i].percent; i++)
        for (int p = 0; p < (scene->tenants[i].processes ? scene->tenants[i].processes : 1); p++) {
            struct host *host = &hosts[host_count];

            host->tenant = &scene->tenants[i];
            host->bucket = &containers[i].bucket;
            host->random = (uint32_t)(12345 + host_count * 77);
            host->launcher.random = (uint32_t)(99 + host_count);
            host->wakes = S + host_count * 10 * US + host->tenant->starts;
            card.processes[card.count++] = &host->device;
            container_of[host_count++] = i;
        }
}

static int64_t busy(int tenant)
{
    int64_t sum = 0;

    for (int i = 0; i < host_count; i++)
        if (container_of[i] == tenant)
            sum += hosts[i].device.busy;
    return sum;
}

static int64_t kernels(int tenant)
{
    int64_t sum = 0;

    for (int i = 0; i < host_count; i++)
        if (container_of[i] == tenant)
            sum += hosts[i].device.kernels * (hosts[i].tenant->graph ? hosts[i].tenant->graph : 1);
    return sum;
}

/* Each tenth of a second the history, each second what the monitor says. */
static void monitor(int64_t tick, bool writes)
{
    uint64_t seen[4];

    for (int i = 0; i < 4; i++)
        containers[i].busy[tick % HISTORY] = busy(i);
    if (!writes || tick % TICKS)
        return;
    for (int i = 0; i < 4; i++)
        seen[i] = (uint64_t)(containers[i].busy[(tick - delay + HISTORY) % HISTORY] -
                             containers[i].busy[(tick - delay - TICKS + HISTORY) % HISTORY]);
    for (int i = 0; i < 4; i++) {
        containers[i].utilisation = seen[i] * 100 / (uint64_t)(TICKS * TICK) * 100;
        containers[i].contention = 0;
        for (int other = 0; other < 4; other++)
            if (other != i && seen[other] > 0)
                containers[i].contention = HAMI_CONTENTION_OTHERS;
    }
    heartbeat++;
}

static void run_until(int64_t to, bool monitored)
{
    static int64_t tick;

    if (card.now == S)
        tick = 0;
    while (card.now < to) {
        int64_t next = to;
        int who = -1;

        if (S + tick * TICK < next)
            next = S + tick * TICK;
        for (int i = 0; i < host_count; i++)
            if (hosts[i].wakes < next) {
                next = hosts[i].wakes;
                who = i;
            }
        model_run(&card, next);
        if (who >= 0)
            step(&hosts[who], &containers[container_of[who]]);
        else if (next < to)
            monitor(tick++, monitored);
    }
}

/* ---- Cases ---------------------------------------------------------------------------------- */

#define BACKLOG(cap, time) {.percent = (cap), .kernel = (time), .policy = HAMI_POLICY_FORCE}

static const struct scene scenes[] = {
    {"alone 10, 10 us", false, {BACKLOG(10, 10 * US)}, 0},
    {"alone 50, 10 us", false, {BACKLOG(50, 10 * US)}, 0},
    {"alone 90, 10 us", false, {BACKLOG(90, 10 * US)}, 0},
    {"alone 50, 100 us", false, {BACKLOG(50, 100 * US)}, 0},
    {"alone 30, 1 ms", false, {BACKLOG(30, MS)}, 0},
    {"alone 90, 1 ms", false, {BACKLOG(90, MS)}, 0},
    {"alone 10, 20 ms", false, {BACKLOG(10, 20 * MS)}, 0},
    {"alone 10, 200 ms", false, {BACKLOG(10, 200 * MS)}, 0},
    {"alone 50, 200 ms", false, {BACKLOG(50, 200 * MS)}, 0},
    {"alone 90, 200 ms", false, {BACKLOG(90, 200 * MS)}, 0},
    {"30/70, 10 us", false, {BACKLOG(30, 10 * US), BACKLOG(70, 10 * US)}, 0},
    {"30/70, 100 us", false, {BACKLOG(30, 100 * US), BACKLOG(70, 100 * US)}, 0},
    {"30/70, 1 ms", false, {BACKLOG(30, MS), BACKLOG(70, MS)}, 0},
    {"30/70, 10 ms", false, {BACKLOG(30, 10 * MS), BACKLOG(70, 10 * MS)}, 0},
    {"30/70, 200 ms", false, {BACKLOG(30, 200 * MS), BACKLOG(70, 200 * MS)}, 0},
    {"10/90, 10 us", false, {BACKLOG(10, 10 * US), BACKLOG(90, 10 * US)}, 0},
    {"10/90, 1 ms", false, {BACKLOG(10, MS), BACKLOG(90, MS)}, 0},
    {"10/90, 50 ms", false, {BACKLOG(10, 50 * MS), BACKLOG(90, 50 * MS)}, 0},
    {"50/50, 10 us beside 50 ms", false, {BACKLOG(50, 10 * US), BACKLOG(50, 50 * MS)}, 0},
    {"20/60, 1 ms beside 5 ms", false, {BACKLOG(20, MS), BACKLOG(60, 5 * MS)}, 0},
    {"20/30/50, 1 ms", false, {BACKLOG(20, MS), BACKLOG(30, MS), BACKLOG(50, MS)}, 0},
    {"20/30/50, 10 us, 1 ms, 20 ms", false, {BACKLOG(20, 10 * US), BACKLOG(30, MS), BACKLOG(50, 20 * MS)}, 0},
    {"25 x 4, 10 us", false, {BACKLOG(25, 10 * US), BACKLOG(25, 10 * US), BACKLOG(25, 10 * US), BACKLOG(25, 10 * US)}, 0},
    {"25 x 4, 200 ms", false, {BACKLOG(25, 200 * MS), BACKLOG(25, 200 * MS), BACKLOG(25, 200 * MS), BACKLOG(25, 200 * MS)}, 0},
    {"10/20/30/40, 1 ms", false, {BACKLOG(10, MS), BACKLOG(20, MS), BACKLOG(30, MS), BACKLOG(40, MS)}, 0},
    {"10/20/30/40, 10 us to 200 ms", false, {BACKLOG(10, 10 * US), BACKLOG(20, MS), BACKLOG(30, 20 * MS), BACKLOG(40, 200 * MS)}, 0},
    {"10/20/30/40, 200 ms to 10 us", false, {BACKLOG(10, 200 * MS), BACKLOG(20, 20 * MS), BACKLOG(30, MS), BACKLOG(40, 10 * US)}, 0},
    {"30/40, room to spare", false, {BACKLOG(30, 3 * MS), BACKLOG(40, 200 * US)}, 0},
    {"alone 40, waits for each, 5 ms", false, {{.percent = 40, .kernel = 5 * MS, .style = WAITING, .policy = 1}}, 0},
    {"alone 40, waits for each, 50 us", false, {{.percent = 40, .kernel = 50 * US, .style = WAITING, .policy = 1}}, 0},
    {"30/70, both wait, 3 ms", false, {{.percent = 30, .kernel = 3 * MS, .style = WAITING, .policy = 1}, {.percent = 70, .kernel = 3 * MS, .style = WAITING, .policy = 1, .least = 60}}, 0},
    {"30/70, one waits, 20 ms", false, {{.percent = 30, .kernel = 20 * MS, .style = WAITING, .policy = 1}, BACKLOG(70, 20 * MS)}, 0},
    {"alone 50, bursty 300 of 500 ms", false, {{.percent = 50, .kernel = MS, .style = BURSTY, .on = 300 * MS, .off = 200 * MS, .policy = 1, .least = 30}}, 0},
    {"alone 20, bursty 100 of 1000 ms", false, {{.percent = 20, .kernel = 100 * US, .style = BURSTY, .on = 100 * MS, .off = 900 * MS, .policy = 1, .share = 10, .least = 2}}, 0},
    {"40 steady, 60 bursty", false, {BACKLOG(40, MS), {.percent = 60, .kernel = 2 * MS, .style = BURSTY, .on = 400 * MS, .off = 300 * MS, .policy = 1, .least = 34}}, 0},
    {"30 steady, 30 and 40 bursty", false, {BACKLOG(30, 500 * US), {.percent = 30, .kernel = 200 * US, .style = BURSTY, .on = 1500 * MS, .off = S, .policy = 1, .least = 15}, {.percent = 40, .kernel = 10 * MS, .style = BURSTY, .on = 200 * MS, .off = 100 * MS, .policy = 1, .least = 25}}, 0},
    {"alone 30, graphs of 100 x 20 us", false, {{.percent = 30, .kernel = 20 * US, .graph = 100, .policy = 1}}, 0},
    {"30/70, graphs of 200 x 100 us beside kernels", false, {{.percent = 30, .kernel = 100 * US, .graph = 200, .policy = 1}, BACKLOG(70, 100 * US)}, 0},
    {"alone 50, times vary by 80 %", false, {{.percent = 50, .kernel = 5 * MS, .spread = 80, .policy = 1}}, 0},
    {"30/70, times vary by 80 %", false, {{.percent = 30, .kernel = 5 * MS, .spread = 80, .policy = 1}, {.percent = 70, .kernel = 300 * US, .spread = 80, .policy = 1}}, 0},
    {"40/60, 300 functions", false, {{.percent = 40, .kernel = 200 * US, .functions = 300, .policy = 1}, {.percent = 60, .kernel = 2 * MS, .functions = 300, .policy = 1}}, 0},
    {"alone 50, 8 narrow streams", false, {{.percent = 50, .kernel = 500 * US, .streams = 8, .width = 125, .policy = 1}}, 0},
    {"alone 50, 8 wide streams", false, {{.percent = 50, .kernel = 500 * US, .streams = 8, .policy = 1}}, 0},
    {"30/70, 8 narrow streams beside 1", false, {{.percent = 30, .kernel = 2 * MS, .streams = 8, .width = 125, .policy = 1}, BACKLOG(70, MS)}, 0},
    {"40/60, 8 wide streams beside 4 narrow", false, {{.percent = 40, .kernel = MS, .streams = 8, .policy = 1}, {.percent = 60, .kernel = MS, .streams = 4, .width = 200, .policy = 1}}, 0},
    {"alone 40, 3 processes", false, {{.percent = 40, .kernel = MS, .processes = 3, .policy = 1}}, 0},
    {"30/70, 3 processes beside 2", false, {{.percent = 30, .kernel = MS, .processes = 3, .policy = 1}, {.percent = 70, .kernel = 4 * MS, .processes = 2, .policy = 1}}, 0},
    {"30/70, the second comes late", false, {BACKLOG(30, 2 * MS), {.percent = 70, .kernel = 2 * MS, .policy = 1, .starts = 3 * S}}, 0},
    {"default policy, alone", false, {{.percent = 20, .kernel = MS, .share = 100}}, 0},
    {"default policy, 20/80", false, {{.percent = 20, .kernel = MS}, {.percent = 80, .kernel = MS}}, 0},
    {"disabled beside 30", false, {BACKLOG(30, MS), {.percent = 50, .kernel = MS, .policy = HAMI_POLICY_DISABLE, .share = 70}}, 0},
    {"no monitor, alone 50, 10 us", true, {BACKLOG(50, 10 * US)}, 0},
    {"no monitor, alone 30, 8 narrow streams", true, {{.percent = 30, .kernel = 500 * US, .streams = 8, .width = 125, .policy = 1}}, 0},
    {"no monitor, default policy, alone 30", true, {{.percent = 30, .kernel = 20 * MS}}, 0},
    {"no monitor, 30/70, 1 ms: never above", true, {{.percent = 30, .kernel = MS, .policy = 1, .least = 12}, {.percent = 70, .kernel = MS, .policy = 1, .least = 45}}, 0},
};

static bool verbose;
static int failures;

static void report(const struct scene *scene, const int64_t *from, int64_t window, int tenants)
{
    double shares = 0, caps = 0;
    bool backlogged = true;

    for (int i = 0; i < tenants; i++) {
        const struct tenant *tenant = &scene->tenants[i];
        double share = 100.0 * (double)(busy(i) - from[i]) / (double)window;
        double right = tenant->share > 0 ? tenant->share : tenant->percent;
        double least = tenant->least > 0 ? tenant->least : right;
        double rule = 200.0 * (double)tenant->kernel * (tenant->graph ? tenant->graph : 1) / (double)window;
        double tolerance = scene->tolerance > 0 ? scene->tolerance : rule > 3 ? rule : 3;
        bool wrong = share > right + tolerance || share < least - tolerance;

        backlogged = backlogged && tenant->style == BACKLOGGED;
        shares += share;
        caps += right;
        if (verbose)
            printf("%s,%d,%d,%u,%.2f,%.2f,%.2f%s\n", scene->name, delay, i, tenant->percent, right, share,
                   (double)atomic_load(&containers[i].bucket.correction) / 65536, wrong ? ",WRONG" : "");
        if (wrong) {
            failures++;
            fprintf(stderr, "%s, delay %d: tenant %d has %.1f %%, right is %.1f +- %.1f\n", scene->name, delay, i,
                    share, right, tolerance);
        }
    }
    if (backlogged && caps > 99 && !scene->without_monitor && shares < 95) {
        failures++;
        fprintf(stderr, "%s: the card is used for %.1f %% only\n", scene->name, shares);
    }
}

static void run(const struct scene *scene)
{
    int64_t from[4];
    int tenants = 0;

    begin(scene);
    run_until(6 * S, !scene->without_monitor);
    for (int i = 0; i < 4; i++) {
        from[i] = busy(i);
        tenants += scene->tenants[i].percent > 0;
    }
    run_until(16 * S, !scene->without_monitor);
    report(scene, from, 10 * S, tenants);
}

int main(int argc, char **argv)
{
    verbose = argc > 1;
    for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++)
        if (argc < 2 || strstr(scenes[i].name, argv[1]))
            for (delay = 1; delay <= 10; delay += 4)
                run(&scenes[i]);
    (void)kernels;
    if (failures == 0)
        printf("bucket_model: %zu scenes\n", sizeof(scenes) / sizeof(scenes[0]));
    return failures != 0;
}
