/* Kernel launches of today's spellings. This is the path that the enforcing library is measured
 * against: no lock and no lookup on it. */
#include "execution.h"

#define MAX_THREADS 1024u
#define MAX_GRID_X 0x7fffffffu
#define MAX_GRID_YZ 0xffffu
#define MAX_BLOCK_Z 64u
#define RESIDENT_THREADS 2048u

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

/* Any launch. */
static CUresult launch(CUfunction function, const unsigned int grid[3], const unsigned int block[3],
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

/* The queue for a launch that nothing stands in the way of, or NULL; says no to some that would be
 * allowed. What the compiler makes of it must need no stack: that is most of what a launch costs. */
static inline __attribute__((always_inline)) struct sim_queue *
plain(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
      unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, bool per_thread,
      void **extra)
{
    CUcontext current = sim_thread.current;

    if (current == NULL || !sim_alive(current, SIM_CONTEXT) || sim_costly || extra != NULL)
        return NULL;
    if (stream == NULL)
        stream = per_thread ? sim_thread.streams : &current->legacy;
    if (!sim_alive(stream, SIM_STREAM) || (per_thread && stream->context != current) || !sim_alive(function, SIM_FUNCTION) ||
        !atomic_load_explicit(&function->plain, memory_order_acquire) ||
        function->context != stream->context ||
        atomic_load_explicit(&stream->attention, memory_order_acquire) != 0)
        return NULL;
    if (stream->blocking &&
        atomic_load_explicit(&stream->context->legacy_work, memory_order_relaxed) !=
            atomic_load_explicit(&stream->legacy_seen, memory_order_relaxed))
        return NULL;
    /* Of numbers below a power of two the bitwise or is below it too. */
    if (gx - 1 >= MAX_GRID_X || ((gy - 1) | (gz - 1)) >= 0x8000 ||
        ((bx - 1) | (by - 1)) >= MAX_THREADS || bz - 1 >= MAX_BLOCK_Z ||
        bx * by * bz > MAX_THREADS ||
        shared > atomic_load_explicit(&function->shared_limit, memory_order_relaxed))
        return NULL;
    return stream->queue;
}

/* Of the structures that programs describe launches with. */
#define GRID(of) ((unsigned int[]){ (of)->gridDimX, (of)->gridDimY, (of)->gridDimZ })
#define BLOCK(of) ((unsigned int[]){ (of)->blockDimX, (of)->blockDimY, (of)->blockDimZ })

#define LAUNCH_PARAMETERS                                                                          \
    CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,            \
        unsigned int block_x, unsigned int block_y, unsigned int block_z,                          \
        unsigned int shared_bytes, CUstream stream, void **parameters, void **extra
#define LAUNCH_ARGUMENTS                                                                           \
    function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters, \
        extra

static __attribute__((noinline)) CUresult launch_legacy(LAUNCH_PARAMETERS)
{
    return launch(function, (unsigned int[]){ grid_x, grid_y, grid_z },
                  (unsigned int[]){ block_x, block_y, block_z }, shared_bytes, stream, false,
                  parameters, extra);
}

static __attribute__((noinline)) CUresult launch_per_thread(LAUNCH_PARAMETERS)
{
    return launch(function, (unsigned int[]){ grid_x, grid_y, grid_z },
                  (unsigned int[]){ block_x, block_y, block_z }, shared_bytes, stream, true,
                  parameters, extra);
}

SIM_EXPORT CUresult cuLaunchKernel(LAUNCH_PARAMETERS)
{
    SIM_ENTER(cuLaunchKernel);
    struct sim_queue *queue = plain(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                    shared_bytes, stream, false, extra);
    if (SIM_LIKELY(queue != NULL))
        return sim_queue_run(queue, &function->work);
    return launch_legacy(LAUNCH_ARGUMENTS);
}

SIM_EXPORT CUresult cuLaunchKernel_ptsz(LAUNCH_PARAMETERS)
{
    SIM_ENTER(cuLaunchKernel_ptsz);
    struct sim_queue *queue = plain(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                    shared_bytes, stream, true, extra);
    if (SIM_LIKELY(queue != NULL))
        return sim_queue_run(queue, &function->work);
    return launch_per_thread(LAUNCH_ARGUMENTS);
}

/* All blocks of a cooperative launch run at once, or it is refused. */
static CUresult fits_at_once(CUstream handle, bool per_thread, uint64_t blocks,
                             unsigned int threads)
{
    CUstream stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);
    uint64_t at_once;

    if (result != CUDA_SUCCESS)
        return result;
    if (threads == 0 || threads > MAX_THREADS)
        return CUDA_ERROR_INVALID_VALUE;
    at_once = RESIDENT_THREADS / ((threads + 31) / 32 * 32);
    at_once = at_once > 32 ? 32 : at_once;
    at_once *= stream->context->green != NULL
                   ? stream->context->green->sms
                   : (unsigned int)sim_device(stream->context->ordinal)->sms;
    return blocks <= at_once ? CUDA_SUCCESS : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

static CUresult cooperative(CUfunction function, const unsigned int grid[3],
                            const unsigned int block[3], unsigned int shared, CUstream stream,
                            bool per_thread, void **parameters)
{
    CUresult result = fits_at_once(stream, per_thread, (uint64_t)grid[0] * grid[1] * grid[2],
                                   block[0] * block[1] * block[2]);
    if (result != CUDA_SUCCESS)
        return result;
    return launch(function, grid, block, shared, stream, per_thread, parameters, NULL);
}

SIM_EXPORT CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x,
                                              unsigned int grid_y, unsigned int grid_z,
                                              unsigned int block_x, unsigned int block_y,
                                              unsigned int block_z, unsigned int shared_bytes,
                                              CUstream stream, void **parameters)
{
    SIM_ENTER(cuLaunchCooperativeKernel);
    return cooperative(function, (unsigned int[]){ grid_x, grid_y, grid_z },
                       (unsigned int[]){ block_x, block_y, block_z }, shared_bytes, stream, false,
                       parameters);
}

