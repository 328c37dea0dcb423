/* What a program may learn about a capture, and how it edits what comes next in it. */
#include <stdlib.h>

#include "graphs.h"

struct info {
    CUstreamCaptureStatus status;
    cuuint64_t id;
    CUgraph graph;
    const CUgraphNode *dependencies;
    const CUgraphEdgeData *edges;
    size_t count;
    bool annotated; /* an edge is not a plain one */
};

static CUresult look(CUstream handle, bool per_thread, struct info *info)
{
    static const CUgraphEdgeData plain;
    CUstream stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);

    *info = (struct info){ .status = CU_STREAM_CAPTURE_STATUS_NONE };
    if (result != CUDA_SUCCESS ||
        !(atomic_load_explicit(&stream->attention, memory_order_acquire) & SIM_ATTENTION_CAPTURE))
        return result;
    sim_lock();
    if (stream->legacy) {
        /* To ask does not break the capture; to use the stream would. */
        if (stream->context->blocking_captures != 0)
            result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    } else if (stream->capture != NULL) {
        info->status = stream->capture->status;
        info->id = stream->capture->id;
        if (info->status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
            info->graph = stream->capture->graph;
            info->dependencies = stream->tips.nodes;
            info->edges = stream->tips.edges;
            info->count = stream->tips.count;
            for (size_t i = 0; i < info->count; i++)
                if (memcmp(&info->edges[i], &plain, sizeof plain) != 0)
                    info->annotated = true;
        }
    }
    sim_unlock();
    return result;
}

static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status, bool per_thread)
{
    struct info info;
    CUresult result;

    if (status == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = look(stream, per_thread, &info);
    if (result == CUDA_SUCCESS)
        *status = info.status;
    return result;
}

SIM_EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    SIM_ENTER(cuStreamIsCapturing);
    return is_capturing(stream, status, false);
}

SIM_EXPORT CUresult cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus *status)
{
    SIM_ENTER(cuStreamIsCapturing_ptsz);
    return is_capturing(stream, status, true);
}

/* `edges` NULL where the caller cannot take them: then there must be nothing to tell. */
static CUresult info_of(CUstream stream, bool per_thread, CUstreamCaptureStatus *status,
                        cuuint64_t *id, CUgraph *graph, const CUgraphNode **dependencies,
                        const CUgraphEdgeData **edges, size_t *count)
{
    struct info info;
    CUresult result;

    if (status == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = look(stream, per_thread, &info);
    if (result != CUDA_SUCCESS)
        return result;
    if (info.annotated && dependencies != NULL && edges == NULL)
        return CUDA_ERROR_LOSSY_QUERY;
    *status = info.status;
    if (info.status == CU_STREAM_CAPTURE_STATUS_NONE)
        return CUDA_SUCCESS;
    if (id != NULL)
        *id = info.id;
    if (info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_SUCCESS;
    if (graph != NULL)
        *graph = info.graph;
    if (dependencies != NULL)
        *dependencies = info.dependencies;
    if (edges != NULL)
        *edges = info.annotated ? info.edges : NULL;
    if (count != NULL)
        *count = info.count;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status,
                                           cuuint64_t *id)
{
    SIM_ENTER(cuStreamGetCaptureInfo);
    return info_of(stream, false, status, id, NULL, NULL, NULL, NULL);
}

SIM_EXPORT CUresult cuStreamGetCaptureInfo_ptsz(CUstream stream, CUstreamCaptureStatus *status,
                                                cuuint64_t *id)
{
    SIM_ENTER(cuStreamGetCaptureInfo_ptsz);
    return info_of(stream, true, status, id, NULL, NULL, NULL, NULL);
}

SIM_EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status,
                                              cuuint64_t *id, CUgraph *graph,
                                              const CUgraphNode **dependencies,
                                              size_t *dependency_count)
{
    SIM_ENTER(cuStreamGetCaptureInfo_v2);
    return info_of(stream, false, status, id, graph, dependencies, NULL, dependency_count);
}

SIM_EXPORT CUresult cuStreamGetCaptureInfo_v2_ptsz(CUstream stream, CUstreamCaptureStatus *status,
                                                   cuuint64_t *id, CUgraph *graph,
                                                   const CUgraphNode **dependencies,
                                                   size_t *dependency_count)
{
    SIM_ENTER(cuStreamGetCaptureInfo_v2_ptsz);
    return info_of(stream, true, status, id, graph, dependencies, NULL, dependency_count);
}

SIM_EXPORT CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status,
                                              cuuint64_t *id, CUgraph *graph,
                                              const CUgraphNode **dependencies,
                                              const CUgraphEdgeData **edges,
                                              size_t *dependency_count)
{
    SIM_ENTER(cuStreamGetCaptureInfo_v3);
    return info_of(stream, false, status, id, graph, dependencies, edges, dependency_count);
}

SIM_EXPORT CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream stream, CUstreamCaptureStatus *status,
                                                   cuuint64_t *id, CUgraph *graph,
                                                   const CUgraphNode **dependencies,
                                                   const CUgraphEdgeData **edges,
                                                   size_t *dependency_count)
{
    SIM_ENTER(cuStreamGetCaptureInfo_v3_ptsz);
    return info_of(stream, true, status, id, graph, dependencies, edges, dependency_count);
}

static CUresult update(CUstream handle, CUgraphNode *dependencies, const CUgraphEdgeData *edges,
                       size_t count, unsigned int flags, bool per_thread)
{
    struct sim_nodes added = { 0 };
    struct sim_capture *capture;
    CUstream stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    result = sim_capture_find(stream, &capture);
    if (result == CUDA_SUCCESS && capture == NULL)
        result = CUDA_ERROR_ILLEGAL_STATE;
    if (result == CUDA_SUCCESS)
        result = sim_graph_check(capture->graph, dependencies, edges, count, &added);
    if (result == CUDA_SUCCESS) {
        if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
            stream->tips.count = 0;
        result = sim_capture_join(stream, capture, &added);
    }
    sim_nodes_free(&added);
    sim_unlock();
    return result;
}

SIM_EXPORT CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *dependencies,
                                                      size_t dependency_count, unsigned int flags)
{
    SIM_ENTER(cuStreamUpdateCaptureDependencies);
    return update(stream, dependencies, NULL, dependency_count, flags, false);
}

SIM_EXPORT CUresult cuStreamUpdateCaptureDependencies_ptsz(CUstream stream,
                                                           CUgraphNode *dependencies,
                                                           size_t dependency_count,
                                                           unsigned int flags)
{
    SIM_ENTER(cuStreamUpdateCaptureDependencies_ptsz);
    return update(stream, dependencies, NULL, dependency_count, flags, true);
}

SIM_EXPORT CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *dependencies,
                                                         const CUgraphEdgeData *edges,
                                                         size_t dependency_count,
                                                         unsigned int flags)
{
    SIM_ENTER(cuStreamUpdateCaptureDependencies_v2);
    return update(stream, dependencies, edges, dependency_count, flags, false);
}

SIM_EXPORT CUresult cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream stream,
                                                              CUgraphNode *dependencies,
                                                              const CUgraphEdgeData *edges,
                                                              size_t dependency_count,
                                                              unsigned int flags)
{
    SIM_ENTER(cuStreamUpdateCaptureDependencies_v2_ptsz);
    return update(stream, dependencies, edges, dependency_count, flags, true);
}
