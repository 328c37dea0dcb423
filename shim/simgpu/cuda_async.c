/* Stream-ordered allocations. What is freed is the pool's again at once: whoever gets it next is
 * ordered behind by the driver, which the counters of a pool do not show. */
#include "execution.h"
#include "memory_local.h"
#include "memory_pools.h"

/* Whether a call into this stream may be a node of a graph instead, or may be refused. */
static inline bool plain(CUstream stream)
{
    return !(atomic_load_explicit(&stream->attention, memory_order_relaxed) &
             SIM_ATTENTION_CAPTURE) &&
           !(stream->legacy && atomic_load_explicit(&stream->context->blocking_captures,
                                                    memory_order_relaxed));
}

/* The node's address is fixed now; its memory comes with each launch. */
static CUresult capture_alloc(CUstream handle, bool per_thread, CUdevice ordinal, size_t bytes,
                              CUdeviceptr *address)
{
    struct sim_captured operation = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, .ordinal = ordinal,
                                     .address = sim_address(bytes, 512), .bytes = bytes};
    CUresult result = sim_capture_add(handle, per_thread, &operation);

    if (result == CUDA_SUCCESS)
        *address = operation.address;
    return result;
}

static CUresult allocate_slowly(CUstream handle, bool per_thread, CUstream stream,
                                CUmemoryPool pool, size_t bytes, CUdeviceptr *address)
{
    bool capturing = false, known = true;
    CUdevice ordinal = stream->context->ordinal;
    CUresult result = sim_stream_capturing(handle, per_thread, &capturing, &(CUgraph){NULL});

    if (result != CUDA_SUCCESS)
        return result;
    sim_memory_lock();
    if (!pool)
        pool = sim_pool_current(ordinal);
    known = pool && sim_pool_known(pool) && !pool->imported;
    if (known)
        ordinal = pool->reserve.ordinal;
    if (known && !capturing)
        result = sim_pool_allocate(pool, stream->context, bytes, address);
    sim_memory_unlock();
    if (!known)
        return CUDA_ERROR_INVALID_VALUE;
    return capturing ? capture_alloc(handle, per_thread, ordinal, bytes, address) : result;
}

static inline CUresult allocate(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                CUstream handle, bool per_thread)
{
    CUdeviceptr found;
    CUstream stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);

    if (SIM_UNLIKELY(result != CUDA_SUCCESS))
        return result;
    if (SIM_UNLIKELY(!sim_pointer(address) || bytes == 0))
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_process->local && !pool && sim_pool_is_default(stream->context->ordinal) &&
        plain(stream)) {
        found = sim_local_alloc(stream->context->ordinal, bytes, true);
        if (!found)
            return CUDA_ERROR_OUT_OF_MEMORY;
        *address = found;
        return CUDA_SUCCESS;
    }
    return allocate_slowly(handle, per_thread, stream, pool, bytes, address);
}

SIM_EXPORT CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    SIM_ENTER(cuMemAllocAsync);
    return allocate(address, bytes, NULL, stream, false);
}

SIM_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    SIM_ENTER(cuMemAllocAsync_ptsz);
    return allocate(address, bytes, NULL, stream, true);
}

SIM_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                            CUstream stream)
{
    SIM_ENTER(cuMemAllocFromPoolAsync);
    return sim_pointer(pool) ? allocate(address, bytes, pool, stream, false)
                             : CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t bytes,
                                                 CUmemoryPool pool, CUstream stream)
{
    SIM_ENTER(cuMemAllocFromPoolAsync_ptsz);
    return sim_pointer(pool) ? allocate(address, bytes, pool, stream, true)
                             : CUDA_ERROR_INVALID_VALUE;
}

static CUresult release_slowly(CUdeviceptr address, CUstream handle, bool per_thread)
{
    struct sim_captured operation = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .address = address};
    CUresult result;
    struct sim_range *range;
    bool capturing = false;

    result = sim_stream_capturing(handle, per_thread, &capturing, &(CUgraph){NULL});
    if (result != CUDA_SUCCESS)
        return result;
    if (capturing)
        return sim_capture_add(handle, per_thread, &operation);
    result = CUDA_ERROR_INVALID_VALUE;
    sim_memory_lock();
    range = sim_range_at(address);
    if (range && range->kind == SIM_RANGE_ASYNC) {
        result = sim_range_free(range);
    } else if (range && range->kind == SIM_RANGE_LINEAR) {
        sim_range_free_later(range);
        result = CUDA_SUCCESS;
    }
    sim_memory_unlock();
    if (result != CUDA_SUCCESS && sim_graph_memory_free(address))
        return CUDA_SUCCESS;
    return result;
}

static inline CUresult release(CUdeviceptr address, CUstream handle, bool per_thread)
{
    CUstream stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);

    if (SIM_UNLIKELY(result != CUDA_SUCCESS))
        return result;
    if (sim_process->local && plain(stream) && sim_local_free(address))
        return CUDA_SUCCESS;
    return release_slowly(address, handle, per_thread);
}

SIM_EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    SIM_ENTER(cuMemFreeAsync);
    return release(address, stream, false);
}

SIM_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
    SIM_ENTER(cuMemFreeAsync_ptsz);
    return release(address, stream, true);
}
