/* Making, cloning and destroying graphs, asking about their nodes and edges, and changing those. */
#include <stdlib.h>

#include "graphs.h"

static const CUgraphEdgeData plain_edge;

SIM_EXPORT CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
    SIM_ENTER(cuGraphCreate);
    CUgraph made;
    CUresult result;

    if (graph == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    result = sim_graph_new(&made);
    sim_unlock();
    if (result == CUDA_SUCCESS)
        *graph = made;
    return result;
}

SIM_EXPORT CUresult cuGraphDestroy(CUgraph graph)
{
    SIM_ENTER(cuGraphDestroy);
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    sim_lock();
    if (sim_alive(graph, SIM_GRAPH) && !graph->owned && graph->capturing == NULL) {
        sim_graph_free(graph);
        result = CUDA_SUCCESS;
    }
    sim_unlock();
    return result;
}

SIM_EXPORT CUresult cuGraphClone(CUgraph *clone, CUgraph original)
{
    SIM_ENTER(cuGraphClone);
    CUgraph made;
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    if (clone == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    if (sim_alive(original, SIM_GRAPH) && original->capturing == NULL)
        result = original->memory_nodes ? CUDA_ERROR_NOT_SUPPORTED
                                        : sim_graph_copy(original, &made);
    sim_unlock();
    if (result == CUDA_SUCCESS)
        *clone = made;
    return result;
}

SIM_EXPORT CUresult cuGraphNodeFindInClone(CUgraphNode *node, CUgraphNode original, CUgraph clone)
{
    SIM_ENTER(cuGraphNodeFindInClone);
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    if (node == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    if (sim_alive(clone, SIM_GRAPH))
        for (CUgraphNode each = clone->first; each != NULL; each = each->next)
            if (each->original == original) {
                *node = each;
                result = CUDA_SUCCESS;
            }
    sim_unlock();
    return result;
}

SIM_EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    SIM_ENTER(cuGraphGetNodes);
    size_t filled = 0;

    if (count == NULL || !sim_alive(graph, SIM_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    if (nodes == NULL) {
        *count = graph->count;
    } else {
        for (CUgraphNode node = graph->first; node != NULL && filled < *count; node = node->next)
            nodes[filled++] = node;
        /* Room that is left over is cleared. */
        for (size_t i = filled; i < *count; i++)
            nodes[i] = NULL;
        *count = filled;
    }
    sim_unlock();
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
    SIM_ENTER(cuGraphNodeGetType);
    if (type == NULL || !sim_alive(node, SIM_NODE))
        return CUDA_ERROR_INVALID_VALUE;
    *type = node->params.type;
    return CUDA_SUCCESS;
}

static CUresult dependencies_of(CUgraphNode node, CUgraphNode *dependencies,
                                CUgraphEdgeData *edges, bool takes_edges, size_t *count)
{
    CUresult result = CUDA_SUCCESS;

    if (count == NULL || !sim_alive(node, SIM_NODE) || (edges != NULL && dependencies == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    for (size_t i = 0; i < node->from.count && !takes_edges && dependencies != NULL; i++)
        if (memcmp(&node->from.edges[i], &plain_edge, sizeof plain_edge) != 0)
            result = CUDA_ERROR_LOSSY_QUERY;
    if (result == CUDA_SUCCESS && dependencies == NULL) {
        *count = node->from.count;
    } else if (result == CUDA_SUCCESS) {
        size_t filled = *count < node->from.count ? *count : node->from.count;
        memcpy(dependencies, node->from.nodes, filled * sizeof *dependencies);
        if (edges != NULL)
            memcpy(edges, node->from.edges, filled * sizeof *edges);
        *count = filled;
    }
    sim_unlock();
    return result;
}

SIM_EXPORT CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *dependencies,
                                               size_t *count)
{
    SIM_ENTER(cuGraphNodeGetDependencies);
    return dependencies_of(node, dependencies, NULL, false, count);
}

SIM_EXPORT CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *dependencies,
                                                  CUgraphEdgeData *edges, size_t *count)
{
    SIM_ENTER(cuGraphNodeGetDependencies_v2);
    return dependencies_of(node, dependencies, edges, true, count);
}

static bool memory_node(CUgraphNode node)
{
    return node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
           node->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE;
}

SIM_EXPORT CUresult cuGraphDestroyNode(CUgraphNode node)
{
    SIM_ENTER(cuGraphDestroyNode);
    sim_lock();
    if (!sim_alive(node, SIM_NODE) || node->graph->capturing != NULL) {
        sim_unlock();
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (memory_node(node)) { /* the graph's memory was laid out with it */
        sim_unlock();
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    sim_graph_remove(node);
    sim_unlock();
    return CUDA_SUCCESS;
}

static CUresult add_dependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                 const CUgraphEdgeData *edges, size_t count)
{
    CUresult result = CUDA_SUCCESS;

    if (!sim_alive(graph, SIM_GRAPH) || (edges != NULL && !sim_pointer(edges)) ||
        (count > 0 && (!sim_pointer(from) || !sim_pointer(to))) || count > (size_t)1 << 32)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (!sim_alive(from[i], SIM_NODE) || !sim_alive(to[i], SIM_NODE) ||
            from[i]->graph != graph || to[i]->graph != graph || from[i] == to[i] ||
            sim_nodes_has(&to[i]->from, from[i]))
            result = CUDA_ERROR_INVALID_VALUE;
        else
            result = sim_graph_edge(from[i], to[i], edges != NULL ? &edges[i] : NULL);
    }
    sim_unlock();
    return result;
}

SIM_EXPORT CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from,
                                           const CUgraphNode *to, size_t dependency_count)
{
    SIM_ENTER(cuGraphAddDependencies);
    return add_dependencies(graph, from, to, NULL, dependency_count);
}

SIM_EXPORT CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from,
                                              const CUgraphNode *to, const CUgraphEdgeData *edges,
                                              size_t dependency_count)
{
    SIM_ENTER(cuGraphAddDependencies_v2);
    return add_dependencies(graph, from, to, edges, dependency_count);
}
