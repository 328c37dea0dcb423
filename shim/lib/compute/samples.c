#include "compute/samples.h"

#include "base/clock.h"
#include "compute/settle.h"
#include "driver/real.h"

/* ---- Driver calls, in any thread, whatever captures ------------------------------------------ */

/* A thread with a capture of its own, or any thread during a capture in global mode, may not query
 * or create events, unless it says that it knows what it does. */
static CUstreamCaptureMode relaxed(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    if (hami_real()->cuThreadExchangeStreamCaptureMode(&mode) != CUDA_SUCCESS)
        return CU_STREAM_CAPTURE_MODE_RELAXED;
    return mode;
}

static void restored(CUstreamCaptureMode mode)
{
    hami_real()->cuThreadExchangeStreamCaptureMode(&mode);
}

static bool record(CUevent event, CUstream stream, bool per_thread)
{
    return (per_thread ? hami_real()->cuEventRecord_ptsz(event, stream)
                       : hami_real()->cuEventRecord(event, stream)) == CUDA_SUCCESS;
}

/* The context of a stream; NULL when it cannot be told. Default streams are the current one's. */
static CUcontext context_of(CUstream stream)
{
    CUcontext context = NULL;
    CUresult result;

    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        result = hami_real()->cuCtxGetCurrent(&context);
    else
        result = hami_real()->cuStreamGetCtx(stream, &context);
    return result == CUDA_SUCCESS ? context : NULL;
}

static void destroy_events(struct hami_sample *sample)
{
    if (atomic_load_explicit(&sample->context, memory_order_relaxed) != 0) {
        hami_real()->cuEventDestroy_v2(sample->start);
        hami_real()->cuEventDestroy_v2(sample->end);
    }
    atomic_store_explicit(&sample->context, 0, memory_order_relaxed);
}