SIM_EXPORT CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int grid_x,
                                                   unsigned int grid_y, unsigned int grid_z,
                                                   unsigned int block_x, unsigned int block_y,
                                                   unsigned int block_z, unsigned int shared_bytes,
                                                   CUstream stream, void **parameters)
{
    SIM_ENTER(cuLaunchCooperativeKernel_ptsz);
    return cooperative(function, (unsigned int[]){ grid_x, grid_y, grid_z },
                       (unsigned int[]){ block_x, block_y, block_z }, shared_bytes, stream, true,
                       parameters);
}

/* One attribute, before the launch: may it be? */
static CUresult check_attribute(const CUlaunchConfig *config, const CUlaunchAttribute *attribute,
                                bool per_thread)
{
    const unsigned int *cluster = &attribute->value.clusterDim.x;
    CUevent event;

    switch ((int)attribute->id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        if (!attribute->value.cooperative)
            return CUDA_SUCCESS;
        return fits_at_once(config->hStream, per_thread,
                            (uint64_t)config->gridDimX * config->gridDimY * config->gridDimZ,
                            config->blockDimX * config->blockDimY * config->blockDimZ);
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        if (cluster[0] == 0 || cluster[1] == 0 || cluster[2] == 0 ||
            config->gridDimX % cluster[0] || config->gridDimY % cluster[1] ||
            config->gridDimZ % cluster[2] || (uint64_t)cluster[0] * cluster[1] * cluster[2] > 8)
            return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        event = attribute->value.programmaticEvent.event;
        if (!sim_alive(event, SIM_EVENT))
            return CUDA_ERROR_INVALID_HANDLE;
        /* They can only be made without timing. */
        return event->flags & CU_EVENT_DISABLE_TIMING ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
        return attribute->id >= 0 && (int)attribute->id <= 18 ? CUDA_SUCCESS
                                                              : CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult launch_ex(const CUlaunchConfig *config, CUfunction function, void **parameters,
                          void **extra, bool per_thread)
{
    CUresult result;

    if (!sim_pointer(config) || config->numAttrs > 64 ||
        (config->numAttrs > 0 && !sim_pointer(config->attrs)))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned int i = 0; i < config->numAttrs; i++) {
        result = check_attribute(config, &config->attrs[i], per_thread);
        if (result != CUDA_SUCCESS)
            return result;
    }
    if (config->numAttrs == 0) {
        struct sim_queue *queue = plain(function, config->gridDimX, config->gridDimY,
                                        config->gridDimZ, config->blockDimX, config->blockDimY,
                                        config->blockDimZ, config->sharedMemBytes, config->hStream,
                                        per_thread, extra);
        if (queue != NULL)
            return sim_queue_run(queue, &function->work);
    }
    result = launch(function, GRID(config), BLOCK(config), config->sharedMemBytes, config->hStream,
                    per_thread, parameters, extra);
    for (unsigned int i = 0; i < config->numAttrs && result == CUDA_SUCCESS; i++) {
        int id = (int)config->attrs[i].id;
        /* Earlier than the kernel's end on a real device, never later: the end is what we have. */
        if (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
            id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
            result = sim_event_record(config->attrs[i].value.programmaticEvent.event,
                                      config->hStream, per_thread);
    }
    return result;
}

SIM_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function,
                                     void **parameters, void **extra)
{
    SIM_ENTER(cuLaunchKernelEx);
    return launch_ex(config, function, parameters, extra, false);
}

SIM_EXPORT CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function,
                                          void **parameters, void **extra)
{
    SIM_ENTER(cuLaunchKernelEx_ptsz);
    return launch_ex(config, function, parameters, extra, true);
}

