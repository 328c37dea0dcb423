/* Adding nodes in every spelling, and reading and changing their parameters. */
#include "graphs.h"

static CUresult add(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                    const CUgraphEdgeData *edges, size_t count,
                    const struct sim_node_params *params)
{
    struct sim_nodes from = { 0 };
    CUgraphNode added;
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    if (node == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    if (sim_alive(graph, SIM_GRAPH) && params->child != graph)
        result = sim_graph_check(graph, dependencies, edges, count, &from);
    if (result == CUDA_SUCCESS)
        result = sim_graph_add(graph, params, &from, &added);
    sim_nodes_free(&from);
    sim_unlock();
    if (result == CUDA_SUCCESS)
        *node = added;
    return result;
}

static CUresult add_any(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                        const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *given)
{
    struct sim_node_params params;
    CUresult result = sim_params_any(given, &params);

    if (result == CUDA_SUCCESS)
        result = add(node, graph, dependencies, edges, count, &params);
    if (result == CUDA_SUCCESS && params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        given->alloc.dptr = params.alloc.dptr;
    return result;
}

/* The first spelling takes the parameters where the later ones take edges: what a caller of another
 * ABI leaves in the last argument is no structure. */
SIM_EXPORT CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph,
                                   const CUgraphNode *dependencies, size_t dependency_count,
                                   CUgraphNodeParams *parameters)
{
    SIM_ENTER(cuGraphAddNode);
    return add_any(node, graph, dependencies, NULL, dependency_count, parameters);
}

SIM_EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph,
                                      const CUgraphNode *dependencies, const CUgraphEdgeData *edges,
                                      size_t dependency_count, CUgraphNodeParams *parameters)
{
    SIM_ENTER(cuGraphAddNode_v2);
    return add_any(node, graph, dependencies, edges, dependency_count, parameters);
}

SIM_EXPORT CUresult cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph,
                                      const CUgraphNode *dependencies, const CUgraphEdgeData *edges,
                                      size_t dependency_count, CUgraphNodeParams *parameters)
{
    SIM_ENTER(cuGraphAddNode_v3);
    return add_any(node, graph, dependencies, edges, dependency_count, parameters);
}

SIM_EXPORT CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph,
                                        const CUgraphNode *dependencies, size_t dependency_count)
{
    SIM_ENTER(cuGraphAddEmptyNode);
    struct sim_node_params params = { .type = CU_GRAPH_NODE_TYPE_EMPTY };
    return add(node, graph, dependencies, NULL, dependency_count, &params);
}

SIM_EXPORT CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph,
                                         const CUgraphNode *dependencies, size_t dependency_count,
                                         const CUDA_KERNEL_NODE_PARAMS_v1 *parameters)
{
    SIM_ENTER(cuGraphAddKernelNode);
    struct sim_node_params params;
    CUresult result = sim_params_kernel_v1(parameters, &params);
    return result == CUDA_SUCCESS
               ? add(node, graph, dependencies, NULL, dependency_count, &params)
               : result;
}

SIM_EXPORT CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph,
                                            const CUgraphNode *dependencies,
                                            size_t dependency_count,
                                            const CUDA_KERNEL_NODE_PARAMS *parameters)
{
    SIM_ENTER(cuGraphAddKernelNode_v2);
    struct sim_node_params params;
    CUresult result = sim_params_kernel(parameters, &params);
    return result == CUDA_SUCCESS
               ? add(node, graph, dependencies, NULL, dependency_count, &params)
               : result;
}

SIM_EXPORT CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph,
                                         const CUgraphNode *dependencies, size_t dependency_count,
                                         const CUDA_MEMSET_NODE_PARAMS *parameters,
                                         CUcontext context)
{
    SIM_ENTER(cuGraphAddMemsetNode);
    struct sim_node_params params;
    CUresult result = sim_params_memset(parameters, context, &params);
    return result == CUDA_SUCCESS
               ? add(node, graph, dependencies, NULL, dependency_count, &params)
               : result;
}

SIM_EXPORT CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph,
                                         const CUgraphNode *dependencies, size_t dependency_count,
                                         const CUDA_MEMCPY3D *parameters, CUcontext context)
{
    SIM_ENTER(cuGraphAddMemcpyNode);
    struct sim_node_params params;
    CUresult result = sim_params_memcpy(parameters, context, &params);
    return result == CUDA_SUCCESS
               ? add(node, graph, dependencies, NULL, dependency_count, &params)
               : result;
}

