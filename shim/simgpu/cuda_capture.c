/* Stream capture: what a capture is, who is in it, what breaks it. The rules are those of the CUDA
 * documentation of cuStreamBeginCapture, cuStreamIsCapturing and cuThreadExchangeStreamCaptureMode.
 *
 * Everything here runs under the lock unless it says otherwise. */
#include <stdlib.h>

#include "graphs.h"

_Atomic uint32_t sim_open_captures;
static struct sim_capture *captures; /* that have not ended */

void sim_capture_drop(struct sim_capture *capture)
{
    if (capture != NULL && --capture->references == 0)
        free(capture);
}

void sim_capture_invalidate(struct sim_capture *capture)
{
    if (!capture->ended)
        capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

/* The stream's context has one more, or one less, stream that its legacy stream must not wait
 * for. */
static void count_blocking(CUstream stream, int change)
{
    CUcontext context = stream->context;

    if (!stream->blocking)
        return;
    if (change > 0) {
        context->blocking_captures++;
        atomic_fetch_or_explicit(&context->legacy.attention, SIM_ATTENTION_CAPTURE,
                                 memory_order_release);
    } else if (--context->blocking_captures == 0) {
        atomic_fetch_and_explicit(&context->legacy.attention, ~(uint32_t)SIM_ATTENTION_CAPTURE,
                                  memory_order_release);
    }
}

CUresult sim_capture_join(CUstream stream, struct sim_capture *capture,
                          const struct sim_nodes *from)
{
    CUresult result = CUDA_SUCCESS;

    if (stream->capture == NULL) {
        stream->capture = capture;
        capture->references++;
        stream->tips.count = 0;
        count_blocking(stream, 1);
        atomic_fetch_or_explicit(&stream->attention, SIM_ATTENTION_CAPTURE, memory_order_release);
    }
    for (size_t i = 0; i < from->count && result == CUDA_SUCCESS; i++)
        if (!sim_nodes_has(&stream->tips, from->nodes[i]))
            result = sim_nodes_add(&stream->tips, from->nodes[i], &from->edges[i]);
    return result;
}

void sim_capture_leave(CUstream stream)
{
    struct sim_capture *capture = stream->capture;

    if (capture == NULL)
        return;
    stream->capture = NULL;
    sim_nodes_free(&stream->tips);
    atomic_fetch_and_explicit(&stream->attention, ~(uint32_t)SIM_ATTENTION_CAPTURE,
                              memory_order_release);
    count_blocking(stream, -1);
    sim_capture_drop(capture);
}

CUresult sim_capture_open(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                          const struct sim_nodes *from, struct sim_capture **opened)
{
    struct sim_capture *capture = calloc(1, sizeof *capture);
    CUresult result = CUDA_SUCCESS;

    if (capture == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    capture->own_graph = graph == NULL;
    if (graph == NULL)
        result = sim_graph_new(&graph);
    if (result == CUDA_SUCCESS)
        result = sim_capture_join(stream, capture, from);
    if (result != CUDA_SUCCESS) {
        free(capture);
        return result;
    }
    capture->id = sim_next_id();
    capture->mode = mode;
    capture->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    capture->origin = stream;
    capture->thread = sim_thread_self()->id;
    capture->graph = graph;
    capture->next = captures;
    captures = capture;
    graph->capturing = capture;
    atomic_fetch_add_explicit(&sim_open_captures, 1, memory_order_release);
    *opened = capture;
    return CUDA_SUCCESS;
}

/* Whether each of `tips` lies behind or among `ends`, going against the edges. */
static bool all_joined(const struct sim_nodes *ends, const struct sim_nodes *tips)
{
    struct sim_nodes seen = { 0 };
    bool joined = true;

    for (size_t i = 0; i < ends->count; i++)
        sim_nodes_add(&seen, ends->nodes[i], NULL);
    for (size_t i = 0; i < seen.count; i++)
        for (size_t k = 0; k < seen.nodes[i]->from.count; k++)
            if (!sim_nodes_has(&seen, seen.nodes[i]->from.nodes[k]))
                sim_nodes_add(&seen, seen.nodes[i]->from.nodes[k], NULL);
    for (size_t i = 0; i < tips->count && joined; i++)
        joined = sim_nodes_has(&seen, tips->nodes[i]);
    sim_nodes_free(&seen);
    return joined;
}

/* Calls `visit` for every stream that is in the capture, in any context. */
static void each_stream(struct sim_capture *capture, void (*visit)(CUstream, void *), void *data)
{
    for (CUcontext context = sim_contexts; context != NULL; context = context->next) {
        CUstream next;
        for (CUstream stream = context->streams; stream != NULL; stream = next) {
            next = stream->next;
            if (stream->capture == capture)
                visit(stream, data);
        }
    }
}

static void check_joined(CUstream stream, void *joined)
{
    CUstream origin = stream->capture->origin;
    if (stream != origin && !all_joined(&origin->tips, &stream->tips))
        *(bool *)joined = false;
}

static void leave(CUstream stream, void *unused)
{
    (void)unused;
    sim_capture_leave(stream);
}

/* Off the list, its streams free again; `capture` lives on in events that were recorded in it. */
static void finish(struct sim_capture *capture, bool keep_graph)
{
    for (struct sim_capture **each = &captures; *each != NULL; each = &(*each)->next) {
        if (*each == capture) {
            *each = capture->next;
            break;
        }
    }
    atomic_fetch_sub_explicit(&sim_open_captures, 1, memory_order_release);
    capture->ended = true;
    capture->graph->capturing = NULL;
    if (!keep_graph && capture->own_graph)
        sim_graph_free(capture->graph);
    capture->graph = NULL;
    capture->references++;
    each_stream(capture, leave, NULL);
    sim_capture_drop(capture);
}

void sim_capture_abandon(struct sim_capture *capture) { finish(capture, false); }

CUresult sim_capture_close(CUstream stream, CUgraph *graph)
{
    struct sim_capture *capture = stream->capture;
    CUresult result = CUDA_SUCCESS;
    bool joined = true;

    each_stream(capture, check_joined, &joined);
    if (capture->recapture && (capture->recapture_failed || capture->cursor != NULL))
        result = CUDA_ERROR_GRAPH_RECAPTURE_FAILURE;
    else if (capture->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!joined)
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    *graph = result == CUDA_SUCCESS ? capture->graph : NULL;
    finish(capture, result == CUDA_SUCCESS);
    return result;
}

CUresult sim_capture_find(CUstream stream, struct sim_capture **capture)
{
    *capture = NULL;
    if (stream->legacy) {
        if (stream->context->blocking_captures == 0)
            return CUDA_SUCCESS;
        /* It would wait for streams whose work is not being done. */
        for (CUstream other = stream->context->streams; other != NULL; other = other->next)
            if (other->blocking && other->capture != NULL)
                sim_capture_invalidate(other->capture);
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (stream->capture == NULL)
        return CUDA_SUCCESS;
    if (stream->capture->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    *capture = stream->capture;
    return CUDA_SUCCESS;
}

void sim_event_capture(CUevent event, struct sim_capture *capture, const struct sim_nodes *nodes)
{
    if (capture != NULL)
        capture->references++;
    sim_capture_drop(event->capture);
    event->capture = capture;
    event->nodes.count = 0;
    if (capture != NULL)
        sim_nodes_copy(&event->nodes, nodes);
    else
        sim_nodes_free(&event->nodes);
    atomic_store_explicit(&event->captured, capture != NULL, memory_order_release);
}

CUresult sim_capture_try(CUstream stream, const struct sim_node_params *params, bool *captured)
{
    struct sim_capture *capture;
    CUresult result = CUDA_SUCCESS;

    *captured = false;
    if (!(atomic_load_explicit(&stream->attention, memory_order_acquire) & SIM_ATTENTION_CAPTURE))
        return CUDA_SUCCESS;
    sim_lock();
    result = sim_capture_find(stream, &capture);
    if (result == CUDA_SUCCESS && capture != NULL) {
        *captured = true;
        result = sim_capture_node(stream, params);
    }
    sim_unlock();
    return result;
}

CUresult sim_capture_refuse(CUstream stream)
{
    struct sim_capture *capture;
    CUresult result;

    sim_lock();
    result = sim_capture_find(stream, &capture);
    if (result == CUDA_SUCCESS && capture != NULL) {
        sim_capture_invalidate(capture);
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    sim_unlock();
    return result;
}

/* Prohibited: by a capture of this thread that is not relaxed; by one of any thread in global mode,
 * unless this thread's own mode is thread-local; never in relaxed mode. */
CUresult sim_capture_unsafe(void)
{
    struct sim_thread *thread;
    CUresult result = CUDA_SUCCESS;

    if (atomic_load_explicit(&sim_open_captures, memory_order_acquire) == 0)
        return CUDA_SUCCESS;
    thread = sim_thread_self();
    if (thread->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    sim_lock();
    for (struct sim_capture *each = captures; each != NULL; each = each->next) {
        bool own = each->thread == thread->id && each->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        bool global = each->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                      thread->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (!own && !global)
            continue;
        if (each->status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
            sim_capture_invalidate(each);
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        } else if (result == CUDA_SUCCESS) {
            result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        }
    }
    sim_unlock();
    return result;
}

/* Waiting for a context waits for its capturing streams too, whatever the thread's mode. */
CUresult sim_capture_refuse_context(CUcontext context)
{
    CUresult result = CUDA_SUCCESS;

    if (atomic_load_explicit(&sim_open_captures, memory_order_acquire) == 0)
        return CUDA_SUCCESS;
    sim_lock();
    for (CUstream stream = context->streams; stream != NULL; stream = stream->next) {
        if (stream->capture != NULL) {
            sim_capture_invalidate(stream->capture);
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    sim_unlock();
    return result;
}

/* ---- For the memory half ---- */

CUresult sim_stream_capturing(CUstream stream, bool per_thread, bool *capturing, CUgraph *graph)
{
    CUstream resolved;
    struct sim_capture *capture = NULL;
    CUresult result = sim_stream_resolve(stream, per_thread, &resolved);

    *capturing = false;
    if (result != CUDA_SUCCESS ||
        !(atomic_load_explicit(&resolved->attention, memory_order_acquire) & SIM_ATTENTION_CAPTURE))
        return result;
    sim_lock();
    result = sim_capture_find(resolved, &capture);
    *capturing = capture != NULL;
    if (capture != NULL && graph != NULL)
        *graph = capture->graph;
    sim_unlock();
    return result;
}

CUresult sim_capture_add(CUstream stream, bool per_thread, const struct sim_captured *operation)
{
    struct sim_node_params node = { .type = operation->type, .work = operation->work };
    CUstream resolved;
    CUresult result = sim_stream_resolve(stream, per_thread, &resolved);
    bool captured;

    if (result != CUDA_SUCCESS)
        return result;
    node.context = resolved->context;
    if (operation->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        node.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        node.alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        node.alloc.poolProps.location.id = operation->ordinal;
        node.alloc.bytesize = operation->bytes;
        node.alloc.dptr = operation->address;
    }
    node.free = operation->address;
    node.memset.dst = operation->address;
    node.memset.width = operation->bytes;
    result = sim_capture_try(resolved, &node, &captured);
    return result == CUDA_SUCCESS && !captured ? CUDA_ERROR_ILLEGAL_STATE : result;
}
