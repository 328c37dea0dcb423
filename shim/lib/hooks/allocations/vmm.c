/* Memory that is made, mapped and released separately. Programs release the handle right after
 * mapping; the memory lives on, so a charge goes by what refers to it (physical.h).
 *
 * What is counted is changed before the driver's call where that keeps memory charged, and after it
 * where that ends it. */
#include "hooks/allocations/vmm.h"

#include "base/reset.h"
#include "base/slab.h"
#include "driver/real.h"
#include "hooks/allocations/intervals.h"
#include "memory/account.h"
#include "memory/exports.h"
#include "memory/imports.h"
#include "memory/pool_table.h"
#include "memory/reclaim.h"
#include "slice/devices.h"
#include "slice/slice.h"
#include "slice/slot_words.h"

static struct hami_intervals mappings; /* value: struct hami_physical */
static struct hami_slab slab = HAMI_SLAB(struct hami_interval);

void hami_vmm_reset(void)
{
    mappings.root = NULL;
    slab.free = NULL;
}

HAMI_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                                 const CUmemAllocationProp *properties, unsigned long long flags)
{
    CUmemGenericAllocationHandle made;
    struct hami_physical *physical;
    CUresult result;
    int row;

    if (!hami_counting() || !handle || !properties ||
        !hami_location_row(&properties->location, properties->type, &row))
        return hami_real()->cuMemCreate(handle, size, properties, flags);
    if (!hami_memory_charge(row, size))
        return row == HAMI_ROW_NONE ? hami_device_refused(properties->location.id)
                                    : CUDA_ERROR_OUT_OF_MEMORY;
    result = hami_real()->cuMemCreate(&made, size, properties, flags);
    if (result != CUDA_SUCCESS) {
        hami_refund(row, size);
        return result;
    }
    hami_physical_lock();
    physical = hami_physical_add(made, row, size);
    hami_physical_unlock();
    if (!physical) {
        hami_real()->cuMemRelease(made);
        hami_refund(row, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = made;
    return CUDA_SUCCESS;
}

/* What a handle stands for, kept while a call is under way. */
static struct hami_physical *enter(CUmemGenericAllocationHandle handle)
{
    struct hami_physical *physical;

    hami_physical_lock();
    physical = hami_physical_of(handle);
    if (physical)
        hami_physical_use(physical);
    hami_physical_unlock();
    return physical;
}

HAMI_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct hami_physical *physical;
    CUresult result;

    if (!hami_counting())
        return hami_real()->cuMemRelease(handle);
    physical = enter(handle);
    result = hami_real()->cuMemRelease(handle);
    if (physical) {
        hami_physical_lock();
        if (result == CUDA_SUCCESS)
            hami_physical_release(physical);
        hami_physical_unuse(physical);
        hami_physical_unlock();
    }
    return result;
}

static void end_mapping(struct hami_interval *mapping)
{
    hami_physical_unuse(mapping->value);
    hami_slab_give(&slab, mapping);
}

/* With the lock. The driver maps nothing over a mapping: what is recorded there has ended. */
static void begin_mapping(struct hami_interval *mapping)
{
    struct hami_interval *ended;

    while ((ended = hami_intervals_take_overlapping(&mappings, mapping->start, mapping->end)))
        end_mapping(ended);
    hami_intervals_put(&mappings, mapping);
}

HAMI_EXPORT CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset,
                              CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    struct hami_physical *physical;
    struct hami_interval *mapping = NULL;
    CUresult result;

    if (!hami_counting())
        return hami_real()->cuMemMap(address, size, offset, handle, flags);
    hami_physical_lock();
    physical = hami_physical_of(handle);
    if (physical && (mapping = hami_slab_take(&slab)) != NULL)
        hami_physical_use(physical);
    hami_physical_unlock();
    if (!physical) /* memory of the host */
        return hami_real()->cuMemMap(address, size, offset, handle, flags);
    if (!mapping)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mapping->start = address;
    mapping->end = address + size;
    mapping->value = physical;
    result = hami_real()->cuMemMap(address, size, offset, handle, flags);
    hami_physical_lock();
    if (result == CUDA_SUCCESS)
        begin_mapping(mapping);
    else
        end_mapping(mapping);
    hami_physical_unlock();
    return result;
}

/* A range may span several mappings, each as a whole. They are taken out before the driver's call:
 * another thread may map there as soon as it returns. */
