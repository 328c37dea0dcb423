/* Streams: made, destroyed, asked about, waited for. */
#include <stdlib.h>

#include "graphs.h"

#define GREATEST_PRIORITY (-5)

void sim_lane_drop(struct sim_lane *lane)
{
    if (lane != NULL &&
        atomic_fetch_sub_explicit(&lane->references, 1, memory_order_acq_rel) == 1) {
        sim_queue_destroy(lane->queue);
        free(lane);
    }
}

CUresult sim_stream_open(CUstream stream, CUcontext context, unsigned int flags)
{
    struct sim_lane *lane = calloc(1, sizeof *lane);
    CUresult result;

    if (lane == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = sim_queue_create(context->ordinal, &lane->queue);
    if (result != CUDA_SUCCESS) {
        free(lane);
        return result;
    }
    atomic_store_explicit(&lane->references, 1, memory_order_relaxed);
    stream->lane = lane;
    stream->queue = lane->queue;
    stream->context = context;
    stream->flags = flags;
    stream->blocking = !stream->legacy && (flags & CU_STREAM_NON_BLOCKING) == 0;
    stream->id = sim_next_id();
    sim_lock();
    stream->previous = NULL;
    stream->next = context->streams;
    if (stream->next != NULL)
        stream->next->previous = stream;
    context->streams = stream;
    if (stream->blocking) {
        /* Whatever the legacy stream has been given goes before it. */
        uint32_t work = atomic_load_explicit(&context->legacy_work, memory_order_relaxed);
        atomic_store_explicit(&stream->legacy_seen, work - 1, memory_order_relaxed);
        context->blocking_streams++;
        atomic_fetch_or_explicit(&context->legacy.attention, SIM_ATTENTION_LEGACY,
                                 memory_order_relaxed);
    }
    sim_born(stream, SIM_STREAM);
    sim_unlock();
    return CUDA_SUCCESS;
}

/* Of a stream that is dead already; what it was given still runs. */
void sim_stream_close(CUstream stream)
{
    CUcontext context = stream->context;

    sim_lock();
    if (stream->capture != NULL) {
        sim_capture_invalidate(stream->capture);
        if (stream->capture->origin == stream)
            sim_capture_abandon(stream->capture);
        else
            sim_capture_leave(stream);
    }
    if (stream->previous != NULL)
        stream->previous->next = stream->next;
    else
        context->streams = stream->next;
    if (stream->next != NULL)
        stream->next->previous = stream->previous;
    if (stream->blocking && --context->blocking_streams == 0)
        atomic_fetch_and_explicit(&context->legacy.attention, ~(uint32_t)SIM_ATTENTION_LEGACY,
                                  memory_order_relaxed);
    sim_unlock();
    if (stream->order != NULL)
        sim_marker_destroy(stream->order);
    stream->order = NULL;
    sim_lane_drop(stream->lane);
    stream->lane = NULL;
}

/* The calling thread's default stream in a context, made at its first use. */
static CUresult per_thread_stream(CUcontext context, CUstream *stream)
{
    struct sim_thread *thread = sim_thread_self();
    CUstream *place = &thread->streams, made;
    CUresult result;

    while (*place != NULL) {
        CUstream each = *place;
        if (!sim_alive(each, SIM_STREAM)) { /* its context went */
            *place = each->thread_next;
            sim_object_free(each, SIM_STREAM);
        } else if (each->context == context) {
            *stream = each;
            return CUDA_SUCCESS;
        } else {
            place = &each->thread_next;
        }
    }
    made = sim_object_new(SIM_STREAM);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->per_thread = true;
    result = sim_stream_open(made, context, CU_STREAM_DEFAULT);
    if (result != CUDA_SUCCESS) {
        sim_object_free(made, SIM_STREAM);
        return result;
    }
    made->thread_next = thread->streams;
    thread->streams = made;
    *stream = made;
    return CUDA_SUCCESS;
}

CUresult sim_stream_special(CUstream handle, bool per_thread, CUstream *stream)
{
    CUcontext context;
    CUresult result = sim_context_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    if (handle == CU_STREAM_PER_THREAD || (handle == NULL && per_thread))
        return per_thread_stream(context, stream);
    if (handle == NULL || handle == CU_STREAM_LEGACY) {
        *stream = &context->legacy;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_HANDLE;
}

static CUresult create(CUstream *stream, unsigned int flags, int priority)
{
    CUcontext context;
    CUstream made;
    CUresult result;

    if (stream == NULL || flags > CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    made = sim_object_new(SIM_STREAM);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->green = context->green;
    made->priority = priority < GREATEST_PRIORITY ? GREATEST_PRIORITY : priority > 0 ? 0 : priority;
    result = sim_stream_open(made, context, flags);
    if (result != CUDA_SUCCESS) {
        sim_object_free(made, SIM_STREAM);
        return result;
    }
    *stream = made;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    SIM_ENTER(cuStreamCreate);
    return create(stream, flags, 0);
}

SIM_EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    SIM_ENTER(cuStreamCreateWithPriority);
    return create(stream, flags, priority);
}

SIM_EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    SIM_ENTER(cuCtxGetStreamPriorityRange);
    CUresult result = sim_current(NULL, NULL);

    if (result != CUDA_SUCCESS)
        return result;
    if (least != NULL)
        *least = 0;
    if (greatest != NULL)
        *greatest = GREATEST_PRIORITY;
    return CUDA_SUCCESS;
}

/* The default streams are not the program's to destroy. */
static CUresult destroy(CUstream stream)
{
    if (!sim_alive(stream, SIM_STREAM) || stream->legacy || stream->per_thread ||
        !sim_kill(stream, SIM_STREAM))
        return CUDA_ERROR_INVALID_HANDLE;
    sim_stream_close(stream);
    sim_object_free(stream, SIM_STREAM);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuStreamDestroy(CUstream stream)
{
    SIM_ENTER(cuStreamDestroy);
    return destroy(stream);
}

SIM_EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
    SIM_ENTER(cuStreamDestroy_v2);
    return destroy(stream);
}

/* Asking about a stream or waiting for it is no work: a capturing stream refuses, and the rules for
 * other captures apply. */
static CUresult resolve_to_ask(CUstream handle, bool per_thread, CUstream *stream)
{
    CUresult result = sim_stream_resolve(handle, per_thread, stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (atomic_load_explicit(&(*stream)->attention, memory_order_acquire) & SIM_ATTENTION_CAPTURE)
        return sim_capture_refuse(*stream);
    return sim_capture_allows();
}

static CUresult query(CUstream handle, bool per_thread)
{
    CUstream stream;
    CUresult result = resolve_to_ask(handle, per_thread, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    return sim_stream_idle(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

SIM_EXPORT CUresult cuStreamQuery(CUstream stream)
{
    SIM_ENTER(cuStreamQuery);
    return query(stream, false);
}

SIM_EXPORT CUresult cuStreamQuery_ptsz(CUstream stream)
{
    SIM_ENTER(cuStreamQuery_ptsz);
    return query(stream, true);
}

static CUresult synchronise(CUstream handle, bool per_thread)
{
    CUstream stream;
    CUdevice ordinal;
    CUresult result = resolve_to_ask(handle, per_thread, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    ordinal = stream->context->ordinal;
    return sim_synchronised(sim_stream_finish(stream), ordinal);
}

SIM_EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    SIM_ENTER(cuStreamSynchronize);
    return synchronise(stream, false);
}

SIM_EXPORT CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
    SIM_ENTER(cuStreamSynchronize_ptsz);
    return synchronise(stream, true);
}
