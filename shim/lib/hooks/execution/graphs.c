/* Graphs are uploaded and destroyed, and their memory is trimmed. */
#include "compute/gate.h"
#include "driver/real.h"
#include "memory/graph_memory.h"

static CUresult upload(CUgraphExec exec, CUstream stream, bool per_thread)
{
    struct hami_graph_launch launch;
    CUresult result = hami_graph_before_launch(&launch, exec, stream, per_thread);

    if (result != CUDA_SUCCESS)
        return result;
    result = per_thread ? hami_real()->cuGraphUpload_ptsz(exec, stream)
                        : hami_real()->cuGraphUpload(exec, stream);
    hami_graph_after_launch(&launch, result);
    return result;
}

HAMI_EXPORT CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    return upload(exec, stream, false);
}

HAMI_EXPORT CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
    return upload(exec, stream, true);
}

HAMI_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    struct hami_entry entry;
    bool known = hami_graph_destroying(exec, &entry);
    CUresult result;

    /* Before the driver's call: the handle may be another graph's right after it. */
    hami_gate_forget_exec(exec);
    result = hami_real()->cuGraphExecDestroy(exec);
    if (known)
        hami_graph_destroyed(&entry, result);
    return result;
}

HAMI_EXPORT CUresult cuGraphDestroy(CUgraph graph)
{
    CUresult result = hami_real()->cuGraphDestroy(graph);

    if (result == CUDA_SUCCESS)
        hami_graphs_settle();
    return result;
}

HAMI_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    CUresult result = hami_real()->cuDeviceGraphMemTrim(device);

    if (result == CUDA_SUCCESS)
        hami_graphs_settle();
    return result;
}
