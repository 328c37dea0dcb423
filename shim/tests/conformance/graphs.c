/* Stream capture and graphs. */
#include <pthread.h>
#include <time.h>

#include "check.h"
#include "module.h"

#define MS UINT64_C(1000000)

static CUmodule module;
static CUfunction nothing, spin;

static const char *with_module(void)
{
    if (module)
        return NULL;
    OK(load_test_module(&module));
    OK(cuModuleGetFunction(&nothing, module, "nothing"));
    OK(cuModuleGetFunction(&spin, module, "spin_dynamic"));
    OK(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(cuCtxSynchronize());
    return NULL;
}

#define WITH_MODULE()                                                                              \
    do {                                                                                           \
        const char *missing_ = with_module();                                                      \
        if (missing_)                                                                              \
            return missing_;                                                                       \
    } while (0)

static CUresult run(CUfunction function, CUstream stream)
{
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

static CUresult run_for(uint64_t ns, CUstream stream)
{
    void *parameters[] = {&ns};

    return cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static size_t nodes_of(CUgraph graph)
{
    size_t count = 999;

    return cuGraphGetNodes(graph, NULL, &count) == CUDA_SUCCESS ? count : 999;
}

static CUDA_KERNEL_NODE_PARAMS kernel_node(CUfunction function, void **parameters)
{
    return (CUDA_KERNEL_NODE_PARAMS){.func = function, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
                                     .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1,
                                     .kernelParams = parameters};
}

/* ---- Capture ---- */

static const char *what_is_captured_does_not_run_until_it_is_launched(void)
{
    CUstreamCaptureStatus status;
    CUgraph graph = NULL;
    CUgraphExec exec;
    CUstream stream;
    double before;

    WITH_MODULE();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamIsCapturing(stream, &status));
    SO(status == CU_STREAM_CAPTURE_STATUS_NONE);
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuStreamIsCapturing(stream, &status));
    SO(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    before = seconds();
    for (int i = 0; i < 3; i++)
        OK(run_for(20 * MS, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuStreamIsCapturing(stream, &status));
    SO(status == CU_STREAM_CAPTURE_STATUS_NONE);
    OK(cuStreamQuery(stream));
    SO(seconds() - before < 0.06);
    SO(nodes_of(graph) == 3);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    before = seconds();
    OK(cuGraphLaunch(exec, stream));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    OK(cuStreamSynchronize(stream));
    SO(seconds() - before >= 0.059);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static const char *a_capture_tells_its_id_its_graph_and_what_comes_next(void)
{
    CUstreamCaptureStatus status;
    const CUgraphNode *next = NULL;
    CUgraphNodeType type;
    CUgraph graph = NULL, same = NULL;
    cuuint64_t id = 0, again = 0;
    CUstream stream;
    size_t count = 9;

    WITH_MODULE();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &next, &count));
    SO(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != 0 && graph != NULL && count == 0);
    OK(run(nothing, stream));
    OK(cuStreamGetCaptureInfo_v2(stream, &status, &again, &same, &next, &count));
    SO(again == id && same == graph && count == 1);
    OK(cuGraphNodeGetType(next[0], &type));
    SO(type == CU_GRAPH_NODE_TYPE_KERNEL);
    OK(cuStreamGetCaptureInfo_v3(stream, &status, &again, NULL, NULL, NULL, NULL));
    SO(again == id);
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuStreamGetCaptureInfo_v2(stream, &status, &again, NULL, NULL, NULL));
    SO(again != id);
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static const char *a_capture_begins_and_ends_where_it_may(void)
{
    CUgraph graph = NULL;
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    FAILS(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
    FAILS(cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)7));
    FAILS(cuStreamEndCapture(stream, &graph));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    FAILS(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    (void)cuStreamEndCapture(stream, &graph);
    if (graph)
        OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

/* Runs `breaks` in a capture of the mode and says whether the capture survives. */
static const char *under_capture(CUstreamCaptureMode mode, CUresult (*breaks)(CUstream),
                                 CUresult expected, bool survives)
{
    CUstreamCaptureStatus status;
    CUgraph graph = NULL;
    CUstream stream;
    CUresult got, ended;

    WITH_MODULE();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(stream, mode));
    OK(run(nothing, stream));
    got = breaks(stream);
    OK(cuStreamIsCapturing(stream, &status));
    ended = cuStreamEndCapture(stream, &graph);
    SO((graph != NULL) == (ended == CUDA_SUCCESS));
    if (graph)
        OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy_v2(stream));
    if (got != expected)
        return told("it answered %d, not %d", (int)got, (int)expected);
    SO((status == CU_STREAM_CAPTURE_STATUS_ACTIVE) == survives);
    SO(ended == (survives ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
    return NULL;
}

static CUresult query_itself(CUstream stream) { return cuStreamQuery(stream); }
static CUresult synchronise_itself(CUstream stream) { return cuStreamSynchronize(stream); }
static CUresult synchronise_context(CUstream stream)
{
    (void)stream;
    return cuCtxSynchronize();
}
static CUresult query_foreign_event(CUstream stream)
{
    CUevent event;
    CUresult result = cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);

    (void)stream;
    if (result == CUDA_SUCCESS)
        result = cuEventQuery(event);
    cuEventDestroy_v2(event);
    return result;
}
static CUresult query_captured_event(CUstream stream)
{
    CUevent event;
    CUresult result = cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);

    if (result == CUDA_SUCCESS)
        result = cuEventRecord(event, stream);
    if (result == CUDA_SUCCESS)
        result = cuEventQuery(event);
    cuEventDestroy_v2(event);
    return result;
}
static CUresult query_foreign_event_relaxed(CUstream stream)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result = cuThreadExchangeStreamCaptureMode(&mode), restored;

    if (result == CUDA_SUCCESS)
        result = query_foreign_event(stream);
    restored = cuThreadExchangeStreamCaptureMode(&mode);
    return result == CUDA_SUCCESS ? restored : result;
}
static CUresult launch_elsewhere(CUstream stream)
{
    CUstream other;
    CUresult result = cuStreamCreate(&other, CU_STREAM_NON_BLOCKING);

    (void)stream;
    if (result == CUDA_SUCCESS)
        result = run(nothing, other);
    cuStreamDestroy_v2(other);
    return result;
}
static CUresult wait_for_uncaptured(CUstream stream)
{
    CUstream other;
    CUevent event = NULL;
    CUresult result = cuStreamCreate(&other, CU_STREAM_NON_BLOCKING);

    if (result == CUDA_SUCCESS)
        result = cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = cuEventRecord(event, other);
    if (result == CUDA_SUCCESS)
        result = cuStreamWaitEvent(stream, event, 0);
    cuEventDestroy_v2(event);
    cuStreamDestroy_v2(other);
    return result;
}
static void never(CUstream stream, CUresult status, void *data)
{
    (void)stream;
    (void)status;
    *(bool *)data = true;
}
static CUresult add_callback(CUstream stream)
{
    bool called = false;
    CUresult result = cuStreamAddCallback(stream, never, &called, 0);

    return called ? CUDA_ERROR_UNKNOWN : result;
}

