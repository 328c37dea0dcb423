/* Graphs: their nodes, instantiating, launching and updating them. */
#include "kernels.h"

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


static const struct check checks[] = {
    CHECK(nodes_of_every_kind_can_be_added),
    CHECK(a_circle_cannot_be_instantiated),
    CHECK(every_spelling_instantiates),
    CHECK(an_executable_graph_outlives_its_graph_and_keeps_its_nodes),
    CHECK(a_kernel_node_shows_and_takes_parameters),
    CHECK(an_executable_graph_is_updated_from_one_of_the_same_shape),
    CHECK(a_clone_is_a_graph_of_its_own),
    CHECK(a_host_node_is_called_at_every_launch),
};

CONFORMANCE(checks)
