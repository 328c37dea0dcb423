/* What there is: how much memory, what lies at an address, and advice that changes nothing. */
#include "execution.h"
#include "memory.h"

/* ---- How much ---- */

/* What sim_device says, without asking it again and again: this call is measured. */
static inline uint64_t whole(CUdevice ordinal)
{
    static _Atomic uint64_t totals[SIM_MAX_DEVICES];
    uint64_t total = atomic_load_explicit(&totals[ordinal], memory_order_relaxed);

    if (SIM_UNLIKELY(total == 0)) {
        total = sim_device(ordinal)->memory_bytes;
        atomic_store_explicit(&totals[ordinal], total, memory_order_relaxed);
    }
    return total;
}

static inline CUresult amounts(uint64_t *available, uint64_t *total)
{
    CUcontext context;
    CUresult result = sim_context_current(&context);

    if (SIM_UNLIKELY(result != CUDA_SUCCESS))
        return result;
    *total = whole(context->ordinal);
    *available = sim_memory_free(context->ordinal);
    if (sim_process->local) {
        uint64_t used = sim_local_used(context->ordinal, false);

        *available = used < *available ? *available - used : 0;
    }
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    uint64_t free_now, in_all;
    CUresult result;

    SIM_ENTER(cuMemGetInfo_v2);
    if (SIM_UNLIKELY(!sim_pointer(available) || !sim_pointer(total)))
        return CUDA_ERROR_INVALID_VALUE;
    result = amounts(&free_now, &in_all);
    if (SIM_UNLIKELY(result != CUDA_SUCCESS))
        return result;
    *available = free_now;
    *total = in_all;
    return CUDA_SUCCESS;
}

static unsigned int saturated(uint64_t bytes)
{
    return bytes > UINT32_MAX ? UINT32_MAX : (unsigned int)bytes;
}

SIM_EXPORT CUresult cuMemGetInfo(unsigned int *available, unsigned int *total)
{
    uint64_t free_now, in_all;
    CUresult result;

    SIM_ENTER(cuMemGetInfo);
    if (!sim_pointer(available) || !sim_pointer(total))
        return CUDA_ERROR_INVALID_VALUE;
    result = amounts(&free_now, &in_all);
    if (result != CUDA_SUCCESS)
        return result;
    *available = saturated(free_now);
    *total = saturated(in_all);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    SIM_ENTER(cuDeviceTotalMem_v2);
    if (!sim_pointer(bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = sim_device(device)->memory_bytes;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
    SIM_ENTER(cuDeviceTotalMem);
    if (!sim_pointer(bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = saturated(sim_device(device)->memory_bytes);
    return CUDA_SUCCESS;
}

/* ---- What lies there ---- */

static CUresult address_range(CUdeviceptr address, CUdeviceptr *base, uint64_t *size)
{
    CUresult result = CUDA_ERROR_NOT_FOUND;
    struct sim_range *range;
    CUcontext context;
    CUdevice ordinal;
    bool async;
    CUresult here = sim_context_current(&context);

    if (here != CUDA_SUCCESS)
        return here;
    if (sim_local_find(address, base, size, &ordinal, &async))
        return CUDA_SUCCESS;
    sim_memory_lock();
    range = sim_range_find(address);
    if (range) {
        *base = range->base;
        *size = range->bytes;
        result = CUDA_SUCCESS;
    }
    sim_memory_unlock();
    return result;
}

SIM_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    CUdeviceptr start;
    uint64_t bytes;
    CUresult result;

    SIM_ENTER(cuMemGetAddressRange_v2);
    result = address_range(address, &start, &bytes);
    if (result == CUDA_SUCCESS && base)
        *base = start;
    if (result == CUDA_SUCCESS && size)
        *size = bytes;
    return result;
}

SIM_EXPORT CUresult cuMemGetAddressRange(CUdeviceptr_v1 *base, unsigned int *size,
                                         CUdeviceptr_v1 address)
{
    CUdeviceptr start;
    uint64_t bytes;
    CUresult result;

    SIM_ENTER(cuMemGetAddressRange);
    result = address_range(address, &start, &bytes);
    if (result == CUDA_SUCCESS && base)
        *base = (CUdeviceptr_v1)start;
    if (result == CUDA_SUCCESS && size)
        *size = saturated(bytes);
    return result;
}

/* ---- Advice about managed memory ---- */

static bool managed(CUdeviceptr address, uint64_t count)
{
    struct sim_range *range;
    bool all;

    sim_memory_lock();
    range = sim_range_find(address);
    all = range && range->kind == SIM_RANGE_MANAGED && count > 0 &&
          count <= range->base + range->bytes - address;
    sim_memory_unlock();
    return all;
}

#define CPU ((CUdevice)-1)

static CUresult place_known(const CUmemLocation *location)
{
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return sim_device(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Before locations there were devices, and -1 for the host. */
static CUmemLocation place_of(CUdevice device)
{
    return device == CPU ? (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST}
                         : (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

static CUresult advise(CUdeviceptr address, uint64_t count, CUmem_advise advice,
                       CUmemLocation location)
{
    CUresult result = CUDA_SUCCESS;

    switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        result = place_known(&location);
        break;
    default:
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result != CUDA_SUCCESS)
        return result;
    return managed(address, count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuMemAdvise(CUdeviceptr address, size_t count, CUmem_advise advice,
                                CUdevice device)
{
    SIM_ENTER(cuMemAdvise);
    return advise(address, count, advice, place_of(device));
}

SIM_EXPORT CUresult cuMemAdvise_v2(CUdeviceptr address, size_t count, CUmem_advise advice,
                                   CUmemLocation location)
{
    SIM_ENTER(cuMemAdvise_v2);
    return advise(address, count, advice, location);
}

static CUresult prefetch(CUdeviceptr address, uint64_t count, CUmemLocation location,
                         CUstream handle, bool per_thread)
{
    struct sim_work work = sim_copy_work(address, 0, count);
    bool capturing = false;
    CUstream stream;
    CUgraph graph;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);

    if (result == CUDA_SUCCESS)
        result = place_known(&location);
    if (result != CUDA_SUCCESS)
        return result;
    if (!managed(address, count))
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_stream_capturing(handle, per_thread, &capturing, &graph);
    if (result != CUDA_SUCCESS)
        return result;
    return capturing ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : sim_run(stream, &work);
}

SIM_EXPORT CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t count, CUdevice device,
                                       CUstream stream)
{
    SIM_ENTER(cuMemPrefetchAsync);
    return prefetch(address, count, place_of(device), stream, false);
}

SIM_EXPORT CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr address, size_t count, CUdevice device,
                                            CUstream stream)
{
    SIM_ENTER(cuMemPrefetchAsync_ptsz);
    return prefetch(address, count, place_of(device), stream, true);
}

SIM_EXPORT CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t count, CUmemLocation location,
                                          unsigned int flags, CUstream stream)
{
    SIM_ENTER(cuMemPrefetchAsync_v2);
    return flags ? CUDA_ERROR_INVALID_VALUE : prefetch(address, count, location, stream, false);
}

SIM_EXPORT CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr address, size_t count,
                                               CUmemLocation location, unsigned int flags,
                                               CUstream stream)
{
    SIM_ENTER(cuMemPrefetchAsync_v2_ptsz);
    return flags ? CUDA_ERROR_INVALID_VALUE : prefetch(address, count, location, stream, true);
}
