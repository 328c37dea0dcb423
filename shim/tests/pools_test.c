/* Stream-ordered memory. links: lib/hooks/allocations/async.c lib/memory/pools.c lib/memory/pool_table.c lib/hooks/allocations/pool_hooks.c lib/memory/reclaim.c lib/memory/late.c lib/memory/graphs.c lib/hooks/work/graph_instantiate.c lib/memory/graph_need.c lib/memory/physical.c lib/memory/imports.c lib/memory/exports.c lib/hooks/allocations/vmm.c lib/hooks/allocations/multicast.c lib/hooks/allocations/tiles.c lib/hooks/allocations/intervals.c lib/base/slab.c lib/memory/map.c */
#include "fake_driver.h"

#define SLOW ((CUstream)0x5109) /* frees in it are pending until the device is waited for */

static CUdeviceptr allocate(uint64_t bytes)
{
    CUdeviceptr address = 0;

    return cuMemAllocAsync(&address, bytes, NULL) == CUDA_SUCCESS ? address : 0;
}

static bool refuses(uint64_t bytes)
{
    CUdeviceptr address = 77;

    return cuMemAllocAsync(&address, bytes, NULL) == CUDA_ERROR_OUT_OF_MEMORY && address == 77;
}

static void release(CUdeviceptr address)
{
    EXPECT(cuMemFreeAsync(address, NULL) == CUDA_SUCCESS);
}

static void wait_for_the_device(void)
{
    EXPECT(cuStreamSynchronize(NULL) == CUDA_SUCCESS);
}

static CUmemoryPool make_pool(CUmemLocationType type, int device)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = type, .id = device}};
    CUmemoryPool pool = NULL;

    EXPECT(cuMemPoolCreate(&pool, &properties) == CUDA_SUCCESS);
    return pool;
}

static CUdeviceptr allocate_from(CUmemoryPool pool, uint64_t bytes)
{
    CUdeviceptr address = 0;

    return cuMemAllocFromPoolAsync(&address, bytes, pool, NULL) == CUDA_SUCCESS ? address : 0;
}

/* The driver's own figure is what the account must say when nothing is under way. */
static bool charged_is_given(void)
{
    return fake_charged[0] == fake.given[0] && fake_charged[1] == fake.given[1];
}

static void a_pool_is_charged_what_it_reserved(void)
{
    CUdeviceptr address;

    fake_start(1000 * MIB);
    address = allocate(1000);
    EXPECT(address && fake_charged[0] == 32 * MIB && charged_is_given());
    release(address);
    EXPECT(fake_charged[0] == 32 * MIB);
    wait_for_the_device();
    EXPECT(fake_charged[0] == 0 && charged_is_given());
}

static void what_a_threshold_keeps_stays_charged_until_it_is_trimmed(void)
{
    cuuint64_t threshold = 64 * MIB;

    fake_start(1000 * MIB);
    EXPECT(cuMemPoolSetAttribute(fake_handle(0), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold) ==
           CUDA_SUCCESS);
    release(allocate(60 * MIB));
    wait_for_the_device();
    EXPECT(fake_charged[0] == 64 * MIB && charged_is_given());
    EXPECT(cuMemPoolTrimTo(fake_handle(0), 0) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 0 && charged_is_given());
}

static void over_the_limit_is_out_of_memory(void)
{
    CUdeviceptr address;

    fake_start(100 * MIB);
    address = allocate(90 * MIB);
    EXPECT(address && fake_charged[0] == 96 * MIB);
    EXPECT(refuses(10 * MIB));
    EXPECT(refuses(UINT64_MAX));
    EXPECT(refuses(UINT64_MAX / 2));
    EXPECT(allocate(6 * MIB)); /* fits into what is reserved */
    EXPECT(fake.peak[0] <= fake_limit && charged_is_given());
}

static void a_limit_is_reached_to_the_last_step(void)
{
    int count = 0;

    fake_start(100 * MIB);
    fake.step = 2 * MIB; /* learned from the first growth */
    while (allocate(2 * MIB))
        count++;
    EXPECT(count == 50 && fake.given[0] == 100 * MIB && fake.peak[0] == 100 * MIB);
}