static const char *a_capturing_stream_cannot_be_queried_or_waited_for(void)
{
    const char *wrong = under_capture(CU_STREAM_CAPTURE_MODE_RELAXED, query_itself,
                                      CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false);
    if (!wrong)
        wrong = under_capture(CU_STREAM_CAPTURE_MODE_RELAXED, synchronise_itself,
                              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false);
    if (!wrong)
        wrong = under_capture(CU_STREAM_CAPTURE_MODE_GLOBAL, synchronise_context,
                              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false);
    return wrong;
}

static const char *a_captured_event_cannot_be_queried_in_any_mode(void)
{
    const char *wrong = under_capture(CU_STREAM_CAPTURE_MODE_GLOBAL, query_captured_event,
                                      CUDA_ERROR_CAPTURED_EVENT, false);
    if (!wrong)
        wrong = under_capture(CU_STREAM_CAPTURE_MODE_RELAXED, query_captured_event,
                              CUDA_ERROR_CAPTURED_EVENT, false);
    return wrong;
}

static const char *an_event_query_breaks_a_capture_that_is_not_relaxed(void)
{
    const char *wrong = under_capture(CU_STREAM_CAPTURE_MODE_GLOBAL, query_foreign_event,
                                      CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false);
    if (!wrong)
        wrong = under_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, query_foreign_event,
                              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false);
    if (!wrong)
        wrong = under_capture(CU_STREAM_CAPTURE_MODE_RELAXED, query_foreign_event, CUDA_SUCCESS,
                              true);
    return wrong;
}

