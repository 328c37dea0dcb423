/* Memory of other interfaces (Vulkan and the like). What is behind a descriptor that is not one of
 * ours cannot be known: it stands for memory that such an interface took on this card in this
 * process, so the import takes it from the ledger. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "execution.h"
#include "memory_vmm.h"

struct CUextMemory_st {
    uint64_t id, bytes;
    CUdevice ordinal;
    CUcontext context;
    unsigned int buffers; /* mapped */
    bool destroyed;
    CUexternalMemory next;
};

static CUexternalMemory memories;

static CUexternalMemory known(CUexternalMemory memory)
{
    CUexternalMemory found = memories;

    while (found && found != memory)
        found = found->next;
    return found && !found->destroyed ? found : NULL;
}

static void check(CUexternalMemory memory)
{
    CUexternalMemory *place = &memories;

    if (!memory->destroyed || memory->buffers)
        return;
    while (*place != memory)
        place = &(*place)->next;
    *place = memory->next;
    sim_give(memory->id);
    free(memory);
}

void sim_external_unmapped(struct sim_range *range)
{
    CUexternalMemory memory = range->owner;

    sim_range_remove(range);
    memory->buffers--;
    check(memory);
}

static CUresult check_description(const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description)
{
    for (size_t i = 0; i < sizeof(description->reserved) / sizeof(*description->reserved); i++)
        if (description->reserved[i])
            return CUDA_ERROR_INVALID_VALUE;
    switch (description->type) {
    case CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD:
        if (description->size == 0 ||
            (description->flags & ~(unsigned int)CUDA_EXTERNAL_MEMORY_DEDICATED))
            return CUDA_ERROR_INVALID_VALUE;
        return fcntl(description->handle.fd, F_GETFD) >= 0 ? CUDA_SUCCESS
                                                           : CUDA_ERROR_INVALID_HANDLE;
    case CU_EXTERNAL_MEMORY_HANDLE_TYPE_NVSCIBUF:
    case CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD:
    case CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32:
    case CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32_KMT:
    case CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_HEAP:
    case CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_RESOURCE:
    case CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D11_RESOURCE:
    case CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D11_RESOURCE_KMT:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* On success the descriptor is the driver's, which closes it. */
SIM_EXPORT CUresult cuImportExternalMemory(CUexternalMemory *memory,
                                           const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description)
{
    CUexternalMemory made;
    uint64_t share;
    CUresult result;

    SIM_ENTER(cuImportExternalMemory);
    if (!sim_pointer(memory) || !sim_pointer(description))
        return CUDA_ERROR_INVALID_VALUE;
    result = check_description(description);
    made = calloc(1, sizeof(*made));
    if (result == CUDA_SUCCESS && !made)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = sim_context_current(&made->context);
    if (result == CUDA_SUCCESS) {
        made->ordinal = made->context->ordinal;
        made->bytes = description->size;
        if (sim_travel_shared(description->handle.fd, &share))
            result = sim_share(share, &made->id, &made->ordinal, &made->bytes);
        else
            result = sim_take(made->ordinal, description->size, SIM_MEMORY_DATA, &made->id);
    }
    if (result != CUDA_SUCCESS) {
        free(made);
        return result;
    }
    close(description->handle.fd);
    sim_memory_lock();
    made->next = memories;
    memories = made;
    sim_memory_unlock();
    *memory = made;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuExternalMemoryGetMappedBuffer(
    CUdeviceptr *address, CUexternalMemory memory,
    const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *description)
{
    CUresult result = CUDA_ERROR_INVALID_HANDLE;

    SIM_ENTER(cuExternalMemoryGetMappedBuffer);
    if (!sim_pointer(address) || !sim_pointer(description) || description->flags ||
        description->size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_memory_lock();
    if (known(memory)) {
        struct sim_range like = {.bytes = description->size, .kind = SIM_RANGE_EXTERNAL,
                                 .ordinal = memory->ordinal, .context = memory->context,
                                 .owner = memory};

        result = CUDA_ERROR_INVALID_VALUE;
        if (description->offset <= memory->bytes &&
            description->size <= memory->bytes - description->offset) {
            like.base = sim_address(like.bytes, SIM_GRANULE);
            if (sim_range_add(&like)) {
                memory->buffers++;
                *address = like.base;
                result = CUDA_SUCCESS;
            } else {
                result = CUDA_ERROR_OUT_OF_MEMORY;
            }
        }
    }
    sim_memory_unlock();
    return result;
}

/* Buffers on it may no longer be used but still must be freed; until then the memory stays. */
SIM_EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    CUresult result = CUDA_ERROR_INVALID_HANDLE;

    SIM_ENTER(cuDestroyExternalMemory);
    sim_memory_lock();
    if (known(memory)) {
        memory->destroyed = true;
        check(memory);
        result = CUDA_SUCCESS;
    }
    sim_memory_unlock();
    return result;
}
