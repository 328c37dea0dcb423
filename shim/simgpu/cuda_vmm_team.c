/* Multicast: memory of several devices bound to one object. The object takes nothing of a card;
 * what is bound to it stays until it is unbound or the object ends. */
#include <stdlib.h>

#include "execution.h"
#include "memory_vmm.h"

struct sim_binding {
    CUdevice ordinal;
    uint64_t offset, bytes;
    struct sim_handle *memory;   /* by handle, or of a mapped address */
    struct sim_binding *next;
};

static void binding_end(struct sim_binding **place)
{
    struct sim_binding *binding = *place;

    *place = binding->next;
    if (binding->memory) {
        binding->memory->uses--;
        sim_handle_check(binding->memory);
    }
    free(binding);
}

void sim_team_unbind_all(struct sim_physical *team)
{
    while (team->bindings)
        binding_end(&team->bindings);
}

static bool properties_valid(const CUmulticastObjectProp *properties)
{
    return sim_pointer(properties) && properties->numDevices > 0 &&
           properties->numDevices <= SIM_MAX_DEVICES && properties->flags == 0 &&
           !(properties->handleTypes & ~(unsigned long long)
                 (CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC));
}

SIM_EXPORT CUresult cuMulticastGetGranularity(size_t *granularity,
                                              const CUmulticastObjectProp *properties,
                                              CUmulticastGranularity_flags option)
{
    SIM_ENTER(cuMulticastGetGranularity);
    if (!sim_pointer(granularity) || !properties_valid(properties) ||
        (option != CU_MULTICAST_GRANULARITY_MINIMUM &&
         option != CU_MULTICAST_GRANULARITY_RECOMMENDED))
        return CUDA_ERROR_INVALID_VALUE;
    *granularity = SIM_GRANULE;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMulticastCreate(CUmemGenericAllocationHandle *multicast,
                                      const CUmulticastObjectProp *properties)
{
    struct sim_physical *team;
    struct sim_handle *made = NULL;

    SIM_ENTER(cuMulticastCreate);
    if (!sim_pointer(multicast) || !properties_valid(properties) || properties->size == 0 ||
        properties->size % SIM_GRANULE)
        return CUDA_ERROR_INVALID_VALUE;
    sim_memory_lock();
    team = sim_physical_new();
    if (team) {
        team->team = true;
        team->bytes = team->data.size = properties->size;
        team->team_properties = *properties;
        made = sim_handle_new(team);
        if (made)
            *multicast = made->value;
        else
            sim_physical_drop(team);
    }
    sim_memory_unlock();
    return made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static struct sim_physical *team_of(CUmemGenericAllocationHandle value)
{
    struct sim_handle *handle = sim_handle_held(value);

    return handle && handle->physical->team ? handle->physical : NULL;
}

SIM_EXPORT CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle multicast, CUdevice device)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct sim_physical *team;
    uint32_t bit;

    SIM_ENTER(cuMulticastAddDevice);
    if (!sim_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    bit = UINT32_C(1) << device;
    sim_memory_lock();
    team = team_of(multicast);
    if (team && !(team->team_devices & bit) &&
        (unsigned int)__builtin_popcount(team->team_devices) < team->team_properties.numDevices) {
        team->team_devices |= bit;
        result = CUDA_SUCCESS;
    }
    sim_memory_unlock();
    return result;
}

/* ---- Binding ---- */

/* The real driver waits for devices that other processes have not added yet; a team of one process
 * could wait for ever, and is refused. */
static CUresult bind(struct sim_physical *team, struct sim_handle *memory, CUdevice on,
                     uint64_t memory_bytes, const struct sim_wish *wish)
{
    CUdevice ordinal = wish->ordinal < 0 ? on : wish->ordinal;
    struct sim_binding *binding;

    if (!team || wish->flags || wish->bytes == 0 ||
        (wish->bytes | wish->offset | wish->memory_offset) % SIM_GRANULE ||
        wish->offset > team->bytes || wish->bytes > team->bytes - wish->offset ||
        wish->memory_offset > memory_bytes || wish->bytes > memory_bytes - wish->memory_offset)
        return CUDA_ERROR_INVALID_VALUE;
    if (on < 0 || ordinal != on || !(team->team_devices >> on & 1))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!team->travels && (unsigned int)__builtin_popcount(team->team_devices) <
                              team->team_properties.numDevices)
        return CUDA_ERROR_INVALID_VALUE;
    for (binding = team->bindings; binding; binding = binding->next)
        if (binding->ordinal == on && binding->offset < wish->offset + wish->bytes &&
            wish->offset < binding->offset + binding->bytes)
            return CUDA_ERROR_INVALID_VALUE;
    binding = malloc(sizeof(*binding));
    if (!binding)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *binding = (struct sim_binding){on, wish->offset, wish->bytes, memory, team->bindings};
    team->bindings = binding;
    if (memory)
        memory->uses++;
    return CUDA_SUCCESS;
}