static const char *a_relaxed_thread_may_query_events_during_a_global_capture(void)
{
    return under_capture(CU_STREAM_CAPTURE_MODE_GLOBAL, query_foreign_event_relaxed, CUDA_SUCCESS,
                         true);
}

static const char *other_streams_go_on_during_a_capture(void)
{
    return under_capture(CU_STREAM_CAPTURE_MODE_GLOBAL, launch_elsewhere, CUDA_SUCCESS, true);
}

static const char *a_capture_cannot_wait_for_what_is_outside(void)
{
    return under_capture(CU_STREAM_CAPTURE_MODE_GLOBAL, wait_for_uncaptured,
                         CUDA_ERROR_STREAM_CAPTURE_ISOLATION, false);
}

static const char *a_callback_cannot_be_captured(void)
{
    return under_capture(CU_STREAM_CAPTURE_MODE_GLOBAL, add_callback,
                         CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false);
}

struct elsewhere {
    CUresult (*what)(CUstream);
    CUstreamCaptureMode mode;
    CUstream stream;
    CUresult got;
};

static void *in_another_thread(void *data)
{
    struct elsewhere *elsewhere = data;

    elsewhere->got = cuCtxSetCurrent(primary);
    if (elsewhere->got == CUDA_SUCCESS)
        elsewhere->got = cuThreadExchangeStreamCaptureMode(&elsewhere->mode);
    if (elsewhere->got == CUDA_SUCCESS)
        elsewhere->got = elsewhere->what(elsewhere->stream);
    return NULL;
}

/* What a thread in `thread_mode` gets for an event query while another captures in `mode`. */
static const char *beside(CUstreamCaptureMode mode, CUstreamCaptureMode thread_mode,
                          CUresult expected)
{
    struct elsewhere elsewhere = {query_foreign_event, thread_mode, NULL, CUDA_ERROR_UNKNOWN};
    CUgraph graph = NULL;
    CUstream stream;
    CUresult ended;
    pthread_t thread;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(stream, mode));
    SO(pthread_create(&thread, NULL, in_another_thread, &elsewhere) == 0);
    SO(pthread_join(thread, NULL) == 0);
    ended = cuStreamEndCapture(stream, &graph);
    if (graph)
        OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy_v2(stream));
    IS(expected, elsewhere.got);
    IS(expected == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, ended);
    return NULL;
}

