/* Physical allocations. links: lib/hooks/allocations/vmm.c lib/memory/physical.c lib/memory/imports.c lib/memory/exports.c lib/hooks/allocations/multicast.c lib/hooks/allocations/tiles.c lib/hooks/allocations/intervals.c lib/base/slab.c lib/base/reset.c lib/memory/map.c lib/memory/pools.c lib/memory/pool_request.c lib/memory/pool_table.c lib/memory/reclaim.c lib/memory/late.c lib/memory/graph_memory.c lib/hooks/execution/graphs.c lib/hooks/execution/graph_instantiate.c lib/memory/graph_need.c lib/hooks/allocations/arrays.c lib/hooks/allocations/array_size.c lib/memory/request.c */
#include "vmm_fixture.h"

static void memory_is_charged_until_it_is_released_and_unmapped(void)
{
    CUmemGenericAllocationHandle handle;

    fake_vmm_start(100 * MIB);
    handle = create(60 * MIB);
    EXPECT(fake_charged[0] == 60 * MIB);
    EXPECT(cuMemMap(0x40000000, 60 * MIB, 0, handle, 0) == CUDA_SUCCESS);
    EXPECT(cuMemRelease(handle) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 60 * MIB && charged_is_given());
    EXPECT(cuMemUnmap(0x40000000, 60 * MIB) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 0 && charged_is_given());
    handle = create(20 * MIB);
    EXPECT(cuMemMap(0x40000000, 20 * MIB, 0, handle, 0) == CUDA_SUCCESS);
    EXPECT(cuMemUnmap(0x40000000, 20 * MIB) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 20 * MIB);
    EXPECT(cuMemRelease(handle) == CUDA_SUCCESS && fake_charged[0] == 0);
}

