/* Snippets: streams, events, capture, launches. While anything is captured nobody may wait for the
 * context, and whoever does spoils the capture. */
#include "matrix.h"

#define RELAXED CU_STREAM_CAPTURE_MODE_RELAXED

static bool captures(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    return cuStreamIsCapturing_ptsz(stream, &status) == CUDA_SUCCESS &&
           status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

/* ---- Capture ---- */

CALL(cuStreamBeginCapture)
{
    CUresult result = s->api->cuStreamBeginCapture(s->stream);

    return and_so(result, captures(s->stream));
}

CALL(cuStreamBeginCapture_ptsz)
{
    CUresult result = s->api->cuStreamBeginCapture_ptsz(NULL);

    return and_so(result, captures(NULL));
}

CALL(cuStreamBeginCapture_v2)
{
    CUresult result = s->api->cuStreamBeginCapture_v2(s->stream, RELAXED);

    return and_so(result, captures(s->stream));
}

CALL(cuStreamBeginCapture_v2_ptsz)
{
    CUresult result = s->api->cuStreamBeginCapture_v2_ptsz(NULL, RELAXED);

    return and_so(result, captures(NULL));
}

CALL(cuStreamEndCapture)
{
    CUresult result = s->api->cuStreamEndCapture(s->stream, &s->graph);

    return and_so(result, s->graph && !captures(s->stream));
}

CALL(cuStreamEndCapture_ptsz)
{
    CUresult result = s->api->cuStreamEndCapture_ptsz(NULL, &s->graph);

    return and_so(result, s->graph && !captures(NULL));
}

static int destroy_graph(struct stage *s)
{
    return (int)s->api->cuGraphDestroy(s->graph);
}

static int end(struct stage *s)
{
    int result = call_cuStreamEndCapture(s);

    return result ? result : destroy_graph(s);
}

static int end_ptsz(struct stage *s)
{
    int result = call_cuStreamEndCapture_ptsz(s);

    return result ? result : destroy_graph(s);
}

static int make_graph(struct stage *s)
{
    return (int)cuGraphCreate(&s->graph, 0);
}

CALL(cuStreamBeginCaptureToGraph)
{
    CUresult result = s->api->cuStreamBeginCaptureToGraph(s->stream, s->graph, NULL, NULL, 0,
                                                          RELAXED);
    return and_so(result, captures(s->stream));
}

CALL(cuStreamBeginCaptureToGraph_ptsz)
{
    CUresult result = s->api->cuStreamBeginCaptureToGraph_ptsz(NULL, s->graph, NULL, NULL, 0,
                                                               RELAXED);
    return and_so(result, captures(NULL));
}

static CUresult accept(void *data, CUgraphNode node, const CUgraphNodeParams *original,
                       const CUgraphNodeParams *recapture, CUgraphRecaptureStatus status)
{
    (void)data;
    (void)node;
    (void)original;
    (void)recapture;
    (void)status;
    return CUDA_SUCCESS;
}

CALL(cuStreamBeginRecaptureToGraph)
{
    CUresult result = s->api->cuStreamBeginRecaptureToGraph(s->stream, RELAXED, s->graph, accept,
                                                            NULL);
    return and_so(result, captures(s->stream));
}

CALL(cuStreamBeginRecaptureToGraph_ptsz)
{
    CUresult result = s->api->cuStreamBeginRecaptureToGraph_ptsz(NULL, RELAXED, s->graph, accept,
                                                                 NULL);
    return and_so(result, captures(NULL));
}

/* For a graphics program, whose context ours is not: told so. */
CALL(cuStreamBeginCaptureToCig)
{
    CUstreamCigParam list = {.streamSharedDataType =
                                 STREAM_CIG_DATA_TYPE_VULKAN_COMMAND_BUFFER_HANDLE_NV};
    CUstreamCigCaptureParams parameters = {.streamCigParams = &list};

    return (int)s->api->cuStreamBeginCaptureToCig(s->stream, &parameters);
}

CALL(cuStreamBeginCaptureToCig_ptsz)
{
    CUstreamCigParam list = {.streamSharedDataType =
                                 STREAM_CIG_DATA_TYPE_VULKAN_COMMAND_BUFFER_HANDLE_NV};
    CUstreamCigCaptureParams parameters = {.streamCigParams = &list};

    return (int)s->api->cuStreamBeginCaptureToCig_ptsz(NULL, &parameters);
}

CALL(cuStreamEndCaptureToCig)
{
    return (int)s->api->cuStreamEndCaptureToCig(s->stream);
}

CALL(cuStreamEndCaptureToCig_ptsz)
{
    return (int)s->api->cuStreamEndCaptureToCig_ptsz(NULL);
}

/* ---- Waiting ---- */

static int record(struct stage *s)
{
    CUresult result = cuEventCreate(&s->event, 0);

    return result ? (int)result : (int)cuEventRecord(s->event, s->stream);
}

CALL(cuEventSynchronize)
{
    CUresult result = s->api->cuEventSynchronize(s->event);

    return result ? (int)result : (int)cuEventQuery(s->event);
}

static int destroy_event(struct stage *s)
{
    return (int)cuEventDestroy_v2(s->event);
}

static int make_stream(struct stage *s)
{
    return (int)cuStreamCreate(&s->other, CU_STREAM_NON_BLOCKING);
}

CALL(cuStreamDestroy)
{
    return (int)s->api->cuStreamDestroy(s->other);
}

CALL(cuStreamDestroy_v2)
{
    return (int)s->api->cuStreamDestroy_v2(s->other);
}

CALL(cuStreamSynchronize)
{
    CUresult result = s->api->cuStreamSynchronize(s->stream);

    return result ? (int)result : (int)cuStreamQuery(s->stream);
}

CALL(cuStreamSynchronize_ptsz)
{
    CUresult result = s->api->cuStreamSynchronize_ptsz(NULL);

    return result ? (int)result : (int)cuStreamQuery_ptsz(NULL);
}

static int wait(struct stage *s)
{
    return (int)s->api->cuCtxSynchronize();
}

/* ---- Launches ---- */

static int launch(struct stage *s)
{
    return (int)s->api->cuLaunchKernel(s->function, 1, 1, 1, 1, 1, 1, 0, s->stream, NULL, NULL);
}

static int launch_ptsz(struct stage *s)
{
    return (int)s->api->cuLaunchKernel_ptsz(s->function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

CALL(cuLaunchKernel)
{
    return launch(s);
}

CALL(cuLaunchKernel_ptsz)
{
    return launch_ptsz(s);
}

CALL(cuLaunchKernelEx)
{
    CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
                             .blockDimY = 1, .blockDimZ = 1, .hStream = s->stream};

    return (int)s->api->cuLaunchKernelEx(&config, s->function, NULL, NULL);
}

CALL(cuLaunchKernelEx_ptsz)
{
    CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
                             .blockDimY = 1, .blockDimZ = 1};

    return (int)s->api->cuLaunchKernelEx_ptsz(&config, s->function, NULL, NULL);
}

CALL(cuLaunchCooperativeKernel)
{
    return (int)s->api->cuLaunchCooperativeKernel(s->function, 1, 1, 1, 1, 1, 1, 0, s->stream,
                                                  NULL);
}

CALL(cuLaunchCooperativeKernel_ptsz)
{
    return (int)s->api->cuLaunchCooperativeKernel_ptsz(s->function, 1, 1, 1, 1, 1, 1, 0, NULL,
                                                       NULL);
}

CALL(cuLaunchCooperativeKernelMultiDevice)
{
    CUDA_LAUNCH_PARAMS one = {.function = s->function, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
                              .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1,
                              .hStream = s->stream};

    return (int)s->api->cuLaunchCooperativeKernelMultiDevice(&one, 1, 0);
}

CALL(cuLaunch)
{
    return (int)s->api->cuLaunch(s->function);
}

CALL(cuLaunchGrid)
{
    return (int)s->api->cuLaunchGrid(s->function, 2, 1);
}

CALL(cuLaunchGridAsync)
{
    return (int)s->api->cuLaunchGridAsync(s->function, 2, 1, s->stream);
}

static const struct snippet all[] = {
    SNIPPET_ALONE(cuStreamBeginCapture, nothing, end),
    SNIPPET_REFUSED(cuStreamBeginCaptureToCig, nothing, nothing, CUDA_ERROR_INVALID_CONTEXT),
    SNIPPET_REFUSED(cuStreamBeginCaptureToCig_ptsz, nothing, nothing, CUDA_ERROR_INVALID_CONTEXT),
    SNIPPET_ALONE(cuStreamBeginCaptureToGraph, make_graph, end),
    SNIPPET_ALONE(cuStreamBeginCaptureToGraph_ptsz, make_graph, end_ptsz),
    SNIPPET_ALONE(cuStreamBeginCapture_ptsz, nothing, end_ptsz),
    SNIPPET_ALONE(cuStreamBeginCapture_v2, nothing, end),
    SNIPPET_ALONE(cuStreamBeginCapture_v2_ptsz, nothing, end_ptsz),
    SNIPPET_ALONE(cuStreamBeginRecaptureToGraph, make_graph, end),
    SNIPPET_ALONE(cuStreamBeginRecaptureToGraph_ptsz, make_graph, end_ptsz),
    SNIPPET_ALONE(cuStreamEndCapture, call_cuStreamBeginCapture_v2, destroy_graph),
    SNIPPET_REFUSED(cuStreamEndCaptureToCig, nothing, nothing, CUDA_ERROR_INVALID_VALUE),
    SNIPPET_REFUSED(cuStreamEndCaptureToCig_ptsz, nothing, nothing, CUDA_ERROR_INVALID_VALUE),
    SNIPPET_ALONE(cuStreamEndCapture_ptsz, call_cuStreamBeginCapture_v2_ptsz, destroy_graph),
    SNIPPET(cuEventSynchronize, record, destroy_event),
    SNIPPET(cuStreamDestroy, make_stream, nothing),
    SNIPPET(cuStreamDestroy_v2, make_stream, nothing),
    SNIPPET(cuStreamSynchronize, launch, nothing),
    SNIPPET(cuStreamSynchronize_ptsz, launch_ptsz, nothing),
    SNIPPET(cuLaunch, nothing, wait),
    SNIPPET(cuLaunchCooperativeKernel, nothing, wait),
    SNIPPET(cuLaunchCooperativeKernelMultiDevice, nothing, wait),
    SNIPPET(cuLaunchCooperativeKernel_ptsz, nothing, wait),
    SNIPPET(cuLaunchGrid, nothing, wait),
    SNIPPET(cuLaunchGridAsync, nothing, wait),
    SNIPPET(cuLaunchKernel, nothing, wait),
    SNIPPET(cuLaunchKernelEx, nothing, wait),
    SNIPPET(cuLaunchKernelEx_ptsz, nothing, wait),
    SNIPPET(cuLaunchKernel_ptsz, nothing, wait),
};
const struct snippets matrix_streams = SNIPPETS(all);
