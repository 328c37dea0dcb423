/* What the tests of pools have in common. */
#ifndef HAMI_TESTS_POOLS_FIXTURE_H
#define HAMI_TESTS_POOLS_FIXTURE_H

#include "fake_driver.h"

#define SLOW ((CUstream)0x5109) /* frees in it are pending until the device is waited for */

static inline CUdeviceptr allocate(uint64_t bytes)
{
    CUdeviceptr address = 0;

    return cuMemAllocAsync(&address, bytes, NULL) == CUDA_SUCCESS ? address : 0;
}

static inline bool refuses(uint64_t bytes)
{
    CUdeviceptr address = 77;

    return cuMemAllocAsync(&address, bytes, NULL) == CUDA_ERROR_OUT_OF_MEMORY && address == 77;
}

static inline void release(CUdeviceptr address)
{
    EXPECT(cuMemFreeAsync(address, NULL) == CUDA_SUCCESS);
}

static inline void wait_for_the_device(void)
{
    EXPECT(cuStreamSynchronize(NULL) == CUDA_SUCCESS);
}

static inline CUmemoryPool make_pool(CUmemLocationType type, int device)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = type, .id = device}};
    CUmemoryPool pool = NULL;

    EXPECT(cuMemPoolCreate(&pool, &properties) == CUDA_SUCCESS);
    return pool;
}

static inline CUdeviceptr allocate_from(CUmemoryPool pool, uint64_t bytes)
{
    CUdeviceptr address = 0;

    return cuMemAllocFromPoolAsync(&address, bytes, pool, NULL) == CUDA_SUCCESS ? address : 0;
}

/* The driver's own figure is what the account must say when nothing is under way. */
static inline bool charged_is_given(void)
{
    return fake_charged[0] == fake.given[0] && fake_charged[1] == fake.given[1];
}

#endif
