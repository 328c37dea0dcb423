/* Stream-ordered allocation. The pool is charged (pools.h); the map knows which pool an address
 * came from, because a free does not say.
 *
 * A captured allocation becomes a node of a graph and is charged when the graph runs (graphs.c). */
#include "driver/real.h"
#include "memory/graph_memory.h"
#include "memory/late.h"
#include "memory/map.h"
#include "memory/pool_request.h"
#include "memory/pool_table.h"
#include "program/capture.h"
#include "program/current.h"
#include "slice/devices.h"
#include "slice/slice.h"

/* Which of the four entry points was called. */
struct request {
    size_t bytes;
    CUmemoryPool handle; /* if from_pool */
    CUstream stream;
    bool from_pool;
    bool per_thread;
};

static CUresult driver_allocate(CUdeviceptr *address, const struct request *request)
{
    const struct hami_real *real = hami_real();

    if (request->from_pool)
        return request->per_thread
                   ? real->cuMemAllocFromPoolAsync_ptsz(address, request->bytes, request->handle,
                                                        request->stream)
                   : real->cuMemAllocFromPoolAsync(address, request->bytes, request->handle,
                                                   request->stream);
    return request->per_thread
               ? real->cuMemAllocAsync_ptsz(address, request->bytes, request->stream)
               : real->cuMemAllocAsync(address, request->bytes, request->stream);
}

static CUresult driver_free(CUdeviceptr address, CUstream stream, bool per_thread)
{
    return per_thread ? hami_real()->cuMemFreeAsync_ptsz(address, stream)
                      : hami_real()->cuMemFreeAsync(address, stream);
}

static CUresult row_of_context(CUcontext context, int *row)
{
    const struct hami_real *real = hami_real();
    CUcontext popped;
    CUdevice ordinal;
    CUresult result = real->cuCtxGetDevice_v2(&ordinal, context);

    if (result == CUDA_ERROR_NOT_SUPPORTED) { /* before CUDA 13 only the current context is asked */
        result = real->cuCtxPushCurrent_v2(context);
        if (result != CUDA_SUCCESS)
            return result;
        result = real->cuCtxGetDevice(&ordinal);
        real->cuCtxPopCurrent_v2(&popped);
    }
    if (result == CUDA_SUCCESS)
        *row = hami_row_of_ordinal(ordinal);
    return result;
}

/* The device whose pool serves a stream: the stream's, which need not be the current one. */
static CUresult row_of_stream(CUstream stream, bool per_thread, int *row)
{
    const struct hami_real *real = hami_real();
    CUcontext of_stream, current;

    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD ||
        hami_row_count() == 1)
        return hami_current_row(row);
    if ((per_thread ? real->cuStreamGetCtx_ptsz(stream, &of_stream)
                    : real->cuStreamGetCtx(stream, &of_stream)) != CUDA_SUCCESS ||
        real->cuCtxGetCurrent(&current) != CUDA_SUCCESS || of_stream == current)
        return hami_current_row(row);
    return row_of_context(of_stream, row);
}

static CUresult find_pool(const struct request *request, struct hami_pool **pool)
{
    CUresult result;
    int row;

    if (request->from_pool) {
        *pool = hami_pool_of(request->handle);
        return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = row_of_stream(request->stream, request->per_thread, &row);
    return result == CUDA_SUCCESS ? hami_pool_current(row, pool) : result;
}

/* The memory is there; enter it, unless the pool grew beyond the limit by it. */
static bool admit(struct hami_pool *pool, CUdeviceptr address, uint64_t bytes, uint64_t ahead)
{
    struct hami_entry old, entry = {.key = address, .bytes = bytes, .extra = (uintptr_t)pool,
                                    .row = pool->row, .kind = HAMI_KIND_ASYNC};

    if (!hami_pool_confirm(pool, ahead) || !hami_map_exchange(&entry, &old))
        return false;
    if (__builtin_expect(old.kind != HAMI_KIND_NONE, 0)) /* its end was not seen */
        hami_pool_freed_waited((struct hami_pool *)(uintptr_t)old.extra, old.bytes);
    return true;
}

static CUresult allocate_counted(CUdeviceptr *address, const struct request *request,
                                 struct hami_pool *pool)
{
    uint64_t bytes = hami_pool_size(request->bytes), ahead;
    struct request exact = *request;
    CUdeviceptr given;
    CUresult result;

    /* Which pool is the device's current one another thread may change before the driver looks. */
    exact.handle = pool->handle;
    exact.from_pool = true;
    if (bytes > HAMI_POOL_IMPOSSIBLE || !hami_pool_reserve(pool, bytes, &ahead))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = driver_allocate(&given, &exact);
    if (__builtin_expect(result != CUDA_SUCCESS, 0)) {
        hami_pool_cancel(pool, bytes, ahead);
        return result;
    }
    if (__builtin_expect(admit(pool, given, bytes, ahead), 1)) {
        *address = given;
        return CUDA_SUCCESS;
    }
    driver_free(given, request->stream, request->per_thread);
    hami_pool_cancel(pool, bytes, 0);
    hami_pools_settle(pool->row, true);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult allocate(CUdeviceptr *address, const struct request *request)
{
    struct hami_pool *pool;
    CUresult result;

    if (!hami_counting())
        return driver_allocate(address, request);
    if (hami_capturing(request->stream, request->per_thread)) {
        hami_graph_has_allocations();
        return driver_allocate(address, request);
    }
    /* What is wrong with a request is for the driver to say. */
    if (__builtin_expect(!address || request->bytes == 0, 0))
        return driver_allocate(address, request);
    result = hami_mode() == HAMI_MODE_CLOSED ? CUDA_ERROR_OUT_OF_MEMORY : find_pool(request, &pool);
    if (result != CUDA_SUCCESS)
        return result;
    result = pool->counted ? allocate_counted(address, request, pool)
                           : driver_allocate(address, request);
    if (!request->from_pool)
        hami_pool_leave(pool);
    return result;
}

HAMI_EXPORT CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    return allocate(address, &(struct request){.bytes = bytes, .stream = stream});
}

HAMI_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    return allocate(address,
                    &(struct request){.bytes = bytes, .stream = stream, .per_thread = true});
}

HAMI_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                             CUstream stream)
{
    return allocate(address, &(struct request){.bytes = bytes, .handle = pool, .stream = stream,
                                               .from_pool = true});
}

HAMI_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t bytes,
                                                  CUmemoryPool pool, CUstream stream)
{
    return allocate(address, &(struct request){.bytes = bytes, .handle = pool, .stream = stream,
                                               .from_pool = true, .per_thread = true});
}

/* What is not on record is the driver's to judge: memory that a graph left behind, or another
 * process's. */
static CUresult free_async(CUdeviceptr address, CUstream stream, bool per_thread)
{
    struct hami_entry entry;
    CUresult result;

    if (!hami_counting() || hami_capturing(stream, per_thread))
        return driver_free(address, stream, per_thread);
    if (!hami_map_take_memory(HAMI_KIND_ASYNC, address, &entry)) {
        hami_graph_left_freed();
        return driver_free(address, stream, per_thread);
    }
    result = driver_free(address, stream, per_thread);
    if (__builtin_expect(result != CUDA_SUCCESS, 0))
        hami_map_put(&entry);
    else if (entry.kind == HAMI_KIND_ASYNC)
        hami_pool_freed((struct hami_pool *)(uintptr_t)entry.extra, entry.bytes);
    else
        hami_late_free(&entry, stream, per_thread);
    return result;
}

HAMI_EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    return free_async(address, stream, false);
}

HAMI_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
    return free_async(address, stream, true);
}