static bool create_pair(struct hami_sample *sample)
{
    const struct hami_real *real = hami_real();

    if (real->cuEventCreate(&sample->start, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        return false;
    if (real->cuEventCreate(&sample->end, CU_EVENT_DEFAULT) == CUDA_SUCCESS)
        return true;
    real->cuEventDestroy_v2(sample->start);
    return false;
}

static bool make_events(struct hami_sample *sample, CUcontext context)
{
    const struct hami_real *real = hami_real();
    CUcontext current = NULL;
    bool made;

    if (atomic_load_explicit(&sample->context, memory_order_relaxed) == (uintptr_t)context)
        return true;
    destroy_events(sample);
    if (real->cuCtxGetCurrent(&current) != CUDA_SUCCESS)
        return false;
    if (current != context && real->cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return false;
    made = create_pair(sample);
    if (current != context)
        real->cuCtxPopCurrent_v2(&current);
    if (made)
        atomic_store_explicit(&sample->context, (uintptr_t)context, memory_order_relaxed);
    return made;
}

/* ---- Taking one ------------------------------------------------------------------------------ */

static bool change(struct hami_sample *sample, uint32_t from, uint32_t to)
{
    return atomic_compare_exchange_strong_explicit(&sample->state, &from, to, memory_order_acquire,
                                                   memory_order_relaxed);
}

static void put(struct hami_sample *sample, uint32_t state)
{
    atomic_store_explicit(&sample->state, state, memory_order_release);
}

/* One with events of the context if there is, else one without events, else any. */
static struct hami_sample *take(struct hami_samples *samples, CUcontext context)
{
    struct hami_sample *best = NULL;
    uintptr_t best_context = 0;

    for (int i = 0; i < HAMI_SAMPLES; i++) {
        struct hami_sample *sample = &samples->all[i];
        uintptr_t found = atomic_load_explicit(&sample->context, memory_order_relaxed);

        if (atomic_load_explicit(&sample->state, memory_order_relaxed) != HAMI_SAMPLE_FREE)
            continue;
        if (!best || found == (uintptr_t)context || (best_context != 0 && found == 0)) {
            best = sample;
            best_context = found;
        }
        if (found == (uintptr_t)context)
            break;
    }
    return best && change(best, HAMI_SAMPLE_FREE, HAMI_SAMPLE_TAKEN) ? best : NULL;
}

/* Record the start; false: not possible. */
static bool start(struct hami_sample *sample, const struct hami_work *work, CUcontext context,
                  CUstream stream, bool per_thread)
{
    if (!make_events(sample, context))
        return false;
    sample->launched = hami_now();
    if (!record(sample->start, stream, per_thread))
        return false;
    sample->work = *work;
    /* What is idle going by the charges need not be: the device knows. */
    sample->work.idle = work->idle && hami_real()->cuEventQuery(sample->start) == CUDA_SUCCESS;
    return true;
}

bool hami_sample_begin(struct hami_samples *samples, struct hami_compute *compute,
                       struct hami_measuring *measuring, const struct hami_work *work,
                       CUstream stream, bool per_thread)
{
    CUstreamCaptureMode mode;
    CUcontext context;

    measuring->begun = hami_now();
    mode = relaxed();
    context = context_of(stream);
    measuring->sample = context ? take(samples, context) : NULL;
    if (!measuring->sample) {
        hami_samples_look(samples, compute, measuring->begun, 2);
    } else if (!start(measuring->sample, work, context, stream, per_thread)) {
        put(measuring->sample, HAMI_SAMPLE_FREE);
        measuring->sample = NULL;
    }
    restored(mode);
    if (!measuring->sample)
        return false;
    hami_sampling(work);
    measuring->recorded = hami_now();
    return true;
}

/* The queue has its end where that waits for others. */
static void hint(struct hami_sample *sample, int64_t ends)
{
    bool alone = sample->work.lasts <= sample->work.estimate;

    atomic_store_explicit(&sample->orphaned, false, memory_order_relaxed);
    atomic_store_explicit(&sample->stream_key, sample->work.stream_key, memory_order_relaxed);
    atomic_store_explicit(&sample->ends, alone ? ends : 0, memory_order_relaxed);
}

void hami_sample_end(struct hami_samples *samples, struct hami_compute *compute,
                     struct hami_measuring *measuring, CUstream stream, bool per_thread,
                     CUresult result)
{
    struct hami_sample *sample = measuring->sample;
    int64_t returned = hami_now();
    int64_t call = returned - measuring->recorded;
    CUstreamCaptureMode mode = relaxed();

    if (result == CUDA_SUCCESS && record(sample->end, stream, per_thread)) {
        sample->said = sample->work.lasts;
        sample->making = returned - sample->launched;
        sample->launched = returned;
        sample->running = 0;
        hint(sample, returned + sample->work.lasts);
        atomic_store_explicit(&sample->expected, returned + (sample->work.known ? sample->said : 0),
                              memory_order_relaxed);
        put(sample, HAMI_SAMPLE_RECORDED);
    } else {
        hami_settle_nothing(&sample->work);
        put(sample, HAMI_SAMPLE_FREE);
    }
    hami_samples_look(samples, compute, returned, 2);
    restored(mode);
    hami_compute_costs(compute, hami_now() - measuring->begun - call, call);
}

/* ---- Looking at them ------------------------------------------------------------------------- */

/* How long the launch took, from the time between its events. That begins at the first event, which
 * the device passes at once when nothing runs in the stream: then the time in which the launch was
 * still being made is in it. A first launch may load code for long; any other takes about as long
 * as launches do, unless the thread was interrupted. */
static int64_t taken(const struct hami_sample *sample, const struct hami_compute *compute,
                     float milliseconds)
{
    int64_t elapsed = (int64_t)((double)milliseconds * 1e6);
    int64_t usual = atomic_load_explicit(&compute->launch_cost, memory_order_relaxed) +
                    atomic_load_explicit(&compute->sample_cost, memory_order_relaxed) / 2;
    int64_t making = sample->making;

    if (!sample->work.first) {
        if (!sample->work.idle)
            return elapsed;
        making = making < usual ? making : usual;
    }
    return elapsed - making > elapsed / 16 ? elapsed - making : elapsed / 16;
}

/* Until when other measured work of the device is expected to run, as far as its streams are gone
 * and do not tell. */
static int64_t others_end(const struct hami_samples *samples, const struct hami_sample *but)
{
    int64_t last = 0;

    for (int i = 0; i < HAMI_SAMPLES; i++) {
        const struct hami_sample *sample = &samples->all[i];
        int64_t ends = atomic_load_explicit(&sample->ends, memory_order_relaxed);
        uint64_t other = atomic_load_explicit(&sample->stream_key, memory_order_relaxed);

        if (sample != but && ends > last &&
            atomic_load_explicit(&sample->state, memory_order_relaxed) == HAMI_SAMPLE_RECORDED &&
            atomic_load_explicit(&sample->orphaned, memory_order_relaxed) &&
            (other & HAMI_ROW_OF_KEY) == (but->work.stream_key & HAMI_ROW_OF_KEY))
            last = ends;
    }
    return last;
}

/* Not done: when it runs for longer than was thought, it has taken that time in any case. */
static void look_at_running(struct hami_samples *samples, struct hami_sample *sample,
                            struct hami_compute *compute, int64_t now)
{
    int64_t again = (now - sample->launched) / 8;

    if (sample->running == 0 && now - sample->launched > HAMI_MILLISECOND &&
        hami_real()->cuEventQuery(sample->start) == CUDA_SUCCESS)
        sample->running = now;
    if (sample->running != 0 && now - sample->running > sample->said) {
        hami_settle(compute, &sample->work, now, others_end(samples, sample), sample->said,
                    now - sample->running, false);
        sample->said = now - sample->running;
        if (atomic_load_explicit(&sample->ends, memory_order_relaxed) != 0)
            atomic_store_explicit(&sample->ends, now, memory_order_relaxed);
    }
    if (again < 20 * HAMI_MICROSECOND)
        again = 20 * HAMI_MICROSECOND;
    if (again > 10 * HAMI_MILLISECOND)
        again = 10 * HAMI_MILLISECOND;
    atomic_store_explicit(&sample->expected, now + again, memory_order_relaxed);
}

/* True when it came in, or to nothing. */
static bool look_at(struct hami_samples *samples, struct hami_sample *sample,
                    struct hami_compute *compute, int64_t now)
{
    float milliseconds = 0;
    CUresult result = hami_real()->cuEventQuery(sample->end);

    if (result == CUDA_ERROR_NOT_READY) {
        look_at_running(samples, sample, compute, now);
        return false;
    }
    if (result == CUDA_SUCCESS)
        result = hami_real()->cuEventElapsedTime(&milliseconds, sample->start, sample->end);
    if (result == CUDA_SUCCESS)
        hami_settle(compute, &sample->work, now, others_end(samples, sample), sample->said,
                    taken(sample, compute, milliseconds), true);
    else
        hami_settle_nothing(&sample->work);
    return true;
}

static struct hami_sample *next(struct hami_samples *samples, int64_t now, bool *under_way)
{
    struct hami_sample *best = NULL;
    int64_t soonest = now;

    *under_way = false;
    for (int i = 0; i < HAMI_SAMPLES; i++) {
        struct hami_sample *sample = &samples->all[i];
        int64_t expected = atomic_load_explicit(&sample->expected, memory_order_relaxed);

        if (atomic_load_explicit(&sample->state, memory_order_relaxed) != HAMI_SAMPLE_RECORDED)
            continue;
        *under_way = true;
        if (expected <= soonest) {
            soonest = expected;
            best = sample;
        }
    }
    return best && change(best, HAMI_SAMPLE_RECORDED, HAMI_SAMPLE_TAKEN) ? best : NULL;
}

bool hami_samples_look(struct hami_samples *samples, struct hami_compute *compute, int64_t now,
                       int most)
{
    struct hami_sample *sample;
    bool under_way;

    while ((sample = next(samples, now, &under_way)) != NULL) {
        bool done = look_at(samples, sample, compute, now);

        put(sample, done ? HAMI_SAMPLE_FREE : HAMI_SAMPLE_RECORDED);
        if (!done || --most == 0)
            break;
    }
    return under_way;
}

bool hami_samples_poll(struct hami_samples *samples, struct hami_compute *compute, int64_t now)
{
    CUstreamCaptureMode mode = relaxed();
    bool under_way = hami_samples_look(samples, compute, now, HAMI_SAMPLES);

    restored(mode);
    return under_way;
}

void hami_samples_forget_stream(struct hami_samples *samples, uint64_t stream_key)
{
    for (int i = 0; i < HAMI_SAMPLES; i++)
        if (atomic_load_explicit(&samples->all[i].stream_key, memory_order_relaxed) == stream_key)
            atomic_store_explicit(&samples->all[i].orphaned, true, memory_order_relaxed);
}

void hami_samples_forget_context(struct hami_samples *samples, CUcontext context)
{
    for (int i = 0; i < HAMI_SAMPLES; i++) {
        struct hami_sample *sample = &samples->all[i];

        if (atomic_load_explicit(&sample->context, memory_order_relaxed) != (uintptr_t)context)
            continue;
        /* A sample that another thread holds at this moment stays: its context goes under a thread
         * that launches in it, and the driver answers its calls with errors. */
        if (!change(sample, HAMI_SAMPLE_FREE, HAMI_SAMPLE_TAKEN)) {
            if (!change(sample, HAMI_SAMPLE_RECORDED, HAMI_SAMPLE_TAKEN))
                continue;
            hami_settle_nothing(&sample->work);
        }
        atomic_store_explicit(&sample->context, 0, memory_order_relaxed);
        put(sample, HAMI_SAMPLE_FREE);
    }
}
