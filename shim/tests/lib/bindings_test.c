/* Physical allocations that are bound or mapped into arrays. links: lib/hooks/allocations/vmm.c lib/memory/physical.c lib/memory/imports.c lib/memory/exports.c lib/hooks/allocations/multicast.c lib/hooks/allocations/tiles.c lib/hooks/allocations/intervals.c lib/base/slab.c lib/base/reset.c lib/memory/map.c lib/memory/pools.c lib/memory/pool_request.c lib/memory/pool_table.c lib/memory/reclaim.c lib/memory/late.c lib/memory/graph_memory.c lib/hooks/execution/graphs.c lib/hooks/execution/graph_instantiate.c lib/memory/graph_need.c lib/hooks/allocations/arrays.c lib/hooks/allocations/array_size.c lib/memory/request.c */
#include "vmm_fixture.h"

static void what_is_bound_to_a_multicast_object_is_held(void)
{
    CUmemGenericAllocationHandle multicast, one, two;
    CUmulticastObjectProp properties = {.numDevices = 2, .size = 40 * MIB};

    fake_vmm_start(100 * MIB);
    EXPECT(cuMulticastCreate(&multicast, &properties) == CUDA_SUCCESS && fake_charged[0] == 0);
    one = create(10 * MIB);
    two = create(20 * MIB);
    EXPECT(cuMulticastBindMem(multicast, 0, one, 0, 10 * MIB, 0) == CUDA_SUCCESS);
    EXPECT(cuMulticastBindMem(multicast, 10 * MIB, two, 0, 20 * MIB, 0) == CUDA_SUCCESS);
    EXPECT(cuMemRelease(one) == CUDA_SUCCESS && cuMemRelease(two) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 30 * MIB && charged_is_given());
    EXPECT(cuMulticastUnbind(multicast, 1, 0, 10 * MIB) == CUDA_SUCCESS); /* not that device's */
    EXPECT(fake_charged[0] == 30 * MIB);
    EXPECT(cuMulticastUnbind(multicast, 0, 0, 10 * MIB) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 20 * MIB);
    one = create(4 * MIB);
    refuse_next = true;
    EXPECT(cuMulticastBindMem(multicast, 0, one, 0, 4 * MIB, 0) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemMap(0x90000000, 40 * MIB, 0, multicast, 0) == CUDA_SUCCESS);
    EXPECT(cuMemRelease(multicast) == CUDA_SUCCESS && fake_charged[0] == 24 * MIB);
    EXPECT(cuMemUnmap(0x90000000, 40 * MIB) == CUDA_SUCCESS); /* the object goes, and the binding */
    EXPECT(fake_charged[0] == 4 * MIB);
}

static void binding_an_address_holds_what_is_mapped_there(void)
{
    CUmemGenericAllocationHandle multicast, one, two;
    CUmulticastObjectProp properties = {.numDevices = 1, .size = 40 * MIB};

    fake_vmm_start(100 * MIB);
    EXPECT(cuMulticastCreate(&multicast, &properties) == CUDA_SUCCESS);
    one = create(10 * MIB);
    two = create(20 * MIB);
    EXPECT(cuMemMap(0x40000000, 10 * MIB, 0, one, 0) == CUDA_SUCCESS);
    EXPECT(cuMemMap(0x40000000 + 10 * MIB, 20 * MIB, 0, two, 0) == CUDA_SUCCESS);
    EXPECT(cuMulticastBindAddr_v2(multicast, 0, 0, 0x40000000 + 5 * MIB, 20 * MIB, 0) ==
           CUDA_SUCCESS);
    EXPECT(cuMemRelease(one) == CUDA_SUCCESS && cuMemRelease(two) == CUDA_SUCCESS);
    EXPECT(cuMemUnmap(0x40000000, 30 * MIB) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 30 * MIB && charged_is_given());
    EXPECT(cuMulticastUnbind(multicast, 0, 0, 20 * MIB) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 0 && charged_is_given());
}