static void cached_memory_is_given_back_before_a_request_is_refused(void)
{
    fake_start(128 * MIB);
    fake_pools[0].threshold = UINT64_MAX;
    release(allocate(60 * MIB));
    wait_for_the_device();
    EXPECT(fake.given[0] == 64 * MIB && fake.trims == 0);
    EXPECT(allocate(100 * MIB));
    EXPECT(fake.trims != 0 && fake.peak[0] <= fake_limit && charged_is_given());
}

static void another_pools_cache_is_given_back_too(void)
{
    CUmemoryPool pool;

    fake_start(128 * MIB);
    pool = make_pool(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    fake_pools[fake_pool_of(pool)].threshold = UINT64_MAX;
    release(allocate_from(pool, 90 * MIB));
    wait_for_the_device();
    EXPECT(fake_charged[0] == 96 * MIB);
    EXPECT(hami_memory_charge(0, 100 * MIB)); /* what cuMemAlloc does */
    EXPECT(fake_charged[0] == 100 * MIB && fake.given[0] == 0);
    hami_refund(0, 100 * MIB);
}

static void growth_that_is_found_afterwards_and_does_not_fit_is_undone(void)
{
    CUdeviceptr kept;

    fake_start(64 * MIB);
    kept = allocate(10 * MIB);
    fake.fragmented = 64 * MIB;
    fake.stuck = true;
    EXPECT(refuses(MIB));
    EXPECT(fake.given[0] == 32 * MIB && charged_is_given());
    release(kept);
    wait_for_the_device();
    EXPECT(charged_is_given() && fake.given[0] == 0);
}

static void growth_that_trimming_takes_back_is_no_reason_to_refuse(void)
{
    fake_start(64 * MIB);
    EXPECT(allocate(10 * MIB));
    fake.fragmented = 64 * MIB;
    EXPECT(allocate(MIB));
    EXPECT(fake.given[0] == 32 * MIB && charged_is_given());
}

static void growth_that_is_found_afterwards_and_fits_is_charged(void)
{
    fake_start(200 * MIB);
    EXPECT(allocate(10 * MIB));
    fake.fragmented = 64 * MIB;
    EXPECT(allocate(MIB));
    EXPECT(fake_charged[0] == 96 * MIB && charged_is_given());
}

static void a_captured_allocation_charges_nothing(void)
{
    CUdeviceptr address;

    fake_start(64 * MIB);
    fake_capturing = true;
    EXPECT(cuMemAllocAsync(&address, 900 * MIB, NULL) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 0);
    EXPECT(cuMemFreeAsync(address, NULL) == CUDA_SUCCESS);
}

static void the_pools_device_is_charged_not_the_current_one(void)
{
    CUmemoryPool pool;
    CUdeviceptr address;

    fake_start(64 * MIB);
    pool = make_pool(CU_MEM_LOCATION_TYPE_DEVICE, 1);
    address = allocate_from(pool, 40 * MIB);
    EXPECT(address && fake_charged[0] == 0 && fake_charged[1] == 64 * MIB);
    EXPECT(allocate(40 * MIB));
    EXPECT(allocate_from(pool, 40 * MIB) == 0);
    release(address);
    wait_for_the_device();
    EXPECT(fake_charged[1] == 0 && charged_is_given());
}

static void a_stream_of_another_device_takes_from_that_devices_pool(void)
{
    CUstream stream = (CUstream)((UINT64_C(1) << 16) + 0x40);
    CUdeviceptr address;

    fake_start(64 * MIB);
    EXPECT(cuMemAllocAsync(&address, 1000, stream) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 0 && fake_charged[1] == 32 * MIB && charged_is_given());
    EXPECT(cuMemAllocAsync_ptsz(&address, 1000, stream) == CUDA_SUCCESS);
    EXPECT(charged_is_given());
}

static CUmemoryPool chosen;

static void choose(void)
{
    EXPECT(cuDeviceSetMemPool(0, chosen) == CUDA_SUCCESS);
}

static void a_pool_chosen_while_we_ask_which_it_is_is_not_missed(void)
{
    fake_start(640 * MIB);
    chosen = make_pool(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    fake.meanwhile = choose;
    EXPECT(allocate(MIB));
    fake.fragmented = 64 * MIB;
    EXPECT(allocate(100 * MIB));
    EXPECT(fake.given[0] == 192 * MIB && fake_charged[0] >= 192 * MIB);
}

static CUresult allocate_when_another_was_chosen(CUdeviceptr *address, size_t bytes,
                                                 CUstream stream)
{
    choose();
    return fake_cuMemAllocAsync(address, bytes, stream);
}

static CUresult allocate_from_when_another_was_chosen(CUdeviceptr *address, size_t bytes,
                                                      CUmemoryPool pool, CUstream stream)
{
    choose();
    return fake_cuMemAllocFromPoolAsync(address, bytes, pool, stream);
}

static void a_pool_chosen_while_another_thread_allocates_is_not_what_that_is_charged_for(void)
{
    fake_start(640 * MIB);
    chosen = make_pool(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    EXPECT(allocate(MIB));
    fake_real.cuMemAllocAsync = allocate_when_another_was_chosen;
    fake_real.cuMemAllocFromPoolAsync = allocate_from_when_another_was_chosen;
    EXPECT(allocate(20 * MIB));
    fake_real.cuMemAllocAsync = fake_cuMemAllocAsync;
    fake_real.cuMemAllocFromPoolAsync = fake_cuMemAllocFromPoolAsync;
    EXPECT(charged_is_given());
}

static void destroy_the_chosen(void)
{
    EXPECT(cuMemPoolDestroy(chosen) == CUDA_SUCCESS);
}

static void a_pool_destroyed_while_we_ask_which_it_is_is_not_touched(void)
{
    fake_start(640 * MIB);
    chosen = make_pool(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    choose();
    fake.meanwhile = destroy_the_chosen;
    EXPECT(allocate(MIB) && charged_is_given() && fake_pools[0].used == MIB);
}

static void allocate_a_little(void)
{
    EXPECT(allocate(MIB));
}

static void an_allocation_while_a_pool_is_found_to_have_shrunk_is_charged(void)
{
    fake_start(640 * MIB);
    release(allocate(60 * MIB));
    fake.meanwhile = allocate_a_little; /* it fits into what is charged until the answer is used */
    wait_for_the_device();
    EXPECT(fake.given[0] == 32 * MIB && charged_is_given());
}

static void the_pool_chosen_for_a_device_serves_it_from_then_on(void)
{
    CUmemoryPool pool;

    fake_start(640 * MIB);
    EXPECT(allocate(1000));
    pool = make_pool(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    EXPECT(cuDeviceSetMemPool(0, pool) == CUDA_SUCCESS);
    EXPECT(allocate(100 * MIB));
    EXPECT(fake_pools[fake_pool_of(pool)].reserved == 128 * MIB && charged_is_given());
    EXPECT(cuMemPoolDestroy(pool) == CUDA_SUCCESS); /* the default pool serves it again */
    EXPECT(allocate(40 * MIB));
    EXPECT(charged_is_given() && fake_charged[0] == 128 * MIB + 64 * MIB);
}

static void a_destroyed_pool_is_charged_until_its_last_allocation_is_freed(void)
{
    CUmemoryPool pool;
    CUdeviceptr one, two;

    fake_start(640 * MIB);
    pool = make_pool(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    one = allocate_from(pool, 40 * MIB);
    two = allocate_from(pool, 10 * MIB);
    EXPECT(cuMemPoolDestroy(pool) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 64 * MIB && charged_is_given());
    release(one);
    wait_for_the_device();
    EXPECT(fake_charged[0] == 64 * MIB && charged_is_given());
    release(two);
    wait_for_the_device();
    EXPECT(fake_charged[0] == 0 && charged_is_given());
}

/* Other threads have their turn before the driver comes to it. */
static CUresult destroy_beside_others(CUmemoryPool pool)
{
    wait_for_the_device();
    EXPECT(fake_charged[0] == 64 * MIB && charged_is_given());
    EXPECT(!hami_memory_charge(0, 90 * MIB));
    return fake_cuMemPoolDestroy(pool);
}

static void what_a_pool_caches_is_charged_until_it_is_destroyed(void)
{
    CUmemoryPool pool;

    fake_start(100 * MIB);
    pool = make_pool(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    fake_pools[fake_pool_of(pool)].threshold = UINT64_MAX;
    release(allocate_from(pool, 60 * MIB));
    fake_real.cuMemPoolDestroy = destroy_beside_others;
    EXPECT(cuMemPoolDestroy(pool) == CUDA_SUCCESS);
    fake_real.cuMemPoolDestroy = fake_cuMemPoolDestroy;
    EXPECT(hami_memory_charge(0, 90 * MIB) && fake.given[0] == 0);
}

static void a_devices_own_pool_is_not_to_be_destroyed(void)
{
    fake_start(100 * MIB);
    fake_pools[0].threshold = UINT64_MAX;
    release(allocate(60 * MIB));
    fake_real.cuMemPoolDestroy = destroy_beside_others;
    EXPECT(cuMemPoolDestroy(fake_handle(0)) == CUDA_ERROR_INVALID_VALUE);
    fake_real.cuMemPoolDestroy = fake_cuMemPoolDestroy;
    EXPECT(fake_charged[0] == 64 * MIB && charged_is_given());
    EXPECT(allocate(90 * MIB) && charged_is_given() && fake.peak[0] <= fake_limit);
}

static void pending_frees_of_a_destroyed_pool_are_charged_until_the_device_is_waited_for(void)
{
    CUmemoryPool pool;

    fake_start(640 * MIB);
    pool = make_pool(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    EXPECT(cuMemFreeAsync(allocate_from(pool, 40 * MIB), SLOW) == CUDA_SUCCESS);
    EXPECT(cuMemPoolDestroy(pool) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 64 * MIB && charged_is_given());
    wait_for_the_device();
    EXPECT(fake_charged[0] == 0 && charged_is_given());
}

static void records_of_pools_are_used_again(void)
{
    fake_start(640 * MIB);
    for (int i = 0; i < 10000; i++) {
        CUmemoryPool pool = make_pool(CU_MEM_LOCATION_TYPE_DEVICE, i % 2);

        release(allocate_from(pool, MIB));
        EXPECT(cuMemPoolDestroy(pool) == CUDA_SUCCESS);
        wait_for_the_device();
    }
    EXPECT(charged_is_given() && fake.given[0] == 0 && fake.given[1] == 0);
    for (int i = 0; i < 10000; i++)
        EXPECT(cuMemPoolDestroy(make_pool(CU_MEM_LOCATION_TYPE_DEVICE, 0)) == CUDA_SUCCESS);
}

static void a_pool_whose_destruction_was_not_seen_is_another_when_its_handle_comes_again(void)
{
    CUmemoryPool pool, again;
    CUdeviceptr left, address;

    fake_start(640 * MIB);
    pool = make_pool(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    left = allocate_from(pool, 40 * MIB);
    release(left);
    EXPECT(fake_cuMemPoolDestroy(pool) == CUDA_SUCCESS);
    again = make_pool(CU_MEM_LOCATION_TYPE_DEVICE, 1);
    EXPECT(again == pool);
    address = allocate_from(again, 10 * MIB);
    EXPECT(address && fake_charged[1] == 32 * MIB);
    wait_for_the_device();
    EXPECT(charged_is_given());
}

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
    EXPECT(hami_memory_take(HAMI_KIND_LINEAR, address, &entry));
    EXPECT(!hami_memory_take(HAMI_KIND_LINEAR, address, &entry));
    EXPECT(fake_cuMemFreeAsync(address, NULL) == CUDA_SUCCESS);
    fake_synchronise(); /* cuMemFree waits */
    hami_async_freed(&entry);
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

static void within_the_reserve_an_allocation_costs_one_question_and_a_free_none(void)
{
    unsigned int asked;

    fake_start(640 * MIB);
    EXPECT(allocate(MIB));
    asked = fake.asked;
    for (int i = 0; i < 100; i++)
        release(allocate(MIB));
    EXPECT(fake.asked == asked + 100 && fake_charged[0] == 32 * MIB);
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

/* ---- Many threads ---- */

#define THREADS 6

static unsigned int random_below(unsigned int *state, unsigned int bound)
{
    *state = *state * 1664525 + 1013904223;
    return (*state >> 8) % bound;
}

static void *work(void *argument)
{
    unsigned int state = (unsigned int)(uintptr_t)argument;
    CUdeviceptr held[8] = {0};

    for (int i = 0; i < 4000; i++) {
        unsigned int which = random_below(&state, 8);

        if (random_below(&state, 40) == 0)
            wait_for_the_device();
        if (held[which])
            release(held[which]);
        held[which] = held[which] ? 0 : allocate((1 + random_below(&state, 300)) * (MIB / 16));
    }
    for (int i = 0; i < 8; i++)
        if (held[i])
            release(held[i]);
    return NULL;
}

static void threads_never_have_more_than_the_limit_together(void)
{
    pthread_t threads[THREADS];

    fake_start(96 * MIB);
    for (uintptr_t i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    EXPECT(fake.peak[0] <= fake_limit && fake.peak[0] >= fake_limit / 2);
    wait_for_the_device();
    EXPECT(fake_charged[0] == 0 && fake.given[0] == 0);
}

int main(void)
{
    a_pool_is_charged_what_it_reserved();
    what_a_threshold_keeps_stays_charged_until_it_is_trimmed();
    over_the_limit_is_out_of_memory();
    a_limit_is_reached_to_the_last_step();
    cached_memory_is_given_back_before_a_request_is_refused();
    another_pools_cache_is_given_back_too();
    growth_that_is_found_afterwards_and_does_not_fit_is_undone();
    growth_that_trimming_takes_back_is_no_reason_to_refuse();
    growth_that_is_found_afterwards_and_fits_is_charged();
    a_captured_allocation_charges_nothing();
    the_pools_device_is_charged_not_the_current_one();
    a_stream_of_another_device_takes_from_that_devices_pool();
    a_pool_chosen_while_we_ask_which_it_is_is_not_missed();
    a_pool_chosen_while_another_thread_allocates_is_not_what_that_is_charged_for();
    a_pool_destroyed_while_we_ask_which_it_is_is_not_touched();
    an_allocation_while_a_pool_is_found_to_have_shrunk_is_charged();
    the_pool_chosen_for_a_device_serves_it_from_then_on();
    a_destroyed_pool_is_charged_until_its_last_allocation_is_freed();
    what_a_pool_caches_is_charged_until_it_is_destroyed();
    a_devices_own_pool_is_not_to_be_destroyed();
    pending_frees_of_a_destroyed_pool_are_charged_until_the_device_is_waited_for();
    records_of_pools_are_used_again();
    a_pool_whose_destruction_was_not_seen_is_another_when_its_handle_comes_again();
    memory_of_the_host_is_not_counted();
    what_the_driver_refuses_is_not_charged();
    a_free_that_fails_leaves_everything_charged();
    cuMemFree_ends_stream_ordered_memory_too();
    memory_of_cuMemAlloc_freed_in_stream_order_is_charged_until_the_stream_is_there();
    without_a_slice_nothing_is_counted_and_without_limits_nothing_is_given();
    within_the_reserve_an_allocation_costs_one_question_and_a_free_none();
    a_shared_pool_is_charged_to_who_made_it_and_both_slots_say_so();
    threads_never_have_more_than_the_limit_together();
    return report();
}