static const char *only_a_global_capture_binds_other_threads(void)
{
    const char *wrong = beside(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL,
                               CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (!wrong)
        wrong = beside(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                       CUDA_SUCCESS);
    if (!wrong)
        wrong = beside(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_SUCCESS);
    if (!wrong)
        wrong = beside(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_GLOBAL,
                       CUDA_SUCCESS);
    if (!wrong)
        wrong = beside(CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL, CUDA_SUCCESS);
    return wrong;
}

static CUresult end_it(CUstream stream)
{
    CUgraph graph = NULL;
    CUresult result = cuStreamEndCapture(stream, &graph);

    return result == CUDA_SUCCESS ? cuGraphDestroy(graph) : result;
}

static const char *only_a_relaxed_capture_may_end_in_another_thread(void)
{
    struct elsewhere elsewhere = {end_it, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, CUDA_ERROR_UNKNOWN};
    pthread_t thread;

    OK(cuStreamCreate(&elsewhere.stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(elsewhere.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    SO(pthread_create(&thread, NULL, in_another_thread, &elsewhere) == 0);
    SO(pthread_join(thread, NULL) == 0);
    IS(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, elsewhere.got);
    (void)end_it(elsewhere.stream);
    OK(cuStreamBeginCapture_v2(elsewhere.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    SO(pthread_create(&thread, NULL, in_another_thread, &elsewhere) == 0);
    SO(pthread_join(thread, NULL) == 0);
    OK(elsewhere.got);
    OK(cuStreamDestroy_v2(elsewhere.stream));
    return NULL;
}

static const char *the_legacy_stream_is_unusable_while_a_blocking_stream_captures(void)
{
    CUstreamCaptureStatus status;
    CUgraph graph = NULL;
    CUstream stream;

    WITH_MODULE();
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(NULL, &status));
    OK(cuStreamIsCapturing(stream, &status));
    SO(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, run(nothing, NULL));
    OK(cuStreamIsCapturing(stream, &status));
    SO(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, run(nothing, stream));
    IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
    OK(run(nothing, NULL));
    OK(run(nothing, stream));
    OK(cuCtxSynchronize());
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static const char *a_capture_forks_and_joins_by_events(void)
{
    CUstreamCaptureStatus status;
    CUstream main_stream, side;
    CUevent fork_event, join_event;
    CUgraph graph = NULL;

    WITH_MODULE();
    OK(cuStreamCreate(&main_stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&join_event, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture_v2(main_stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(run(nothing, main_stream));
    OK(cuEventRecord(fork_event, main_stream));
    OK(cuStreamWaitEvent(side, fork_event, 0));
    OK(cuStreamIsCapturing(side, &status));
    SO(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(run(nothing, side));
    OK(run(nothing, main_stream));
    OK(cuEventRecord(join_event, side));
    OK(cuStreamWaitEvent(main_stream, join_event, 0));
    OK(run(nothing, main_stream));
    OK(cuStreamEndCapture(main_stream, &graph));
    OK(cuStreamIsCapturing(side, &status));
    SO(status == CU_STREAM_CAPTURE_STATUS_NONE);
    SO(nodes_of(graph) == 4);
    OK(cuGraphDestroy(graph));

    OK(cuStreamBeginCapture_v2(main_stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuEventRecord(fork_event, main_stream));
    OK(cuStreamWaitEvent(side, fork_event, 0));
    OK(run(nothing, side));
    IS(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(side, &graph));
    (void)cuStreamEndCapture(main_stream, &graph);

    OK(cuStreamBeginCapture_v2(main_stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuEventRecord(fork_event, main_stream));
    OK(cuStreamWaitEvent(side, fork_event, 0));
    OK(run(nothing, side));
    IS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(main_stream, &graph));
    SO(graph == NULL);
    OK(run(nothing, side));
    OK(cuCtxSynchronize());
    OK(cuEventDestroy_v2(fork_event));
    OK(cuEventDestroy_v2(join_event));
    OK(cuStreamDestroy_v2(main_stream));
    OK(cuStreamDestroy_v2(side));
    return NULL;
}

static const char *two_captures_cannot_be_merged(void)
{
    CUstream one, two;
    CUgraph graph = NULL;
    CUevent event;

    WITH_MODULE();
    OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuStreamBeginCapture_v2(two, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(event, one));
    IS(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(two, event, 0));
    (void)cuStreamEndCapture(one, &graph);
    (void)cuStreamEndCapture(two, &graph);
    OK(cuEventDestroy_v2(event));
    OK(cuStreamDestroy_v2(one));
    OK(cuStreamDestroy_v2(two));
    return NULL;
}

static const char *a_capture_adds_to_a_graph_that_is_there(void)
{
    CUgraph graph, same = NULL;
    CUgraphNode node;
    CUstream stream;

    WITH_MODULE();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEmptyNode(&node, graph, NULL, 0));
    OK(cuStreamBeginCaptureToGraph(stream, graph, &node, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(run(nothing, stream));
    OK(cuStreamEndCapture(stream, &same));
    SO(same == graph && nodes_of(graph) == 2);
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static const char *the_dependencies_of_a_capture_can_be_changed(void)
{
    CUstreamCaptureStatus status;
    const CUgraphNode *next;
    CUgraphNode first;
    CUgraph graph = NULL;
    CUstream stream;
    size_t count;

    WITH_MODULE();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    IS(CUDA_ERROR_ILLEGAL_STATE, cuStreamUpdateCaptureDependencies(stream, NULL, 0, 1));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(run(nothing, stream));
    OK(cuStreamGetCaptureInfo_v2(stream, &status, NULL, NULL, &next, &count));
    SO(count == 1);
    first = next[0];
    OK(run(nothing, stream));
    OK(cuStreamUpdateCaptureDependencies(stream, &first, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
    OK(cuStreamGetCaptureInfo_v2(stream, &status, NULL, NULL, &next, &count));
    SO(count == 2);
    OK(cuStreamUpdateCaptureDependencies_v2(stream, &first, NULL, 1,
                                            CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    OK(cuStreamGetCaptureInfo_v2(stream, &status, NULL, NULL, &next, &count));
    SO(count == 1 && next[0] == first);
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static const char *a_captured_allocation_is_a_node(void)
{
    CUgraphNode nodes[4];
    CUgraphNodeType type;
    CUdeviceptr address = 0;
    CUgraph graph = NULL;
    CUstream stream;
    size_t count = 4, before;

    if (!attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED))
        return SKIP("no memory pools");
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    before = available();
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&address, 512 * MIB, stream));
    SO(address != 0);
    OK(cuMemFreeAsync(address, stream));
    OK(cuStreamEndCapture(stream, &graph));
    SO(available() + 256 * MIB > before);
    OK(cuGraphGetNodes(graph, nodes, &count));
    SO(count == 2);
    OK(cuGraphNodeGetType(nodes[0], &type));
    SO(type == CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static const char *a_captured_graph_launch_is_a_child_graph(void)
{
    CUgraph inner, outer = NULL;
    CUgraphExec exec, outer_exec;
    CUgraphNode node;
    CUgraphNodeType type;
    CUstream stream;
    size_t count = 1;
    double before;
    uint64_t ns = 20 * MS;
    void *parameters[] = {&ns};

    WITH_MODULE();
    CUDA_KERNEL_NODE_PARAMS spinning = kernel_node(spin, parameters);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuGraphCreate(&inner, 0));
    OK(cuGraphAddKernelNode_v2(&node, inner, NULL, 0, &spinning));
    OK(cuGraphInstantiateWithFlags(&exec, inner, 0));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamEndCapture(stream, &outer));
    OK(cuGraphGetNodes(outer, &node, &count));
    SO(count == 1);
    OK(cuGraphNodeGetType(node, &type));
    SO(type == CU_GRAPH_NODE_TYPE_GRAPH);
    OK(cuGraphInstantiateWithFlags(&outer_exec, outer, 0));
    before = seconds();
    OK(cuGraphLaunch(outer_exec, stream));
    OK(cuStreamSynchronize(stream));
    SO(seconds() - before >= 0.019);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphExecDestroy(outer_exec));
    OK(cuGraphDestroy(inner));
    OK(cuGraphDestroy(outer));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

/* ---- Graphs ---- */

static const char *nodes_of_every_kind_can_be_added(void)
{
    CUgraphNodeParams given = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    CUDA_MEMSET_NODE_PARAMS fill = {.elementSize = 1, .width = 1024, .height = 1};
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .WidthInBytes = 512, .Height = 1, .Depth = 1};
    CUgraphNode node[6];
    CUgraph graph, child;
    CUdeviceptr address;
    CUgraphExec exec;

    WITH_MODULE();
    CUDA_KERNEL_NODE_PARAMS kernel = kernel_node(nothing, NULL);
    OK(cuMemAlloc_v2(&address, 4096));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphCreate(&child, 0));
    FAILS(cuGraphCreate(&graph, 1));
    OK(cuGraphAddEmptyNode(&node[0], child, NULL, 0));
    OK(cuGraphAddKernelNode_v2(&node[0], graph, NULL, 0, &kernel));
    fill.dst = address;
    OK(cuGraphAddMemsetNode(&node[1], graph, &node[0], 1, &fill, primary));
    copy.srcDevice = address;
    copy.dstDevice = address + 1024;
    OK(cuGraphAddMemcpyNode(&node[2], graph, node, 2, &copy, primary));
    OK(cuGraphAddChildGraphNode(&node[3], graph, &node[2], 1, child));
    OK(cuGraphAddNode_v2(&node[4], graph, &node[3], NULL, 1, &given));
    given.reserved2 = 1;
    FAILS(cuGraphAddNode_v2(&node[5], graph, NULL, NULL, 0, &given));
    FAILS(cuGraphAddEmptyNode(&node[5], graph, &node[5], 1000));
    SO(nodes_of(graph) == 5);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuCtxSynchronize());
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(child));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree_v2(address));
    return NULL;
}

static const char *a_circle_cannot_be_instantiated(void)
{
    CUgraphNode from, to;
    CUgraphExec exec;
    CUgraph graph;
    CUresult added;

    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEmptyNode(&from, graph, NULL, 0));
    OK(cuGraphAddEmptyNode(&to, graph, &from, 1));
    added = cuGraphAddDependencies(graph, &to, &from, 1);
    if (added == CUDA_SUCCESS)
        FAILS(cuGraphInstantiateWithFlags(&exec, graph, 0));
    FAILS(cuGraphAddDependencies(graph, &from, &from, 1));
    OK(cuGraphDestroy(graph));
    return NULL;
}

static const char *every_spelling_instantiates(void)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
    CUgraphNode node, wrong = NULL;
    CUgraphExec exec;
    CUgraph graph;
    cuuint64_t flags = 99;
    char log[64];

    WITH_MODULE();
    CUDA_KERNEL_NODE_PARAMS kernel = kernel_node(nothing, NULL);
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &kernel));
    OK(cuGraphInstantiate_v2(&exec, graph, &wrong, log, sizeof(log)));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphInstantiateWithParams(&exec, graph, &parameters));
    SO(parameters.result_out == CUDA_GRAPH_INSTANTIATE_SUCCESS);
    OK(cuGraphExecGetFlags(exec, &flags));
    SO((flags & ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) == 0);
    OK(cuGraphUpload(exec, NULL));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuGraphLaunch_ptsz(exec, NULL));
    OK(cuCtxSynchronize());
    OK(cuGraphExecDestroy(exec));
    FAILS(cuGraphInstantiateWithFlags(&exec, graph, 0x4000));
    OK(cuGraphDestroy(graph));
    return NULL;
}

static const char *an_executable_graph_outlives_its_graph_and_keeps_its_nodes(void)
{
    CUgraphNode node;
    CUgraphExec exec;
    CUgraph graph;
    uint64_t ns = 20 * MS;
    void *parameters[] = {&ns};
    double before;

    WITH_MODULE();
    CUDA_KERNEL_NODE_PARAMS spinning = kernel_node(spin, parameters);
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &spinning));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    ns = 0;
    before = seconds();
    OK(cuGraphLaunch(exec, NULL));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuCtxSynchronize());
    SO(seconds() - before >= 0.039);
    OK(cuGraphExecDestroy(exec));
    return NULL;
}

static const char *a_kernel_node_shows_and_takes_parameters(void)
{
    CUDA_KERNEL_NODE_PARAMS shown;
    CUgraphNode node;
    CUgraphExec exec;
    CUgraph graph;
    uint64_t ns = 1 * MS, *kept;
    void *parameters[] = {&ns};
    double before;

    WITH_MODULE();
    CUDA_KERNEL_NODE_PARAMS spinning = kernel_node(spin, parameters);
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &spinning));
    OK(cuGraphKernelNodeGetParams_v2(node, &shown));
    SO(shown.func == spin && shown.gridDimX == 1 && shown.kernelParams != NULL);
    kept = shown.kernelParams[0];
    SO(*kept == ns && kept != &ns);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    ns = 30 * MS;
    OK(cuGraphExecKernelNodeSetParams_v2(exec, node, &spinning));
    before = seconds();
    OK(cuGraphLaunch(exec, NULL));
    OK(cuCtxSynchronize());
    SO(seconds() - before >= 0.029);
    OK(cuGraphKernelNodeGetParams_v2(node, &shown));
    kept = shown.kernelParams[0];
    SO(*kept == 1 * MS);
    OK(cuGraphKernelNodeSetParams_v2(node, &spinning));
    OK(cuGraphKernelNodeGetParams_v2(node, &shown));
    kept = shown.kernelParams[0];
    SO(*kept == 30 * MS);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    return NULL;
}

