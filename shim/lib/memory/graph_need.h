/* How much device memory the allocation nodes of a graph take. */
#ifndef HAMI_GRAPH_NEED_H
#define HAMI_GRAPH_NEED_H

#include <stdbool.h>
#include <stdint.h>

#include "hami_cuda.h"
#include "hami_slice.h"

struct hami_graph_need {
    uint64_t bytes[HAMI_MAX_DEVICES]; /* by row */
    bool any;
    bool keeps; /* it leaves memory allocated when it has run */
};

/* CUDA_ERROR_OUT_OF_MEMORY: no memory to find out, or an allocation on a device that is not of the
 * slice. */
CUresult hami_graph_need(CUgraph graph, struct hami_graph_need *need);

#endif
