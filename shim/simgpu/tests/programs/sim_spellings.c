/* Which spelling ran, and what a caller of another ABI gets; in a process without cuInit and in a
 * forked child too. Checks as in tests/conformance.
 *
 *     sim_spellings                the checks
 *     sim_spellings uninitialised  before any cuInit, nothing works and nothing connects */
#include <sys/wait.h>

#include "conformance/check.h"
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

static const struct check checks[] = {
    CHECK(every_spelling_runs_itself_and_refuses_nonsense),
    CHECK(nothing_works_in_a_forked_child),
    CHECK(no_export_table_is_known),
    CHECK(contexts_refuse_the_arguments_of_other_versions),
    CHECK(graphs_refuse_the_arguments_of_other_versions),
    CHECK(launches_refuse_the_arguments_of_other_versions),
};

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "uninitialised") == 0) {
        const char *answer = call_all(CUDA_ERROR_NOT_INITIALIZED);

        printf("%s - uninitialised%s%s\n", answer ? "not ok" : "ok", answer ? " # " : "",
               answer ? answer : "");
        return answer != NULL;
    }
    return run_checks(checks, sizeof(checks) / sizeof(checks[0]), argc, argv);
}
