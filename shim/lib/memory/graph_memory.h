/* Memory that graphs allocate for themselves: asked before a launch, read again after it. */
#ifndef HAMI_GRAPH_MEMORY_H
#define HAMI_GRAPH_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "hami_cuda.h"
#include "hami_slice.h"
#include "memory/graph_need.h"
#include "memory/map.h"
#include "memory/pools.h"

/* ---- A launch or an upload ---- */

/* On the caller's stack between the two calls; not to be filled in by hand. */
struct hami_graph_launch {
    CUgraphExec exec;
    bool memory;                      /* the graph has allocation nodes of ours to count */
    struct hami_graph_need need;      /* as it was then */
    uint64_t ahead[HAMI_MAX_DEVICES]; /* charged for the growth that this launch may bring */
};

/* CUDA_ERROR_OUT_OF_MEMORY: what the graph's nodes allocate does not fit, do not launch (and do not
 * call _after_). One load and a store while the process has no graph with allocation nodes. */
CUresult hami_graph_before_launch(struct hami_graph_launch *launch, CUgraphExec exec,
                                  CUstream stream, bool per_thread);
/* After the driver's answer, whatever it was. */
void hami_graph_after_launch(struct hami_graph_launch *launch, CUresult result);

/* An allocation node was made, also by a captured cuMemAllocAsync. */
void hami_graph_has_allocations(void);
/* Memory that is not on record was freed: perhaps what a graph left. Before the driver's call. */
void hami_graph_left_freed(void);
/* An instantiated graph was made to do what `graph` does. */
void hami_graph_updated(CUgraphExec exec, CUgraph graph);
/* The program freed something that may have held graph memory: read what the driver holds. */
void hami_graphs_settle(void);

/* ---- An instantiation, and its end ---- */

/* Charge what a graph may make the driver reserve, by row; `beside` as of hami_pool_run. False: over
 * the limit, nothing is charged. Then the driver's call, then one of the two below. */
bool hami_graph_charge(const struct hami_graph_need *need, const struct hami_pool_beside *beside,
                       uint64_t *ahead);
/* Charge what the driver did reserve. False: more than fits. */
bool hami_graph_confirm(const struct hami_graph_need *need, const uint64_t *ahead);
void hami_graph_cancel(const struct hami_graph_need *need, const uint64_t *ahead);

/* An instantiated graph has allocation nodes; `flags` as of cuGraphInstantiateWithFlags. False: no
 * memory to remember it. */
bool hami_graph_remember(CUgraphExec exec, const struct hami_graph_need *need,
                         unsigned long long flags);
/* Whether any graph of this process ever had one. */
bool hami_graph_any_allocations(void);

/* Before the driver is asked to destroy one; false: it is not on record. Then what the driver said
 * of it. */
bool hami_graph_destroying(CUgraphExec exec, struct hami_entry *entry);
void hami_graph_destroyed(const struct hami_entry *entry, CUresult result);

#endif
