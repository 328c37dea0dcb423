/* A pool's life: made, chosen for a device, trimmed, shared, destroyed. Its charge is in pools.c.
 *
 * A pool of another process is not charged here: whoever exported it is. */
#include "driver/real.h"
#include "memory/imports.h"
#include "memory/pool_table.h"
#include "memory/pools.h"
#include "slice/devices.h"
#include "slice/slice.h"
#include "slice/slot_words.h"

HAMI_EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    CUmemoryPool made;
    CUresult result;
    bool counted;
    int row;

    if (!hami_counting() || !pool || !properties)
        return hami_real()->cuMemPoolCreate(pool, properties);
    result = hami_real()->cuMemPoolCreate(&made, properties);
    if (result != CUDA_SUCCESS)
        return result;
    counted = hami_location_row(&properties->location, properties->allocType, &row);
    if (!hami_pool_add(made, row, counted, true)) {
        hami_real()->cuMemPoolDestroy(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pool = made;
    return CUDA_SUCCESS;
}

HAMI_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    struct hami_pool *record;
    CUresult result;

    if (!hami_counting())
        return hami_real()->cuMemPoolDestroy(pool);
    record = hami_pool_destroying(pool);
    if (!record)
        return hami_real()->cuMemPoolDestroy(pool);
    result = hami_real()->cuMemPoolDestroy(pool);
    if (result == CUDA_SUCCESS) {
        hami_pool_current_changed(); /* its device goes back to the default pool */
        hami_pool_destroyed(record, pool);
    } else {
        hami_pool_kept(record);
    }
    return result;
}

/* After a call that may have made the driver give memory back. */
static void settle(CUmemoryPool pool)
{
    struct hami_pool *record = hami_pool_of(pool);

    if (record && record->counted)
        hami_pool_settle(record);
}

HAMI_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t bytes_to_keep)
{
    CUresult result = hami_real()->cuMemPoolTrimTo(pool, bytes_to_keep);

    if (result == CUDA_SUCCESS && hami_counting())
        settle(pool);
    return result;
}

HAMI_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                                           void *value)
{
    CUresult result = hami_real()->cuMemPoolSetAttribute(pool, attribute, value);

    if (result == CUDA_SUCCESS && attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && hami_counting())
        settle(pool);
    return result;
}

HAMI_EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    CUresult result = hami_real()->cuDeviceSetMemPool(device, pool);

    if (result == CUDA_SUCCESS && hami_counting())
        hami_pool_current_changed();
    return result;
}

HAMI_EXPORT CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type,
                                     CUmemoryPool pool)
{
    CUresult result = hami_real()->cuMemSetMemPool(location, type, pool);

    if (result == CUDA_SUCCESS && hami_counting())
        hami_pool_current_changed();
    return result;
}

HAMI_EXPORT CUresult cuMemPoolExportToShareableHandle(void *handle, CUmemoryPool pool,
                                                      CUmemAllocationHandleType type,
                                                      unsigned long long flags)
{
    CUresult result = hami_real()->cuMemPoolExportToShareableHandle(handle, pool, type, flags);

    if (result == CUDA_SUCCESS && hami_counting())
        hami_slot_flag(HAMI_SLOT_EXPORTS);
    return result;
}

HAMI_EXPORT CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle,
                                                        CUmemAllocationHandleType type,
                                                        unsigned long long flags)
{
    CUresult result;

    if (!hami_counting())
        return hami_real()->cuMemPoolImportFromShareableHandle(pool, handle, type, flags);
    hami_import_begins();
    result = hami_real()->cuMemPoolImportFromShareableHandle(pool, handle, type, flags);
    /* Without a record the driver would be asked what it is, with the same outcome: nothing can be
     * allocated from an imported pool. */
    if (result == CUDA_SUCCESS)
        hami_pool_add(*pool, HAMI_ROW_NONE, false, true);
    else
        hami_import_ends();
    return result;
}

HAMI_EXPORT CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *share, CUdeviceptr address)
{
    CUresult result = hami_real()->cuMemPoolExportPointer(share, address);

    if (result == CUDA_SUCCESS && hami_counting())
        hami_slot_flag(HAMI_SLOT_EXPORTS);
    return result;
}

HAMI_EXPORT CUresult cuMemPoolImportPointer(CUdeviceptr *address, CUmemoryPool pool,
                                            CUmemPoolPtrExportData *share)
{
    CUresult result;

    if (!hami_counting())
        return hami_real()->cuMemPoolImportPointer(address, pool, share);
    hami_import_begins();
    result = hami_real()->cuMemPoolImportPointer(address, pool, share);
    if (result != CUDA_SUCCESS)
        hami_import_ends();
    return result;
}
