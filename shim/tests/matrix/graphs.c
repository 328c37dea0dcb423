/* Snippets: graphs. */
#include "matrix.h"

static int make_graph(struct stage *s)
{
    return (int)cuGraphCreate(&s->graph, 0);
}

static int destroy_graph(struct stage *s)
{
    return (int)s->api->cuGraphDestroy(s->graph);
}

static size_t nodes_of(CUgraph graph)
{
    size_t count = 0;

    return cuGraphGetNodes(graph, NULL, &count) == CUDA_SUCCESS ? count : 0;
}

/* ---- Nodes ---- */

static CUDA_MEM_ALLOC_NODE_PARAMS some_memory(const struct stage *s)
{
    return (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = s->device}},
        .bytesize = BYTES};
}

static CUDA_KERNEL_NODE_PARAMS a_launch(const struct stage *s)
{
    return (CUDA_KERNEL_NODE_PARAMS){.func = s->function, .gridDimX = 1, .gridDimY = 1,
                                     .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
}

CALL(cuGraphAddMemAllocNode)
{
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = some_memory(s);
    CUresult result = s->api->cuGraphAddMemAllocNode(&s->node, s->graph, NULL, 0, &parameters);

    return and_so(result, parameters.dptr && nodes_of(s->graph) == 1);
}

CALL(cuGraphAddNode)
{
    CUgraphNodeParams parameters = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    CUresult result;

    parameters.alloc = some_memory(s);
    result = s->api->cuGraphAddNode(&s->node, s->graph, NULL, 0, &parameters);
    return and_so(result, parameters.alloc.dptr && nodes_of(s->graph) == 1);
}

CALL(cuGraphAddNode_v2)
{
    CUgraphNodeParams parameters = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    CUresult result;

    parameters.alloc = some_memory(s);
    result = s->api->cuGraphAddNode_v2(&s->node, s->graph, NULL, NULL, 0, &parameters);
    return and_so(result, parameters.alloc.dptr && nodes_of(s->graph) == 1);
}

CALL(cuGraphAddNode_v3)
{
    CUgraphNodeParams parameters = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    CUresult result;

    parameters.kernel = a_launch(s);
    result = s->api->cuGraphAddNode_v3(&s->node, s->graph, NULL, NULL, 0, &parameters);
    return and_so(result, nodes_of(s->graph) == 1);
}

CALL(cuGraphDestroy)
{
    return (int)s->api->cuGraphDestroy(s->graph);
}

/* A graph that runs the kernel once. */
static int make_work(struct stage *s)
{
    CUDA_KERNEL_NODE_PARAMS launch = a_launch(s);
    int result = make_graph(s);

    return result ? result : (int)cuGraphAddKernelNode_v2(&s->node, s->graph, NULL, 0, &launch);
}

/* ---- Executable ---- */

CALL(cuGraphInstantiate)
{
    char log[64] = "";

    return and_so(s->api->cuGraphInstantiate(&s->exec, s->graph, NULL, log, sizeof(log)),
                  s->exec != NULL);
}

CALL(cuGraphInstantiate_v2)
{
    CUgraphNode wrong = NULL;

    return and_so(s->api->cuGraphInstantiate_v2(&s->exec, s->graph, &wrong, NULL, 0),
                  s->exec && !wrong);
}

CALL(cuGraphInstantiateWithFlags)
{
    unsigned long long flags = CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    cuuint64_t found = 0;
    CUresult result = s->api->cuGraphInstantiateWithFlags(&s->exec, s->graph, flags);

    return result ? (int)result
                  : and_so(cuGraphExecGetFlags(s->exec, &found), found == flags);
}

CALL(cuGraphInstantiateWithParams)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD,
                                                .hUploadStream = s->stream,
                                                .result_out = CUDA_GRAPH_INSTANTIATE_ERROR};

    return and_so(s->api->cuGraphInstantiateWithParams(&s->exec, s->graph, &parameters),
                  s->exec && parameters.result_out == CUDA_GRAPH_INSTANTIATE_SUCCESS);
}

CALL(cuGraphInstantiateWithParams_ptsz)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD,
                                                .result_out = CUDA_GRAPH_INSTANTIATE_ERROR};

    return and_so(s->api->cuGraphInstantiateWithParams_ptsz(&s->exec, s->graph, &parameters),
                  s->exec && parameters.result_out == CUDA_GRAPH_INSTANTIATE_SUCCESS);
}

CALL(cuGraphExecDestroy)
{
    return (int)s->api->cuGraphExecDestroy(s->exec);
}

static int destroy_both(struct stage *s)
{
    int result = call_cuGraphExecDestroy(s);

    return result ? result : destroy_graph(s);
}

