/* What a captured operation becomes; in a recapture, what it must match. */
#include "graphs.h"

static bool same_kernel(const struct sim_node_params *a, const struct sim_node_params *b)
{
    return a->launch.function == b->launch.function && a->context == b->context &&
           memcmp(a->launch.grid, b->launch.grid, sizeof a->launch.grid) == 0 &&
           memcmp(a->launch.block, b->launch.block, sizeof a->launch.block) == 0 &&
           a->launch.shared == b->launch.shared && a->launch.parameter == b->launch.parameter;
}

static bool same_params(const struct sim_node_params *a, const struct sim_node_params *b)
{
    switch ((int)a->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return same_kernel(a, b);
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return a->work.duration_ns == b->work.duration_ns && a->memset.dst == b->memset.dst &&
               a->memset.width == b->memset.width;
    case CU_GRAPH_NODE_TYPE_HOST: return a->host == b->host && a->host_data == b->host_data;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: return a->alloc.bytesize == b->alloc.bytesize;
    case CU_GRAPH_NODE_TYPE_MEM_FREE: return a->free == b->free;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return a->event == b->event;
    default: return true;
    }
}

static bool same_dependencies(const struct sim_nodes *a, const struct sim_nodes *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!sim_nodes_has(b, a->nodes[i]))
            return false;
    return true;
}

/* The next node of the graph takes the operation's place, if it is of its kind and stands where the
 * operation does; other parameters are the program's to accept. */
static CUresult recapture(struct sim_capture *capture, CUstream stream,
                          const struct sim_node_params *params, CUgraphNode *node)
{
    CUgraphNode next = capture->cursor;
    bool memory = params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
                  params->type == CU_GRAPH_NODE_TYPE_MEM_FREE;

    if (next == NULL || next->params.type != params->type ||
        !same_dependencies(&next->from, &stream->tips))
        return CUDA_ERROR_GRAPH_RECAPTURE_FAILURE;
    if (!same_params(&next->params, params)) {
        CUgraphNodeParams before, after;
        if (memory)
            return CUDA_ERROR_GRAPH_RECAPTURE_FAILURE;
        uint64_t parameter = params->launch.parameter;
        void *parameters[1] = { &parameter };
        sim_params_show_any(&next->params, next->parameters, &before);
        sim_params_show_any(params, parameters, &after);
        if (capture->callback != NULL) {
            CUresult accepted;
            /* The program's function may call us. Nobody else may touch a graph in capture. */
            sim_unlock();
            accepted = capture->callback(capture->callback_data, next, &before, &after,
                                         CU_GRAPH_RECAPTURE_ELIGIBLE_FOR_UPDATE);
            sim_lock();
            if (accepted != CUDA_SUCCESS)
                return CUDA_ERROR_GRAPH_RECAPTURE_FAILURE;
        }
        CUresult adopted = sim_node_adopt(next, params);
        if (adopted != CUDA_SUCCESS)
            return adopted;
    }
    capture->cursor = next->next;
    *node = next;
    return CUDA_SUCCESS;
}

CUresult sim_capture_node(CUstream stream, const struct sim_node_params *params)
{
    struct sim_capture *capture = stream->capture;
    CUgraphNode node;
    CUresult result = capture->recapture
                          ? recapture(capture, stream, params, &node)
                          : sim_graph_add(capture->graph, params, &stream->tips, &node);

    if (result != CUDA_SUCCESS) {
        capture->recapture_failed = capture->recapture;
        sim_capture_invalidate(capture);
        return result;
    }
    stream->tips.count = 0;
    return sim_nodes_add(&stream->tips, node, NULL);
}
