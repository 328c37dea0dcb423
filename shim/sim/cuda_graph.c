/* Graphs as structures: nodes, edges, copies, order. All of this file's functions that are not entry
 * points run under the lock. */
#include <stdlib.h>

#include "execution.h"

static const CUgraphEdgeData plain_edge;

CUresult sim_nodes_add(struct sim_nodes *list, CUgraphNode node, const CUgraphEdgeData *edge)
{
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 4;
        CUgraphNode *nodes = realloc(list->nodes, room * sizeof *nodes);
        CUgraphEdgeData *edges;
        if (nodes == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        list->nodes = nodes;
        edges = realloc(list->edges, room * sizeof *edges);
        if (edges == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        list->edges = edges;
        list->room = room;
    }
    list->nodes[list->count] = node;
    list->edges[list->count++] = edge != NULL ? *edge : plain_edge;
    return CUDA_SUCCESS;
}

CUresult sim_nodes_copy(struct sim_nodes *list, const struct sim_nodes *from)
{
    CUresult result = CUDA_SUCCESS;

    for (size_t i = 0; i < from->count && result == CUDA_SUCCESS; i++)
        result = sim_nodes_add(list, from->nodes[i], &from->edges[i]);
    return result;
}

void sim_nodes_free(struct sim_nodes *list)
{
    free(list->nodes);
    free(list->edges);
    *list = (struct sim_nodes){ 0 };
}

bool sim_nodes_has(const struct sim_nodes *list, CUgraphNode node)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->nodes[i] == node)
            return true;
    return false;
}

static void nodes_remove(struct sim_nodes *list, CUgraphNode node)
{
    for (size_t i = 0; i < list->count; i++) {
        if (list->nodes[i] != node)
            continue;
        memmove(&list->nodes[i], &list->nodes[i + 1],
                (list->count - i - 1) * sizeof *list->nodes);
        memmove(&list->edges[i], &list->edges[i + 1],
                (list->count - i - 1) * sizeof *list->edges);
        list->count--;
        return;
    }
}

static CUresult add_edge(CUgraphNode from, CUgraphNode to, const CUgraphEdgeData *edge)
{
    CUresult result = sim_nodes_add(&from->to, to, edge);
    return result == CUDA_SUCCESS ? sim_nodes_add(&to->from, from, edge) : result;
}

CUresult sim_graph_new(CUgraph *graph)
{
    *graph = sim_object_new(SIM_GRAPH);
    if (*graph == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_born(*graph, SIM_GRAPH);
    return CUDA_SUCCESS;
}

static void free_node(CUgraphNode node)
{
    sim_kill(node, SIM_NODE);
    sim_nodes_free(&node->from);
    sim_nodes_free(&node->to);
    if (node->params.child != NULL)
        sim_graph_free(node->params.child);
    sim_object_free(node, SIM_NODE);
}

void sim_graph_free(CUgraph graph)
{
    CUgraphNode next;

    sim_kill(graph, SIM_GRAPH);
    for (CUgraphNode node = graph->first; node != NULL; node = next) {
        next = node->next;
        free_node(node);
    }
    sim_object_free(graph, SIM_GRAPH);
}

CUresult sim_node_adopt(CUgraphNode node, const struct sim_node_params *params)
{
    CUgraph child = NULL;
    CUresult result;

    if (params->child != NULL && params->child != node->params.child) {
        result = sim_graph_copy(params->child, &child);
        if (result != CUDA_SUCCESS)
            return result;
        child->owned = true;
        if (node->params.child != NULL)
            sim_graph_free(node->params.child);
    }
    node->params = *params;
    if (child != NULL)
        node->params.child = child;
    node->parameters[0] = &node->params.launch.parameter;
    return CUDA_SUCCESS;
}

CUresult sim_graph_add(CUgraph graph, const struct sim_node_params *params,
                       const struct sim_nodes *from, CUgraphNode *added)
{
    CUgraphNode node = sim_object_new(SIM_NODE);
    CUresult result = node != NULL ? sim_node_adopt(node, params) : CUDA_ERROR_OUT_OF_MEMORY;

    for (size_t i = 0; from != NULL && i < from->count && result == CUDA_SUCCESS; i++)
        result = add_edge(from->nodes[i], node, &from->edges[i]);
    if (result != CUDA_SUCCESS) {
        for (size_t i = 0; node != NULL && i < node->from.count; i++)
            nodes_remove(&node->from.nodes[i]->to, node);
        if (node != NULL)
            free_node(node);
        return result;
    }
    node->graph = graph;
    node->previous = graph->last;
    if (graph->last != NULL)
        graph->last->next = node;
    else
        graph->first = node;
    graph->last = node;
    graph->count++;
    if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
        params->type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
        (params->child != NULL && params->child->memory_nodes))
        graph->memory_nodes = true;
    sim_born(node, SIM_NODE);
    *added = node;
    return CUDA_SUCCESS;
}