CUresult sim_team_bind_handle(struct sim_physical *team, CUmemGenericAllocationHandle value,
                              const struct sim_wish *wish)
{
    struct sim_handle *memory = sim_handle_held(value);

    if (!memory || memory->physical->team)
        return CUDA_ERROR_INVALID_VALUE;
    return bind(team, memory, memory->physical->ordinal, memory->physical->bytes, wish);
}

static CUresult bind_memory(CUmemGenericAllocationHandle multicast,
                            CUmemGenericAllocationHandle value, const struct sim_wish *wish)
{
    CUresult result;

    sim_memory_lock();
    result = sim_team_bind_handle(team_of(multicast), value, wish);
    sim_memory_unlock();
    return result;
}

SIM_EXPORT CUresult cuMulticastBindMem(CUmemGenericAllocationHandle multicast,
                                       size_t multicast_offset, CUmemGenericAllocationHandle memory,
                                       size_t memory_offset, size_t size, unsigned long long flags)
{
    SIM_ENTER(cuMulticastBindMem);
    return bind_memory(multicast, memory,
                       &(struct sim_wish){-1, multicast_offset, memory_offset, size, flags});
}

SIM_EXPORT CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle multicast, CUdevice device,
                                          size_t multicast_offset,
                                          CUmemGenericAllocationHandle memory, size_t memory_offset,
                                          size_t size, unsigned long long flags)
{
    SIM_ENTER(cuMulticastBindMem_v2);
    if (!sim_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    return bind_memory(multicast, memory,
                       &(struct sim_wish){device, multicast_offset, memory_offset, size, flags});
}

CUresult sim_team_bind_range(struct sim_physical *team, CUdeviceptr address,
                             const struct sim_wish *given)
{
    struct sim_wish wish = *given;
    struct sim_range *range = sim_range_find(address);

    if (!range || (range->kind != SIM_RANGE_MAPPED && range->kind != SIM_RANGE_ASYNC))
        return CUDA_ERROR_INVALID_VALUE;
    wish.memory_offset = address - range->base;
    return bind(team, range->kind == SIM_RANGE_MAPPED ? range->owner : NULL, range->ordinal,
                range->bytes, &wish);
}

static CUresult bind_address(CUmemGenericAllocationHandle multicast, CUdeviceptr address,
                             const struct sim_wish *wish)
{
    CUresult result;

    sim_memory_lock();
    result = sim_team_bind_range(team_of(multicast), address, wish);
    sim_memory_unlock();
    return result;
}

SIM_EXPORT CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle multicast,
                                        size_t multicast_offset, CUdeviceptr address, size_t size,
                                        unsigned long long flags)
{
    SIM_ENTER(cuMulticastBindAddr);
    return bind_address(multicast, address,
                        &(struct sim_wish){-1, multicast_offset, 0, size, flags});
}

SIM_EXPORT CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle multicast, CUdevice device,
                                           size_t multicast_offset, CUdeviceptr address,
                                           size_t size, unsigned long long flags)
{
    SIM_ENTER(cuMulticastBindAddr_v2);
    if (!sim_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    return bind_address(multicast, address,
                        &(struct sim_wish){device, multicast_offset, 0, size, flags});
}

CUresult sim_team_unbind(struct sim_physical *team, CUdevice device, uint64_t offset,
                         uint64_t bytes)
{
    for (struct sim_binding **place = team ? &team->bindings : NULL; place && *place;
         place = &(*place)->next)
        if ((*place)->ordinal == device && (*place)->offset == offset &&
            (*place)->bytes == bytes) {
            binding_end(place);
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuMulticastUnbind(CUmemGenericAllocationHandle multicast, CUdevice device,
                                      size_t multicast_offset, size_t size)
{
    CUresult result;

    SIM_ENTER(cuMulticastUnbind);
    if (!sim_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_memory_lock();
    result = sim_team_unbind(team_of(multicast), device, multicast_offset, size);
    sim_memory_unlock();
    return result;
}