/* A chain of `length` kernels; `width` of them may depend on the first alone. */
static CUresult chain(CUgraph *graph, CUfunction function, void **parameters, size_t length)
{
    CUDA_KERNEL_NODE_PARAMS kernel = kernel_node(function, parameters);
    CUgraphNode last = NULL;
    CUresult result = cuGraphCreate(graph, 0);

    for (size_t i = 0; i < length && result == CUDA_SUCCESS; i++)
        result = cuGraphAddKernelNode_v2(&last, *graph, &last, i > 0, &kernel);
    return result;
}

static const char *an_executable_graph_is_updated_from_one_of_the_same_shape(void)
{
    CUgraphExecUpdateResultInfo info;
    CUgraphExecUpdateResult result;
    CUgraph graph, slower, longer;
    CUgraphNode wrong = NULL;
    CUgraphExec exec;
    uint64_t ns = 15 * MS;
    void *parameters[] = {&ns};
    double before;

    WITH_MODULE();
    OK(chain(&graph, nothing, NULL, 2));
    OK(chain(&slower, spin, parameters, 2));
    OK(chain(&longer, nothing, NULL, 3));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphExecUpdate_v2(exec, slower, &info));
    SO(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
    before = seconds();
    OK(cuGraphLaunch(exec, NULL));
    OK(cuCtxSynchronize());
    SO(seconds() - before >= 0.029);
    IS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, longer, &info));
    SO(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    OK(cuGraphExecUpdate(exec, graph, &wrong, &result));
    SO(result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(slower));
    OK(cuGraphDestroy(longer));
    return NULL;
}