CUresult sim_graph_check(CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges,
                         size_t count, struct sim_nodes *list)
{
    CUresult result = CUDA_SUCCESS;

    if (count > graph->count || (count > 0 && !sim_pointer(nodes)) ||
        (edges != NULL && !sim_pointer(edges)))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        static const unsigned char zeroes[5];
        const CUgraphEdgeData *edge = edges != NULL ? &edges[i] : NULL;
        if (!sim_alive(nodes[i], SIM_NODE) || nodes[i]->graph != graph ||
            sim_nodes_has(list, nodes[i]) ||
            (edge != NULL && (edge->type > 1 || memcmp(edge->reserved, zeroes, sizeof zeroes))))
            result = CUDA_ERROR_INVALID_VALUE;
        else
            result = sim_nodes_add(list, nodes[i], edge);
    }
    return result;
}

CUresult sim_graph_copy(CUgraph from, CUgraph *copied)
{
    CUgraph to;
    CUgraphNode copy;
    CUresult result = sim_graph_new(&to);

    if (result != CUDA_SUCCESS)
        return result;
    for (CUgraphNode node = from->first; node != NULL && result == CUDA_SUCCESS; node = node->next) {
        result = sim_graph_add(to, &node->params, NULL, &copy);
        if (result == CUDA_SUCCESS) {
            copy->original = node;
            node->clone = copy;
        }
    }
    for (CUgraphNode node = from->first; node != NULL && result == CUDA_SUCCESS; node = node->next)
        for (size_t i = 0; i < node->from.count && result == CUDA_SUCCESS; i++)
            result = add_edge(node->from.nodes[i]->clone, node->clone, &node->from.edges[i]);
    if (result != CUDA_SUCCESS)
        sim_graph_free(to);
    else
        *copied = to;
    return result;
}

CUresult sim_graph_sort(CUgraph graph, CUgraphNode **sorted)
{
    CUgraphNode *order = calloc(graph->count + 1, sizeof(CUgraphNode));
    size_t count = 0;

    if (order == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (CUgraphNode node = graph->first; node != NULL; node = node->next) {
        node->visit = node->from.count;
        if (node->visit == 0)
            order[count++] = node;
    }
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < order[i]->to.count; k++)
            if (--order[i]->to.nodes[k]->visit == 0)
                order[count++] = order[i]->to.nodes[k];
    if (count != graph->count) {
        free(order);
        return CUDA_ERROR_INVALID_VALUE;
    }
    *sorted = order;
    return CUDA_SUCCESS;
}

/* ---- Entry points ---- */

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
    CUgraph graph;

    sim_lock();
    if (!sim_alive(node, SIM_NODE) || node->graph->capturing != NULL) {
        sim_unlock();
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (memory_node(node)) { /* the graph's memory was laid out with it */
        sim_unlock();
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    graph = node->graph;
    for (size_t i = 0; i < node->from.count; i++)
        nodes_remove(&node->from.nodes[i]->to, node);
    for (size_t i = 0; i < node->to.count; i++)
        nodes_remove(&node->to.nodes[i]->from, node);
    if (node->previous != NULL)
        node->previous->next = node->next;
    else
        graph->first = node->next;
    if (node->next != NULL)
        node->next->previous = node->previous;
    else
        graph->last = node->previous;
    graph->count--;
    free_node(node);
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
            result = add_edge(from[i], to[i], edges != NULL ? &edges[i] : NULL);
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
