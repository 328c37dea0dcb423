/* Addresses without memory (cuMemAddressReserve), memory at addresses (cuMemMap), and who may use
 * it there (cuMemSetAccess). */
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "execution.h"
#include "memory_vmm.h"

/* ---- Reservations ---- */

struct reservation {
    CUdeviceptr base;
    uint64_t bytes;
};

static void *reservations;

/* As in cuda_memory_ranges.c: touching is equal, since none overlap. */
static int compare(const void *left, const void *right)
{
    const struct reservation *a = left, *b = right;

    if (a->base + (a->bytes - 1) < b->base)
        return -1;
    return a->base > b->base + (b->bytes - 1);
}

static struct reservation *reservation_around(CUdeviceptr address)
{
    struct reservation key = {address, 1};
    void *found = tfind(&key, &reservations, compare);

    return found ? *(struct reservation **)found : NULL;
}

bool sim_reservation_find(CUdeviceptr address, CUdeviceptr *base, uint64_t *bytes)
{
    const struct reservation *found = reservation_around(address);

    if (!found)
        return false;
    *base = found->base;
    *bytes = found->bytes;
    return true;
}

/* The hint is not taken: no program may rely on it. */
SIM_EXPORT CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment,
                                        CUdeviceptr hint, unsigned long long flags)
{
    struct reservation *made;
    void *entered;

    SIM_ENTER(cuMemAddressReserve);
    if (!sim_pointer(address) || size == 0 || size % 4096 || hint % 4096 ||
        (alignment & (alignment - 1)) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (size > UINT64_C(1) << 47 || alignment > UINT64_C(1) << 47)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made = malloc(sizeof(*made));
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->base = sim_address(size, alignment < SIM_GRANULE ? SIM_GRANULE : alignment);
    made->bytes = size;
    sim_memory_lock();
    entered = tsearch(made, &reservations, compare);
    sim_memory_unlock();
    if (!entered) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = made->base;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t size)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct reservation *found;

    SIM_ENTER(cuMemAddressFree);
    sim_memory_lock();
    found = reservation_around(address);
    if (found && found->base == address && found->bytes == size &&
        !sim_range_touching(address, size)) {
        tdelete(found, &reservations, compare);
        free(found);
        result = CUDA_SUCCESS;
    }
    sim_memory_unlock();
    return result;
}

/* ---- Mapping ---- */

static CUresult map(CUdeviceptr address, uint64_t size, uint64_t offset, struct sim_handle *handle)
{
    struct reservation *around = reservation_around(address);
    struct sim_physical *physical;
    struct sim_range like = {.base = address, .bytes = size, .kind = SIM_RANGE_MAPPED,
                             .owner = handle, .data_offset = offset};

    if (!handle || !around || size > around->base + around->bytes - address)
        return CUDA_ERROR_INVALID_VALUE;
    physical = handle->physical;
    if (offset > physical->bytes || size > physical->bytes - offset ||
        sim_range_touching(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    if (physical->team && !physical->travels &&
        (unsigned int)__builtin_popcount(physical->team_devices) <
            physical->team_properties.numDevices)
        return CUDA_ERROR_INVALID_VALUE;
    like.ordinal = physical->ordinal;
    like.data = &physical->data;
    like.shared = physical->serial;
    if (!sim_range_add(&like))
        return CUDA_ERROR_OUT_OF_MEMORY;
    handle->uses++;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset,
                             CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    CUresult result;

    SIM_ENTER(cuMemMap);
    if (size == 0 || size % SIM_GRANULE || address % SIM_GRANULE || offset % SIM_GRANULE || flags)
        return CUDA_ERROR_INVALID_VALUE;
    sim_memory_lock();
    result = map(address, size, offset, sim_handle_held(handle));
    sim_memory_unlock();
    return result;
}

/* Whether whole mappings, and nothing else, fill [address, +size). */
static bool filled(CUdeviceptr address, uint64_t size)
{
    for (uint64_t done = 0; done < size;) {
        const struct sim_range *range = sim_range_at(address + done);

        if (!range || range->kind != SIM_RANGE_MAPPED || range->bytes > size - done)
            return false;
        done += range->bytes;
    }
    return size > 0 && size <= UINT64_MAX - address;
}

SIM_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    SIM_ENTER(cuMemUnmap);
    sim_memory_lock();
    if (filled(address, size)) {
        for (uint64_t done = 0; done < size;) {
            struct sim_range *range = sim_range_at(address + done);
            struct sim_handle *handle = range->owner;

            done += range->bytes;
            sim_range_remove(range);
            handle->uses--;
            sim_handle_check(handle);
        }
        result = CUDA_SUCCESS;
    }
    sim_memory_unlock();
    return result;
}

/* The handle that the memory was mapped with, also where the program released it. */
SIM_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct sim_range *range;

    SIM_ENTER(cuMemRetainAllocationHandle);
    if (!sim_pointer(handle))
        return CUDA_ERROR_INVALID_VALUE;
    sim_memory_lock();
    range = sim_range_find((CUdeviceptr)(uintptr_t)address);
    if (range && range->kind == SIM_RANGE_MAPPED) {
        struct sim_handle *found = range->owner;

        found->held++;
        *handle = found->value;
        result = CUDA_SUCCESS;
    }
    sim_memory_unlock();
    return result;
}

/* ---- Access ---- */

static CUresult check_access(const CUmemAccessDesc *descriptor)
{
    if (descriptor->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
        descriptor->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        descriptor->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
    switch (descriptor->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return sim_device(descriptor->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

SIM_EXPORT CUresult cuMemSetAccess(CUdeviceptr address, size_t size,
                                   const CUmemAccessDesc *descriptor, size_t count)
{
    CUresult result = CUDA_SUCCESS;

    SIM_ENTER(cuMemSetAccess);
    if (!sim_pointer(descriptor) || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = check_access(&descriptor[i]);
    if (result != CUDA_SUCCESS)
        return result;
    sim_memory_lock();
    if (!filled(address, size))
        result = CUDA_ERROR_INVALID_VALUE;
    for (uint64_t done = 0; result == CUDA_SUCCESS && done < size;) {
        struct sim_range *range = sim_range_at(address + done);

        for (size_t i = 0; i < count; i++)
            if (descriptor[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE)
                range->access[descriptor[i].location.id] = (uint8_t)descriptor[i].flags;
        done += range->bytes;
    }
    sim_memory_unlock();
    return result;
}

SIM_EXPORT CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                                   CUdeviceptr address)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct sim_range *range;

    SIM_ENTER(cuMemGetAccess);
    if (!sim_pointer(flags) || !sim_pointer(location) ||
        location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device(location->id))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_memory_lock();
    range = sim_range_find(address);
    if (range && range->kind == SIM_RANGE_MAPPED) {
        *flags = range->access[location->id];
        result = CUDA_SUCCESS;
    }
    sim_memory_unlock();
    return result;
}
