/* What a capture makes of what it sees. */
#include "kernels.h"

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

static const struct check checks[] = {
    CHECK(what_is_captured_does_not_run_until_it_is_launched),
    CHECK(a_capture_tells_its_id_its_graph_and_what_comes_next),
    CHECK(a_capture_forks_and_joins_by_events),
    CHECK(two_captures_cannot_be_merged),
    CHECK(a_capture_adds_to_a_graph_that_is_there),
    CHECK(the_dependencies_of_a_capture_can_be_changed),
    CHECK(a_captured_allocation_is_a_node),
    CHECK(a_captured_graph_launch_is_a_child_graph),
};

CONFORMANCE(checks)
