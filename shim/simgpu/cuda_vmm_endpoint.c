/* Logical endpoints, unicast and of this process alone: multicast teams of one device, under a
 * number in place of a handle. */
#include <stdlib.h>

#include "execution.h"
#include "memory_vmm.h"

/* By number less one. Numbers are not used again: a stale one is known. */
static struct endpoint {
    struct sim_physical *team; /* NULL: none was made */
    bool reserved, asked;      /* asked: whether it is ready, which must come before a binding */
} *endpoints;
static uint32_t endpoint_count;

/* NULL: not all of them are reserved. */
static struct endpoint *reserved(CUlogicalEndpointId base, cuuint32_t count)
{
    if (base == 0 || count == 0 || base > endpoint_count || count > endpoint_count - base + 1)
        return NULL;
    for (uint32_t i = 0; i < count; i++)
        if (!endpoints[base - 1 + i].reserved)
            return NULL;
    return &endpoints[base - 1];
}

/* NULL: nothing can be bound to it. */
static struct sim_physical *bindable(CUlogicalEndpointId id)
{
    struct endpoint *found = reserved(id, 1);

    return found && found->asked ? found->team : NULL;
}

SIM_EXPORT CUresult cuLogicalEndpointIdReserve(CUlogicalEndpointId *base, cuuint32_t count)
{
    struct endpoint *larger;

    SIM_ENTER(cuLogicalEndpointIdReserve);
    if (!sim_pointer(base) || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_memory_lock();
    larger = count > UINT32_MAX - endpoint_count
                 ? NULL
                 : realloc(endpoints, ((size_t)endpoint_count + count) * sizeof(*larger));
    if (larger) {
        endpoints = larger;
        for (uint32_t i = 0; i < count; i++)
            endpoints[endpoint_count + i] = (struct endpoint){.reserved = true};
        *base = endpoint_count + 1;
        endpoint_count += count;
    }
    sim_memory_unlock();
    return larger ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_EXPORT CUresult cuLogicalEndpointIdRelease(CUlogicalEndpointId base, cuuint32_t count)
{
    struct endpoint *found;

    SIM_ENTER(cuLogicalEndpointIdRelease);
    sim_memory_lock();
    found = reserved(base, count);
    for (uint32_t i = 0; found && i < count; i++)
        if (found[i].team)
            found = NULL;
    for (uint32_t i = 0; found && i < count; i++)
        found[i].reserved = false;
    sim_memory_unlock();
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuLogicalEndpointCreate(CUlogicalEndpointId id,
                                            const CUlogicalEndpointProp *properties)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct endpoint *found;

    SIM_ENTER(cuLogicalEndpointCreate);
    if (!sim_pointer(properties) || properties->size == 0 || properties->size % SIM_GRANULE)
        return CUDA_ERROR_INVALID_VALUE;
    if (properties->type != CU_LOGICAL_ENDPOINT_TYPE_UNICAST || properties->ipcHandleTypes)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!sim_device(properties->unicast.device))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_memory_lock();
    found = reserved(id, 1);
    if (found && !found->team) {
        found->asked = false;
        found->team = sim_physical_new();
        result = found->team ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        found->team->team = true;
        found->team->bytes = properties->size;
        found->team->team_properties.numDevices = 1;
        found->team->team_devices = UINT32_C(1) << properties->unicast.device;
    }
    sim_memory_unlock();
    return result;
}

SIM_EXPORT CUresult cuLogicalEndpointQuery(CUlogicalEndpointId id, cuuint32_t count, int *ready)
{
    struct endpoint *found;

    SIM_ENTER(cuLogicalEndpointQuery);
    if (!sim_pointer(ready))
        return CUDA_ERROR_INVALID_VALUE;
    sim_memory_lock();
    found = reserved(id, count);
    *ready = found != NULL;
    for (uint32_t i = 0; found && i < count; i++) {
        found[i].asked = true;
        *ready &= found[i].team != NULL;
    }
    sim_memory_unlock();
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuLogicalEndpointDestroy(CUlogicalEndpointId id)
{
    struct sim_physical *team;
    struct endpoint *found;

    SIM_ENTER(cuLogicalEndpointDestroy);
    sim_memory_lock();
    found = reserved(id, 1);
    team = found ? found->team : NULL;
    if (team) {
        found->team = NULL;
        sim_physical_drop(team);
    }
    sim_memory_unlock();
    return team ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuLogicalEndpointBindMem(CUlogicalEndpointId id, CUdevice device,
                                             cuuint64_t offset, CUmemGenericAllocationHandle memory,
                                             cuuint64_t memory_offset, cuuint64_t size,
                                             unsigned long long flags)
{
    struct sim_wish wish = {device, offset, memory_offset, size, flags};
    CUresult result;

    SIM_ENTER(cuLogicalEndpointBindMem);
    if (!sim_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_memory_lock();
    result = sim_team_bind_handle(bindable(id), memory, &wish);
    sim_memory_unlock();
    return result;
}

SIM_EXPORT CUresult cuLogicalEndpointBindAddr(CUlogicalEndpointId id, CUdevice device,
                                              cuuint64_t offset, void *address, cuuint64_t size,
                                              unsigned long long flags)
{
    struct sim_wish wish = {device, offset, 0, size, flags};
    CUresult result;

    SIM_ENTER(cuLogicalEndpointBindAddr);
    if (!sim_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_memory_lock();
    result = sim_team_bind_range(bindable(id), (CUdeviceptr)(uintptr_t)address, &wish);
    sim_memory_unlock();
    return result;
}

SIM_EXPORT CUresult cuLogicalEndpointUnbind(CUlogicalEndpointId id, CUdevice device,
                                            cuuint64_t offset, cuuint64_t size)
{
    CUresult result;

    SIM_ENTER(cuLogicalEndpointUnbind);
    if (!sim_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_memory_lock();
    result = sim_team_unbind(bindable(id), device, offset, size);
    sim_memory_unlock();
    return result;
}
