/* Executable graphs: instantiated in every spelling, launched, uploaded, destroyed. */
#include <stdlib.h>

#include "graphs.h"

#define KNOWN_FLAGS                                                                                \
    (CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |        \
     CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)

/* Also makes the program anew when parameters changed. Under the lock. */
static CUresult program_of(CUgraphExec exec, struct sim_program **program);

/* A graph for launch from the device holds kernels, copies and fills, and at least one. */
static CUgraphNode unfit_for_device(CUgraph graph)
{
    for (CUgraphNode node = graph->first; node != NULL; node = node->next)
        if ((int)node->params.type > CU_GRAPH_NODE_TYPE_MEMSET &&
            node->params.type != CU_GRAPH_NODE_TYPE_GRAPH &&
            node->params.type != CU_GRAPH_NODE_TYPE_EMPTY)
            return node;
    return NULL;
}

static CUresult build(CUgraphExec exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    CUresult result;

    if (!sim_alive(graph, SIM_GRAPH) || graph->capturing != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (graph->memory_nodes && sim_alive(graph->exec, SIM_EXEC))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) {
        params->hErrNode_out = unfit_for_device(graph);
        params->result_out = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
        if (params->hErrNode_out != NULL || graph->count == 0)
            return CUDA_ERROR_NOT_SUPPORTED;
    }
    params->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    result = sim_graph_copy(graph, &exec->graph);
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_program_new(exec->graph, &exec->program);
    if (result == CUDA_ERROR_INVALID_VALUE) {
        params->result_out = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
        params->hErrNode_out = graph->first;
    }
    if (result != CUDA_SUCCESS)
        return result;
    exec->graph->owned = true;
    exec->source = graph;
    exec->flags = params->flags;
    graph->exec = exec;
    return CUDA_SUCCESS;
}

static void close_exec(CUgraphExec exec)
{
    if (exec->graph != NULL)
        sim_graph_free(exec->graph);
    sim_program_drop(exec->program);
    sim_object_free(exec, SIM_EXEC);
}

static CUresult upload(CUgraphExec exec, CUstream handle, bool per_thread)
{
    struct sim_program *program;
    CUstream stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (atomic_load(&stream->attention) & SIM_ATTENTION_CAPTURE)
        return sim_capture_refuse(stream);
    sim_lock();
    result = program_of(exec, &program);
    sim_unlock();
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_program_prepare(program, exec->flags &
                                              CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    sim_program_drop(program);
    return result;
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params,
                            bool per_thread)
{
    CUgraphExec made;
    CUresult result;

    params->hErrNode_out = NULL;
    params->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    if (!sim_pointer(exec) || (params->flags & ~(cuuint64_t)KNOWN_FLAGS) != 0 ||
        ((params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) &&
         (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)))
        return CUDA_ERROR_INVALID_VALUE;
    made = sim_object_new(SIM_EXEC);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_lock();
    result = build(made, graph, params);
    if (result == CUDA_SUCCESS)
        sim_born(made, SIM_EXEC);
    else
        close_exec(made);
    sim_unlock();
    if (result == CUDA_SUCCESS && (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)) {
        result = upload(made, params->hUploadStream, per_thread);
        if (result != CUDA_SUCCESS) {
            sim_lock();
            sim_kill(made, SIM_EXEC);
            close_exec(made);
            sim_unlock();
        }
    }
    if (result != CUDA_SUCCESS)
        return result;
    params->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    *exec = made;
    return CUDA_SUCCESS;
}

/* The spellings before 12.0 put a message where the program says. */
static CUresult instantiate_with_log(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                     char *log, size_t log_size)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS params = { 0 };
    CUresult result;

    if ((error_node != NULL && !sim_pointer(error_node)) || (log != NULL && !sim_pointer(log)))
        return CUDA_ERROR_INVALID_VALUE;
    result = instantiate(exec, graph, &params, false);
    if (error_node != NULL)
        *error_node = params.hErrNode_out;
    if (log != NULL && log_size > 0)
        log[0] = '\0';
    return result;
}

SIM_EXPORT CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                       char *log, size_t log_size)
{
    SIM_ENTER(cuGraphInstantiate);
    return instantiate_with_log(exec, graph, error_node, log, log_size);
}

SIM_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                          char *log, size_t log_size)
{
    SIM_ENTER(cuGraphInstantiate_v2);
    return instantiate_with_log(exec, graph, error_node, log, log_size);
}

SIM_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                                unsigned long long flags)
{
    SIM_ENTER(cuGraphInstantiateWithFlags);
    CUDA_GRAPH_INSTANTIATE_PARAMS params = { .flags = flags };

    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) /* there is no stream to do it in */
        return CUDA_ERROR_INVALID_VALUE;
    return instantiate(exec, graph, &params, false);
}

SIM_EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                                 CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)
{
    SIM_ENTER(cuGraphInstantiateWithParams);
    return sim_pointer(parameters) ? instantiate(exec, graph, parameters, false)
                                   : CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                                      CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)
{
    SIM_ENTER(cuGraphInstantiateWithParams_ptsz);
    return sim_pointer(parameters) ? instantiate(exec, graph, parameters, true)
                                   : CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    SIM_ENTER(cuGraphExecDestroy);
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    sim_lock();
    if (sim_kill(exec, SIM_EXEC)) {
        close_exec(exec);
        result = CUDA_SUCCESS;
    }
    sim_unlock();
    return result;
}

SIM_EXPORT CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags)
{
    SIM_ENTER(cuGraphExecGetFlags);
    if (flags == NULL || !sim_alive(exec, SIM_EXEC))
        return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

static CUresult program_of(CUgraphExec exec, struct sim_program **program)
{
    CUresult result = CUDA_SUCCESS;

    if (!sim_alive(exec, SIM_EXEC))
        return CUDA_ERROR_INVALID_VALUE;
    if (exec->program == NULL)
        result = sim_program_new(exec->graph, &exec->program);
    if (result != CUDA_SUCCESS)
        return result;
    *program = exec->program;
    sim_program_keep(*program);
    return CUDA_SUCCESS;
}

/* In a capturing stream the launch becomes a child graph. */
static CUresult launch(CUgraphExec exec, CUstream handle, bool per_thread)
{
    struct sim_node_params node = { .type = CU_GRAPH_NODE_TYPE_GRAPH };
    struct sim_program *program;
    CUstream stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);
    bool captured = false, auto_free;

    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_alive(exec, SIM_EXEC))
        return CUDA_ERROR_INVALID_VALUE;
    sim_spend(SIM_COST_LAUNCH);
    if (atomic_load(&stream->attention) & SIM_ATTENTION_CAPTURE) {
        if (exec->graph->memory_nodes)
            return sim_capture_refuse(stream);
        node.child = exec->graph;
        result = sim_capture_try(stream, &node, &captured);
        if (result != CUDA_SUCCESS || captured)
            return result;
    }
    sim_lock();
    result = program_of(exec, &program);
    sim_unlock();
    if (result != CUDA_SUCCESS)
        return result;
    auto_free = exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    result = sim_program_run(program, stream, auto_free);
    sim_program_drop(program);
    return result;
}

SIM_EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    SIM_ENTER(cuGraphLaunch);
    return launch(exec, stream, false);
}

SIM_EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
    SIM_ENTER(cuGraphLaunch_ptsz);
    return launch(exec, stream, true);
}

SIM_EXPORT CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    SIM_ENTER(cuGraphUpload);
    return upload(exec, stream, false);
}

SIM_EXPORT CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
    SIM_ENTER(cuGraphUpload_ptsz);
    return upload(exec, stream, true);
}
