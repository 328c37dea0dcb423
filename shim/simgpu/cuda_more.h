/* Functions that the simulated driver exports and hami_cuda.h does not declare, because nothing of
 * ours but its tests calls them. */
#ifndef SIM_CUDA_MORE_H
#define SIM_CUDA_MORE_H

#include "hami_cuda.h"

typedef struct { /* as CUDA 10.0 to 13.0 have it */
    CUhostFn fn;
    void *userData;
} CUDA_HOST_NODE_PARAMS_v1;

CUresult cuParamSetv(CUfunction function, int offset, void *value, unsigned int bytes);
CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                            size_t dependency_count, const CUDA_HOST_NODE_PARAMS_v1 *parameters);
CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *address);
CUresult cuGraphNodeFindInClone(CUgraphNode *node, CUgraphNode original, CUgraph clone);
CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *dependencies, size_t *count);
CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *dependencies,
                                       CUgraphEdgeData *edges, size_t *count);

#endif
