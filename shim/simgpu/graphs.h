/* Stream capture and graphs of the simulated driver. */
#ifndef SIM_GRAPHS_H
#define SIM_GRAPHS_H

#include "execution.h"
#include "modules.h"

/* ---- Capture (cuda_capture.c, cuda_capture_api.c) ---- */

struct sim_capture {
    uint64_t id;
    CUstreamCaptureMode mode;
    CUstreamCaptureStatus status;
    bool ended, own_graph;
    CUstream origin;
    uint64_t thread;
    CUgraph graph;
    unsigned int references; /* streams in it, events recorded in it */
    struct sim_capture *next;
    /* Recapture: the node that the next operation must match. */
    bool recapture, recapture_failed;
    CUgraphNode cursor;
    CUgraphRecaptureCallback callback;
    void *callback_data;
};
extern _Atomic uint32_t sim_open_captures;

/* sim_capture_unsafe without a call while nothing captures. */
static inline CUresult sim_capture_allows(void)
{
    return SIM_LIKELY(atomic_load_explicit(&sim_open_captures, memory_order_acquire) == 0)
               ? CUDA_SUCCESS
               : sim_capture_unsafe();
}

/* All under the lock. */
CUresult sim_capture_open(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                          const struct sim_nodes *from, struct sim_capture **capture);
CUresult sim_capture_close(CUstream stream, CUgraph *graph);
void sim_capture_invalidate(struct sim_capture *capture);
void sim_capture_drop(struct sim_capture *capture);
CUresult sim_capture_join(CUstream stream, struct sim_capture *capture,
                          const struct sim_nodes *from);
void sim_capture_leave(CUstream stream);
/* Of an operation on a stream, legacy included: CUDA_SUCCESS with NULL when it does not capture. */
CUresult sim_capture_find(CUstream stream, struct sim_capture **capture);
/* The event becomes part of the capture, or leaves the one it was in. */
void sim_event_capture(CUevent event, struct sim_capture *capture, const struct sim_nodes *nodes);
/* A node behind everything that the stream captured so far. */
CUresult sim_capture_node(CUstream stream, const struct sim_node_params *params);
/* The same for whoever found the stream capturing without the lock: `*captured` is false when it
 * was not after all. Takes the lock itself. */
CUresult sim_capture_try(CUstream stream, const struct sim_node_params *params, bool *captured);
/* The stream that a capture began on is gone: it ends here. */
void sim_capture_abandon(struct sim_capture *capture);
/* An operation that cannot be captured, on this stream or on any of a context. Take the lock. */
CUresult sim_capture_refuse_context(CUcontext context);
CUresult sim_capture_refuse(CUstream stream);

/* ---- Graphs (cuda_graph*.c) ---- */

struct sim_node_params {
    CUgraphNodeType type;
    struct sim_work work; /* KERNEL, MEMSET, MEMCPY: what a launch of the graph runs */
    struct sim_launch launch;
    CUcontext context;
    CUkernel kernel; /* what the program gave, where that was none of its CUfunctions */
    CUDA_MEMSET_NODE_PARAMS memset;
    CUDA_MEMCPY3D memcpy;
    CUhostFn host;
    void *host_data;
    CUgraph child;
    CUDA_MEM_ALLOC_NODE_PARAMS alloc;
    CUdeviceptr free;
    CUevent event;
};

struct CUgraphNode_st {
    struct sim_head head;
    CUgraph graph;
    struct sim_node_params params;
    void *parameters[1];        /* what cuGraphKernelNodeGetParams shows */
    struct sim_nodes from, to;
    CUgraphNode next, previous; /* in its graph, in order of creation */
    CUgraphNode original;       /* of a copy */
    CUgraphNode clone;          /* while its graph is copied */
    size_t visit;               /* while its graph is sorted or compared */
};

