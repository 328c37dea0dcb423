#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "compute/horizon.h"
#include "compute/settle.h"
#include "driver/real.h"
#include "model_tenant.h"

/* What calls of the driver cost the launching thread, as on a real machine. */
#define LAUNCH_COST (2 * US)
#define EVENT_COST (1 * US)
#define SLEEP_SLACK (60 * US)

static struct host *running; /* whose code runs, on which card, and when */
static struct model_card *running_on;
static int64_t clock_now;

int64_t hami_now(void)
{
    return clock_now;
}

/* ---- The driver, as far as measurements need it ---------------------------------------------- */

static CUresult exchange(CUstreamCaptureMode *mode)
{
    *mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    return CUDA_SUCCESS;
}

static CUresult current_context(CUcontext *context)
{
    *context = (CUcontext)running;
    return CUDA_SUCCESS;
}

static CUresult context_of(CUstream stream, CUcontext *context)
{
    (void)stream;
    return current_context(context);
}

static CUresult create(CUevent *event, unsigned int flags)
{
    (void)flags;
    *event = calloc(1, sizeof(struct model_mark));
    return *event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult destroy(CUevent event)
{
    free(event);
    return CUDA_SUCCESS;
}

static CUstream handle_of(int stream)
{
    return (CUstream)((uintptr_t)stream + 16);
}

static CUresult record(CUevent event, CUstream stream)
{
    clock_now += EVENT_COST;
    model_submit(&running->device, (int)(uintptr_t)stream - 16,
                 (struct model_item){.mark = (struct model_mark *)event, .ready = clock_now});
    return CUDA_SUCCESS;
}

static CUresult query(CUevent event)
{
    const struct model_mark *mark = (const struct model_mark *)event;

    clock_now += EVENT_COST;
    model_run(running_on, clock_now);
    return mark->recorded && !mark->done ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult elapsed(float *milliseconds, CUevent start, CUevent end)
{
    const struct model_mark *from = (const struct model_mark *)start;
    const struct model_mark *to = (const struct model_mark *)end;

    clock_now += EVENT_COST;
    assert(from->done && to->done);
    *milliseconds = (float)((double)(to->at - from->at) / 1e6);
    return CUDA_SUCCESS;
}

static const struct hami_real driver = {
    .cuThreadExchangeStreamCaptureMode = exchange,
    .cuCtxGetCurrent = current_context,
    .cuStreamGetCtx = context_of,
    .cuEventCreate = create,
    .cuEventDestroy_v2 = destroy,
    .cuEventRecord = record,
    .cuEventQuery = query,
    .cuEventElapsedTime = elapsed,
};
const struct hami_real *_Atomic hami_real_found = &driver;

const struct hami_real *hami_real_load(void)
{
    return &driver;
}

void model_end(struct host *host)
{
    for (int i = 0; i < HAMI_SAMPLES; i++) {
        free(host->samples.all[i].start);
        free(host->samples.all[i].end);
    }
}

/* ---- A program ------------------------------------------------------------------------------- */

static uint32_t chance(struct host *host, uint32_t below)
{
    host->random = host->random * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)(host->random >> 8) * below >> 24);
}

static bool is_strange(const struct host *host)
{
    return host->tenant->strange && clock_now >= host->tenant->strange;
}

static void choose_work(struct host *host)
{
    const struct tenant *tenant = host->tenant;
    uint32_t functions = tenant->functions ? (uint32_t)tenant->functions : 1;
    uint32_t function = chance(host, functions);

    host->time = tenant->kernel;
    if (functions > 1)
        host->time = tenant->kernel / 2 + tenant->kernel * function / (functions - 1);
    if (tenant->spread)
        host->time +=
            host->time * ((int64_t)chance(host, 2000) - 1000) / 1000 * tenant->spread / 100;
    if (tenant->graph)
        host->time *= tenant->graph;
    host->stream = (int)(host->launched % (uint64_t)(tenant->streams ? tenant->streams : 1));
    host->work = (struct hami_work){
        .what = {.handle = is_strange(host) ? 5000 + host->launched : 1000 + function,
                 .context = 1,
                 .size = tenant->graph ? HAMI_ESTIMATE_GRAPH : 8},
        .stream_key = hami_stream_key((uint64_t)(uintptr_t)handle_of(host->stream), 0, NULL),
        .bucket = &host->container->bucket,
        .share = &host->compute.shares[0],
    };
    host->asked = true;
}

static struct hami_terms terms(const struct host *host)
{
    const struct tenant *tenant = host->tenant;
    struct hami_terms now = {.rate = tenant->percent * 100};
    bool alone = tenant->policy == HAMI_POLICY_DEFAULT && host->container->heartbeat &&
                 !(host->container->contention & HAMI_CONTENTION_OTHERS);

