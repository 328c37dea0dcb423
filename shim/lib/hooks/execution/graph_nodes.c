/* Building graphs, and changing instantiated ones. A node takes no memory before it runs: what
 * matters is whether a graph may have nodes that allocate. The parameters of such nodes cannot be
 * changed once a graph is instantiated, and its measured duration is measured again soon, so
 * setting parameters passes through. */
#include "driver/real.h"
#include "memory/graph_memory.h"
#include "slice/slice.h"

/* Noted before the driver is asked: another thread may instantiate the graph right after. */
static void note(const CUgraphNodeParams *parameters)
{
    if (parameters && parameters->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        hami_graph_has_allocations();
}

HAMI_EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph,
                                            const CUgraphNode *dependencies, size_t count,
                                            CUDA_MEM_ALLOC_NODE_PARAMS *parameters)
{
    hami_graph_has_allocations();
    return hami_real()->cuGraphAddMemAllocNode(node, graph, dependencies, count, parameters);
}

HAMI_EXPORT CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph,
                                    const CUgraphNode *dependencies, size_t count,
                                    CUgraphNodeParams *parameters)
{
    note(parameters);
    return hami_real()->cuGraphAddNode(node, graph, dependencies, count, parameters);
}

HAMI_EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph,
                                       const CUgraphNode *dependencies,
                                       const CUgraphEdgeData *edges, size_t count,
                                       CUgraphNodeParams *parameters)
{
    note(parameters);
    return hami_real()->cuGraphAddNode_v2(node, graph, dependencies, edges, count, parameters);
}

HAMI_EXPORT CUresult cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph,
                                       const CUgraphNode *dependencies,
                                       const CUgraphEdgeData *edges, size_t count,
                                       CUgraphNodeParams *parameters)
{
    note(parameters);
    return hami_real()->cuGraphAddNode_v3(node, graph, dependencies, edges, count, parameters);
}

HAMI_EXPORT CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
                                       CUgraphExecUpdateResult *update)
{
    CUresult result = hami_real()->cuGraphExecUpdate(exec, graph, error_node, update);

    if (result == CUDA_SUCCESS && hami_counting())
        hami_graph_updated(exec, graph);
    return result;
}

HAMI_EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                          CUgraphExecUpdateResultInfo *update)
{
    CUresult result = hami_real()->cuGraphExecUpdate_v2(exec, graph, update);

    if (result == CUDA_SUCCESS && hami_counting())
        hami_graph_updated(exec, graph);
    return result;
}

HAMI_EXPORT CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                    const CUDA_KERNEL_NODE_PARAMS_v1 *parameters)
{
    return hami_real()->cuGraphExecKernelNodeSetParams(exec, node, parameters);
}

HAMI_EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                       const CUDA_KERNEL_NODE_PARAMS *parameters)
{
    return hami_real()->cuGraphExecKernelNodeSetParams_v2(exec, node, parameters);
}

HAMI_EXPORT CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                              CUgraphNodeParams *parameters)
{
    return hami_real()->cuGraphExecNodeSetParams(exec, node, parameters);
}
