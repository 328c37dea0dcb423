/* The context that all parts of a process share on a device. Its handle stays the same for the life
 * of the process: reset or released, it is dead until the next retain. */
#include "execution.h"

struct primary {
    struct CUctx_st context;
    unsigned int retained, flags;
    pthread_mutex_t busy; /* being made or taken down */
};

static struct primary primaries[SIM_MAX_DEVICES] = {
    [0 ... SIM_MAX_DEVICES - 1] = { .busy = PTHREAD_MUTEX_INITIALIZER },
};

static struct primary *primary_of(CUdevice device)
{
    return sim_device(device) != NULL ? &primaries[device] : NULL;
}

static bool active(const struct primary *primary)
{
    return sim_alive(&primary->context, SIM_CONTEXT);
}

static CUresult open_primary(struct primary *primary, CUdevice ordinal)
{
    CUcontext context = &primary->context;

    memset((char *)context + sizeof context->head, 0, sizeof *context - sizeof context->head);
    context->primary = true;
    return sim_context_open(context, ordinal, primary->flags);
}

CUresult sim_primary_retain(CUdevice ordinal, CUcontext *context)
{
    struct primary *primary = &primaries[ordinal];
    CUresult result = CUDA_SUCCESS;

    pthread_mutex_lock(&primary->busy);
    if (!active(primary))
        result = open_primary(primary, ordinal);
    if (result == CUDA_SUCCESS)
        primary->retained++;
    pthread_mutex_unlock(&primary->busy);
    if (result == CUDA_SUCCESS)
        *context = &primary->context;
    return result;
}

CUresult sim_primary_release(CUdevice ordinal)
{
    struct primary *primary = &primaries[ordinal];
    CUresult result = CUDA_SUCCESS;

    pthread_mutex_lock(&primary->busy);
    if (primary->retained == 0)
        result = CUDA_ERROR_INVALID_CONTEXT;
    else if (--primary->retained == 0 && sim_kill(&primary->context, SIM_CONTEXT))
        sim_context_close(&primary->context);
    pthread_mutex_unlock(&primary->busy);
    return result;
}

SIM_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    SIM_ENTER(cuDevicePrimaryCtxRetain);
    CUresult result;

    if (context == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (primary_of(device) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    result = sim_capture_unsafe();
    return result == CUDA_SUCCESS ? sim_primary_retain(device, context) : result;
}

static CUresult release(CUdevice device)
{
    if (primary_of(device) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    return sim_primary_release(device);
}

SIM_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    SIM_ENTER(cuDevicePrimaryCtxRelease);
    return release(device);
}

SIM_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    SIM_ENTER(cuDevicePrimaryCtxRelease_v2);
    return release(device);
}

/* Does not release: who retained it still has to, and may. */
static CUresult reset(CUdevice device)
{
    struct primary *primary = primary_of(device);

    if (primary == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&primary->busy);
    if (sim_kill(&primary->context, SIM_CONTEXT)) {
        primary->retained -= sim_green_close_all(&primary->context);
        sim_context_close(&primary->context);
    }
    primary->flags = 0;
    pthread_mutex_unlock(&primary->busy);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    SIM_ENTER(cuDevicePrimaryCtxReset);
    return reset(device);
}

SIM_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    SIM_ENTER(cuDevicePrimaryCtxReset_v2);
    return reset(device);
}

SIM_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *is_active)
{
    SIM_ENTER(cuDevicePrimaryCtxGetState);
    struct primary *primary = primary_of(device);

    if (flags == NULL || is_active == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (primary == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&primary->busy);
    *flags = primary->flags;
    *is_active = active(primary);
    pthread_mutex_unlock(&primary->busy);
    return CUDA_SUCCESS;
}

static CUresult set_flags(CUdevice device, unsigned int flags, bool while_active)
{
    struct primary *primary = primary_of(device);
    CUresult result = CUDA_SUCCESS;

    if (primary == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if (sim_context_flags(flags) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&primary->busy);
    if (active(primary) && !while_active) {
        result = CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
    } else {
        primary->flags = flags;
        primary->context.flags = flags;
    }
    pthread_mutex_unlock(&primary->busy);
    return result;
}

SIM_EXPORT CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
    SIM_ENTER(cuDevicePrimaryCtxSetFlags);
    return set_flags(device, flags, false);
}

SIM_EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
    SIM_ENTER(cuDevicePrimaryCtxSetFlags_v2);
    return set_flags(device, flags, true);
}
