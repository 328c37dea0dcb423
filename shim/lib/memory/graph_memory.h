/* What graphs.c offers to graph_instantiate.c. */
#ifndef HAMI_GRAPH_MEMORY_H
#define HAMI_GRAPH_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "graph_need.h"
#include "pools.h"

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

#endif
