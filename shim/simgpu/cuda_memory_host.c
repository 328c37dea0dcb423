/* Page-locked memory of the host: real memory, known by address. It takes nothing from the card. */
#include <stdlib.h>

#include "execution.h"
#include "memory.h"

#define ALLOC_FLAGS                                                                                \
    (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)
#define REGISTER_FLAGS 0xfu /* with I/O memory and read-only */
#define HOST_PAGE 4096

static CUresult enter_range(CUcontext context, void *host, uint64_t bytes,
                            enum sim_range_kind kind, unsigned int flags)
{
    struct sim_range like = {.base = (CUdeviceptr)(uintptr_t)host, .bytes = bytes, .kind = kind,
                             .context = context, .ordinal = context->ordinal, .flags = flags,
                             .own = {.data = host, .real = true}};
    CUresult result = CUDA_SUCCESS;

    sim_memory_lock();
    if (sim_range_touching(like.base, bytes))
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    else if (!sim_range_add(&like))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    sim_memory_unlock();
    return result;
}

static CUresult allocate(void **host, uint64_t bytes, unsigned int flags)
{
    CUcontext context;
    void *found;
    CUresult result = sim_context_current(&context);

    if (result == CUDA_SUCCESS)
        result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_pointer(host) || bytes == 0 || (flags & ~(unsigned int)ALLOC_FLAGS))
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > PTRDIFF_MAX - HOST_PAGE)
        return CUDA_ERROR_OUT_OF_MEMORY;
    found = aligned_alloc(HOST_PAGE, sim_round_up(bytes, HOST_PAGE));
    if (!found)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = enter_range(context, found, bytes, SIM_RANGE_HOST, flags);
    if (result == CUDA_SUCCESS)
        *host = found;
    else
        free(found);
    return result;
}

SIM_EXPORT CUresult cuMemAllocHost(void **host, unsigned int bytes)
{
    SIM_ENTER(cuMemAllocHost);
    return allocate(host, bytes, 0);
}

SIM_EXPORT CUresult cuMemAllocHost_v2(void **host, size_t bytes)
{
    SIM_ENTER(cuMemAllocHost_v2);
    return allocate(host, bytes, 0);
}

SIM_EXPORT CUresult cuMemHostAlloc(void **host, size_t bytes, unsigned int flags)
{
    SIM_ENTER(cuMemHostAlloc);
    return allocate(host, bytes, flags);
}

/* What is not there, and why: freeing and unregistering name different causes. */
static CUresult end_range(void *host, enum sim_range_kind kind, CUresult unknown)
{
    CUresult result = unknown;
    struct sim_range *range;
    CUcontext context;
    CUresult here = sim_context_current(&context);

    if (here == CUDA_SUCCESS)
        here = sim_capture_unsafe();
    if (here != CUDA_SUCCESS)
        return here;
    sim_memory_lock();
    range = sim_range_at((CUdeviceptr)(uintptr_t)host);
    if (range && range->kind == kind)
        result = sim_range_free(range);
    sim_memory_unlock();
    return result;
}

SIM_EXPORT CUresult cuMemFreeHost(void *host)
{
    SIM_ENTER(cuMemFreeHost);
    return end_range(host, SIM_RANGE_HOST, CUDA_ERROR_INVALID_VALUE);
}

static CUresult enregister(void *host, uint64_t bytes, unsigned int flags)
{
    CUcontext context;
    CUresult result = sim_context_current(&context);

    if (result == CUDA_SUCCESS)
        result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_pointer(host) || bytes == 0 || (flags & ~REGISTER_FLAGS))
        return CUDA_ERROR_INVALID_VALUE;
    return enter_range(context, host, bytes, SIM_RANGE_REGISTERED, flags);
}

SIM_EXPORT CUresult cuMemHostRegister(void *host, size_t bytes, unsigned int flags)
{
    SIM_ENTER(cuMemHostRegister);
    return enregister(host, bytes, flags);
}

SIM_EXPORT CUresult cuMemHostRegister_v2(void *host, size_t bytes, unsigned int flags)
{
    SIM_ENTER(cuMemHostRegister_v2);
    return enregister(host, bytes, flags);
}

SIM_EXPORT CUresult cuMemHostUnregister(void *host)
{
    SIM_ENTER(cuMemHostUnregister);
    return end_range(host, SIM_RANGE_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

/* With one address space for all, the device's address is the host's. */
static CUresult device_pointer(void *host, unsigned int flags, CUdeviceptr *address)
{
    CUdeviceptr wanted = (CUdeviceptr)(uintptr_t)host;
    struct sim_range *range;
    CUcontext context;
    CUresult result = sim_context_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    sim_memory_lock();
    range = sim_range_find(wanted);
    result = range && (range->kind == SIM_RANGE_HOST || range->kind == SIM_RANGE_REGISTERED)
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_INVALID_VALUE;
    sim_memory_unlock();
    if (result == CUDA_SUCCESS)
        *address = wanted;
    return result;
}

/* A host address that does not fit the 32 bits of this spelling cannot be given. */
SIM_EXPORT CUresult cuMemHostGetDevicePointer(CUdeviceptr_v1 *address, void *host,
                                              unsigned int flags)
{
    CUdeviceptr found;
    CUresult result;

    SIM_ENTER(cuMemHostGetDevicePointer);
    if (!sim_pointer(address))
        return CUDA_ERROR_INVALID_VALUE;
    result = device_pointer(host, flags, &found);
    if (result == CUDA_SUCCESS && found > UINT32_MAX)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS)
        *address = (CUdeviceptr_v1)found;
    return result;
}

SIM_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *host,
                                                 unsigned int flags)
{
    SIM_ENTER(cuMemHostGetDevicePointer_v2);
    return sim_pointer(address) ? device_pointer(host, flags, address) : CUDA_ERROR_INVALID_VALUE;
}