struct CUgraph_st {
    struct sim_head head;
    CUgraphNode first, last;
    size_t count;
    bool owned;                    /* a child graph: its node's, or an exec's copy */
    bool memory_nodes;             /* it has had some: it cannot be copied or run twice at once */
    CUgraphExec exec;              /* of a graph with memory nodes, the one there is */
    struct sim_capture *capturing; /* a capture adds to it */
};

/* All under the lock. */
CUresult sim_nodes_add(struct sim_nodes *list, CUgraphNode node, const CUgraphEdgeData *edge);
CUresult sim_nodes_copy(struct sim_nodes *list, const struct sim_nodes *from);
void sim_nodes_free(struct sim_nodes *list);
bool sim_nodes_has(const struct sim_nodes *list, CUgraphNode node);
CUresult sim_graph_new(CUgraph *graph);
void sim_graph_free(CUgraph graph);
CUresult sim_graph_add(CUgraph graph, const struct sim_node_params *params,
                       const struct sim_nodes *from, CUgraphNode *node);
/* An edge; and a node out of its graph, with its edges. */
CUresult sim_graph_edge(CUgraphNode from, CUgraphNode to, const CUgraphEdgeData *edge);
void sim_graph_remove(CUgraphNode node);
/* A program's list of nodes of this graph, and of the edges that lead from them. */
CUresult sim_graph_check(CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges,
                         size_t count, struct sim_nodes *list);
CUresult sim_graph_copy(CUgraph from, CUgraph *to);
/* The graph's nodes, each after those it depends on, older ones first; the caller frees the list.
 * CUDA_ERROR_INVALID_VALUE: they go in a circle. */
CUresult sim_graph_sort(CUgraph graph, CUgraphNode **order);
/* New parameters of the node's type; a child graph among them is copied. */
CUresult sim_node_adopt(CUgraphNode node, const struct sim_node_params *params);

/* Check parameters as programs give them, and translate (cuda_graph_params.c). Without the lock. */
CUresult sim_params_kernel(const CUDA_KERNEL_NODE_PARAMS *given, struct sim_node_params *params);
CUresult sim_params_kernel_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *given,
                              struct sim_node_params *params);
CUresult sim_params_memset(const CUDA_MEMSET_NODE_PARAMS *given, CUcontext context,
                           struct sim_node_params *params);
CUresult sim_params_memcpy(const CUDA_MEMCPY3D *given, CUcontext context,
                           struct sim_node_params *params);
CUresult sim_params_alloc(const CUDA_MEM_ALLOC_NODE_PARAMS *given, struct sim_node_params *params);
CUresult sim_params_any(const CUgraphNodeParams *given, struct sim_node_params *params);
/* And back; `parameters` is where a dynamic kernel's parameter can be shown from. */
void sim_params_show(const struct sim_node_params *params, void **parameters,
                     CUDA_KERNEL_NODE_PARAMS *shown);
void sim_params_show_any(const struct sim_node_params *params, void **parameters,
                         CUgraphNodeParams *shown);

struct sim_program; /* what a launch of a graph runs (cuda_graph_program.c) */

struct CUgraphExec_st {
    struct sim_head head;
    CUgraph graph;  /* a copy; its nodes' `original` are the nodes it was made from */
    CUgraph source; /* to compare with, not to follow */
    cuuint64_t flags;
    struct sim_program *program; /* NULL: to be made again, parameters changed */
};

/* Under the lock. A program does not change, and is kept by who runs it. */
CUresult sim_program_new(CUgraph graph, struct sim_program **program);
void sim_program_keep(struct sim_program *program);
void sim_program_drop(struct sim_program *program);
/* Without the lock: code, local memory and graph memory that a launch needs; then the launch. */
CUresult sim_program_prepare(struct sim_program *program, bool auto_free);
CUresult sim_program_run(struct sim_program *program, CUstream stream, bool auto_free);

/* Memory that launches of graphs left allocated (cuda_graph_memory.c). */
bool sim_graph_memory_live(CUdeviceptr address);
CUresult sim_graph_memory_take(CUcontext context, CUdeviceptr address, uint64_t bytes);

#endif
