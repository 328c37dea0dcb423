/* cuPointerGetAttribute(s). Both answer from a copy of what lies there, taken under the lock. */
#include <string.h>

#include "execution.h"
#include "memory_pools.h"
#include "memory_vmm.h"

struct found {
    bool there, unmapped; /* unmapped: an address reserved only */
    struct sim_range range;
    CUdeviceptr start; /* of the reservation, or of the allocation */
    uint64_t length;
    unsigned long long handle_types;
};

static bool of_host(const struct sim_range *range)
{
    return range->kind == SIM_RANGE_HOST || range->kind == SIM_RANGE_REGISTERED;
}

static struct found look(CUdeviceptr address)
{
    struct found found = {.there = false};
    struct sim_range *range;
    bool async;

    if (sim_local_find(address, &found.range.base, &found.range.bytes, &found.range.ordinal,
                       &async)) {
        found.there = true;
        found.range.kind = async ? SIM_RANGE_ASYNC : SIM_RANGE_LINEAR;
        found.range.buffer = found.start = found.range.base;
        found.length = found.range.bytes;
        sim_memory_lock();
        found.range.owner = async ? sim_pool_by_default(found.range.ordinal) : NULL;
        sim_memory_unlock();
        sim_context_current(&found.range.context);
        return found;
    }
    sim_memory_lock();
    range = sim_range_find(address);
    if (range) {
        found.there = true;
        found.range = *range;
        found.start = range->base;
        found.length = range->bytes;
        if (range->kind == SIM_RANGE_MAPPED) {
            const struct sim_handle *handle = range->owner;

            found.handle_types = handle->physical->properties.requestedHandleTypes;
            sim_reservation_find(address, &found.start, &found.length);
        }
    } else if (sim_reservation_find(address, &found.start, &found.length)) {
        found.there = found.unmapped = true;
    }
    sim_memory_unlock();
    return found;
}

/* Where it lies. */
static CUresult tell_place(const struct found *found, CUpointer_attribute attribute,
                           CUdeviceptr address, void *value)
{
    const struct sim_range *range = &found->range;

    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)value = found->start;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)value = found->length;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned int *)value = !found->unmapped;
        return CUDA_SUCCESS;
    default:
        break;
    }
    if (found->unmapped)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)value = address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!of_host(range) && range->kind != SIM_RANGE_MANAGED)
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)value = (void *)(uintptr_t)address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)value = range->base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)value = range->bytes;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Who may reach it from where. */
static CUresult tell_access(const struct sim_range *range, void *value)
{
    CUcontext here;
    CUresult result = sim_context_current(&here);

    if (result == CUDA_SUCCESS)
        *(unsigned int *)value = range->kind == SIM_RANGE_MAPPED
                                     ? range->access[here->ordinal]
                                     : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return result;
}

/* What it is; what is not known here is a question of where. */
static CUresult tell(const struct found *found, CUpointer_attribute attribute, CUdeviceptr address,
                     void *value)
{
    const struct sim_range *range = &found->range;

    switch (found->unmapped ? 0 : (int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)value = range->context;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned int *)value = of_host(range) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)value = range->buffer;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned int *)value = range->kind == SIM_RANGE_MANAGED;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = range->ordinal;
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned int *)value = range->kind == SIM_RANGE_LINEAR;
        break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)value = found->handle_types;
        break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return tell_access(range, value);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)value = range->kind == SIM_RANGE_ASYNC ? range->owner : NULL;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)value =
            range->kind == SIM_RANGE_MAPPED ? range->shared : range->buffer;
        break;
    default:
        return tell_place(found, attribute, address, value);
    }
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute,
                                          CUdeviceptr address)
{
    struct found found;

    SIM_ENTER(cuPointerGetAttribute);
    if (!sim_pointer(value))
        return CUDA_ERROR_INVALID_VALUE;
    found = look(address);
    return found.there ? tell(&found, attribute, address, value) : CUDA_ERROR_INVALID_VALUE;
}

static size_t size_of(CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return 4;
    default:
        return 8;
    }
}

/* What has no value gets zero, and that is no error; a device ordinal is then -2, as none has. */
SIM_EXPORT CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes,
                                           void **values, CUdeviceptr address)
{
    struct found found;

    SIM_ENTER(cuPointerGetAttributes);
    if (count == 0 || !sim_pointer(attributes) || !sim_pointer(values))
        return CUDA_ERROR_INVALID_VALUE;
    found = look(address);
    for (unsigned int i = 0; i < count; i++) {
        if (!sim_pointer(values[i]) || attributes[i] < CU_POINTER_ATTRIBUTE_CONTEXT ||
            attributes[i] > CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID)
            return CUDA_ERROR_INVALID_VALUE;
        memset(values[i], 0, size_of(attributes[i]));
        if (found.there)
            (void)tell(&found, attributes[i], address, values[i]);
        else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            *(int *)values[i] = -2;
    }
    return CUDA_SUCCESS;
}
