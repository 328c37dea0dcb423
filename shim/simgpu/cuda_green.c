/* Green contexts: a share of a device's multiprocessors, over the primary context's memory. */
#include <stdlib.h>

#include "execution.h"

#define PARTITION 8u /* multiprocessors come in groups of this many on a 9.0 device */
#define MIB (UINT64_C(1) << 20)

static CUgreenCtx greens; /* alive ones, under the lock */
static CUdevResourceDesc descriptors;

SIM_EXPORT CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource,
                                           CUdevResourceType type)
{
    SIM_ENTER(cuDeviceGetDevResource);
    const struct sim_device *found = sim_device(device);

    if (resource == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (found == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    memset(resource, 0, sizeof *resource);
    resource->type = CU_DEV_RESOURCE_TYPE_SM;
    resource->sm.smCount = (unsigned int)found->sms;
    resource->sm.minSmPartitionSize = PARTITION;
    resource->sm.smCoscheduledAlignment = PARTITION;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *group_count,
                                                const CUdevResource *input,
                                                CUdevResource *remainder, unsigned int flags,
                                                unsigned int minimum)
{
    SIM_ENTER(cuDevSmResourceSplitByCount);
    unsigned int size, groups;

    if (group_count == NULL || input == NULL || flags > 3 || (result != NULL && *group_count == 0))
        return CUDA_ERROR_INVALID_VALUE;
    if (input->type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    size = (minimum + PARTITION - 1) / PARTITION * PARTITION;
    size = size == 0 ? PARTITION : size;
    groups = input->sm.smCount / size;
    if (groups == 0)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (result != NULL && groups > *group_count)
        groups = *group_count;
    for (unsigned int i = 0; result != NULL && i < groups; i++) {
        result[i] = *input;
        result[i].sm.smCount = size;
    }
    if (remainder != NULL) {
        *remainder = *input;
        remainder->sm.smCount = input->sm.smCount - groups * size;
        if (remainder->sm.smCount == 0)
            remainder->type = CU_DEV_RESOURCE_TYPE_INVALID;
    }
    *group_count = groups;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *descriptor,
                                              CUdevResource *resources, unsigned int count)
{
    SIM_ENTER(cuDevResourceGenerateDesc);
    CUdevResourceDesc made;
    unsigned int sms = 0;

    if (descriptor == NULL || resources == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned int i = 0; i < count; i++) {
        if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM || resources[i].sm.smCount == 0)
            return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        sms += resources[i].sm.smCount;
    }
    made = sim_object_new(SIM_RESOURCES);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->sms = sms;
    sim_lock();
    made->next = descriptors;
    descriptors = made;
    sim_born(made, SIM_RESOURCES);
    sim_unlock();
    *descriptor = made;
    return CUDA_SUCCESS;
}

static CUresult open_green(CUgreenCtx green, CUdevice device, unsigned int sms, CUcontext primary)
{
    CUcontext context = sim_object_new(SIM_CONTEXT);
    CUresult result;

    if (context == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = sim_take(device, sim_knob("GREEN_MIB", 16) * MIB, SIM_MEMORY_CONTEXT, &green->memory);
    if (result != CUDA_SUCCESS) {
        sim_object_free(context, SIM_CONTEXT);
        return result;
    }
    green->sms = sms;
    green->context = context;
    context->root = primary;
    context->green = green;
    result = sim_context_open(context, device, primary->flags);
    if (result != CUDA_SUCCESS) {
        sim_give(green->memory);
        sim_object_free(context, SIM_CONTEXT);
    }
    return result;
}

SIM_EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *green_context, CUdevResourceDesc descriptor,
                                     CUdevice device, unsigned int flags)
{
    SIM_ENTER(cuGreenCtxCreate);
    const struct sim_device *found = sim_device(device);
    CUcontext primary;
    CUgreenCtx green;
    CUresult result;

    if (green_context == NULL || !sim_alive(descriptor, SIM_RESOURCES) ||
        (flags & ~(unsigned int)CU_GREEN_CTX_DEFAULT_STREAM) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (found == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if (descriptor->sms > (unsigned int)found->sms)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    result = sim_capture_unsafe();
    if (result == CUDA_SUCCESS)
        result = sim_primary_retain(device, &primary);
    if (result != CUDA_SUCCESS)
        return result;
    green = sim_object_new(SIM_GREEN);
    result = green == NULL ? CUDA_ERROR_OUT_OF_MEMORY
                           : open_green(green, device, descriptor->sms, primary);
    if (result != CUDA_SUCCESS) {
        sim_object_free(green, SIM_GREEN);
        sim_primary_release(device);
        return result;
    }
    sim_lock();
    green->next = greens;
    greens = green;
    sim_born(green, SIM_GREEN);
    sim_unlock();
    *green_context = green;
    return CUDA_SUCCESS;
}

static void close_green(CUgreenCtx green)
{
    if (sim_kill(green->context, SIM_CONTEXT))
        sim_context_close(green->context);
    sim_give(green->memory);
    sim_lock();
    for (CUgreenCtx *each = &greens; *each != NULL; each = &(*each)->next) {
        if (*each == green) {
            *each = green->next;
            break;
        }
    }
    sim_unlock();
    sim_object_free(green->context, SIM_CONTEXT);
    sim_object_free(green, SIM_GREEN);
}

/* The primary context is being reset under them. */
unsigned int sim_green_close_all(CUcontext primary)
{
    for (unsigned int closed = 0;; closed++) {
        CUgreenCtx green;
        sim_lock();
        for (green = greens; green != NULL; green = green->next)
            if (green->context->root == primary && sim_kill(green, SIM_GREEN))
                break;
        sim_unlock();
        if (green == NULL)
            return closed;
        close_green(green);
    }
}

SIM_EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green_context)
{
    SIM_ENTER(cuGreenCtxDestroy);
    CUdevice device;

    if (!sim_alive(green_context, SIM_GREEN))
        return CUDA_ERROR_INVALID_VALUE;
    device = green_context->context->ordinal;
    if (!sim_kill(green_context, SIM_GREEN))
        return CUDA_ERROR_INVALID_VALUE;
    close_green(green_context);
    return sim_primary_release(device);
}

SIM_EXPORT CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green_context)
{
    SIM_ENTER(cuCtxFromGreenCtx);
    if (context == NULL || !sim_alive(green_context, SIM_GREEN))
        return CUDA_ERROR_INVALID_VALUE;
    *context = green_context->context;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green_context,
                                           unsigned int flags, int priority)
{
    SIM_ENTER(cuGreenCtxStreamCreate);
    CUstream made;
    CUresult result;

    if (stream == NULL || !sim_alive(green_context, SIM_GREEN) || flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    made = sim_object_new(SIM_STREAM);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->green = green_context;
    made->priority = priority < -5 ? -5 : priority > 0 ? 0 : priority;
    result = sim_stream_open(made, green_context->context, flags);
    if (result != CUDA_SUCCESS)
        sim_object_free(made, SIM_STREAM);
    else
        *stream = made;
    return result;
}
