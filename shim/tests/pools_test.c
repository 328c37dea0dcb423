/* Stream-ordered memory. links: src/async.c src/pools.c src/pool_table.c src/pool_hooks.c src/settle.c src/graphs.c src/graph_need.c src/physical.c src/exports.c src/vmm.c src/multicast.c src/tiles.c src/intervals.c src/slab.c src/map.c */
#include "fake_driver.h"

#define SLOW_STREAM ((CUstream)0x5109) /* frees in it are pending until the device is waited for */

static CUdeviceptr allocate(uint64_t bytes)
{
    CUdeviceptr address = 0;

    return cuMemAllocAsync(&address, bytes, NULL) == CUDA_SUCCESS ? address : 0;
}

static void a_pool_is_charged_what_it_reserved(void)
{
    CUdeviceptr address;

    fake_start(1000 * MIB);
    address = allocate(1000);
    EXPECT(address && fake_charged[0] == 32 * MIB && fake_pools[0].reserved == 32 * MIB);
    EXPECT(cuMemFreeAsync(address, NULL) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 32 * MIB);
    EXPECT(cuStreamSynchronize(NULL) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 0 && fake.given[0] == 0);
}

static void what_is_kept_by_a_threshold_stays_charged_until_it_is_trimmed(void)
{
    cuuint64_t threshold = UINT64_MAX;
    CUmemoryPool pool;
    CUdeviceptr address;

    fake_start(1000 * MIB);
    EXPECT(cuDeviceGetMemPool == NULL || true);
    fake_real.cuDeviceGetMemPool(&pool, 0);
    EXPECT(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold) ==
           CUDA_SUCCESS);
    fake_pools[0].threshold = 64 * MIB;
    address = allocate(60 * MIB);
    EXPECT(cuMemFreeAsync(address, NULL) == CUDA_SUCCESS);
    EXPECT(cuStreamSynchronize(NULL) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 64 * MIB && fake.given[0] == 64 * MIB);
    EXPECT(cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 0 && fake.given[0] == 0);
}

int main(void)
{
    a_pool_is_charged_what_it_reserved();
    what_is_kept_by_a_threshold_stays_charged_until_it_is_trimmed();
    return report();
}