static const char *a_clone_is_a_graph_of_its_own(void)
{
    CUgraphNode node;
    CUgraph graph, clone;
    size_t count = 3;
    CUgraphNode nodes[3];

    WITH_MODULE();
    OK(chain(&graph, nothing, NULL, 3));
    OK(cuGraphClone(&clone, graph));
    OK(cuGraphGetNodes(graph, nodes, &count));
    SO(count == 3);
    OK(cuGraphDestroyNode(nodes[2]));
    SO(nodes_of(graph) == 2 && nodes_of(clone) == 3);
    OK(cuGraphAddEmptyNode(&node, clone, NULL, 0));
    SO(nodes_of(graph) == 2 && nodes_of(clone) == 4);
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(clone));
    return NULL;
}

static _Atomic int called;

static void count_call(void *data) { called += *(int *)data; }

static const char *a_host_node_is_called_at_every_launch(void)
{
    CUgraphNodeParams given = {.type = CU_GRAPH_NODE_TYPE_HOST};
    int one = 1;
    CUgraphNode node;
    CUgraphExec exec;
    CUgraph graph;

    called = 0;
    given.host.fn = count_call;
    given.host.userData = &one;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddNode(&node, graph, NULL, 0, &given));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 5; i++)
        OK(cuGraphLaunch(exec, NULL));
    OK(cuCtxSynchronize());
    SO(called == 5);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    return NULL;
}

