/* What the tests of vmm have in common. */
#ifndef HAMI_TESTS_VMM_FIXTURE_H
#define HAMI_TESTS_VMM_FIXTURE_H

#include "fake_vmm.h"

static inline bool charged_is_given(void)
{
    return fake_charged[0] == given(0) && fake_charged[1] == given(1);
}

static inline CUresult create_on(CUmemLocationType type, int device, uint64_t size,
                          CUmemGenericAllocationHandle *handle)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = type, .id = device}};

    return cuMemCreate(handle, size, &properties, 0);
}

static inline CUmemGenericAllocationHandle create(uint64_t size)
{
    CUmemGenericAllocationHandle handle = 0;

    EXPECT(create_on(CU_MEM_LOCATION_TYPE_DEVICE, 0, size, &handle) == CUDA_SUCCESS);
    return handle;
}

#endif
