/* Memory that graphs allocate for themselves: asked before a launch, read again after it.
 * graphs.c; launch.c calls the pair around the driver's cuGraphLaunch, graphs.c around uploads. */
#ifndef HAMI_GRAPHS_H
#define HAMI_GRAPHS_H

#include <stdbool.h>
#include <stdint.h>

#include "hami_cuda.h"
#include "graph_need.h"
#include "hami_slice.h"

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
void hami_graphs_reset(void); /* a forked child starts anew */

#endif
