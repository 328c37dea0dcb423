/* Which pool is charged: chosen, destroyed, given another handle. links: lib/hooks/allocations/async.c lib/memory/pools.c lib/memory/pool_request.c lib/memory/pool_table.c lib/hooks/allocations/pool_hooks.c lib/memory/reclaim.c lib/hooks/execution/waits.c lib/memory/late.c lib/memory/graph_memory.c lib/hooks/execution/graphs.c lib/hooks/execution/graph_instantiate.c lib/memory/graph_need.c lib/memory/physical.c lib/memory/imports.c lib/memory/exports.c lib/hooks/allocations/vmm.c lib/hooks/allocations/multicast.c lib/hooks/allocations/tiles.c lib/hooks/allocations/intervals.c lib/base/slab.c lib/base/reset.c lib/memory/map.c */
#include "pools_fixture.h"

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

int main(void)
{
    the_pools_device_is_charged_not_the_current_one();
    a_stream_of_another_device_takes_from_that_devices_pool();
    a_pool_chosen_while_we_ask_which_it_is_is_not_missed();
    a_pool_chosen_while_another_thread_allocates_is_not_what_that_is_charged_for();
    a_pool_destroyed_while_we_ask_which_it_is_is_not_touched();
    the_pool_chosen_for_a_device_serves_it_from_then_on();
    a_destroyed_pool_is_charged_until_its_last_allocation_is_freed();
    what_a_pool_caches_is_charged_until_it_is_destroyed();
    a_devices_own_pool_is_not_to_be_destroyed();
    pending_frees_of_a_destroyed_pool_are_charged_until_the_device_is_waited_for();
    records_of_pools_are_used_again();
    a_pool_whose_destruction_was_not_seen_is_another_when_its_handle_comes_again();
    return report();
}