static void what_is_bound_to_a_logical_endpoint_is_held(void)
{
    CUmemGenericAllocationHandle one, two;
    void *address = (void *)(uintptr_t)0x40000000;

    fake_vmm_start(100 * MIB);
    one = create(10 * MIB);
    two = create(20 * MIB);
    EXPECT(cuMemMap((uintptr_t)address, 20 * MIB, 0, two, 0) == CUDA_SUCCESS);
    EXPECT(cuLogicalEndpointBindMem(7, 0, 0, one, 0, 10 * MIB, 0) == CUDA_SUCCESS);
    EXPECT(cuLogicalEndpointBindAddr(8, 0, 0, address, 20 * MIB, 0) == CUDA_SUCCESS);
    EXPECT(cuMemRelease(one) == CUDA_SUCCESS && cuMemRelease(two) == CUDA_SUCCESS);
    EXPECT(cuMemUnmap((uintptr_t)address, 20 * MIB) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 30 * MIB && charged_is_given());
    EXPECT(cuLogicalEndpointDestroy(9) == CUDA_SUCCESS && fake_charged[0] == 30 * MIB);
    EXPECT(cuLogicalEndpointUnbind(7, 1, 0, 10 * MIB) == CUDA_SUCCESS); /* not that device's */
    EXPECT(fake_charged[0] == 30 * MIB);
    refuse_next = true;
    EXPECT(cuLogicalEndpointUnbind(7, 0, 0, 10 * MIB) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(fake_charged[0] == 30 * MIB);
    EXPECT(cuLogicalEndpointUnbind(7, 0, 0, 10 * MIB) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 20 * MIB);
    refuse_next = true;
    EXPECT(cuLogicalEndpointDestroy(8) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(fake_charged[0] == 20 * MIB);
    EXPECT(cuLogicalEndpointDestroy(8) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 0 && charged_is_given());
    one = create(4 * MIB);
    refuse_next = true;
    EXPECT(cuLogicalEndpointBindMem(7, 0, 0, one, 0, 4 * MIB, 0) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemRelease(one) == CUDA_SUCCESS && fake_charged[0] == 0);
}

static CUarrayMapInfo tile(uintptr_t array, unsigned int x, CUmemGenericAllocationHandle memory)
{
    CUarrayMapInfo map = {
        .resourceType = CU_RESOURCE_TYPE_ARRAY,
        .subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL,
        .memOperationType = memory ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP,
    };

    map.resource.array = (CUarray)array;
    map.subresource.sparseLevel.offsetX = x;
    map.subresource.sparseLevel.extentWidth = 64;
    map.subresource.sparseLevel.extentHeight = 64;
    map.subresource.sparseLevel.extentDepth = 1;
    map.memHandle.memHandle = memory;
    return map;
}

static CUresult fake_cuArrayDestroy(CUarray array)
{
    (void)array;
    if (taken_or(CUDA_SUCCESS) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_HANDLE;
    let_others();
    return CUDA_SUCCESS;
}

static void memory_in_a_sparse_array_is_held_until_unmapped_replaced_or_the_array_goes(void)
{
    CUmemGenericAllocationHandle one, two, three;
    CUarrayMapInfo maps[3];

    fake_vmm_start(100 * MIB);
    one = create(10 * MIB);
    two = create(20 * MIB);
    three = create(4 * MIB);
    fake_real.cuArrayDestroy = fake_cuArrayDestroy;
    maps[0] = tile(0xaaaa, 0, one);
    maps[1] = tile(0xaaaa, 64, two);
    maps[2] = tile(0xbbbb, 0, three);
    EXPECT(cuMemMapArrayAsync(maps, 3, NULL) == CUDA_SUCCESS);
    EXPECT(cuMemRelease(one) == CUDA_SUCCESS && cuMemRelease(two) == CUDA_SUCCESS &&
           cuMemRelease(three) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 34 * MIB);
    maps[0] = tile(0xaaaa, 0, 0);
    refuse_next = true;
    EXPECT(cuMemMapArrayAsync(maps, 1, NULL) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(fake_charged[0] == 34 * MIB);
    EXPECT(cuMemMapArrayAsync_ptsz(maps, 1, NULL) == CUDA_SUCCESS && fake_charged[0] == 24 * MIB);
    one = create(6 * MIB);
    maps[0] = tile(0xaaaa, 64, one);
    EXPECT(cuMemMapArrayAsync(maps, 1, NULL) == CUDA_SUCCESS && fake_charged[0] == 10 * MIB);
    EXPECT(cuMemRelease(one) == CUDA_SUCCESS && fake_charged[0] == 10 * MIB);
    EXPECT(cuArrayDestroy((CUarray)0xaaaa) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 4 * MIB);
    EXPECT(cuArrayDestroy((CUarray)0xbbbb) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 0);
}

static CUmemGenericAllocationHandle mapped_meanwhile;

/* The driver gives a handle out again at once. */
static void map_into_the_next_array(void)
{
    CUarrayMapInfo map = tile(0xaaaa, 0, mapped_meanwhile);

    EXPECT(cuMemMapArrayAsync(&map, 1, NULL) == CUDA_SUCCESS);
    EXPECT(cuMemRelease(mapped_meanwhile) == CUDA_SUCCESS);
}

static void memory_in_the_next_array_of_the_same_handle_is_held(void)
{
    CUarrayMapInfo map;
    CUmemGenericAllocationHandle memory;

    fake_vmm_start(100 * MIB);
    memory = create(10 * MIB);
    mapped_meanwhile = create(20 * MIB);
    map = tile(0xaaaa, 0, memory);
    EXPECT(cuMemMapArrayAsync(&map, 1, NULL) == CUDA_SUCCESS);
    EXPECT(cuMemRelease(memory) == CUDA_SUCCESS);
    refuse_next = true;
    EXPECT(cuArrayDestroy((CUarray)0xaaaa) == CUDA_ERROR_INVALID_HANDLE);
    EXPECT(fake_charged[0] == 30 * MIB);
    fake.meanwhile = map_into_the_next_array;
    EXPECT(cuArrayDestroy((CUarray)0xaaaa) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 20 * MIB);
    EXPECT(cuArrayDestroy((CUarray)0xaaaa) == CUDA_SUCCESS && fake_charged[0] == 0);
}

int main(void)
{
    what_is_bound_to_a_multicast_object_is_held();
    binding_an_address_holds_what_is_mapped_there();
    what_is_bound_to_a_logical_endpoint_is_held();
    memory_in_a_sparse_array_is_held_until_unmapped_replaced_or_the_array_goes();
    memory_in_the_next_array_of_the_same_handle_is_held();
    return report();
}