    if (tenant->percent_later && clock_now >= tenant->later &&
        (tenant->sways == 0 || clock_now / tenant->sways % 2 == 0))
        now.rate = tenant->percent_later * 100;
    now.counted = now.rate < HAMI_WHOLE && tenant->policy != HAMI_POLICY_DISABLE;
    now.limited = now.counted && !alone;
    now.watched = host->container->heartbeat != 0;
    return now;
}

/* As gate.c does it: 0 when the launch may go, else when to ask again. */
static int64_t enter(struct host *host, struct hami_measuring *measuring)
{
    struct hami_terms now_holds = terms(host);
    struct hami_sight sight = {0};
    struct hami_estimate *entry =
        hami_estimate_find(&host->compute.estimates, hami_what_key(&host->work.what));
    int64_t estimate, wait;

    if (!now_holds.counted)
        return 0;
    if (entry && hami_estimate_known(&host->compute.estimates, entry)) {
        estimate = atomic_load(&entry->mean);
        if (hami_admit_quickly(&host->launcher, host->work.stream_key, estimate) ||
            hami_admit_beside(&host->compute, &host->launcher, 0, host->work.stream_key, estimate))
            return 0;
    }
    sight.heartbeat = host->container->heartbeat;
    sight.utilisation = host->container->utilisation;
    sight.rate = now_holds.limited ? now_holds.rate : HAMI_WHOLE;
    hami_share_observe(&host->compute, host->work.share, host->work.bucket, clock_now, &sight);
    wait = hami_admit(&host->compute, &host->launcher, &host->work, &now_holds, clock_now);
    if (wait > 0) {
        int64_t longest =
            hami_samples_poll(&host->samples, &host->compute, clock_now) ? MS : 10 * MS;

        return clock_now + (wait < longest ? wait : longest) + SLEEP_SLACK;
    }
    if (!host->work.sample || !hami_sample_begin(&host->samples, &host->compute, measuring,
                                                 &host->work, handle_of(host->stream), false))
        hami_admit_unmeasured(&host->work);
    return 0;
}

static void launch(struct host *host)
{
    struct hami_measuring measuring = {0};
    int64_t again = enter(host, &measuring);

    if (again > 0) {
        host->wakes = again;
        return;
    }
    clock_now += LAUNCH_COST;
    model_submit(&host->device, host->stream,
                 (struct model_item){
                     .ready = clock_now,
                     .left = host->time,
                     .width = host->tenant->width && !is_strange(host) ? host->tenant->width
                                                                       : 1000});
    if (measuring.sample)
        hami_sample_end(&host->samples, &host->compute, &measuring, handle_of(host->stream), false,
                        CUDA_SUCCESS);
    host->launched++;
    host->asked = false;
    host->wakes = clock_now;
}

/* How long until it has something to launch again; 0: it has. */
static int64_t pause_of(const struct host *host)
{
    const struct tenant *tenant = host->tenant;
    int64_t cycle = tenant->on + tenant->off;
    int64_t look = tenant->kernel / 16;

    if (tenant->style == BURSTY && (clock_now - host->since) % cycle > tenant->on)
        return cycle - (clock_now - host->since) % cycle + 1;
    if (host->device.outstanding < (tenant->style == WAITING ? 1 : MODEL_OUTSTANDING))
        return 0;
    look = look < 500 * US ? look : 500 * US;
    return look > 5 * US ? look : 5 * US;
}

static void scribble(struct host *host, enum scribble what)
{
    struct hami_bucket *bucket = &host->container->bucket;
    _Atomic uint64_t *words[] = {(_Atomic uint64_t *)&bucket->level, &bucket->refilled_at,
                                 &bucket->charged, &bucket->correction, &bucket->settled};

    if (what == LEVEL || what == ALL)
        atomic_store(&bucket->level, INT64_MAX);
    if (what == WORTH || what == ALL)
        atomic_store(&bucket->correction, 1);
    if (what == COUNTS || what == ALL) {
        atomic_fetch_add(&bucket->charged, UINT64_C(1) << 40);
        atomic_store(&bucket->settled, (uint64_t)clock_now);
    }
    if (what == ALL)
        atomic_store(&bucket->refilled_at, 1);
    if (what == NOISE)
        atomic_store(words[chance(host, 5)], (uint64_t)chance(host, 1 << 16)
                                                 << chance(host, 50));
    if (what == AT_TIMES && clock_now / (3 * S) % 2)
        scribble(host, ALL);
}

void model_step(struct host *host, struct model_card *card)
{
    int64_t pause;

    running = host;
    running_on = card;
    clock_now = host->wakes;
    scribble(host, host->tenant->scribble);
    if (!host->asked) {
        pause = pause_of(host);
        if (pause > 0) {
            host->wakes += pause;
            return;
        }
        choose_work(host);
    }
    launch(host);
}