/* One launch on each of several devices, in streams that the program made. */
SIM_EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches,
                                                         unsigned int count, unsigned int flags)
{
    SIM_ENTER(cuLaunchCooperativeKernelMultiDevice);
    CUresult result = CUDA_SUCCESS;
    uint32_t devices = 0;

    if (!sim_pointer(launches) || count == 0 || count > (unsigned int)sim_device_count() ||
        flags > 3)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned int i = 0; i < count && result == CUDA_SUCCESS; i++) {
        const CUDA_LAUNCH_PARAMS *each = &launches[i];
        uint32_t bit;
        if (!sim_alive(each->hStream, SIM_STREAM))
            return CUDA_ERROR_INVALID_HANDLE;
        bit = UINT32_C(1) << each->hStream->context->ordinal;
        if (devices & bit)
            return CUDA_ERROR_INVALID_DEVICE;
        devices |= bit;
        result = fits_at_once(each->hStream, false,
                              (uint64_t)each->gridDimX * each->gridDimY * each->gridDimZ,
                              each->blockDimX * each->blockDimY * each->blockDimZ);
    }
    for (unsigned int i = 0; i < count && result == CUDA_SUCCESS; i++) {
        const CUDA_LAUNCH_PARAMS *each = &launches[i];
        result = launch(each->function, GRID(each), BLOCK(each), each->sharedMemBytes,
                        each->hStream, false, each->kernelParams, NULL);
    }
    return result;
}

/* Before CUDA 4.0 a function carried its block shape and its parameters. */
static CUresult launch_old(CUfunction handle, int grid_x, int grid_y, CUstream stream)
{
    CUcontext context;
    CUfunction function;
    CUresult result = sim_context_current(&context);
    void *parameters[1];

    if (result == CUDA_SUCCESS)
        result = sim_function_resolve(handle, context, &function);
    if (result != CUDA_SUCCESS)
        return result;
    if (grid_x <= 0 || grid_y <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    parameters[0] = &function->parameter;
    return launch(function, (unsigned int[]){ (unsigned int)grid_x, (unsigned int)grid_y, 1 },
                  function->block, 0, stream, false, parameters, NULL);
}

SIM_EXPORT CUresult cuLaunch(CUfunction function)
{
    SIM_ENTER(cuLaunch);
    return launch_old(function, 1, 1, NULL);
}

SIM_EXPORT CUresult cuLaunchGrid(CUfunction function, int grid_x, int grid_y)
{
    SIM_ENTER(cuLaunchGrid);
    return launch_old(function, grid_x, grid_y, NULL);
}

SIM_EXPORT CUresult cuLaunchGridAsync(CUfunction function, int grid_x, int grid_y, CUstream stream)
{
    SIM_ENTER(cuLaunchGridAsync);
    return launch_old(function, grid_x, grid_y, stream);
}
