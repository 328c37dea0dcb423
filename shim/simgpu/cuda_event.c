/* Events: recorded, queried, waited for, timed. */
#include <stdlib.h>

#include "graphs.h"

#define KNOWN_FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

SIM_EXPORT CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    SIM_ENTER(cuEventCreate);
    CUcontext context;
    CUevent made;
    CUresult result;

    if (event == NULL || (flags & ~(unsigned int)KNOWN_FLAGS) != 0 ||
        ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    made = sim_object_new(SIM_EVENT);
    if (made == NULL || (made->marker = sim_marker_create()) == NULL) {
        sim_object_free(made, SIM_EVENT);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->context = context;
    made->flags = flags;
    sim_lock();
    made->next = context->events;
    if (made->next != NULL)
        made->next->previous = made;
    context->events = made;
    sim_born(made, SIM_EVENT);
    sim_unlock();
    *event = made;
    return CUDA_SUCCESS;
}

/* Of an event that is dead already. */
void sim_event_close(CUevent event)
{
    sim_lock();
    sim_event_capture(event, NULL, NULL);
    if (event->previous != NULL)
        event->previous->next = event->next;
    else
        event->context->events = event->next;
    if (event->next != NULL)
        event->next->previous = event->previous;
    sim_unlock();
    sim_marker_destroy(event->marker);
    sim_object_free(event, SIM_EVENT);
}

static CUresult destroy(CUevent event)
{
    if (!sim_kill(event, SIM_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    sim_event_close(event);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuEventDestroy(CUevent event)
{
    SIM_ENTER(cuEventDestroy);
    return destroy(event);
}

SIM_EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
    SIM_ENTER(cuEventDestroy_v2);
    return destroy(event);
}

/* The event was part of a capture, or the stream is: rare enough for the lock. */
static CUresult record_with_capture(CUstream stream, CUevent event, bool external)
{
    struct sim_node_params node = { .type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .event = event };
    struct sim_capture *capture;
    CUresult result;

    sim_lock();
    result = sim_capture_find(stream, &capture);
    if (result == CUDA_SUCCESS) {
        if (capture != NULL && external)
            result = sim_capture_node(stream, &node);
        else
            sim_event_capture(event, capture, &stream->tips);
    }
    sim_unlock();
    if (result == CUDA_SUCCESS && capture == NULL) {
        result = sim_record(stream, event->marker);
        atomic_store_explicit(&event->recorded, true, memory_order_release);
    }
    return result;
}

static inline CUresult record(CUevent event, CUstream handle, unsigned int flags, bool per_thread)
{
    CUstream stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);

    if (SIM_UNLIKELY(sim_costly))
        sim_spend(SIM_COST_EVENT);
    if (SIM_UNLIKELY(result != CUDA_SUCCESS))
        return result;
    if (SIM_UNLIKELY(!sim_alive(event, SIM_EVENT)))
        return CUDA_ERROR_INVALID_HANDLE;
    if (SIM_UNLIKELY(event->context->ordinal != stream->context->ordinal))
        return CUDA_ERROR_INVALID_HANDLE;
    if (SIM_UNLIKELY(
            (atomic_load_explicit(&stream->attention, memory_order_acquire) &
             SIM_ATTENTION_CAPTURE) ||
            atomic_load_explicit(&event->captured, memory_order_acquire)))
        return record_with_capture(stream, event, flags & CU_EVENT_RECORD_EXTERNAL);
    result = sim_record(stream, event->marker);
    if (SIM_LIKELY(result == CUDA_SUCCESS) &&
        !atomic_load_explicit(&event->recorded, memory_order_relaxed))
        atomic_store_explicit(&event->recorded, true, memory_order_release);
    return result;
}

CUresult sim_event_record(CUevent event, CUstream stream, bool per_thread)
{
    return record(event, stream, 0, per_thread);
}

SIM_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
    SIM_ENTER(cuEventRecord);
    return record(event, stream, 0, false);
}

SIM_EXPORT CUresult cuEventRecord_ptsz(CUevent event, CUstream stream)
{
    SIM_ENTER(cuEventRecord_ptsz);
    return record(event, stream, 0, true);
}

SIM_EXPORT CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
    SIM_ENTER(cuEventRecordWithFlags);
    if (flags > CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    return record(event, stream, flags, false);
}

SIM_EXPORT CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags)
{
    SIM_ENTER(cuEventRecordWithFlags_ptsz);
    if (flags > CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    return record(event, stream, flags, true);
}

/* Before a query or a wait: whether that is allowed now. An event that was last recorded in a
 * capture stands for no work, and to ask it breaks the capture. */
static CUresult may_ask(CUevent event)
{
    if (SIM_UNLIKELY(!sim_alive(event, SIM_EVENT)))
        return CUDA_ERROR_INVALID_HANDLE;
    if (SIM_UNLIKELY(atomic_load_explicit(&event->captured, memory_order_acquire))) {
        bool captured;
        sim_lock();
        captured = event->capture != NULL;
        if (captured)
            sim_capture_invalidate(event->capture);
        sim_unlock();
        if (captured)
            return CUDA_ERROR_CAPTURED_EVENT;
    }
    return sim_capture_allows();
}

SIM_EXPORT CUresult cuEventQuery(CUevent event)
{
    SIM_ENTER(cuEventQuery);
    CUresult result = may_ask(event);

    if (SIM_UNLIKELY(sim_costly))
        sim_spend(SIM_COST_EVENT);
    return SIM_LIKELY(result == CUDA_SUCCESS) ? sim_marker_query(event->marker, NULL) : result;
}

SIM_EXPORT CUresult cuEventSynchronize(CUevent event)
{
    SIM_ENTER(cuEventSynchronize);
    CUresult result = may_ask(event);
    CUdevice ordinal;

    if (result != CUDA_SUCCESS)
        return result;
    ordinal = event->context->ordinal;
    return sim_synchronised(sim_marker_finish(event->marker), ordinal);
}

/* Not one of the calls that a capture elsewhere prohibits: it only computes. */
static CUresult elapsed(float *milliseconds, CUevent start, CUevent end)
{
    uint64_t from, to;

    if (milliseconds == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_alive(start, SIM_EVENT) || !sim_alive(end, SIM_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    if (atomic_load(&start->captured) || atomic_load(&end->captured))
        return CUDA_ERROR_CAPTURED_EVENT;
    if (((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) || !atomic_load(&start->recorded) ||
        !atomic_load(&end->recorded) || start->context != end->context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (sim_marker_query(start->marker, &from) != CUDA_SUCCESS ||
        sim_marker_query(end->marker, &to) != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)((double)(int64_t)(to - from) / 1e6);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    SIM_ENTER(cuEventElapsedTime);
    return elapsed(milliseconds, start, end);
}

SIM_EXPORT CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
    SIM_ENTER(cuEventElapsedTime_v2);
    return elapsed(milliseconds, start, end);
}

/* Inside captures a wait joins streams: it is how a capture forks and comes together again. */
static CUresult wait_with_capture(CUstream stream, CUevent event, bool external)
{
    struct sim_node_params node = { .type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .event = event };
    struct sim_capture *capture, *other = event->capture;
    CUresult result = sim_capture_find(stream, &capture);

    if (result != CUDA_SUCCESS) {
        if (other != NULL && result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
            sim_capture_invalidate(other);
        return result;
    }
    if (capture != NULL && external)
        return sim_capture_node(stream, &node);
    if (other == NULL) {
        if (capture == NULL)
            return CUDA_SUCCESS; /* nothing is captured after all */
        sim_capture_invalidate(capture);
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (other->ended)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (other->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->legacy) { /* it cannot be captured, and work in it would wait for what is */
        sim_capture_invalidate(other);
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (capture != NULL && capture != other) {
        sim_capture_invalidate(capture);
        sim_capture_invalidate(other);
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    return sim_capture_join(stream, other, &event->nodes);
}

static CUresult wait(CUstream handle, CUevent event, unsigned int flags, bool per_thread)
{
    CUstream stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);
    bool concerned;

    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_alive(event, SIM_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags > CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    concerned = atomic_load(&stream->attention) & SIM_ATTENTION_CAPTURE;
    if (concerned || atomic_load(&event->captured)) {
        sim_lock();
        concerned = event->capture != NULL ||
                    (atomic_load(&stream->attention) & SIM_ATTENTION_CAPTURE);
        if (concerned)
            result = wait_with_capture(stream, event, flags & CU_EVENT_WAIT_EXTERNAL);
        sim_unlock();
        if (concerned)
            return result;
    }
    return sim_wait(stream, event->marker);
}

SIM_EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
    SIM_ENTER(cuStreamWaitEvent);
    return wait(stream, event, flags, false);
}

SIM_EXPORT CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags)
{
    SIM_ENTER(cuStreamWaitEvent_ptsz);
    return wait(stream, event, flags, true);
}
