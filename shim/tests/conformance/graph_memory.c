/* Memory that graphs allocate. */
#include "check.h"

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


static const struct check checks[] = {
    CHECK(a_graph_reserves_memory_until_it_is_trimmed),
    CHECK(what_a_graph_leaves_allocated_is_freed_by_the_program),
    CHECK(a_graph_with_memory_nodes_cannot_be_cloned),
};

CONFORMANCE(checks)
