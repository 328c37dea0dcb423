/* Graphs as structures: nodes, edges, copies, order. All of it runs under the lock. */
#include <stdlib.h>

#include "graphs.h"

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

CUresult sim_graph_edge(CUgraphNode from, CUgraphNode to, const CUgraphEdgeData *edge)
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

void sim_graph_remove(CUgraphNode node)
{
    CUgraph graph = node->graph;

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
        result = sim_graph_edge(from->nodes[i], node, &from->edges[i]);
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
    for (CUgraphNode node = from->first; node != NULL && result == CUDA_SUCCESS;
         node = node->next) {
        result = sim_graph_add(to, &node->params, NULL, &copy);
        if (result == CUDA_SUCCESS) {
            copy->original = node;
            node->clone = copy;
        }
    }
    for (CUgraphNode node = from->first; node != NULL && result == CUDA_SUCCESS; node = node->next)
        for (size_t i = 0; i < node->from.count && result == CUDA_SUCCESS; i++)
            result = sim_graph_edge(node->from.nodes[i]->clone, node->clone, &node->from.edges[i]);
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