static void over_the_limit_is_out_of_memory(void)
{
    CUmemGenericAllocationHandle handle = 77;

    fake_vmm_start(100 * MIB);
    create(60 * MIB);
    EXPECT(create_on(CU_MEM_LOCATION_TYPE_DEVICE, 0, 42 * MIB, &handle) ==
           CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(handle == 77 && fake_charged[0] == 60 * MIB);
    EXPECT(create_on(CU_MEM_LOCATION_TYPE_DEVICE, 1, 100 * MIB, &handle) == CUDA_SUCCESS);
    EXPECT(fake_charged[1] == 100 * MIB && charged_is_given());
    EXPECT(create_on(CU_MEM_LOCATION_TYPE_DEVICE, 9, MIB, &handle) == CUDA_ERROR_INVALID_DEVICE);
    EXPECT(create_on(CU_MEM_LOCATION_TYPE_HOST, 0, 900 * MIB, &handle) == CUDA_SUCCESS);
    EXPECT(cuMemRelease(handle) == CUDA_SUCCESS && charged_is_given());
}

static void what_the_driver_refuses_changes_nothing(void)
{
    CUmemGenericAllocationHandle handle;

    fake_vmm_start(100 * MIB);
    refuse_next = true;
    EXPECT(create_on(CU_MEM_LOCATION_TYPE_DEVICE, 0, MIB, &handle) == CUDA_ERROR_ILLEGAL_STATE);
    EXPECT(fake_charged[0] == 0);
    handle = create(10 * MIB);
    refuse_next = true;
    EXPECT(cuMemMap(0x40000000, 10 * MIB, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
    refuse_next = true;
    EXPECT(cuMemRelease(handle) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(fake_charged[0] == 10 * MIB);
    EXPECT(cuMemMap(0x40000000, 10 * MIB, 0, handle, 0) == CUDA_SUCCESS);
    EXPECT(cuMemRelease(handle) == CUDA_SUCCESS);
    refuse_next = true;
    EXPECT(cuMemUnmap(0x40000000, 10 * MIB) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(fake_charged[0] == 10 * MIB);
    EXPECT(cuMemRelease(handle) == CUDA_ERROR_INVALID_VALUE); /* once too often */
    EXPECT(cuMemUnmap(0x40000000, 10 * MIB) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 0 && charged_is_given());
}

static void one_unmapping_may_end_several_mappings(void)
{
    CUmemGenericAllocationHandle one, two;

    fake_vmm_start(100 * MIB);
    one = create(10 * MIB);
    two = create(20 * MIB);
    EXPECT(cuMemMap(0x40000000, 10 * MIB, 0, one, 0) == CUDA_SUCCESS);
    EXPECT(cuMemMap(0x40000000 + 10 * MIB, 20 * MIB, 0, two, 0) == CUDA_SUCCESS);
    EXPECT(cuMemMap(0x90000000, 20 * MIB, 0, two, 0) == CUDA_SUCCESS); /* a second time */
    EXPECT(cuMemRelease(one) == CUDA_SUCCESS && cuMemRelease(two) == CUDA_SUCCESS);
    EXPECT(cuMemUnmap(0x40000000, 30 * MIB) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 20 * MIB && charged_is_given());
    EXPECT(cuMemUnmap(0x90000000, 20 * MIB) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 0 && charged_is_given());
}

static void a_retained_handle_holds_memory_and_any_address_of_a_mapping_will_do(void)
{
    CUmemGenericAllocationHandle handle, again = 0;

    fake_vmm_start(100 * MIB);
    handle = create(10 * MIB);
    EXPECT(cuMemMap(0x40000000, 10 * MIB, 0, handle, 0) == CUDA_SUCCESS);
    EXPECT(cuMemRelease(handle) == CUDA_SUCCESS);
    EXPECT(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(0x40000000 + 7 * MIB)) ==
           CUDA_SUCCESS);
    EXPECT(cuMemUnmap(0x40000000, 10 * MIB) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 10 * MIB && charged_is_given());
    EXPECT(cuMemRelease(again) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 0 && charged_is_given());
    EXPECT(cuMemRetainAllocationHandle(&again, (void *)0x40000000) == CUDA_ERROR_INVALID_VALUE);
}

static void a_handle_that_is_given_out_again_is_another_allocation(void)
{
    CUmemGenericAllocationHandle first, second;

    fake_vmm_start(100 * MIB);
    for (int i = 0; i < 1000; i++) {
        first = create(10 * MIB);
        EXPECT(cuMemRelease(first) == CUDA_SUCCESS);
        second = create(30 * MIB);
        EXPECT(first == second && fake_charged[0] == 30 * MIB);
        EXPECT(cuMemRelease(second) == CUDA_SUCCESS && fake_charged[0] == 0);
    }
}

static void a_release_that_was_not_seen_ends_when_its_handle_comes_again(void)
{
    CUmemGenericAllocationHandle handle;

    fake_vmm_start(100 * MIB);
    handle = create(10 * MIB);
    EXPECT(fake_cuMemRelease(handle) == CUDA_SUCCESS); /* past the library */
    EXPECT(create(30 * MIB) == handle);
    EXPECT(fake_charged[0] == 30 * MIB && charged_is_given());
}

static CUmemGenericAllocationHandle created_meanwhile;

static void create_another(void)
{
    created_meanwhile = create(30 * MIB);
}

static void a_handle_may_be_given_out_again_before_its_release_returns(void)
{
    CUmemGenericAllocationHandle handle;

    fake_vmm_start(100 * MIB);
    handle = create(10 * MIB);
    fake.meanwhile = create_another;
    EXPECT(cuMemRelease(handle) == CUDA_SUCCESS && created_meanwhile == handle);
    EXPECT(fake_charged[0] == 30 * MIB && charged_is_given());
    EXPECT(cuMemRelease(handle) == CUDA_SUCCESS && fake_charged[0] == 0);
}

static void a_mapping_whose_end_was_not_seen_ends_with_the_next_one_there(void)
{
    CUmemGenericAllocationHandle one, two;

    fake_vmm_start(100 * MIB);
    one = create(10 * MIB);
    EXPECT(cuMemMap(0x40000000, 10 * MIB, 0, one, 0) == CUDA_SUCCESS);
    EXPECT(cuMemRelease(one) == CUDA_SUCCESS);
    EXPECT(fake_cuMemUnmap(0x40000000, 10 * MIB) == CUDA_SUCCESS); /* past the library */
    two = create(4 * MIB);
    EXPECT(cuMemMap(0x40000000 + 8 * MIB, 4 * MIB, 0, two, 0) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 4 * MIB && charged_is_given());
}

/* ---- Any order of calls, against the driver's rules ---- */

static uint64_t state = 1;

static unsigned int below(unsigned int bound)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (unsigned int)(state >> 33) % bound;
}

static void step(CUmemGenericAllocationHandle *held, int *count)
{
    CUdeviceptr place = 0x40000000 + below(16) * 64 * MIB;
    CUmemGenericAllocationHandle handle = *count ? held[below((unsigned int)*count)] : 0;
    bool there = false;

    for (int i = 0; i < MAPPINGS; i++)
        there = there || (mapped[i].end != 0 && mapped[i].start == place);
    refuse_next = below(8) == 0;
    switch (below(5)) {
    case 0:
        if (*count < 24 && create_on(CU_MEM_LOCATION_TYPE_DEVICE, (int)below(2),
                                     (1 + below(16)) * 2 * MIB, &held[*count]) == CUDA_SUCCESS)
            ++*count;
        break;
    case 1:
        if (handle && cuMemRelease(handle) == CUDA_SUCCESS)
            for (int i = 0; i < *count; i++)
                if (held[i] == handle) {
                    held[i] = held[--*count];
                    break;
                }
        break;
    case 2:
        if (handle && !there)
            cuMemMap(place, 64 * MIB, 0, handle, 0);
        break;
    case 3:
        cuMemUnmap(place, (1 + below(3)) * 64 * MIB);
        break;
    default:
        refuse_next = false;
        if (*count < 24 && there &&
            cuMemRetainAllocationHandle(
                &held[*count], (void *)(uintptr_t)(place + below(64) * MIB)) == CUDA_SUCCESS)
            ++*count;
    }
}

static void any_order_of_calls_charges_what_the_device_gave(void)
{
    CUmemGenericAllocationHandle held[24];
    int count = 0;

    fake_vmm_start(200 * MIB);
    for (int i = 0; i < 50000; i++) {
        step(held, &count);
        EXPECT(charged_is_given() && given(0) <= 200 * MIB && given(1) <= 200 * MIB);
        if (failures)
            return;
    }
}

int main(void)
{
    memory_is_charged_until_it_is_released_and_unmapped();
    over_the_limit_is_out_of_memory();
    what_the_driver_refuses_changes_nothing();
    one_unmapping_may_end_several_mappings();
    a_retained_handle_holds_memory_and_any_address_of_a_mapping_will_do();
    a_handle_that_is_given_out_again_is_another_allocation();
    a_release_that_was_not_seen_ends_when_its_handle_comes_again();
    a_handle_may_be_given_out_again_before_its_release_returns();
    a_mapping_whose_end_was_not_seen_ends_with_the_next_one_there();
    any_order_of_calls_charges_what_the_device_gave();
    return report();
}