static CUDA_MEM_ALLOC_NODE_PARAMS allocation(size_t bytes)
{
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = {.bytesize = bytes};

    parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    parameters.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    parameters.poolProps.location.id = device;
    return parameters;
}

static const char *a_graph_reserves_memory_until_it_is_trimmed(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = allocation(64 * MIB), shown;
    CUgraphNode nodes[2];
    CUgraphExec exec;
    CUgraph graph;
    cuuint64_t reserved = 99, used = 99;

    if (!attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED))
        return SKIP("no memory pools");
    OK(cuDeviceGraphMemTrim(device));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&nodes[0], graph, NULL, 0, &parameters));
    SO(parameters.dptr != 0);
    OK(cuGraphMemAllocNodeGetParams(nodes[0], &shown));
    SO(shown.dptr == parameters.dptr && shown.bytesize == 64 * MIB);
    OK(cuGraphAddMemFreeNode(&nodes[1], graph, &nodes[0], 1, parameters.dptr));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuCtxSynchronize());
    OK(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
    SO(reserved >= 64 * MIB);
    OK(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
    SO(used == 0);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuDeviceGraphMemTrim(device));
    OK(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
    SO(reserved == 0);
    return NULL;
}

static const char *what_a_graph_leaves_allocated_is_freed_by_the_program(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = allocation(MIB);
    CUgraphNode node;
    CUgraphExec exec, second;
    CUgraph graph;
    cuuint64_t used = 0;
    char in = 5, out = 0;

    if (!attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED))
        return SKIP("no memory pools");
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &parameters));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    FAILS(cuGraphInstantiateWithFlags(&second, graph, 0));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuCtxSynchronize());
    OK(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
    SO(used >= MIB);
    OK(cuMemcpyHtoD_v2(parameters.dptr, &in, 1));
    OK(cuMemcpyDtoH_v2(&out, parameters.dptr, 1));
    SO(out == in);
    IS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, NULL));
    OK(cuMemFree_v2(parameters.dptr));
    FAILS(cuMemFree_v2(parameters.dptr));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuMemFreeAsync(parameters.dptr, NULL));
    OK(cuCtxSynchronize());
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemFree_v2(parameters.dptr));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuDeviceGraphMemTrim(device));
    return NULL;
}