SIM_EXPORT CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph,
                                       const CUgraphNode *dependencies, size_t dependency_count,
                                       const CUDA_HOST_NODE_PARAMS_v1 *parameters)
{
    SIM_ENTER(cuGraphAddHostNode);
    struct sim_node_params params = { .type = CU_GRAPH_NODE_TYPE_HOST };

    if (!sim_pointer(parameters) || parameters->fn == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    params.host = parameters->fn;
    params.host_data = parameters->userData;
    return add(node, graph, dependencies, NULL, dependency_count, &params);
}

SIM_EXPORT CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph,
                                             const CUgraphNode *dependencies,
                                             size_t dependency_count, CUgraph child)
{
    SIM_ENTER(cuGraphAddChildGraphNode);
    CUgraphNodeParams given = { .type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = { .graph = child } };
    return add_any(node, graph, dependencies, NULL, dependency_count, &given);
}

SIM_EXPORT CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph)
{
    SIM_ENTER(cuGraphChildGraphNodeGetGraph);
    if (graph == NULL || !sim_alive(node, SIM_NODE) ||
        node->params.type != CU_GRAPH_NODE_TYPE_GRAPH)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = node->params.child;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph,
                                           const CUgraphNode *dependencies, size_t dependency_count,
                                           CUDA_MEM_ALLOC_NODE_PARAMS *parameters)
{
    SIM_ENTER(cuGraphAddMemAllocNode);
    struct sim_node_params params;
    CUresult result = sim_params_alloc(parameters, &params);

    if (result == CUDA_SUCCESS)
        result = add(node, graph, dependencies, NULL, dependency_count, &params);
    if (result == CUDA_SUCCESS)
        parameters->dptr = params.alloc.dptr;
    return result;
}

SIM_EXPORT CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node,
                                                 CUDA_MEM_ALLOC_NODE_PARAMS *parameters)
{
    SIM_ENTER(cuGraphMemAllocNodeGetParams);
    if (parameters == NULL || !sim_alive(node, SIM_NODE) ||
        node->params.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return CUDA_ERROR_INVALID_VALUE;
    *parameters = node->params.alloc;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph,
                                          const CUgraphNode *dependencies, size_t dependency_count,
                                          CUdeviceptr address)
{
    SIM_ENTER(cuGraphAddMemFreeNode);
    CUgraphNodeParams given = { .type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = { .dptr = address } };
    return add_any(node, graph, dependencies, NULL, dependency_count, &given);
}

SIM_EXPORT CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *address)
{
    SIM_ENTER(cuGraphMemFreeNodeGetParams);
    if (address == NULL || !sim_alive(node, SIM_NODE) ||
        node->params.type != CU_GRAPH_NODE_TYPE_MEM_FREE)
        return CUDA_ERROR_INVALID_VALUE;
    *address = node->params.free;
    return CUDA_SUCCESS;
}

static CUresult show_kernel(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *shown)
{
    if (!sim_alive(node, SIM_NODE) || node->params.type != CU_GRAPH_NODE_TYPE_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    sim_params_show(&node->params, node->parameters, shown);
    sim_unlock();
    return CUDA_SUCCESS;
}

/* The old structure can only name a function: of a library's kernel it shows the one that runs. */
SIM_EXPORT CUresult cuGraphKernelNodeGetParams(CUgraphNode node,
                                               CUDA_KERNEL_NODE_PARAMS_v1 *parameters)
{
    SIM_ENTER(cuGraphKernelNodeGetParams);
    CUDA_KERNEL_NODE_PARAMS shown;
    CUresult result;

    if (parameters == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = show_kernel(node, &shown);
    if (result != CUDA_SUCCESS)
        return result;
    shown.func = node->params.launch.function;
    memcpy(parameters, &shown, sizeof *parameters);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node,
                                                  CUDA_KERNEL_NODE_PARAMS *parameters)
{
    SIM_ENTER(cuGraphKernelNodeGetParams_v2);
    return parameters == NULL ? CUDA_ERROR_INVALID_VALUE : show_kernel(node, parameters);
}

static CUresult set_kernel(CUgraphNode node, CUresult translated,
                           const struct sim_node_params *params)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    if (translated != CUDA_SUCCESS)
        return translated;
    sim_lock();
    if (sim_alive(node, SIM_NODE) && node->params.type == CU_GRAPH_NODE_TYPE_KERNEL)
        result = sim_node_adopt(node, params);
    sim_unlock();
    return result;
}

SIM_EXPORT CUresult cuGraphKernelNodeSetParams(CUgraphNode node,
                                               const CUDA_KERNEL_NODE_PARAMS_v1 *parameters)
{
    SIM_ENTER(cuGraphKernelNodeSetParams);
    struct sim_node_params params;
    return set_kernel(node, sim_params_kernel_v1(parameters, &params), &params);
}

SIM_EXPORT CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node,
                                                  const CUDA_KERNEL_NODE_PARAMS *parameters)
{
    SIM_ENTER(cuGraphKernelNodeSetParams_v2);
    struct sim_node_params params;
    return set_kernel(node, sim_params_kernel(parameters, &params), &params);
}
