/* Stream-ordered memory that is not charged, or not here: of the host, of others, freed in other ways. links: lib/hooks/allocations/async.c lib/memory/pools.c lib/memory/pool_request.c lib/memory/pool_table.c lib/hooks/allocations/pool_hooks.c lib/memory/reclaim.c lib/hooks/execution/waits.c lib/memory/late.c lib/memory/graph_memory.c lib/hooks/execution/graphs.c lib/hooks/execution/graph_instantiate.c lib/memory/graph_need.c lib/memory/physical.c lib/memory/imports.c lib/memory/exports.c lib/hooks/allocations/vmm.c lib/hooks/allocations/multicast.c lib/hooks/allocations/tiles.c lib/hooks/allocations/intervals.c lib/base/slab.c lib/base/reset.c lib/memory/map.c */
#include "pools_fixture.h"

static void memory_of_the_host_is_not_counted(void)
{
    CUmemoryPool pool;
    CUdeviceptr address;

    fake_start(32 * MIB);
    pool = make_pool(CU_MEM_LOCATION_TYPE_HOST, 0);
    address = allocate_from(pool, 900 * MIB);
    EXPECT(address && fake_charged[0] == 0);
    release(address);
}

static void what_the_driver_refuses_is_not_charged(void)
{
    CUdeviceptr address;

    fake_start(640 * MIB);
    fake.refuse = CUDA_ERROR_ILLEGAL_ADDRESS;
    EXPECT(cuMemAllocAsync(&address, 100 * MIB, NULL) == CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT(fake_charged[0] == 0);
    EXPECT(cuMemFreeAsync(0xdead, NULL) == CUDA_ERROR_INVALID_VALUE);
}

static void a_free_that_fails_leaves_everything_charged(void)
{
    CUdeviceptr address;

    fake_start(640 * MIB);
    address = allocate(40 * MIB);
    for (int i = 0; i < FAKE_ALLOCATIONS; i++)
        if (fake_allocations[i].address == address)
            fake_allocations[i].address = 1;
    EXPECT(cuMemFreeAsync(address, NULL) == CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < FAKE_ALLOCATIONS; i++)
        if (fake_allocations[i].address == 1)
            fake_allocations[i].address = address;
    EXPECT(fake_charged[0] == 64 * MIB);
    release(address);
    wait_for_the_device();
    EXPECT(fake_charged[0] == 0);
}

static void cuMemFree_ends_stream_ordered_memory_too(void)
{
    struct hami_entry entry;
    CUdeviceptr address;

    fake_start(640 * MIB);
    address = allocate(40 * MIB);
    EXPECT(hami_map_take_memory(HAMI_KIND_LINEAR, address, &entry));
    EXPECT(!hami_map_take_memory(HAMI_KIND_LINEAR, address, &entry));
    EXPECT(fake_cuMemFreeAsync(address, NULL) == CUDA_SUCCESS);
    fake_synchronise(); /* cuMemFree waits */
    hami_pool_freed_waited((struct hami_pool *)(uintptr_t)entry.extra, entry.bytes);
    EXPECT(fake_charged[0] == 0 && charged_is_given());
}

static bool stream_is_done;
static int events; /* that there are */

static CUresult fake_cuEventCreate(CUevent *event, unsigned int flags)
{
    EXPECT(flags == CU_EVENT_DISABLE_TIMING);
    *event = (CUevent)(uintptr_t)(0x600 + 16 * ++events);
    return CUDA_SUCCESS;
}

static CUresult fake_cuEventRecord(CUevent event, CUstream stream)
{
    EXPECT(event);
    return stream == SLOW ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

static CUresult fake_cuEventQuery(CUevent event)
{
    EXPECT(event);
    return stream_is_done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult fake_cuEventSynchronize(CUevent event)
{
    EXPECT(event && stream_is_done); /* never waits */
    return CUDA_SUCCESS;
}

static CUresult fake_cuEventDestroy(CUevent event)
{
    EXPECT(event);
    events--;
    return CUDA_SUCCESS;
}

static CUresult fake_push(CUcontext context)
{
    EXPECT(context);
    return CUDA_SUCCESS;
}

static CUresult fake_pop(CUcontext *context)
{
    *context = NULL;
    return CUDA_SUCCESS;
}

static void allocated_plainly(uint64_t address, uint64_t bytes)
{
    struct hami_entry entry = {.key = address, .bytes = bytes, .kind = HAMI_KIND_LINEAR};

    EXPECT(hami_charge(0, bytes) && hami_map_put(&entry));
    fake_allocations[0] = (struct fake_allocation){.address = address};
}

static void memory_of_cuMemAlloc_freed_in_stream_order_is_charged_until_the_stream_is_there(void)
{
    fake_start(100 * MIB);
    fake_real.cuEventCreate = fake_cuEventCreate;
    fake_real.cuEventRecord = fake_real.cuEventRecord_ptsz = fake_cuEventRecord;
    fake_real.cuEventQuery = fake_cuEventQuery;
    fake_real.cuEventSynchronize = fake_cuEventSynchronize;
    fake_real.cuEventDestroy_v2 = fake_cuEventDestroy;
    fake_real.cuCtxPushCurrent_v2 = fake_push;
    fake_real.cuCtxPopCurrent_v2 = fake_pop;
    stream_is_done = false;
    allocated_plainly(0x7000, 60 * MIB);
    EXPECT(cuMemFreeAsync(0x7000, NULL) == CUDA_SUCCESS && fake_charged[0] == 60 * MIB);
    wait_for_the_device(); /* for another stream */
    EXPECT(!hami_memory_charge(0, 50 * MIB) && fake_charged[0] == 60 * MIB);
    stream_is_done = true;
    EXPECT(hami_memory_charge(0, 50 * MIB) && fake_charged[0] == 50 * MIB && events == 0);
    /* The driver gave the address out again: it was there. */
    stream_is_done = false;
    allocated_plainly(0x7000, 20 * MIB);
    EXPECT(cuMemFreeAsync_ptsz(0x7000, NULL) == CUDA_SUCCESS);
    allocated_plainly(0x7000, 30 * MIB);
    EXPECT(cuMemFreeAsync(0x7000, NULL) == CUDA_SUCCESS && fake_charged[0] == 80 * MIB);
    stream_is_done = true;
    wait_for_the_device();
    EXPECT(fake_charged[0] == 50 * MIB);
    /* Nobody will tell. */
    allocated_plainly(0x7000, 20 * MIB);
    EXPECT(cuMemFreeAsync(0x7000, SLOW) == CUDA_SUCCESS && fake_charged[0] == 50 * MIB);
    /* It went with its context, and the event too. */
    stream_is_done = false;
    allocated_plainly(0x7000, 20 * MIB);
    EXPECT(cuMemFreeAsync(0x7000, NULL) == CUDA_SUCCESS && fake_charged[0] == 70 * MIB);
    hami_map_drop_context((CUcontext)0x1000);
    EXPECT(fake_charged[0] == 50 * MIB);
    wait_for_the_device();
}

static void without_a_slice_nothing_is_counted_and_without_limits_nothing_is_given(void)
{
    fake_start(MIB);
    atomic_store(&hami_process->mode, HAMI_MODE_FREE);
    EXPECT(allocate(40 * MIB) && fake_charged[0] == 0 && fake.asked == 0);
    atomic_store(&hami_process->mode, HAMI_MODE_CLOSED);
    EXPECT(refuses(1000));
    atomic_store(&hami_process->mode, HAMI_MODE_SLICE);
}

static CUresult fake_export(void *handle, CUmemoryPool pool, CUmemAllocationHandleType type,
                            unsigned long long flags)
{
    (void)handle;
    (void)pool;
    (void)type;
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult fake_import(CUmemoryPool *pool, void *handle, CUmemAllocationHandleType type,
                            unsigned long long flags)
{
    (void)handle;
    (void)type;
    EXPECT(fake_flags & HAMI_SLOT_IMPORTS); /* who exports it may die meanwhile */
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    fake_pools[7] = (struct fake_pool){.exists = true, .reserved = 900 * MIB, .host = true};
    *pool = fake_handle(7);
    return CUDA_SUCCESS;
}

static void a_shared_pool_is_charged_to_who_made_it_and_both_slots_say_so(void)
{
    CUmemoryPool pool;

    fake_start(640 * MIB);
    fake_real.cuMemPoolExportToShareableHandle = fake_export;
    fake_real.cuMemPoolImportFromShareableHandle = fake_import;
    EXPECT(cuMemPoolExportToShareableHandle(NULL, fake_handle(0), 1, 1) ==
           CUDA_ERROR_INVALID_VALUE);
    EXPECT(fake_flags == 0);
    EXPECT(cuMemPoolExportToShareableHandle(NULL, fake_handle(0), 1, 0) == CUDA_SUCCESS);
    EXPECT(fake_flags == HAMI_SLOT_EXPORTS);
    EXPECT(cuMemPoolImportFromShareableHandle(&pool, NULL, 1, 1) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(fake_flags == HAMI_SLOT_EXPORTS);
    EXPECT(cuMemPoolImportFromShareableHandle(&pool, NULL, 1, 0) == CUDA_SUCCESS);
    EXPECT(fake_flags == (HAMI_SLOT_EXPORTS | HAMI_SLOT_IMPORTS));
    wait_for_the_device();
    EXPECT(fake_charged[0] == 0);
    EXPECT(cuMemPoolDestroy(pool) == CUDA_SUCCESS && fake_charged[0] == 0);
}

int main(void)
{
    memory_of_the_host_is_not_counted();
    what_the_driver_refuses_is_not_charged();
    a_free_that_fails_leaves_everything_charged();
    cuMemFree_ends_stream_ordered_memory_too();
    memory_of_cuMemAlloc_freed_in_stream_order_is_charged_until_the_stream_is_there();
    without_a_slice_nothing_is_counted_and_without_limits_nothing_is_given();
    a_shared_pool_is_charged_to_who_made_it_and_both_slots_say_so();
    return report();
}
