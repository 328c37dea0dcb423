/* Limits of a context, what they cost, and access between devices. */
#include "modules.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define MAX_STACK (512 * KIB)

static const size_t defaults[SIM_LIMITS] = {
    [CU_LIMIT_STACK_SIZE] = 1 * KIB,
    [CU_LIMIT_PRINTF_FIFO_SIZE] = 7 * MIB,
    [CU_LIMIT_MALLOC_HEAP_SIZE] = 8 * MIB,
    [CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2,
    [CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048,
    [CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64,
    [CU_LIMIT_PERSISTING_L2_CACHE_SIZE] = 0,
};

void sim_limits_default(CUcontext context)
{
    memcpy(context->limits, defaults, sizeof defaults);
}

void sim_limits_close(CUcontext context)
{
    for (int i = 0; i < SIM_LIMITS; i++)
        if (context->limit_memory[i] != 0)
            sim_give(context->limit_memory[i]);
    if (context->local_memory != 0)
        sim_give(context->local_memory);
    memset(context->limit_memory, 0, sizeof context->limit_memory);
    context->local_memory = 0;
}

/* The driver keeps local memory for as many threads as can be resident, for the kernel that wants
 * the most; it grows at a launch, and then stays. */
CUresult sim_local_grow(CUcontext context, uint64_t bytes_per_thread)
{
    static pthread_mutex_t growing = PTHREAD_MUTEX_INITIALIZER;
    uint64_t included = defaults[CU_LIMIT_STACK_SIZE], memory = 0, old;
    const struct sim_device *device = sim_device(context->ordinal);
    CUresult result = CUDA_SUCCESS;

    context = context->root;
    pthread_mutex_lock(&growing);
    if (bytes_per_thread > included && bytes_per_thread > context->local_bytes) {
        result = sim_take(context->ordinal,
                          (bytes_per_thread - included) * sim_device_threads(device),
                          SIM_MEMORY_INTERNAL, &memory);
        if (result == CUDA_SUCCESS) {
            old = context->local_memory;
            context->local_memory = memory;
            context->local_bytes = bytes_per_thread;
            if (old != 0)
                sim_give(old);
        }
    }
    pthread_mutex_unlock(&growing);
    return result;
}

/* The printf buffer and the heap of device code; what the context came with is paid for. */
static CUresult resize(CUcontext context, CUlimit limit, size_t value)
{
    uint64_t memory = 0;
    CUresult result = CUDA_SUCCESS;

    if (value > defaults[limit])
        result = sim_take(context->ordinal, value - defaults[limit], SIM_MEMORY_INTERNAL, &memory);
    if (result != CUDA_SUCCESS)
        return result;
    sim_lock();
    uint64_t old = context->limit_memory[limit];
    context->limit_memory[limit] = memory;
    context->limits[limit] = value;
    sim_unlock();
    if (old != 0)
        sim_give(old);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    SIM_ENTER(cuCtxSetLimit);
    CUcontext context;
    CUresult result = sim_context_current(&context);

    if (result == CUDA_SUCCESS)
        result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    context = context->root;
    switch ((int)limit) {
    case CU_LIMIT_STACK_SIZE:
        if (value > MAX_STACK)
            return CUDA_ERROR_INVALID_VALUE;
        result = sim_local_grow(context, value);
        break;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
    case CU_LIMIT_MALLOC_HEAP_SIZE: return resize(context, limit, value);
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH: return CUDA_ERROR_UNSUPPORTED_LIMIT; /* gone by 9.0 */
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE: break;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
        if (value > 128)
            return CUDA_ERROR_INVALID_VALUE;
        break;
    default: return CUDA_ERROR_UNSUPPORTED_LIMIT;
    }
    if (result == CUDA_SUCCESS)
        context->limits[limit] = value;
    return result;
}

SIM_EXPORT CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    SIM_ENTER(cuCtxGetLimit);
    CUcontext context;
    CUresult result;

    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if ((unsigned int)limit >= SIM_LIMITS || limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = context->root->limits[limit];
    return CUDA_SUCCESS;
}

static CUresult peers(CUcontext peer, unsigned int flags, CUcontext *context, uint32_t *bit)
{
    CUresult result = sim_context_current(context);

    if (result != CUDA_SUCCESS)
        return result;
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_context_known(peer))
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = (*context)->root;
    *bit = UINT32_C(1) << peer->ordinal;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    SIM_ENTER(cuCtxEnablePeerAccess);
    CUcontext context;
    uint32_t bit;
    CUresult result = peers(peer, flags, &context, &bit);

    if (result != CUDA_SUCCESS)
        return result;
    if (context->ordinal == peer->ordinal)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (sim_device(context->ordinal)->mig || sim_device(peer->ordinal)->mig)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    sim_lock();
    result = context->peers & bit ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
    context->peers |= bit;
    sim_unlock();
    return result;
}

SIM_EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    SIM_ENTER(cuCtxDisablePeerAccess);
    CUcontext context;
    uint32_t bit;
    CUresult result = peers(peer, 0, &context, &bit);

    if (result != CUDA_SUCCESS)
        return result;
    sim_lock();
    result = context->peers & bit ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    context->peers &= ~bit;
    sim_unlock();
    return result;
}
