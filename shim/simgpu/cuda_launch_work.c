/* What a launch is made of: its shape, its parameter, the work that it comes to, what it must find
 * loaded; and any launch at all. */
#include "graphs.h"

#define MAX_THREADS 1024u
#define MAX_GRID_X 0x7fffffffu
#define MAX_GRID_YZ 0xffffu
#define MAX_BLOCK_Z 64u

CUresult sim_launch_parameter(struct sim_launch *launch, void **parameters, void **extra)
{
    if (parameters != NULL && extra != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!launch->function->dynamic)
        return CUDA_SUCCESS;
    if (parameters != NULL && parameters[0] != NULL) {
        memcpy(&launch->parameter, parameters[0], sizeof launch->parameter);
        return CUDA_SUCCESS;
    }
    for (int i = 0; extra != NULL && extra[i] != CU_LAUNCH_PARAM_END && i < 8; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER && extra[i + 1] != NULL) {
            memcpy(&launch->parameter, extra[i + 1], sizeof launch->parameter);
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static bool shape_allowed(const struct sim_launch *launch)
{
    const unsigned int *grid = launch->grid, *block = launch->block;

    /* An unsigned x - 1 < max is 1 <= x <= max. */
    return grid[0] - 1 < MAX_GRID_X && grid[1] - 1 < MAX_GRID_YZ && grid[2] - 1 < MAX_GRID_YZ &&
           block[0] - 1 < MAX_THREADS && block[1] - 1 < MAX_THREADS && block[2] - 1 < MAX_BLOCK_Z &&
           (uint64_t)block[0] * block[1] * block[2] <= MAX_THREADS &&
           launch->shared <= atomic_load_explicit(&launch->function->shared_limit,
                                                  memory_order_relaxed);
}

CUresult sim_launch_work(const struct sim_launch *launch, CUcontext context, struct sim_work *work)
{
    CUfunction function = launch->function;
    const unsigned int *grid = launch->grid;

    if (!shape_allowed(launch))
        return CUDA_ERROR_INVALID_VALUE;
    *work = function->work;
    if (function->dynamic)
        work->duration_ns = launch->parameter;
    work->duration_ns += function->per_block_ns * grid[0] * grid[1] * grid[2];
    if (context->green != NULL) {
        uint32_t share = 1000 * context->green->sms / (uint32_t)sim_device(context->ordinal)->sms;
        share = share < 1 ? 1 : share;
        work->width = work->width > share ? share : work->width;
    }
    return CUDA_SUCCESS;
}

CUresult sim_launch_ready(CUfunction function)
{
    CUresult result;

    if (SIM_LIKELY(atomic_load_explicit(&function->ready, memory_order_acquire)))
        return CUDA_SUCCESS;
    result = sim_function_load(function);
    if (result == CUDA_SUCCESS)
        result = sim_local_grow(function->context, function->symbol->local);
    if (result == CUDA_SUCCESS)
        atomic_store_explicit(&function->ready, true, memory_order_release);
    if (result == CUDA_SUCCESS && !function->dynamic && function->per_block_ns == 0)
        atomic_store_explicit(&function->plain, true, memory_order_release);
    return result;
}

static CUresult launch_checked(struct sim_launch *launch, CUfunction handle, CUstream stream,
                               void **parameters, void **extra)
{
    struct sim_node_params node = { .type = CU_GRAPH_NODE_TYPE_KERNEL };
    CUresult result = sim_function_resolve(handle, stream->context, &launch->function);
    bool captured;

    if (result != CUDA_SUCCESS)
        return result;
    if (launch->function->context != stream->context->root)
        return CUDA_ERROR_INVALID_HANDLE;
    result = sim_launch_parameter(launch, parameters, extra);
    if (result == CUDA_SUCCESS)
        result = sim_launch_work(launch, stream->context, &node.work);
    if (result != CUDA_SUCCESS)
        return result;
    node.launch = *launch;
    node.context = stream->context;
    node.kernel = handle != launch->function ? (CUkernel)handle : NULL;
    result = sim_capture_try(stream, &node, &captured);
    if (result != CUDA_SUCCESS || captured)
        return result;
    result = sim_launch_ready(launch->function);
    return result == CUDA_SUCCESS ? sim_run(stream, &node.work) : result;
}

CUresult sim_launch(CUfunction function, const unsigned int grid[3], const unsigned int block[3],
                    unsigned int shared, CUstream handle, bool per_thread, void **parameters,
                    void **extra)
{
    struct sim_launch given = {
        .grid = { grid[0], grid[1], grid[2] },
        .block = { block[0], block[1], block[2] },
        .shared = shared,
    };
    CUcontext current;
    CUstream stream;
    CUresult result = sim_context_current(&current);

    if (result == CUDA_SUCCESS)
        result = sim_stream_resolve(handle, per_thread, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    sim_spend(SIM_COST_LAUNCH);
    return launch_checked(&given, function, stream, parameters, extra);
}

CUresult sim_launch_fits(CUstream handle, bool per_thread, uint64_t blocks, unsigned int threads)
{
    CUstream stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);
    const struct sim_device *device;
    uint64_t at_once;

    if (result != CUDA_SUCCESS)
        return result;
    if (threads == 0 || threads > MAX_THREADS)
        return CUDA_ERROR_INVALID_VALUE;
    device = sim_device(stream->context->ordinal);
    at_once = sim_device_resident(device) / ((threads + 31) / 32 * 32);
    at_once = at_once > 32 ? 32 : at_once;
    at_once *= stream->context->green != NULL
                   ? stream->context->green->sms
                   : (unsigned int)device->sms;
    return blocks <= at_once ? CUDA_SUCCESS : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}
