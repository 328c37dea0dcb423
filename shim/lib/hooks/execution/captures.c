/* Stream captures begin and end. */
#include "driver/real.h"
#include "program/capture.h"
#include "slice/slice.h"

/* Counted before the driver is asked: a launch of another thread may come between. */
static bool begin(CUstream stream, bool per_thread)
{
    if (hami_mode_settled() != HAMI_MODE_SLICE)
        return false;
    hami_capture_opened(stream, per_thread);
    return true;
}

static CUresult begun(bool counted, CUstream stream, bool per_thread, CUresult result)
{
    if (counted && result != CUDA_SUCCESS)
        hami_capture_closed(stream, per_thread);
    return result;
}

/* An error may or may not have ended the capture: it has when the stream captures no longer. */
static CUresult ended(CUstream stream, bool per_thread, CUresult result)
{
    if (atomic_load_explicit(&hami_captures_open, memory_order_acquire) != 0 &&
        (result == CUDA_SUCCESS || !hami_capturing(stream, per_thread)))
        hami_capture_closed(stream, per_thread);
    return result;
}

/* Each hook is the same around another spelling of the driver's function. */
#define BEGIN(name, per_thread, parameters, ...)                                                   \
    HAMI_EXPORT CUresult name parameters                                                           \
    {                                                                                              \
        bool counted = begin(stream, per_thread);                                                  \
                                                                                                   \
        return begun(counted, stream, per_thread, hami_real()->name(__VA_ARGS__));                 \
    }

#define END(name, per_thread, parameters, ...)                                                     \
    HAMI_EXPORT CUresult name parameters                                                           \
    {                                                                                              \
        return ended(stream, per_thread, hami_real()->name(__VA_ARGS__));                          \
    }

BEGIN(cuStreamBeginCapture, false, (CUstream stream), stream)
BEGIN(cuStreamBeginCapture_ptsz, true, (CUstream stream), stream)
BEGIN(cuStreamBeginCapture_v2, false, (CUstream stream, CUstreamCaptureMode mode), stream, mode)
BEGIN(cuStreamBeginCapture_v2_ptsz, true, (CUstream stream, CUstreamCaptureMode mode), stream, mode)
BEGIN(cuStreamBeginCaptureToGraph, false,
      (CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
       const CUgraphEdgeData *edges, size_t dependency_count, CUstreamCaptureMode mode),
      stream, graph, dependencies, edges, dependency_count, mode)
BEGIN(cuStreamBeginCaptureToGraph_ptsz, true,
      (CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
       const CUgraphEdgeData *edges, size_t dependency_count, CUstreamCaptureMode mode),
      stream, graph, dependencies, edges, dependency_count, mode)
BEGIN(cuStreamBeginCaptureToCig, false, (CUstream stream, CUstreamCigCaptureParams *parameters),
      stream, parameters)
BEGIN(cuStreamBeginCaptureToCig_ptsz, true,
      (CUstream stream, CUstreamCigCaptureParams *parameters), stream, parameters)
BEGIN(cuStreamBeginRecaptureToGraph, false,
      (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback callback,
       void *data),
      stream, mode, graph, callback, data)
BEGIN(cuStreamBeginRecaptureToGraph_ptsz, true,
      (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback callback,
       void *data),
      stream, mode, graph, callback, data)
END(cuStreamEndCapture, false, (CUstream stream, CUgraph *graph), stream, graph)
END(cuStreamEndCapture_ptsz, true, (CUstream stream, CUgraph *graph), stream, graph)
END(cuStreamEndCaptureToCig, false, (CUstream stream), stream)
END(cuStreamEndCaptureToCig_ptsz, true, (CUstream stream), stream)
