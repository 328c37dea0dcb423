/* Changing an executable graph: node by node, or all of it from a graph of the same shape. */
#include <stdlib.h>

#include "graphs.h"

/* The copy of a node of the graph that was instantiated, child graphs included. */
static CUgraphNode find(CUgraph graph, CUgraphNode original)
{
    for (CUgraphNode node = graph->first; node != NULL; node = node->next) {
        CUgraphNode inside = NULL;
        if (node->original == original)
            return node;
        if (node->params.child != NULL)
            inside = find(node->params.child, original);
        if (inside != NULL)
            return inside;
    }
    return NULL;
}

static void changed(CUgraphExec exec)
{
    sim_program_drop(exec->program);
    exec->program = NULL;
}

/* A kernel may change its function, but not the context it runs in; memory nodes change nothing. */
static CUgraphExecUpdateResult may_become(const struct sim_node_params *from,
                                          const struct sim_node_params *to)
{
    if (from->type != to->type)
        return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    switch ((int)from->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return from->context->root == to->context->root
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return from->context == NULL || to->context == NULL ||
                       from->context->ordinal == to->context->ordinal
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return from->alloc.bytesize == to->alloc.bytesize && from->alloc.dptr == to->alloc.dptr
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return from->free == to->free ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                      : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    default: return CU_GRAPH_EXEC_UPDATE_SUCCESS;
    }
}

static CUresult set_params(CUgraphExec exec, CUgraphNode node, CUresult translated,
                           const struct sim_node_params *params)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    CUgraphNode copy;

    if (translated != CUDA_SUCCESS)
        return translated;
    sim_lock();
    if (sim_alive(exec, SIM_EXEC) && sim_alive(node, SIM_NODE)) {
        copy = find(exec->graph, node);
        if (copy != NULL && params->type != CU_GRAPH_NODE_TYPE_GRAPH &&
            params->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
            params->type != CU_GRAPH_NODE_TYPE_MEM_FREE &&
            may_become(&copy->params, params) == CU_GRAPH_EXEC_UPDATE_SUCCESS)
            result = sim_node_adopt(copy, params);
        if (result == CUDA_SUCCESS)
            changed(exec);
    }
    sim_unlock();
    return result;
}

SIM_EXPORT CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                   const CUDA_KERNEL_NODE_PARAMS_v1 *parameters)
{
    SIM_ENTER(cuGraphExecKernelNodeSetParams);
    struct sim_node_params params;
    return set_params(exec, node, sim_params_kernel_v1(parameters, &params), &params);
}

SIM_EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                      const CUDA_KERNEL_NODE_PARAMS *parameters)
{
    SIM_ENTER(cuGraphExecKernelNodeSetParams_v2);
    struct sim_node_params params;
    return set_params(exec, node, sim_params_kernel(parameters, &params), &params);
}

SIM_EXPORT CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                             CUgraphNodeParams *parameters)
{
    SIM_ENTER(cuGraphExecNodeSetParams);
    struct sim_node_params params;
    return set_params(exec, node, sim_params_any(parameters, &params), &params);
}

struct comparison {
    CUgraphExecUpdateResult result;
    CUgraphNode node, from;
};

static bool differs(struct comparison *comparison, CUgraphExecUpdateResult result, CUgraphNode node,
                    CUgraphNode from)
{
    *comparison = (struct comparison){ result, node, from };
    return false;
}

static bool compare(CUgraph has, CUgraph wanted, struct comparison *comparison);

/* `a` of the executable graph and `b` of the new one stand at the same place of their orders. */
static bool compare_nodes(CUgraphNode a, CUgraphNode b, struct comparison *comparison)
{
    CUgraphExecUpdateResult result = may_become(&a->params, &b->params);

    if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
        return differs(comparison, result, b, NULL);
    if (a->from.count != b->from.count)
        return differs(comparison, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, b, NULL);
    for (size_t i = 0; i < b->from.count; i++) {
        bool found = false;
        for (size_t k = 0; k < a->from.count; k++)
            found = found || a->from.nodes[k]->visit == b->from.nodes[i]->visit;
        if (!found)
            return differs(comparison, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, b,
                           b->from.nodes[i]);
    }
    return a->params.child == NULL || compare(a->params.child, b->params.child, comparison);
}

/* Pairs the nodes in order; leaves each pair's number in `visit`, and the new node in `clone`. */
static bool compare(CUgraph has, CUgraph wanted, struct comparison *comparison)
{
    CUgraphNode *a = NULL, *b = NULL;
    bool same;

    if (has->count != wanted->count)
        return differs(comparison, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL, NULL);
    if (sim_graph_sort(has, &a) != CUDA_SUCCESS || sim_graph_sort(wanted, &b) != CUDA_SUCCESS) {
        free(a);
        return differs(comparison, CU_GRAPH_EXEC_UPDATE_ERROR, NULL, NULL);
    }
    for (size_t i = 0; i < has->count; i++) {
        a[i]->visit = b[i]->visit = i;
        a[i]->clone = b[i];
    }
    same = true;
    for (size_t i = 0; i < has->count && same; i++)
        same = compare_nodes(a[i], b[i], comparison);
    free(a);
    free(b);
    return same;
}

static CUresult take_over(CUgraph has)
{
    CUresult result = CUDA_SUCCESS;

    for (CUgraphNode node = has->first; node != NULL && result == CUDA_SUCCESS; node = node->next) {
        if (node->params.child != NULL)
            result = take_over(node->params.child);
        else
            result = sim_node_adopt(node, &node->clone->params);
    }
    return result;
}

static CUresult update(CUgraphExec exec, CUgraph graph, struct comparison *comparison)
{
    CUresult result;

    *comparison = (struct comparison){ .result = CU_GRAPH_EXEC_UPDATE_ERROR };
    sim_lock();
    if (!sim_alive(exec, SIM_EXEC) || !sim_alive(graph, SIM_GRAPH) || graph->capturing != NULL) {
        sim_unlock();
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (compare(exec->graph, graph, comparison)) {
        comparison->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
        result = take_over(exec->graph);
        changed(exec);
    } else {
        result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    sim_unlock();
    return result;
}

SIM_EXPORT CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
                                      CUgraphExecUpdateResult *update_result)
{
    SIM_ENTER(cuGraphExecUpdate);
    struct comparison comparison;
    CUresult result;

    if ((error_node != NULL && !sim_pointer(error_node)) || !sim_pointer(update_result))
        return CUDA_ERROR_INVALID_VALUE;
    result = update(exec, graph, &comparison);
    *update_result = comparison.result;
    if (error_node != NULL)
        *error_node = comparison.node;
    return result;
}

SIM_EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                         CUgraphExecUpdateResultInfo *update_result)
{
    SIM_ENTER(cuGraphExecUpdate_v2);
    struct comparison comparison;
    CUresult result;

    if (!sim_pointer(update_result))
        return CUDA_ERROR_INVALID_VALUE;
    result = update(exec, graph, &comparison);
    *update_result = (CUgraphExecUpdateResultInfo){
        .result = comparison.result,
        .errorNode = comparison.node,
        .errorFromNode = comparison.from,
    };
    return result;
}
