/* What of execution only the simulator shows: which spelling ran, what a caller of another ABI gets,
 * a process without cuInit, a forked child. Checks as in tests/conformance.
 *
 *     sim_execution                the checks
 *     sim_execution uninitialised  before any cuInit, nothing works and nothing connects
 *     sim_execution STEPS          takes and gives back what a driver takes by itself, a line per
 *                                  step; waits for a line before the next (see `walks`) */
#include <sys/wait.h>

#include "../conformance/check.h"
#include "client.h"
#include "cuda_more.h"

/* Every spelling of the execution half that needs cuInit, called with arguments that it refuses
 * where no context is current. */
#define SPELLINGS(CALL)                                                                            \
    CALL(cuStreamBeginCapture, (bad))                                                              \
    CALL(cuStreamBeginCapture_ptsz, (bad))                                                         \
    CALL(cuStreamBeginCapture_v2, (bad, 0))                                                        \
    CALL(cuStreamBeginCapture_v2_ptsz, (bad, 0))                                                   \
    CALL(cuStreamBeginCaptureToGraph, (bad, bad, NULL, NULL, 0, 0))                                \
    CALL(cuStreamBeginCaptureToGraph_ptsz, (bad, bad, NULL, NULL, 0, 0))                           \
    CALL(cuStreamBeginRecaptureToGraph, (bad, 0, bad, NULL, NULL))                                 \
    CALL(cuStreamBeginRecaptureToGraph_ptsz, (bad, 0, bad, NULL, NULL))                            \
    CALL(cuStreamBeginCaptureToCig, (bad, NULL))                                                   \
    CALL(cuStreamBeginCaptureToCig_ptsz, (bad, NULL))                                              \
    CALL(cuStreamEndCaptureToCig, (bad))                                                           \
    CALL(cuStreamEndCaptureToCig_ptsz, (bad))                                                      \
    CALL(cuStreamEndCapture, (bad, NULL))                                                          \
    CALL(cuStreamEndCapture_ptsz, (bad, NULL))                                                     \
    CALL(cuThreadExchangeStreamCaptureMode, (NULL))                                                \
    CALL(cuStreamIsCapturing, (bad, NULL))                                                         \
    CALL(cuStreamIsCapturing_ptsz, (bad, NULL))                                                    \
    CALL(cuStreamGetCaptureInfo, (bad, NULL, NULL))                                                \
    CALL(cuStreamGetCaptureInfo_ptsz, (bad, NULL, NULL))                                           \
    CALL(cuStreamGetCaptureInfo_v2, (bad, NULL, NULL, NULL, NULL, NULL))                           \
    CALL(cuStreamGetCaptureInfo_v2_ptsz, (bad, NULL, NULL, NULL, NULL, NULL))                      \
    CALL(cuStreamGetCaptureInfo_v3, (bad, NULL, NULL, NULL, NULL, NULL, NULL))                     \
    CALL(cuStreamGetCaptureInfo_v3_ptsz, (bad, NULL, NULL, NULL, NULL, NULL, NULL))                \
    CALL(cuStreamUpdateCaptureDependencies, (bad, NULL, 0, 0))                                     \
    CALL(cuStreamUpdateCaptureDependencies_ptsz, (bad, NULL, 0, 0))                                \
    CALL(cuStreamUpdateCaptureDependencies_v2, (bad, NULL, NULL, 0, 0))                            \
    CALL(cuStreamUpdateCaptureDependencies_v2_ptsz, (bad, NULL, NULL, 0, 0))                       \
    CALL(cuCtxCreate, (NULL, 0, 0))                                                                \
    CALL(cuCtxCreate_v2, (NULL, 0, 0))                                                             \
    CALL(cuCtxCreate_v3, (NULL, NULL, 0, 0, 0))                                                    \
    CALL(cuCtxCreate_v4, (NULL, NULL, 0, 0))                                                       \
    CALL(cuCtxDestroy, (bad))                                                                      \
    CALL(cuCtxDestroy_v2, (bad))                                                                   \
    CALL(cuCtxAttach, (NULL, 0))                                                                   \
    CALL(cuCtxDetach, (bad))                                                                       \
    CALL(cuCtxPushCurrent, (bad))                                                                  \
    CALL(cuCtxPushCurrent_v2, (bad))                                                               \
    CALL(cuCtxPopCurrent, (NULL))                                                                  \
    CALL(cuCtxPopCurrent_v2, (NULL))                                                               \
    CALL(cuCtxSetCurrent, (bad))                                                                   \
    CALL(cuCtxGetCurrent, (NULL))                                                                  \
    CALL(cuCtxGetDevice, (NULL))                                                                   \
    CALL(cuCtxGetDevice_v2, (NULL, bad))                                                           \
    CALL(cuCtxGetApiVersion, (bad, &number))                                                       \
    CALL(cuCtxGetId, (bad, &big))                                                                  \
    CALL(cuCtxGetFlags, (NULL))                                                                    \
    CALL(cuCtxSynchronize, ())                                                                     \
    CALL(cuCtxSynchronize_v2, (bad))                                                               \
    CALL(cuDeviceGet, (NULL, 0))                                                                   \
    CALL(cuDeviceGetCount, (NULL))                                                                 \
    CALL(cuDeviceGetName, (NULL, 0, 0))                                                            \
    CALL(cuDeviceGetUuid, (NULL, 0))                                                               \
    CALL(cuDeviceGetUuid_v2, (NULL, 0))                                                            \
    CALL(cuDeviceGetPCIBusId, (NULL, 0, 0))                                                        \
    CALL(cuDeviceGetByPCIBusId, (NULL, NULL))                                                      \
    CALL(cuDeviceGetAttribute, (NULL, 1, 0))                                                       \
    CALL(cuDeviceCanAccessPeer, (NULL, 0, 0))                                                      \
    CALL(cuEventCreate, (NULL, 0))                                                                 \
    CALL(cuEventDestroy, (bad))                                                                    \
    CALL(cuEventDestroy_v2, (bad))                                                                 \
    CALL(cuEventRecord, (bad, NULL))                                                               \
    CALL(cuEventRecord_ptsz, (bad, NULL))                                                          \
    CALL(cuEventRecordWithFlags, (bad, NULL, 0))                                                   \
    CALL(cuEventRecordWithFlags_ptsz, (bad, NULL, 0))                                              \
    CALL(cuEventQuery, (bad))                                                                      \
    CALL(cuEventSynchronize, (bad))                                                                \
    CALL(cuEventElapsedTime, (NULL, bad, bad))                                                     \
    CALL(cuEventElapsedTime_v2, (NULL, bad, bad))                                                  \
    CALL(cuStreamWaitEvent, (bad, bad, 0))                                                         \
    CALL(cuStreamWaitEvent_ptsz, (bad, bad, 0))                                                    \
    CALL(cuFuncLoad, (bad))                                                                        \
    CALL(cuFuncIsLoaded, (NULL, bad))                                                              \
    CALL(cuFuncGetModule, (NULL, bad))                                                             \
    CALL(cuFuncGetName, (NULL, bad))                                                               \
    CALL(cuFuncGetAttribute, (NULL, 0, bad))                                                       \
    CALL(cuFuncSetAttribute, (bad, 8, 0))                                                          \
    CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, (NULL, bad, 1, 0))                           \
    CALL(cuFuncSetBlockShape, (bad, 1, 1, 1))                                                      \
    CALL(cuParamSetSize, (bad, 0))                                                                 \
    CALL(cuParamSetv, (bad, 0, NULL, 0))                                                           \
    CALL(cuGraphCreate, (NULL, 0))                                                                 \
    CALL(cuGraphDestroy, (bad))                                                                    \
    CALL(cuGraphClone, (NULL, bad))                                                                \
    CALL(cuGraphNodeFindInClone, (NULL, bad, bad))                                                 \
    CALL(cuGraphGetNodes, (bad, NULL, NULL))                                                       \
    CALL(cuGraphNodeGetType, (bad, NULL))                                                          \
    CALL(cuGraphNodeGetDependencies, (bad, NULL, NULL))                                            \
    CALL(cuGraphNodeGetDependencies_v2, (bad, NULL, NULL, NULL))                                   \
    CALL(cuGraphDestroyNode, (bad))                                                                \
    CALL(cuGraphAddDependencies, (bad, NULL, NULL, 0))                                             \
    CALL(cuGraphAddDependencies_v2, (bad, NULL, NULL, NULL, 0))                                    \
    CALL(cuGraphInstantiate, (NULL, bad, NULL, NULL, 0))                                           \
    CALL(cuGraphInstantiate_v2, (NULL, bad, NULL, NULL, 0))                                        \
    CALL(cuGraphInstantiateWithFlags, (NULL, bad, 0))                                              \
    CALL(cuGraphInstantiateWithParams, (NULL, bad, NULL))                                          \
    CALL(cuGraphInstantiateWithParams_ptsz, (NULL, bad, NULL))                                     \
    CALL(cuGraphExecDestroy, (bad))                                                                \
    CALL(cuGraphExecGetFlags, (bad, NULL))                                                         \
    CALL(cuGraphLaunch, (bad, NULL))                                                               \
    CALL(cuGraphLaunch_ptsz, (bad, NULL))                                                          \
    CALL(cuGraphUpload, (bad, NULL))                                                               \
    CALL(cuGraphUpload_ptsz, (bad, NULL))                                                          \
    CALL(cuGraphAddNode, (NULL, bad, NULL, 0, NULL))                                               \
    CALL(cuGraphAddNode_v2, (NULL, bad, NULL, NULL, 0, NULL))                                      \
    CALL(cuGraphAddNode_v3, (NULL, bad, NULL, NULL, 0, NULL))                                      \
    CALL(cuGraphAddEmptyNode, (NULL, bad, NULL, 0))                                                \
    CALL(cuGraphAddKernelNode, (NULL, bad, NULL, 0, NULL))                                         \
    CALL(cuGraphAddKernelNode_v2, (NULL, bad, NULL, 0, NULL))                                      \
    CALL(cuGraphAddMemsetNode, (NULL, bad, NULL, 0, NULL, NULL))                                   \
    CALL(cuGraphAddMemcpyNode, (NULL, bad, NULL, 0, NULL, NULL))                                   \
    CALL(cuGraphAddHostNode, (NULL, bad, NULL, 0, NULL))                                           \
    CALL(cuGraphAddChildGraphNode, (NULL, bad, NULL, 0, bad))                                      \
    CALL(cuGraphChildGraphNodeGetGraph, (bad, NULL))                                               \
    CALL(cuGraphAddMemAllocNode, (NULL, bad, NULL, 0, NULL))                                       \
    CALL(cuGraphMemAllocNodeGetParams, (bad, NULL))                                                \
    CALL(cuGraphAddMemFreeNode, (NULL, bad, NULL, 0, 0))                                           \
    CALL(cuGraphMemFreeNodeGetParams, (bad, NULL))                                                 \
    CALL(cuGraphKernelNodeGetParams, (bad, NULL))                                                  \
    CALL(cuGraphKernelNodeGetParams_v2, (bad, NULL))                                               \
    CALL(cuGraphKernelNodeSetParams, (bad, NULL))                                                  \
    CALL(cuGraphKernelNodeSetParams_v2, (bad, NULL))                                               \
    CALL(cuGraphExecKernelNodeSetParams, (bad, bad, NULL))                                         \
    CALL(cuGraphExecKernelNodeSetParams_v2, (bad, bad, NULL))                                      \
    CALL(cuGraphExecNodeSetParams, (bad, bad, NULL))                                               \
    CALL(cuGraphExecUpdate, (bad, bad, NULL, NULL))                                                \
    CALL(cuGraphExecUpdate_v2, (bad, bad, NULL))                                                   \
    CALL(cuDeviceGetDevResource, (0, NULL, 1))                                                     \
    CALL(cuDevSmResourceSplitByCount, (NULL, NULL, NULL, NULL, 0, 0))                              \
    CALL(cuDevResourceGenerateDesc, (NULL, NULL, 0))                                               \
    CALL(cuGreenCtxCreate, (NULL, bad, 0, 1))                                                      \
    CALL(cuGreenCtxDestroy, (bad))                                                                 \
    CALL(cuCtxFromGreenCtx, (NULL, bad))                                                           \
    CALL(cuGreenCtxStreamCreate, (NULL, bad, 1, 0))                                                \
    CALL(cuLaunchKernel, (bad, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL))                             \
    CALL(cuLaunchKernel_ptsz, (bad, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL))                        \
    CALL(cuLaunchCooperativeKernel, (bad, 1, 1, 1, 1, 1, 1, 0, NULL, NULL))                        \
    CALL(cuLaunchCooperativeKernel_ptsz, (bad, 1, 1, 1, 1, 1, 1, 0, NULL, NULL))                   \
    CALL(cuLaunchKernelEx, (NULL, bad, NULL, NULL))                                                \
    CALL(cuLaunchKernelEx_ptsz, (NULL, bad, NULL, NULL))                                           \
    CALL(cuLaunchCooperativeKernelMultiDevice, (NULL, 1, 0))                                       \
    CALL(cuLaunch, (bad))                                                                          \
    CALL(cuLaunchGrid, (bad, 1, 1))                                                                \
    CALL(cuLaunchGridAsync, (bad, 1, 1, NULL))                                                     \
    CALL(cuLaunchHostFunc, (NULL, NULL, NULL))                                                     \
    CALL(cuLaunchHostFunc_ptsz, (NULL, NULL, NULL))                                                \
    CALL(cuLaunchHostFunc_v2, (NULL, NULL, NULL, 0))                                               \
    CALL(cuLaunchHostFunc_v2_ptsz, (NULL, NULL, NULL, 0))                                          \
    CALL(cuStreamAddCallback, (NULL, NULL, NULL, 0))                                               \
    CALL(cuStreamAddCallback_ptsz, (NULL, NULL, NULL, 0))                                          \
    CALL(cuLibraryLoadData, (NULL, NULL, NULL, NULL, 0, NULL, NULL, 0))                            \
    CALL(cuLibraryLoadFromFile, (NULL, NULL, NULL, NULL, 0, NULL, NULL, 0))                        \
    CALL(cuLibraryUnload, (bad))                                                                   \
    CALL(cuLibraryGetKernel, (NULL, bad, "x"))                                                     \
    CALL(cuLibraryGetKernelCount, (NULL, bad))                                                     \
    CALL(cuLibraryGetModule, (NULL, bad))                                                          \
    CALL(cuLibraryGetUnifiedFunction, (NULL, bad, "x"))                                            \
    CALL(cuKernelGetFunction, (NULL, bad))                                                         \
    CALL(cuKernelGetName, (NULL, bad))                                                             \
    CALL(cuCtxSetLimit, (2, 0))                                                                    \
    CALL(cuCtxGetLimit, (NULL, 2))                                                                 \
    CALL(cuCtxEnablePeerAccess, (bad, 0))                                                          \
    CALL(cuCtxDisablePeerAccess, (bad))                                                            \
    CALL(cuModuleLoad, (NULL, "x"))                                                                \
    CALL(cuModuleLoadData, (NULL, NULL))                                                           \
    CALL(cuModuleLoadDataEx, (NULL, NULL, 0, NULL, NULL))                                          \
    CALL(cuModuleLoadFatBinary, (NULL, NULL))                                                      \
    CALL(cuModuleUnload, (bad))                                                                    \
    CALL(cuModuleGetFunction, (NULL, bad, "x"))                                                    \
    CALL(cuModuleGetGlobal, (NULL, NULL, bad, "x"))                                                \
    CALL(cuModuleGetGlobal_v2, (NULL, NULL, bad, "x"))                                             \
    CALL(cuModuleGetLoadingMode, (NULL))                                                           \
    CALL(cuDevicePrimaryCtxRetain, (NULL, 0))                                                      \
    CALL(cuDevicePrimaryCtxRelease, (99))                                                          \
    CALL(cuDevicePrimaryCtxRelease_v2, (99))                                                       \
    CALL(cuDevicePrimaryCtxReset, (99))                                                            \
    CALL(cuDevicePrimaryCtxReset_v2, (99))                                                         \
    CALL(cuDevicePrimaryCtxGetState, (0, NULL, NULL))                                              \
    CALL(cuDevicePrimaryCtxSetFlags, (0, 0x10000))                                                 \
    CALL(cuDevicePrimaryCtxSetFlags_v2, (0, 0x10000))                                              \
    CALL(cuStreamCreate, (NULL, 0))                                                                \
    CALL(cuStreamCreateWithPriority, (NULL, 0, 0))                                                 \
    CALL(cuCtxGetStreamPriorityRange, (NULL, NULL))                                                \
    CALL(cuStreamDestroy, (bad))                                                                   \
    CALL(cuStreamDestroy_v2, (bad))                                                                \
    CALL(cuStreamQuery, (bad))                                                                     \
    CALL(cuStreamQuery_ptsz, (bad))                                                                \
    CALL(cuStreamSynchronize, (bad))                                                               \
    CALL(cuStreamSynchronize_ptsz, (bad))                                                          \
    CALL(cuStreamGetCtx, (bad, NULL))                                                              \
    CALL(cuStreamGetCtx_ptsz, (bad, NULL))                                                         \
    CALL(cuStreamGetCtx_v2, (bad, NULL, NULL))                                                     \
    CALL(cuStreamGetCtx_v2_ptsz, (bad, NULL, NULL))                                                \
    CALL(cuStreamGetFlags, (bad, NULL))                                                            \
    CALL(cuStreamGetFlags_ptsz, (bad, NULL))                                                       \
    CALL(cuStreamGetPriority, (bad, NULL))                                                         \
    CALL(cuStreamGetPriority_ptsz, (bad, NULL))                                                    \
    CALL(cuStreamGetId, (bad, NULL))                                                               \
    CALL(cuStreamGetId_ptsz, (bad, NULL))