static const char *a_graph_with_memory_nodes_cannot_be_cloned(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = allocation(MIB);
    CUgraphNode node;
    CUgraph graph, clone, outer;

    if (!attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED))
        return SKIP("no memory pools");
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphCreate(&outer, 0));
    OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &parameters));
    FAILS(cuGraphClone(&clone, graph));
    FAILS(cuGraphDestroyNode(node));
    FAILS(cuGraphAddChildGraphNode(&node, outer, NULL, 0, graph));
    parameters.bytesize = 0;
    FAILS(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &parameters));
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(outer));
    return NULL;
}

static void *capture_and_launch(void *answer)
{
    CUgraph graph = NULL;
    CUgraphExec exec;
    CUstream stream;
    CUresult result = cuCtxSetCurrent(primary);

    if (result == CUDA_SUCCESS)
        result = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 20 && result == CUDA_SUCCESS; i++) {
        result = cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        for (int k = 0; k < 5 && result == CUDA_SUCCESS; k++)
            result = run(nothing, stream);
        if (result == CUDA_SUCCESS)
            result = cuStreamEndCapture(stream, &graph);
        if (result == CUDA_SUCCESS)
            result = cuGraphInstantiateWithFlags(&exec, graph, 0);
        for (int k = 0; k < 3 && result == CUDA_SUCCESS; k++)
            result = cuGraphLaunch(exec, stream);
        if (result == CUDA_SUCCESS)
            result = cuGraphExecDestroy(exec);
        if (result == CUDA_SUCCESS)
            result = cuGraphDestroy(graph);
    }
    if (result == CUDA_SUCCESS)
        result = cuStreamDestroy_v2(stream);
    *(CUresult *)answer = result;
    return NULL;
}

static const char *many_threads_capture_at_once(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    CUresult answers[4];
    pthread_t threads[4];

    WITH_MODULE();
    for (int i = 0; i < 4; i++)
        SO(pthread_create(&threads[i], NULL, capture_and_launch, &answers[i]) == 0);
    for (int i = 0; i < 4; i++)
        SO(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < 4; i++)
        OK(answers[i]);
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    OK(cuCtxSynchronize());
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    SO(mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    return NULL;
}

static const struct check checks[] = {
    CHECK(what_is_captured_does_not_run_until_it_is_launched),
    CHECK(a_capture_tells_its_id_its_graph_and_what_comes_next),
    CHECK(a_capture_begins_and_ends_where_it_may),
    CHECK(a_capturing_stream_cannot_be_queried_or_waited_for),
    CHECK(a_captured_event_cannot_be_queried_in_any_mode),
    CHECK(an_event_query_breaks_a_capture_that_is_not_relaxed),
    CHECK(a_relaxed_thread_may_query_events_during_a_global_capture),
    CHECK(other_streams_go_on_during_a_capture),
    CHECK(a_capture_cannot_wait_for_what_is_outside),
    CHECK(a_callback_cannot_be_captured),
    CHECK(only_a_global_capture_binds_other_threads),
    CHECK(only_a_relaxed_capture_may_end_in_another_thread),
    CHECK(the_legacy_stream_is_unusable_while_a_blocking_stream_captures),
    CHECK(a_capture_forks_and_joins_by_events),
    CHECK(two_captures_cannot_be_merged),
    CHECK(a_capture_adds_to_a_graph_that_is_there),
    CHECK(the_dependencies_of_a_capture_can_be_changed),
    CHECK(a_captured_allocation_is_a_node),
    CHECK(a_captured_graph_launch_is_a_child_graph),
    CHECK(nodes_of_every_kind_can_be_added),
    CHECK(a_circle_cannot_be_instantiated),
    CHECK(every_spelling_instantiates),
    CHECK(an_executable_graph_outlives_its_graph_and_keeps_its_nodes),
    CHECK(a_kernel_node_shows_and_takes_parameters),
    CHECK(an_executable_graph_is_updated_from_one_of_the_same_shape),
    CHECK(a_clone_is_a_graph_of_its_own),
    CHECK(a_host_node_is_called_at_every_launch),
    CHECK(a_graph_reserves_memory_until_it_is_trimmed),
    CHECK(what_a_graph_leaves_allocated_is_freed_by_the_program),
    CHECK(a_graph_with_memory_nodes_cannot_be_cloned),
    CHECK(many_threads_capture_at_once),
};

CONFORMANCE(checks)