static int make_exec(struct stage *s)
{
    int result = make_work(s);

    return result ? result : call_cuGraphInstantiateWithFlags(s);
}

CALL(cuGraphUpload)
{
    return (int)s->api->cuGraphUpload(s->exec, s->stream);
}

CALL(cuGraphUpload_ptsz)
{
    return (int)s->api->cuGraphUpload_ptsz(s->exec, NULL);
}

CALL(cuGraphLaunch)
{
    return (int)s->api->cuGraphLaunch(s->exec, s->stream);
}

CALL(cuGraphLaunch_ptsz)
{
    return (int)s->api->cuGraphLaunch_ptsz(s->exec, NULL);
}

static int wait_and_destroy(struct stage *s)
{
    CUresult result = s->api->cuCtxSynchronize();

    return result ? (int)result : destroy_both(s);
}

/* ---- Changed ---- */

CALL(cuGraphExecKernelNodeSetParams)
{
    CUDA_KERNEL_NODE_PARAMS_v1 launch = {.func = s->function, .gridDimX = 2, .gridDimY = 1,
                                         .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1,
                                         .blockDimZ = 1};

    return (int)s->api->cuGraphExecKernelNodeSetParams(s->exec, s->node, &launch);
}

CALL(cuGraphExecKernelNodeSetParams_v2)
{
    CUDA_KERNEL_NODE_PARAMS launch = a_launch(s);

    launch.gridDimX = 2;
    return (int)s->api->cuGraphExecKernelNodeSetParams_v2(s->exec, s->node, &launch);
}

CALL(cuGraphExecNodeSetParams)
{
    CUgraphNodeParams parameters = {.type = CU_GRAPH_NODE_TYPE_KERNEL};

    parameters.kernel = a_launch(s);
    return (int)s->api->cuGraphExecNodeSetParams(s->exec, s->node, &parameters);
}

CALL(cuGraphExecUpdate)
{
    CUgraphExecUpdateResult said = CU_GRAPH_EXEC_UPDATE_ERROR;
    CUgraphNode wrong = NULL;

    return and_so(s->api->cuGraphExecUpdate(s->exec, s->graph, &wrong, &said),
                  said == CU_GRAPH_EXEC_UPDATE_SUCCESS);
}

CALL(cuGraphExecUpdate_v2)
{
    CUgraphExecUpdateResultInfo said = {.result = CU_GRAPH_EXEC_UPDATE_ERROR};

    return and_so(s->api->cuGraphExecUpdate_v2(s->exec, s->graph, &said),
                  said.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
}

CALL(cuDeviceGraphMemTrim)
{
    return (int)s->api->cuDeviceGraphMemTrim(s->device);
}

static const struct snippet all[] = {
    SNIPPET(cuDeviceGraphMemTrim, nothing, nothing),
    SNIPPET(cuGraphAddMemAllocNode, make_graph, destroy_graph),
    SNIPPET(cuGraphAddNode, make_graph, destroy_graph),
    SNIPPET(cuGraphAddNode_v2, make_graph, destroy_graph),
    SNIPPET(cuGraphAddNode_v3, make_graph, destroy_graph),
    SNIPPET(cuGraphDestroy, make_graph, nothing),
    SNIPPET(cuGraphExecDestroy, make_exec, destroy_graph),
    SNIPPET(cuGraphExecKernelNodeSetParams, make_exec, destroy_both),
    SNIPPET(cuGraphExecKernelNodeSetParams_v2, make_exec, destroy_both),
    SNIPPET(cuGraphExecNodeSetParams, make_exec, destroy_both),
    SNIPPET(cuGraphExecUpdate, make_exec, destroy_both),
    SNIPPET(cuGraphExecUpdate_v2, make_exec, destroy_both),
    SNIPPET(cuGraphInstantiate, make_work, destroy_both),
    SNIPPET(cuGraphInstantiateWithFlags, make_work, destroy_both),
    SNIPPET(cuGraphInstantiateWithParams, make_work, destroy_both),
    SNIPPET(cuGraphInstantiateWithParams_ptsz, make_work, destroy_both),
    SNIPPET(cuGraphInstantiate_v2, make_work, destroy_both),
    SNIPPET(cuGraphUpload, make_exec, destroy_both),
    SNIPPET(cuGraphUpload_ptsz, make_exec, destroy_both),
    SNIPPET(cuGraphLaunch, make_exec, wait_and_destroy),
    SNIPPET(cuGraphLaunch_ptsz, make_exec, wait_and_destroy),
};
const struct snippets matrix_graphs = SNIPPETS(all);
