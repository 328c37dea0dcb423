/* The entry points of stream capture. */
#include <stdlib.h>

#include "graphs.h"

/* Where a capture may begin: not on the legacy stream, not on one that captures. The lock is
 * held. */
static CUresult may_begin(CUstream stream, CUstreamCaptureMode mode)
{
    if ((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture != NULL) {
        sim_capture_invalidate(stream->capture);
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    return CUDA_SUCCESS;
}

static CUresult begin(CUstream handle, CUstreamCaptureMode mode, bool per_thread)
{
    struct sim_nodes nothing = { 0 };
    struct sim_capture *capture;
    CUstream stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    sim_lock();
    result = may_begin(stream, mode);
    if (result == CUDA_SUCCESS)
        result = sim_capture_open(stream, mode, NULL, &nothing, &capture);
    sim_unlock();
    return result;
}

/* CUDA 10.0 had no modes: as global. */
SIM_EXPORT CUresult cuStreamBeginCapture(CUstream stream)
{
    SIM_ENTER(cuStreamBeginCapture);
    return begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, false);
}

SIM_EXPORT CUresult cuStreamBeginCapture_ptsz(CUstream stream)
{
    SIM_ENTER(cuStreamBeginCapture_ptsz);
    return begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, true);
}

SIM_EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    SIM_ENTER(cuStreamBeginCapture_v2);
    return begin(stream, mode, false);
}

SIM_EXPORT CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    SIM_ENTER(cuStreamBeginCapture_v2_ptsz);
    return begin(stream, mode, true);
}

static CUresult begin_to_graph(CUstream handle, CUgraph graph, const CUgraphNode *dependencies,
                               const CUgraphEdgeData *edges, size_t count,
                               CUstreamCaptureMode mode, bool per_thread)
{
    struct sim_nodes from = { 0 };
    struct sim_capture *capture;
    CUstream stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_alive(graph, SIM_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    result = may_begin(stream, mode);
    if (result == CUDA_SUCCESS && graph->capturing != NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = sim_graph_check(graph, dependencies, edges, count, &from);
    if (result == CUDA_SUCCESS)
        result = sim_capture_open(stream, mode, graph, &from, &capture);
    sim_nodes_free(&from);
    sim_unlock();
    return result;
}

SIM_EXPORT CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                                const CUgraphNode *dependencies,
                                                const CUgraphEdgeData *edges,
                                                size_t dependency_count, CUstreamCaptureMode mode)
{
    SIM_ENTER(cuStreamBeginCaptureToGraph);
    return begin_to_graph(stream, graph, dependencies, edges, dependency_count, mode, false);
}

SIM_EXPORT CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                                     const CUgraphNode *dependencies,
                                                     const CUgraphEdgeData *edges,
                                                     size_t dependency_count,
                                                     CUstreamCaptureMode mode)
{
    SIM_ENTER(cuStreamBeginCaptureToGraph_ptsz);
    return begin_to_graph(stream, graph, dependencies, edges, dependency_count, mode, true);
}

static CUresult begin_recapture(CUstream handle, CUstreamCaptureMode mode, CUgraph graph,
                                CUgraphRecaptureCallback callback, void *data, bool per_thread)
{
    struct sim_nodes nothing = { 0 };
    struct sim_capture *capture;
    CUstream stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_alive(graph, SIM_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    result = may_begin(stream, mode);
    if (result == CUDA_SUCCESS && graph->capturing != NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = sim_capture_open(stream, mode, graph, &nothing, &capture);
    if (result == CUDA_SUCCESS) {
        capture->recapture = true;
        capture->cursor = graph->first;
        capture->callback = callback;
        capture->callback_data = data;
    }
    sim_unlock();
    return result;
}

SIM_EXPORT CUresult cuStreamBeginRecaptureToGraph(CUstream stream, CUstreamCaptureMode mode,
                                                  CUgraph graph, CUgraphRecaptureCallback callback,
                                                  void *data)
{
    SIM_ENTER(cuStreamBeginRecaptureToGraph);
    return begin_recapture(stream, mode, graph, callback, data, false);
}

SIM_EXPORT CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, CUstreamCaptureMode mode,
                                                       CUgraph graph,
                                                       CUgraphRecaptureCallback callback,
                                                       void *data)
{
    SIM_ENTER(cuStreamBeginRecaptureToGraph_ptsz);
    return begin_recapture(stream, mode, graph, callback, data, true);
}

/* Capture into a graphics API's command list needs a context made for one, which none of ours
 * is. */
static CUresult begin_cig(CUstream handle, const CUstreamCigCaptureParams *parameters,
                          bool per_thread)
{
    CUstream stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_pointer(parameters) || !sim_pointer(parameters->streamCigParams) || stream->legacy)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_ERROR_INVALID_CONTEXT;
}

SIM_EXPORT CUresult cuStreamBeginCaptureToCig(CUstream stream, CUstreamCigCaptureParams *parameters)
{
    SIM_ENTER(cuStreamBeginCaptureToCig);
    return begin_cig(stream, parameters, false);
}

SIM_EXPORT CUresult cuStreamBeginCaptureToCig_ptsz(CUstream stream,
                                                   CUstreamCigCaptureParams *parameters)
{
    SIM_ENTER(cuStreamBeginCaptureToCig_ptsz);
    return begin_cig(stream, parameters, true);
}

static CUresult end_cig(CUstream handle, bool per_thread)
{
    CUstream stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);
    return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : result;
}

SIM_EXPORT CUresult cuStreamEndCaptureToCig(CUstream stream)
{
    SIM_ENTER(cuStreamEndCaptureToCig);
    return end_cig(stream, false);
}

SIM_EXPORT CUresult cuStreamEndCaptureToCig_ptsz(CUstream stream)
{
    SIM_ENTER(cuStreamEndCaptureToCig_ptsz);
    return end_cig(stream, true);
}

/* On the stream it began on, by the thread that began it unless it is relaxed. */
static CUresult end(CUstream handle, CUgraph *graph, bool per_thread)
{
    CUstream stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (graph == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = NULL;
    sim_lock();
    if (stream->capture == NULL) {
        result = CUDA_ERROR_ILLEGAL_STATE;
    } else if (stream->capture->origin != stream) {
        sim_capture_invalidate(stream->capture);
        result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    } else if (stream->capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
               stream->capture->thread != sim_thread_self()->id) {
        result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    } else {
        result = sim_capture_close(stream, graph);
    }
    sim_unlock();
    return result;
}

SIM_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    SIM_ENTER(cuStreamEndCapture);
    return end(stream, graph, false);
}

SIM_EXPORT CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    SIM_ENTER(cuStreamEndCapture_ptsz);
    return end(stream, graph, true);
}

SIM_EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    SIM_ENTER(cuThreadExchangeStreamCaptureMode);
    CUstreamCaptureMode before = sim_thread.mode;

    if (mode == NULL || (unsigned int)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    sim_thread.mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
