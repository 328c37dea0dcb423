/* Stream captures. What is launched into one runs when the graph does: no charge and no wait there,
 * and none of our events. While none is open anywhere in the process, asking costs one load. */
#include "compute/gate.h"
#include "hooks/work/launch.h"
#include "base/lock.h"
#include "driver/real.h"
#include "slice/slice.h"

#define ORIGINS 64

_Atomic uint32_t hami_captures_open;

static struct {
    struct hami_lock lock;
    uintptr_t origins[ORIGINS]; /* 0: free. One that finds no place counts as open for ever */
} captures;

bool hami_capturing(CUstream stream, bool per_thread)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result;

    if (__builtin_expect(atomic_load_explicit(&hami_captures_open, memory_order_acquire) == 0, 1))
        return false;
    result = per_thread ? hami_real()->cuStreamIsCapturing_ptsz(stream, &status)
                        : hami_real()->cuStreamIsCapturing(stream, &status);
    if (result != CUDA_SUCCESS)
        return result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* A stream where a capture begins; per-thread ones by their thread. */
static uintptr_t origin_of(CUstream stream, bool per_thread)
{
    static _Thread_local char thread __attribute__((tls_model("initial-exec")));

    if (stream == CU_STREAM_PER_THREAD || (per_thread && stream == NULL))
        return (uintptr_t)&thread;
    return (uintptr_t)(stream ? stream : CU_STREAM_LEGACY);
}

static void opened(uintptr_t origin)
{
    int i = 0;

    hami_lock(&captures.lock);
    while (i < ORIGINS && captures.origins[i] != 0)
        i++;
    if (i < ORIGINS)
        captures.origins[i] = origin;
    atomic_fetch_add_explicit(&hami_captures_open, 1, memory_order_release);
    hami_unlock(&captures.lock);
}

static void closed(uintptr_t origin)
{
    int i = 0;

    /* A forked child has its parent's lock, maybe held by a thread that it does not have. */
    if (hami_mode() != HAMI_MODE_SLICE)
        return;
    hami_lock(&captures.lock);
    while (i < ORIGINS && captures.origins[i] != origin)
        i++;
    if (i < ORIGINS) {
        captures.origins[i] = 0;
        atomic_fetch_sub_explicit(&hami_captures_open, 1, memory_order_release);
    }
    hami_unlock(&captures.lock);
}

void hami_captures_forget(CUstream stream)
{
    if (atomic_load_explicit(&hami_captures_open, memory_order_acquire) != 0)
        closed(origin_of(stream, false));
}

void hami_captures_reset(void)
{
    atomic_store_explicit(&captures.lock.word, HAMI_LOCK_FREE, memory_order_relaxed);
    for (int i = 0; i < ORIGINS; i++)
        captures.origins[i] = 0;
    atomic_store_explicit(&hami_captures_open, 0, memory_order_relaxed);
}

/* Counted before the driver is asked: a launch of another thread may come between. */
static bool begin(CUstream stream, bool per_thread)
{
    if (hami_mode_settled() != HAMI_MODE_SLICE)
        return false;
    opened(origin_of(stream, per_thread));
    return true;
}

static CUresult begun(bool counted, CUstream stream, bool per_thread, CUresult result)
{
    if (counted && result != CUDA_SUCCESS)
        closed(origin_of(stream, per_thread));
    return result;
}

/* An error may or may not have ended the capture: it has when the stream captures no longer. */
static CUresult ended(CUstream stream, bool per_thread, CUresult result)
{
    if (atomic_load_explicit(&hami_captures_open, memory_order_acquire) != 0 &&
        (result == CUDA_SUCCESS || !hami_capturing(stream, per_thread)))
        closed(origin_of(stream, per_thread));
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
