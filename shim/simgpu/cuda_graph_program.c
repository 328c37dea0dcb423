/* What a launch of a graph runs: its nodes in an order that respects the edges, one after another
 * in the launching stream. Branches do not run side by side; the device time is the same. */
#include <stdlib.h>

#include "graphs.h"

#define MAX_DEPTH 32

struct step {
    CUgraphNodeType type;
    struct sim_work work;
    CUfunction function;
    CUcontext context;
    CUdevice ordinal;
    CUhostFn host;
    void *host_data;
    CUevent event;
    CUdeviceptr address;
    uint64_t bytes;
    bool temporary; /* allocated and freed again by the same launch */
};

struct sim_program {
    _Atomic uint32_t references;
    struct step *steps;
    size_t count, room;
    uint64_t reserve[SIM_MAX_DEVICES]; /* graph memory in use at once */
    struct sim_marker *crossing;       /* between the streams of two devices */
};

void sim_program_keep(struct sim_program *program)
{
    atomic_fetch_add_explicit(&program->references, 1, memory_order_relaxed);
}

void sim_program_drop(struct sim_program *program)
{
    if (program == NULL ||
        atomic_fetch_sub_explicit(&program->references, 1, memory_order_acq_rel) != 1)
        return;
    if (program->crossing != NULL)
        sim_marker_destroy(program->crossing);
    free(program->steps);
    free(program);
}

static CUresult add_step(struct sim_program *program, const struct step *step)
{
    if (program->count == program->room) {
        size_t room = program->room ? 2 * program->room : 16;
        struct step *steps = realloc(program->steps, room * sizeof *steps);
        if (steps == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        program->steps = steps;
        program->room = room;
    }
    program->steps[program->count++] = *step;
    return CUDA_SUCCESS;
}

static CUresult add_node(struct sim_program *program, const struct sim_node_params *params)
{
    struct step step = {
        .type = params->type,
        .work = params->work,
        .context = params->context,
        .ordinal = params->context != NULL ? params->context->ordinal : -1,
        .host = params->host,
        .host_data = params->host_data,
        .event = params->event,
        .address = params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? params->alloc.dptr : params->free,
        .bytes = params->alloc.bytesize,
    };

    if (params->type == CU_GRAPH_NODE_TYPE_KERNEL)
        step.function = params->launch.function;
    else if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        step.ordinal = params->alloc.poolProps.location.id;
    return add_step(program, &step);
}

static CUresult add_graph(struct sim_program *program, CUgraph graph, int depth)
{
    CUgraphNode *order;
    CUresult result = depth < MAX_DEPTH ? sim_graph_sort(graph, &order) : CUDA_ERROR_INVALID_VALUE;
    size_t count = graph->count;

    if (result != CUDA_SUCCESS)
        return result;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        const struct sim_node_params *params = &order[i]->params;
        if (params->type == CU_GRAPH_NODE_TYPE_GRAPH)
            result = add_graph(program, params->child, depth + 1);
        else if (params->type != CU_GRAPH_NODE_TYPE_EMPTY)
            result = add_node(program, params);
    }
    free(order);
    return result;
}

/* Which allocations the graph frees itself, and how much it has at once. */
static void lay_out(struct sim_program *program)
{
    uint64_t now[SIM_MAX_DEVICES] = { 0 };

    for (size_t i = 0; i < program->count; i++) {
        struct step *step = &program->steps[i];
        if (step->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
            now[step->ordinal] += step->bytes;
            if (now[step->ordinal] > program->reserve[step->ordinal])
                program->reserve[step->ordinal] = now[step->ordinal];
            continue;
        }
        for (size_t k = 0; step->type == CU_GRAPH_NODE_TYPE_MEM_FREE && k < i; k++) {
            struct step *other = &program->steps[k];
            if (other->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && other->address == step->address) {
                other->temporary = step->temporary = true;
                now[other->ordinal] -= other->bytes;
            }
        }
    }
}