/* What works without cuInit. */
#define ALWAYS(CALL)                                                                               \
    CALL(cuInit, (1))                                                                              \
    CALL(cuDriverGetVersion, (NULL))                                                               \
    CALL(cuGetErrorName, (0, NULL))                                                                \
    CALL(cuGetErrorString, (0, NULL))                                                              \
    CALL(cuGetExportTable, (NULL, NULL))                                                           \
    CALL(cuGetProcAddress, (NULL, NULL, 12000, 0))                                                 \
    CALL(cuGetProcAddress_v2, (NULL, NULL, 12000, 0, NULL))

static char no_object[1024] __attribute__((aligned(64)));
static void *bad = no_object;
static unsigned int number;
static unsigned long long big;

/* Each answers `expected`, or (CUDA_SUCCESS) anything but success. */
static const char *call_all(CUresult expected)
{
    CUresult result;

#define CALL(name, arguments)                                                                      \
    result = name arguments;                                                                       \
    if (expected == CUDA_SUCCESS ? result == CUDA_SUCCESS : result != expected)                    \
        return told(#name ": %d", (int)result);                                                    \
    if (strcmp(hami_sim_last_call(), #name) != 0)                                                  \
        return told(#name ": ran %s", hami_sim_last_call());
    SPELLINGS(CALL)
    expected = CUDA_ERROR_INVALID_VALUE;
    ALWAYS(CALL)
#undef CALL
    return NULL;
}

static const char *every_spelling_runs_itself_and_refuses_nonsense(void)
{
    OK(cuCtxSetCurrent(NULL));
    return call_all(CUDA_SUCCESS);
}

static const char *nothing_works_in_a_forked_child(void)
{
    int status = -1;
    pid_t child = fork();
    CUstream stream;

    if (child == 0)
        _exit(cuInit(0) != CUDA_ERROR_NOT_INITIALIZED ||
              call_all(CUDA_ERROR_NOT_INITIALIZED) != NULL);
    SO(waitpid(child, &status, 0) == child && status == 0);
    OK(cuStreamCreate(&stream, 0));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static const char *no_export_table_is_known(void)
{
    CUuuid id = {"0123456789abcde"};
    const void *table = NULL;

    IS(CUDA_ERROR_INVALID_VALUE, cuGetExportTable(&table, &id));
    SO(table == NULL);
    return NULL;
}

/* ---- Callers of another ABI. Each cast is what a wrong table of functions does. ---- */

typedef void (*any_function)(void);

static any_function out_of_a_table(any_function function)
{
    static volatile any_function table[1]; /* the compiler cannot know what is called */

    table[0] = function;
    return table[0];
}
#define AS(type, function) ((type)out_of_a_table((any_function)function))

static const char *contexts_refuse_the_arguments_of_other_versions(void)
{
    CUctxCreateParams parameters = {0};
    CUcontext context = NULL;

    typedef CUresult (*v3)(CUcontext *, void *, int, unsigned int, CUdevice);
    typedef CUresult (*v4)(CUcontext *, void *, unsigned int, CUdevice);
    FAILS(AS(v4, cuCtxCreate_v2)(&context, &parameters, 0, device));
    FAILS(AS(v4, cuCtxCreate)(&context, &parameters, 0, device));
    FAILS(AS(v3, cuCtxCreate_v2)(&context, &parameters, 1, 0, device));
    FAILS(AS(v4, cuCtxCreate_v3)(&context, &parameters, 0, device));
    FAILS(cuCtxCreate_v4(&context, (CUctxCreateParams *)(uintptr_t)CU_CTX_SCHED_SPIN, 0, device));
    SO(context == NULL);
    return NULL;
}

static const char *graphs_refuse_the_arguments_of_other_versions(void)
{
    CUgraphNodeParams empty = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    CUDA_KERNEL_NODE_PARAMS kernel = {.kern = bad, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
                                      .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
    CUgraphNode node, other;
    CUgraphExec exec;
    CUgraph graph;
    char log[64];

    typedef CUresult (*add)(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, void *);
    typedef CUresult (*add_edges)(CUgraphNode *, CUgraph, const CUgraphNode *, const void *, size_t,
                                  void *);
    typedef CUresult (*depend)(CUgraph, const CUgraphNode *, const CUgraphNode *, size_t);
    typedef CUresult (*old)(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t);
    typedef CUresult (*flags)(CUgraphExec *, CUgraph, unsigned long long);
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEmptyNode(&node, graph, NULL, 0));
    OK(cuGraphAddEmptyNode(&other, graph, NULL, 0));
    FAILS(AS(add_edges, cuGraphAddNode)(&other, graph, &node, NULL, 1, &empty));
    FAILS(AS(add, cuGraphAddNode_v2)(&other, graph, &node, 1, &empty));
    FAILS(AS(depend, cuGraphAddDependencies_v2)(graph, &node, &other, 1));
    FAILS(AS(old, cuGraphInstantiateWithFlags)(&exec, graph, &other, log, sizeof(log)));
    FAILS(AS(flags, cuGraphInstantiate)(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD));
    FAILS(AS(flags, cuGraphInstantiate_v2)(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD));
    FAILS(AS(flags, cuGraphInstantiateWithParams)(&exec, graph, 2));
    FAILS(AS(add, cuGraphAddKernelNode)(&other, graph, NULL, 0, &kernel));
    OK(cuGraphDestroy(graph));
    return NULL;
}

static const char *launches_refuse_the_arguments_of_other_versions(void)
{
    CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
                             .blockDimY = 1, .blockDimZ = 1, .numAttrs = 1};
    CUmodule module;
    CUfunction function;

    OK(cuModuleLoadData(&module, "hami-sim 1\nkernel k ns=0\n"));
    OK(cuModuleGetFunction(&function, module, "k"));
    FAILS(cuLaunchKernelEx(&config, function, NULL, NULL)); /* an attribute, and none there */
    FAILS(cuModuleLoadDataEx(&module, "hami-sim 1\n", 1, (CUjit_option *)1, NULL));
    FAILS(cuModuleLoadDataEx(&module, "hami-sim 1\n", 0x7fff0000, NULL, NULL));
    OK(cuModuleUnload(module));
    return NULL;
}

/* ---- Images ---- */

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
    CHECK(every_spelling_runs_itself_and_refuses_nonsense),
    CHECK(nothing_works_in_a_forked_child),
    CHECK(no_export_table_is_known),
    CHECK(contexts_refuse_the_arguments_of_other_versions),
    CHECK(graphs_refuse_the_arguments_of_other_versions),
    CHECK(launches_refuse_the_arguments_of_other_versions),
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

/* ---- Steps: the test reads the ledger after each ---- */

#define STEP(name)                                                                                 \
    do {                                                                                           \
        printf("%s\n", name);                                                                      \
        fflush(stdout);                                                                            \
        if (getchar() == EOF)                                                                      \
            return "the test went away";                                                           \
    } while (0)

static CUresult launch(CUfunction function)
{
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

/* A context, then what comes into it, then without it. */
static const char *walk_memory(void)
{
    CUcontext context, second;
    CUfunction function[4];
    CUmodule module;
    CUresult retained;
    size_t heap;

    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    retained = cuDevicePrimaryCtxRetain(&context, device);
    if (retained != CUDA_SUCCESS)
        return told("the context was refused: %d", (int)retained);
    OK(cuCtxSetCurrent(context));
    STEP("context");
    OK(cuCtxCreate_v2(&second, 0, device));
    STEP("second context");
    OK(cuCtxDestroy_v2(second));
    OK(cuCtxSetCurrent(context));
    STEP("second context destroyed");
    OK(cuModuleLoadData(&module, "hami-sim 1\nglobal big 5242880\n"
                                 "kernel code ns=10 code=3145728\n"
                                 "kernel small ns=10 code=1\n"
                                 "kernel deep ns=10 local=11264\nkernel deeper ns=10 local=5120\n"));
    OK(cuModuleGetFunction(&function[0], module, "code"));
    OK(cuModuleGetFunction(&function[1], module, "small"));
    OK(cuModuleGetFunction(&function[2], module, "deep"));
    OK(cuModuleGetFunction(&function[3], module, "deeper"));
    STEP("module");
    OK(launch(function[0]));
    STEP("launched");
    OK(launch(function[0]));
    OK(cuFuncLoad(function[1]));
    STEP("launched again");
    OK(launch(function[2]));
    STEP("local memory");
    OK(launch(function[3]));
    STEP("less local memory");
    OK(cuCtxGetLimit(&heap, CU_LIMIT_MALLOC_HEAP_SIZE));
    OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, heap + 64 * MIB));
    STEP("heap");
    OK(cuModuleUnload(module));
    STEP("unloaded");
    OK(cuDevicePrimaryCtxReset_v2(device));
    STEP("reset");
    return NULL;
}

/* A kernel of each kind of launch: ten of 10 ms at half the device's width. */
static const char *walk_time(void)
{
    static const char image[] = "hami-sim 1\nkernel k ns=10000000 width=500\n";
    CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
                             .blockDimY = 1, .blockDimZ = 1};
    CUcontext context;
    CUfunction function;
    CUgraphExec exec;
    CUgraph graph;
    CUmodule module;
    CUstream stream;

    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetFunction(&function, module, "k"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    STEP("captured");
    OK(launch(function));
    OK(cuLaunchKernel_ptsz(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(cuLaunchKernelEx(&config, function, NULL, NULL));
    OK(cuLaunchKernelEx_ptsz(&config, function, NULL, NULL));
    OK(cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL));
    OK(cuLaunchCooperativeKernel_ptsz(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL));
    OK(cuLaunch(function));
    OK(cuLaunchGrid(function, 1, 1));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuCtxSynchronize());
    STEP("launched");
    return NULL;
}

static const struct {
    const char *name;
    const char *(*walk)(void);
} walks[] = {{"memory", walk_memory}, {"time", walk_time}};

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "uninitialised") == 0) {
        const char *answer = call_all(CUDA_ERROR_NOT_INITIALIZED);

        printf("%s - uninitialised%s%s\n", answer ? "not ok" : "ok", answer ? " # " : "",
               answer ? answer : "");
        return answer != NULL;
    }
    for (size_t i = 0; argc == 2 && i < sizeof(walks) / sizeof(walks[0]); i++) {
        if (strcmp(argv[1], walks[i].name) == 0) {
            const char *answer = walks[i].walk();

            printf("%s\n", answer ? answer : "end");
            return answer != NULL;
        }
    }
    return run_checks(checks, sizeof(checks) / sizeof(checks[0]), argc, argv);
}
