/* Kernel launches of today's spellings. This is the path that the enforcing library is measured
 * against: no lock and no lookup on it. */
#include "execution.h"

#define MAX_THREADS 1024u
#define MAX_GRID_X 0x7fffffffu
#define MAX_GRID_YZ 0xffffu
#define MAX_BLOCK_Z 64u
#define SHARED_DEFAULT 49152u
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

static inline bool shape_allowed(CUfunction function, unsigned int gx, unsigned int gy,
                                 unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz,
                                 unsigned int shared)
{
    unsigned int limit = function->dynamic_shared > 0 ? (unsigned int)function->dynamic_shared
                                                      : SHARED_DEFAULT;
    /* An unsigned x - 1 < max is 1 <= x <= max. */
    return gx - 1 < MAX_GRID_X && gy - 1 < MAX_GRID_YZ && gz - 1 < MAX_GRID_YZ &&
           bx - 1 < MAX_THREADS && by - 1 < MAX_THREADS && bz - 1 < MAX_BLOCK_Z &&
           (uint64_t)bx * by * bz <= MAX_THREADS && shared <= limit;
}

static inline uint32_t width_in(CUfunction function, CUcontext context)
{
    uint32_t width = function->width;

    if (SIM_UNLIKELY(context->green != NULL)) {
        uint32_t share = 1000 * context->green->sms / (uint32_t)sim_device(context->ordinal)->sms;
        width = share < 1 ? 1 : width > share ? share : width;
    }
    return width;
}

CUresult sim_launch_work(const struct sim_launch *launch, CUcontext context, struct sim_work *work)
{
    CUfunction function = launch->function;
    const unsigned int *grid = launch->grid, *block = launch->block;

    if (!shape_allowed(function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                       launch->shared))
        return CUDA_ERROR_INVALID_VALUE;
    work->duration_ns = function->dynamic ? launch->parameter : function->ns;
    work->duration_ns += function->per_block_ns * grid[0] * grid[1] * grid[2];
    work->width = width_in(function, context);
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
    return result;
}

/* Everything that is not a plain launch of a loaded function on a stream that nothing stops. */
static __attribute__((noinline)) CUresult launch_slow(struct sim_launch *launch, CUfunction handle,
                                                      CUstream stream, void **parameters,
                                                      void **extra)
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

static inline __attribute__((always_inline)) CUresult
launch(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
       unsigned int by, unsigned int bz, unsigned int shared, CUstream handle, bool per_thread,
       void **parameters, void **extra)
{
    CUcontext current;
    CUstream stream;
    CUresult result = sim_context_current(&current);

    if (SIM_UNLIKELY(result != CUDA_SUCCESS))
        return result;
    result = sim_stream_resolve(handle, per_thread, &stream);
    if (SIM_UNLIKELY(result != CUDA_SUCCESS))
        return result;
    sim_spend(SIM_COST_LAUNCH);
    if (SIM_LIKELY(sim_alive(function, SIM_FUNCTION) &&
                   atomic_load_explicit(&function->ready, memory_order_acquire) &&
                   !function->dynamic && extra == NULL &&
                   function->context == stream->context &&
                   !(atomic_load_explicit(&stream->attention, memory_order_acquire) &
                     SIM_ATTENTION_CAPTURE) &&
                   shape_allowed(function, gx, gy, gz, bx, by, bz, shared))) {
        struct sim_work work = { .duration_ns = function->ns, .width = function->width };
        if (SIM_UNLIKELY(function->per_block_ns != 0))
            work.duration_ns += function->per_block_ns * gx * gy * gz;
        return sim_run(stream, &work);
    }
    struct sim_launch slow = { .grid = { gx, gy, gz }, .block = { bx, by, bz }, .shared = shared };
    return launch_slow(&slow, function, stream, parameters, extra);
}

SIM_EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void **parameters, void **extra)
{
    SIM_ENTER(cuLaunchKernel);
    return launch(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
                  false, parameters, extra);
}

SIM_EXPORT CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int grid_x,
                                        unsigned int grid_y, unsigned int grid_z,
                                        unsigned int block_x, unsigned int block_y,
                                        unsigned int block_z, unsigned int shared_bytes,
                                        CUstream stream, void **parameters, void **extra)
{
    SIM_ENTER(cuLaunchKernel_ptsz);
    return launch(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
                  true, parameters, extra);
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
    return launch(function, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared, stream,
                  per_thread, parameters, NULL);
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
    result = launch(function, config->gridDimX, config->gridDimY, config->gridDimZ,
                    config->blockDimX, config->blockDimY, config->blockDimZ, config->sharedMemBytes,
                    config->hStream, per_thread, parameters, extra);
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

static CUresult launch_resolved(CUfunction function, unsigned int gx, unsigned int gy,
                                unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz,
                                unsigned int shared, CUstream stream, void **parameters)
{
    return launch(function, gx, gy, gz, bx, by, bz, shared, stream, false, parameters, NULL);
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
        result = launch_resolved(each->function, each->gridDimX, each->gridDimY, each->gridDimZ,
                                 each->blockDimX, each->blockDimY, each->blockDimZ,
                                 each->sharedMemBytes, each->hStream, each->kernelParams);
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
    return launch_resolved(function, (unsigned int)grid_x, (unsigned int)grid_y, 1,
                           (unsigned int)function->block[0], (unsigned int)function->block[1],
                           (unsigned int)function->block[2], 0, stream, parameters);
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