CUresult sim_program_new(CUgraph graph, struct sim_program **made)
{
    struct sim_program *program = calloc(1, sizeof *program);
    CUresult result;

    if (program == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_store_explicit(&program->references, 1, memory_order_relaxed);
    result = add_graph(program, graph, 0);
    if (result != CUDA_SUCCESS) {
        sim_program_drop(program);
        return result;
    }
    lay_out(program);
    *made = program;
    return CUDA_SUCCESS;
}

/* What an earlier launch left allocated is in the way of the next one, unless the program was made
 * to clear it. */
static CUresult clear_left(struct sim_program *program, bool auto_free)
{
    for (size_t i = 0; i < program->count; i++) {
        const struct step *step = &program->steps[i];
        if (step->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || step->temporary)
            continue;
        if (auto_free)
            sim_graph_memory_free(step->address);
        else if (sim_graph_memory_live(step->address))
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult sim_program_prepare(struct sim_program *program, bool auto_free)
{
    CUresult result = clear_left(program, auto_free);

    for (size_t i = 0; i < program->count && result == CUDA_SUCCESS; i++) {
        CUfunction function = program->steps[i].function;
        if (program->steps[i].type == CU_GRAPH_NODE_TYPE_KERNEL)
            result = sim_alive(function, SIM_FUNCTION) ? sim_launch_ready(function)
                                                       : CUDA_ERROR_INVALID_HANDLE;
    }
    for (CUdevice i = 0; i < SIM_MAX_DEVICES && result == CUDA_SUCCESS; i++)
        if (program->reserve[i] != 0)
            result = sim_graph_reserve(i, program->reserve[i]);
    return result;
}

/* Work of a node on another device than the stream's: in that context's own order, between two
 * waits that keep the graph's. */
static CUresult run_elsewhere(struct sim_program *program, CUstream stream, const struct step *step)
{
    CUcontext context = step->context->root;
    struct sim_queue *there = context->legacy.queue;
    CUresult result;

    if (!sim_alive(context, SIM_CONTEXT))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (program->crossing == NULL && (program->crossing = sim_marker_create()) == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = sim_record(stream, program->crossing);
    if (result == CUDA_SUCCESS)
        result = sim_queue_wait_marker(there, program->crossing);
    if (result == CUDA_SUCCESS)
        result = sim_queue_run(there, &step->work);
    if (result == CUDA_SUCCESS)
        result = sim_queue_mark(there, program->crossing);
    return result == CUDA_SUCCESS ? sim_wait(stream, program->crossing) : result;
}

/* Kernels and copies on the stream's device that follow each other and are equally wide are one
 * piece of work to the clock. */
static CUresult run_work(struct sim_program *program, CUstream stream, size_t *at)
{
    CUdevice ordinal = stream->context->ordinal;
    const struct step *first = &program->steps[*at];
    struct sim_work work = first->work;

    if (first->ordinal != ordinal)
        return run_elsewhere(program, stream, first);
    while (*at + 1 < program->count) {
        const struct step *next = &program->steps[*at + 1];
        if ((int)next->type > CU_GRAPH_NODE_TYPE_MEMSET || next->ordinal != ordinal ||
            next->work.width != work.width)
            break;
        work.duration_ns += next->work.duration_ns;
        ++*at;
    }
    return sim_run(stream, &work);
}

static CUresult run_memory(const struct step *step)
{
    CUresult result = CUDA_SUCCESS;

    if (step->temporary) { /* counted once, by its allocation */
        if (step->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
            sim_graph_use(step->ordinal, (int64_t)step->bytes);
            sim_graph_use(step->ordinal, -(int64_t)step->bytes);
        }
    } else if (step->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        result = sim_graph_memory_take(step->context, step->address, step->bytes);
    } else if (!sim_graph_memory_free(step->address)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    return result;
}

CUresult sim_program_run(struct sim_program *program, CUstream stream, bool auto_free)
{
    CUresult result = sim_program_prepare(program, auto_free);

    for (size_t i = 0; i < program->count && result == CUDA_SUCCESS; i++) {
        const struct step *step = &program->steps[i];
        switch ((int)step->type) {
        case CU_GRAPH_NODE_TYPE_KERNEL:
        case CU_GRAPH_NODE_TYPE_MEMCPY:
        case CU_GRAPH_NODE_TYPE_MEMSET: result = run_work(program, stream, &i); break;
        case CU_GRAPH_NODE_TYPE_HOST:
            result = sim_host_function(stream, step->host, step->host_data);
            break;
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
            result = sim_alive(step->event, SIM_EVENT) ? sim_wait(stream, step->event->marker)
                                                       : CUDA_ERROR_INVALID_HANDLE;
            break;
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
            result = sim_alive(step->event, SIM_EVENT)
                         ? sim_event_record(step->event, stream, stream->per_thread)
                         : CUDA_ERROR_INVALID_HANDLE;
            break;
        default: result = run_memory(step); break;
        }
    }
    return result;
}
