/* Kernel launches of today's spellings. This is the path that the enforcing library is measured
 * against: no lock and no lookup on it. */
#include "modules.h"

#define MAX_THREADS 1024u
#define MAX_GRID_X 0x7fffffffu
#define MAX_BLOCK_Z 64u

/* The queue for a launch that nothing stands in the way of, or NULL; says no to some that would be
 * allowed. What the compiler makes of it must need no stack: that is most of what a launch
 * costs. */
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
    if (!sim_alive(stream, SIM_STREAM) || (per_thread && stream->context != current) ||
        !sim_alive(function, SIM_FUNCTION) ||
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

#define LAUNCH_PARAMETERS                                                                          \
    CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,            \
        unsigned int block_x, unsigned int block_y, unsigned int block_z,                          \
        unsigned int shared_bytes, CUstream stream, void **parameters, void **extra
#define LAUNCH_ARGUMENTS                                                                           \
    function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters, \
        extra

static __attribute__((noinline)) CUresult launch_legacy(LAUNCH_PARAMETERS)
{
    return sim_launch(function, (unsigned int[]){ grid_x, grid_y, grid_z },
                      (unsigned int[]){ block_x, block_y, block_z }, shared_bytes, stream, false,
                      parameters, extra);
}

static __attribute__((noinline)) CUresult launch_per_thread(LAUNCH_PARAMETERS)
{
    return sim_launch(function, (unsigned int[]){ grid_x, grid_y, grid_z },
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
        return sim_launch_fits(config->hStream, per_thread,
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
    result = sim_launch(function, SIM_GRID(config), SIM_BLOCK(config), config->sharedMemBytes,
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
