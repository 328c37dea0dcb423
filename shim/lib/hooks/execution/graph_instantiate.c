/* Instantiating graphs, in five spellings. One whose memory cannot fit is refused here already: the
 * driver may reserve it now or when the graph runs, and nobody can undo a launch. */
#include "driver/real.h"
#include "memory/graph_memory.h"
#include "memory/reclaim.h"
#include "slice/slice.h"

/* One spelling of cuGraphInstantiate with its other arguments. */
struct instantiation {
    CUresult (*driver)(CUgraphExec *exec, CUgraph graph, const struct instantiation *of);
    CUgraphNode *error_node;
    char *log;
    size_t log_size;
    unsigned long long flags;
    CUDA_GRAPH_INSTANTIATE_PARAMS *parameters;
};

static CUresult instantiate_counted(CUgraphExec *exec, CUgraph graph,
                                    const struct hami_graph_need *need,
                                    const struct instantiation *of)
{
    unsigned long long flags = of->parameters ? of->parameters->flags : of->flags;
    uint64_t ahead[HAMI_MAX_DEVICES];
    CUgraphExec made;
    CUresult result;

    if (!hami_graph_charge(need, NULL, ahead))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = of->driver(&made, graph, of);
    if (result != CUDA_SUCCESS) {
        hami_graph_cancel(need, ahead);
        return result;
    }
    if (hami_graph_confirm(need, ahead) && hami_graph_remember(made, need, flags)) {
        *exec = made;
        return CUDA_SUCCESS;
    }
    hami_real()->cuGraphExecDestroy(made);
    for (int row = 0; row < HAMI_MAX_DEVICES; row++)
        if (need->bytes[row] != 0)
            hami_memory_reclaim(row);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, const struct instantiation *of)
{
    struct hami_graph_need need;
    CUresult result;

    if (!hami_graph_any_allocations() || !exec || !hami_counting())
        return of->driver(exec, graph, of);
    result = hami_graph_need(graph, &need);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return result;
    if (result != CUDA_SUCCESS || !need.any) /* what is wrong with it is the driver's to say */
        return of->driver(exec, graph, of);
    return instantiate_counted(exec, graph, &need, of);
}

static CUresult driver_v1(CUgraphExec *exec, CUgraph graph, const struct instantiation *of)
{
    return hami_real()->cuGraphInstantiate(exec, graph, of->error_node, of->log, of->log_size);
}

static CUresult driver_v2(CUgraphExec *exec, CUgraph graph, const struct instantiation *of)
{
    return hami_real()->cuGraphInstantiate_v2(exec, graph, of->error_node, of->log, of->log_size);
}

static CUresult driver_flags(CUgraphExec *exec, CUgraph graph, const struct instantiation *of)
{
    return hami_real()->cuGraphInstantiateWithFlags(exec, graph, of->flags);
}

static CUresult driver_parameters(CUgraphExec *exec, CUgraph graph, const struct instantiation *of)
{
    return hami_real()->cuGraphInstantiateWithParams(exec, graph, of->parameters);
}

static CUresult driver_parameters_ptsz(CUgraphExec *exec, CUgraph graph,
                                       const struct instantiation *of)
{
    return hami_real()->cuGraphInstantiateWithParams_ptsz(exec, graph, of->parameters);
}

HAMI_EXPORT CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                        char *log, size_t log_size)
{
    return instantiate(exec, graph, &(struct instantiation){.driver = driver_v1,
                                                            .error_node = error_node,
                                                            .log = log,
                                                            .log_size = log_size});
}

HAMI_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph,
                                           CUgraphNode *error_node, char *log, size_t log_size)
{
    return instantiate(exec, graph, &(struct instantiation){.driver = driver_v2,
                                                            .error_node = error_node,
                                                            .log = log,
                                                            .log_size = log_size});
}

HAMI_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                                 unsigned long long flags)
{
    return instantiate(exec, graph,
                       &(struct instantiation){.driver = driver_flags, .flags = flags});
}

HAMI_EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                                  CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)
{
    return instantiate(exec, graph, &(struct instantiation){.driver = driver_parameters,
                                                            .parameters = parameters});
}

HAMI_EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                                       CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)
{
    return instantiate(exec, graph, &(struct instantiation){.driver = driver_parameters_ptsz,
                                                            .parameters = parameters});
}
