/* What of execution only the simulator shows: images, exact times, stale handles, recapture, several
 * devices. Checks as in tests/conformance. */
#include "conformance/check.h"
#include "cuda_more.h"

static const char *images_are_what_the_comment_of_cuda_image_says(void)
{
    static const char *const wrong[] = {
        "hami-sim 2\n", "hami-sim 1 \n", "hami-sim 1\nkernel\n", "hami-sim 1\nkernel k\n",
        "hami-sim 1\nkernel k ns\n", "hami-sim 1\nkernel k ns=-1\n", "hami-sim 1\nkernel k ns=1x\n",
        "hami-sim 1\nkernel k ns=1 width=0\n", "hami-sim 1\nkernel k ns=1 width=1001\n",
        "hami-sim 1\nkernel k ns=99999999999999999999\n", "hami-sim 1\nglobal g 0\n",
        "hami-sim 1\nglobal g\n", "hami-sim 1\nglobal g 8 8\n", "hami-sim 1\nshader s ns=1\n",
        "hami-sim 1\nkernel k ns=1 colour=3\n", ""};
    CUmodule module;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        if (cuModuleLoadData(&module, wrong[i]) != CUDA_ERROR_INVALID_IMAGE)
            return told("accepted: %s", wrong[i]);
    OK(cuModuleLoadData(&module, "hami-sim 1"));
    OK(cuModuleUnload(module));
    OK(cuModuleLoadData(&module, "hami-sim 1\n\n# a comment\n  kernel  k ns=1 width=1000 "
                                 "per_block_ns=2 code=3 local=4\nglobal g 8"));
    OK(cuModuleUnload(module));
    IS(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
    return NULL;
}

/* Elapsed device time of one launch, in microseconds. */
static const char *timed(CUfunction function, unsigned int blocks, void **parameters, double *us)
{
    CUevent start, end;
    CUstream stream;
    float ms;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuLaunchKernel(function, blocks, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    OK(cuEventRecord(start, stream));
    OK(cuLaunchKernel(function, blocks, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    OK(cuEventRecord(end, stream));
    OK(cuEventSynchronize(end));
    OK(cuEventElapsedTime(&ms, start, end));
    OK(cuEventDestroy_v2(start));
    OK(cuEventDestroy_v2(end));
    OK(cuStreamDestroy_v2(stream));
    *us = (double)ms * 1000;
    return NULL;
}

static const char *a_kernel_takes_the_time_its_image_says(void)
{
    uint64_t ns = 4000000;
    void *parameters[] = {&ns};
    CUfunction fixed, growing, dynamic;
    CUmodule module;
    double us;
    const char *wrong;

    OK(cuModuleLoadData(&module, "hami-sim 1\nkernel fixed ns=3000000\n"
                                 "kernel growing ns=1000000 per_block_ns=100000\n"
                                 "kernel dynamic ns=7\n"));
    OK(cuModuleGetFunction(&fixed, module, "fixed"));
    OK(cuModuleGetFunction(&growing, module, "growing"));
    OK(cuModuleGetFunction(&dynamic, module, "dynamic"));
    if ((wrong = timed(fixed, 5, NULL, &us)))
        return wrong;
    SO(us > 2999 && us < 3001);
    if ((wrong = timed(growing, 20, NULL, &us)))
        return wrong;
    SO(us > 2999 && us < 3001);
    if ((wrong = timed(dynamic, 1, parameters, &us)))
        return wrong;
    SO(us > 3999 && us < 4001);
    IS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(dynamic, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(cuModuleUnload(module));
    IS(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(fixed, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    return NULL;
}

static const char *a_parameter_set_the_old_way_counts(void)
{
    uint64_t ns = 20000000;
    CUfunction dynamic;
    CUmodule module;

    OK(cuModuleLoadData(&module, "hami-sim 1\nkernel dynamic ns=7\n"));
    OK(cuModuleGetFunction(&dynamic, module, "dynamic"));
    OK(cuParamSetv(dynamic, 0, &ns, sizeof(ns)));
    OK(cuParamSetSize(dynamic, sizeof(ns)));
    OK(cuLaunch(dynamic));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    OK(cuModuleUnload(module));
    OK(cuCtxSynchronize());
    return NULL;
}

/* ---- Handles of what is gone ---- */

static const char *stale_handles_are_refused(void)
{
    CUcontext context;
    CUstream stream;
    CUevent event;
    CUgraph graph;

    OK(cuCtxCreate_v2(&context, 0, device));
    OK(cuStreamCreate(&stream, 0));
    OK(cuEventCreate(&event, 0));
    OK(cuCtxDestroy_v2(context));
    IS(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(stream));
    IS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(context));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(context));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphDestroy(graph));
    IS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph));
    for (int i = 0; i < 3000; i++) { /* as many as make handles be used again */
        OK(cuEventCreate(&event, 0));
        OK(cuEventDestroy_v2(event));
        IS(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy_v2(event));
    }
    return NULL;
}

static const char *a_context_destroyed_elsewhere_is_known_to_be(void)
{
    CUcontext context;
    CUstream stream;

    OK(cuCtxCreate_v2(&context, 0, device));
    OK(cuCtxPushCurrent_v2(primary));
    OK(cuCtxDestroy_v2(context)); /* it is below the top of this thread's stack, and stays there */
    OK(cuCtxPopCurrent_v2(NULL));
    IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamCreate(&stream, 0));
    OK(cuCtxPopCurrent_v2(NULL));
    return NULL;
}

/* ---- Recapture ---- */

static int changes;

static CUresult accept(void *data, CUgraphNode node, const CUgraphNodeParams *original,
                       const CUgraphNodeParams *recapture, CUgraphRecaptureStatus status)
{
    (void)node;
    if (status != CU_GRAPH_RECAPTURE_ELIGIBLE_FOR_UPDATE ||
        original->kernel.gridDimX == recapture->kernel.gridDimX)
        return CUDA_ERROR_UNKNOWN;
    changes++;
    return *(CUresult *)data;
}

static const char *a_recapture_changes_parameters_that_the_program_accepts(void)
{
    CUresult answer = CUDA_SUCCESS;
    CUgraph graph = NULL, same = NULL;
    CUfunction function;
    CUmodule module;
    CUstream stream;

    OK(cuModuleLoadData(&module, "hami-sim 1\nkernel k ns=10\n"));
    OK(cuModuleGetFunction(&function, module, "k"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (unsigned int i = 1; i <= 2; i++)
        OK(cuLaunchKernel(function, i, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    OK(cuStreamEndCapture(stream, &graph));

    changes = 0;
    OK(cuStreamBeginRecaptureToGraph(stream, CU_STREAM_CAPTURE_MODE_RELAXED, graph, accept,
                                     &answer));
    for (unsigned int i = 1; i <= 2; i++)
        OK(cuLaunchKernel(function, i * i, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    OK(cuStreamEndCapture(stream, &same));
    SO(same == graph && changes == 1);

    OK(cuStreamBeginRecaptureToGraph(stream, CU_STREAM_CAPTURE_MODE_RELAXED, graph, accept,
                                     &answer));
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    IS(CUDA_ERROR_GRAPH_RECAPTURE_FAILURE, cuStreamEndCapture(stream, &same));

    answer = CUDA_ERROR_NOT_PERMITTED;
    OK(cuStreamBeginRecaptureToGraph(stream, CU_STREAM_CAPTURE_MODE_RELAXED, graph, accept,
                                     &answer));
    IS(CUDA_ERROR_GRAPH_RECAPTURE_FAILURE,
       cuLaunchKernel(function, 9, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    IS(CUDA_ERROR_GRAPH_RECAPTURE_FAILURE, cuStreamEndCapture(stream, &same));
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy_v2(stream));
    OK(cuModuleUnload(module));
    return NULL;
}

static const char *capture_for_a_graphics_program_needs_its_context(void)
{
    CUstreamCigParam shared = {.streamSharedDataType = STREAM_CIG_DATA_TYPE_D3D12_COMMAND_LIST};
    CUstreamCigCaptureParams parameters = {&shared};
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuStreamBeginCaptureToCig(stream, &parameters));
    IS(CUDA_ERROR_INVALID_VALUE, cuStreamBeginCaptureToCig(stream, NULL));
    FAILS(cuStreamEndCaptureToCig(stream));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static const char *devices_reach_each_other_once_access_is_enabled(void)
{
    CUcontext other;
    int possible = 0;

    OK(cuDeviceCanAccessPeer(&possible, 0, 1));
    SO(possible == 1);
    OK(cuDeviceCanAccessPeer(&possible, 0, 0));
    SO(possible == 0);
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    IS(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(other));
    OK(cuCtxEnablePeerAccess(other, 0));
    IS(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(other, 0));
    OK(cuCtxDisablePeerAccess(other));
    OK(cuDevicePrimaryCtxRelease_v2(1));
    return NULL;
}

static const char *launches_on_several_devices_are_one_call(void)
{
    CUDA_LAUNCH_PARAMS launches[2] = {{0}};
    CUcontext context[2];
    CUmodule module[2];
    CUstream stream[2];

    for (int i = 0; i < 2; i++) {
        OK(cuDevicePrimaryCtxRetain(&context[i], i));
        OK(cuCtxSetCurrent(context[i]));
        OK(cuModuleLoadData(&module[i], "hami-sim 1\nkernel k ns=5000000\n"));
        OK(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
        OK(cuModuleGetFunction(&launches[i].function, module[i], "k"));
        launches[i].gridDimX = launches[i].gridDimY = launches[i].gridDimZ = 1;
        launches[i].blockDimX = launches[i].blockDimY = launches[i].blockDimZ = 1;
        launches[i].hStream = stream[i];
    }
    OK(cuLaunchCooperativeKernelMultiDevice(launches, 2, 0));
    for (int i = 0; i < 2; i++)
        IS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream[i]));
    for (int i = 0; i < 2; i++)
        OK(cuStreamSynchronize(stream[i]));
    FAILS(cuLaunchCooperativeKernelMultiDevice(launches, 3, 0));
    launches[1] = launches[0];
    IS(CUDA_ERROR_INVALID_DEVICE, cuLaunchCooperativeKernelMultiDevice(launches, 2, 0));
    /* A kernel node on one device, in a graph launched on the other. */
    CUDA_KERNEL_NODE_PARAMS there = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
                                     .blockDimY = 1, .blockDimZ = 1};
    CUgraphNode node;
    CUgraphExec exec;
    CUgraph graph;
    OK(cuModuleGetFunction(&there.func, module[1], "k"));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &there));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream[0]));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream[0]));
    OK(cuStreamSynchronize(stream[0]));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    for (int i = 0; i < 2; i++) {
        OK(cuCtxSetCurrent(context[i]));
        OK(cuStreamDestroy_v2(stream[i]));
        OK(cuModuleUnload(module[i]));
        OK(cuDevicePrimaryCtxRelease_v2(i));
    }
    return NULL;
}

static const struct check checks[] = {
    CHECK(images_are_what_the_comment_of_cuda_image_says),
    CHECK(a_kernel_takes_the_time_its_image_says),
    CHECK(a_parameter_set_the_old_way_counts),
    CHECK(stale_handles_are_refused),
    CHECK(a_context_destroyed_elsewhere_is_known_to_be),
    CHECK(a_recapture_changes_parameters_that_the_program_accepts),
    CHECK(capture_for_a_graphics_program_needs_its_context),
    CHECK(devices_reach_each_other_once_access_is_enabled),
    CHECK(launches_on_several_devices_are_one_call),
};

CONFORMANCE(checks)