HAMI_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
    struct hami_interval *mapping, *taken = NULL;
    CUresult result;

    if (!hami_counting())
        return hami_real()->cuMemUnmap(address, size);
    hami_physical_lock();
    while ((mapping = hami_intervals_take_within(&mappings, address, address + size)) != NULL) {
        mapping->left = taken;
        taken = mapping;
    }
    hami_physical_unlock();
    result = hami_real()->cuMemUnmap(address, size);
    if (!taken)
        return result;
    hami_physical_lock();
    while ((mapping = taken) != NULL) {
        taken = mapping->left;
        if (result == CUDA_SUCCESS)
            end_mapping(mapping);
        else
            hami_intervals_put(&mappings, mapping);
    }
    hami_physical_unlock();
    return result;
}

struct hami_physical *hami_mapped_in(uint64_t *start, uint64_t end)
{
    struct hami_interval *mapping = hami_intervals_first(&mappings, *start, end);

    if (!mapping)
        return NULL;
    *start = mapping->end;
    return mapping->value;
}

/* With the lock. Another handle of the same memory, or one more reference to the same; NULL: of
 * another process. `import`: it may be of another process whatever it looks like. */
static bool add_handle(struct hami_physical *physical, CUmemGenericAllocationHandle handle,
                       bool import)
{
    struct hami_physical *known = hami_physical_of(handle), *added;

    if (known && (known == physical || known->backing == physical || !physical)) {
        known->handles++;
        hami_physical_use(known); /* no orphan any more */
        hami_physical_unuse(known);
        return true;
    }
    added = hami_physical_add(handle, HAMI_ROW_NONE, 0);
    if (added && physical) {
        added->backing = physical;
        hami_physical_use(physical);
    }
    if (added && import) {
        added->import = true;
        hami_import_begins();
    }
    return added != NULL;
}

/* Takes any address inside a mapping; the driver answers with the handle it was mapped by. */
HAMI_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle,
                                                 void *address)
{
    struct hami_interval *mapping;
    struct hami_physical *physical = NULL;
    CUresult result;
    bool known = true;

    if (!hami_counting() || !handle)
        return hami_real()->cuMemRetainAllocationHandle(handle, address);
    hami_physical_lock();
    mapping = hami_intervals_find(&mappings, (uintptr_t)address);
    if (mapping) {
        physical = mapping->value;
        hami_physical_use(physical);
    }
    hami_physical_unlock();
    result = hami_real()->cuMemRetainAllocationHandle(handle, address);
    if (!physical)
        return result;
    hami_physical_lock();
    if (result == CUDA_SUCCESS)
        known = add_handle(physical, *handle, false);
    hami_physical_unuse(physical);
    hami_physical_unlock();
    if (!known) {
        hami_real()->cuMemRelease(*handle);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

HAMI_EXPORT CUresult cuMemExportToShareableHandle(void *shareable,
                                                  CUmemGenericAllocationHandle handle,
                                                  CUmemAllocationHandleType type,
                                                  unsigned long long flags)
{
    struct hami_physical *physical, *closed;
    CUresult result;

    if (!hami_counting())
        return hami_real()->cuMemExportToShareableHandle(shareable, handle, type, flags);
    physical = enter(handle);
    result = hami_real()->cuMemExportToShareableHandle(shareable, handle, type, flags);
    if (result == CUDA_SUCCESS)
        hami_slot_flag(HAMI_SLOT_EXPORTS);
    if (physical) {
        hami_physical_lock();
        closed = result == CUDA_SUCCESS ? hami_export_add(physical, shareable, type) : NULL;
        if (closed)
            hami_physical_ended(closed);
        hami_physical_unuse(physical);
        hami_physical_unlock();
    }
    return result;
}

/* Memory of another process is charged to that process. Our own, come back, is held by one more;
 * but a descriptor that looks like our own export may be one that another process sent, under the
 * number of ours (exports.c). */
HAMI_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                                    void *shareable,
                                                    CUmemAllocationHandleType type)
{
    struct hami_physical *source;
    CUmemGenericAllocationHandle made;
    CUresult result;
    bool known = true;

    if (!hami_counting() || !handle || (type == CU_MEM_HANDLE_TYPE_FABRIC && !shareable))
        return hami_real()->cuMemImportFromShareableHandle(handle, shareable, type);
    hami_physical_lock();
    source = hami_export_source(shareable, type);
    if (source)
        hami_physical_use(source);
    hami_physical_unlock();
    hami_import_begins();
    result = hami_real()->cuMemImportFromShareableHandle(&made, shareable, type);
    hami_physical_lock();
    if (result == CUDA_SUCCESS)
        known = add_handle(source, made, type != CU_MEM_HANDLE_TYPE_FABRIC || !source);
    if (source)
        hami_physical_unuse(source);
    hami_physical_unlock();
    hami_import_ends(); /* that of this call: the record has its own */
    if (result != CUDA_SUCCESS)
        return result;
    if (!known) {
        hami_real()->cuMemRelease(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = made;
    return CUDA_SUCCESS;
}
