/* Memory pools between processes: a pool travels as a description, an allocation as 64 bytes that
 * name a piece of the pool in the ledger. */
#include <string.h>
#include <unistd.h>

#include "execution.h"
#include "memory_pools.h"
#include "memory_vmm.h"

#define MAGIC UINT64_C(0x7265746e696f706d)

struct pointer_data {
    uint64_t magic, serial, bytes, piece;
    int32_t pid, unused;
};
_Static_assert(sizeof(struct pointer_data) <= sizeof(CUmemPoolPtrExportData), "room for it");

SIM_EXPORT CUresult cuMemPoolExportToShareableHandle(void *handle, CUmemoryPool pool,
                                                     CUmemAllocationHandleType type,
                                                     unsigned long long flags)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    SIM_ENTER(cuMemPoolExportToShareableHandle);
    if (!sim_pointer(handle) || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    sim_memory_lock();
    if (sim_pool_known(pool) && !pool->imported && (pool->properties.handleTypes & type)) {
        struct sim_travelling what = {.kind = SIM_TRAVELS_POOL, .serial = pool->serial,
                                      .pool = pool->properties};
        int fd = sim_travel_send(&what);

        result = fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        if (fd >= 0)
            *(int *)handle = fd;
    }
    sim_memory_unlock();
    return result;
}

SIM_EXPORT CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle,
                                                       CUmemAllocationHandleType type,
                                                       unsigned long long flags)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct sim_travelling what;

    SIM_ENTER(cuMemPoolImportFromShareableHandle);
    if (!sim_pointer(pool) || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_travel_receive((int)(intptr_t)handle, &what) || what.kind != SIM_TRAVELS_POOL)
        return CUDA_ERROR_INVALID_VALUE;
    if (what.pool.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
        !sim_device(what.pool.location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_memory_lock();
    *pool = sim_pool_new(&what.pool);
    if (*pool) {
        (*pool)->imported = true;
        (*pool)->serial = what.serial;
        (*pool)->exporter = what.pid;
        result = CUDA_SUCCESS;
    } else {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_memory_unlock();
    return result;
}

/* Pools do not say which piece an allocation lies in; the largest keeps the most. */
static uint64_t largest_piece(const struct sim_reserve *reserve)
{
    struct sim_piece largest = {0};

    for (size_t i = 0; i < reserve->count; i++)
        if (reserve->pieces[i].bytes > largest.bytes)
            largest = reserve->pieces[i];
    return largest.id;
}

SIM_EXPORT CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *share, CUdeviceptr address)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct sim_range *range;

    SIM_ENTER(cuMemPoolExportPointer);
    if (!sim_pointer(share))
        return CUDA_ERROR_INVALID_VALUE;
    sim_memory_lock();
    range = sim_range_at(address);
    if (range && range->kind == SIM_RANGE_ASYNC) {
        CUmemoryPool pool = range->owner;

        if (!pool->imported && pool->properties.handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
            struct pointer_data data = {.magic = MAGIC, .serial = pool->serial,
                                        .bytes = range->bytes, .pid = (int32_t)getpid(),
                                        .piece = largest_piece(&pool->reserve)};

            memset(share, 0, sizeof(*share));
            memcpy(share, &data, sizeof(data));
            result = CUDA_SUCCESS;
        }
    }
    sim_memory_unlock();
    return result;
}

static CUresult import_pointer(CUmemoryPool pool, const struct pointer_data *data,
                               CUdeviceptr *address)
{
    struct sim_range like = {.bytes = data->bytes, .kind = SIM_RANGE_ASYNC, .owner = pool,
                             .ordinal = pool->reserve.ordinal};
    uint64_t bytes;
    CUresult result;

    if (!pool->imported || data->magic != MAGIC || data->bytes == 0 ||
        data->serial != pool->serial || data->pid != pool->exporter)
        return CUDA_ERROR_INVALID_VALUE;
    if (data->piece && !sim_process->local) {
        result = sim_share(data->piece, &like.part.id, &like.ordinal, &bytes);
        if (result != CUDA_SUCCESS)
            return result == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE : result;
    }
    like.base = sim_address(data->bytes, 512);
    if (!sim_range_add(&like)) {
        sim_give(like.part.id);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pool->live++;
    *address = like.base;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemPoolImportPointer(CUdeviceptr *address, CUmemoryPool pool,
                                           CUmemPoolPtrExportData *share)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct pointer_data data;

    SIM_ENTER(cuMemPoolImportPointer);
    if (!sim_pointer(address) || !sim_pointer(share))
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&data, share, sizeof(data));
    sim_memory_lock();
    if (sim_pool_known(pool))
        result = import_pointer(pool, &data, address);
    sim_memory_unlock();
    return result;
}
