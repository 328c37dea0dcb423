/* Physical allocations. links: lib/hooks/allocations/vmm.c lib/memory/physical.c lib/memory/imports.c lib/memory/exports.c lib/hooks/allocations/multicast.c lib/hooks/allocations/tiles.c lib/hooks/allocations/intervals.c lib/base/slab.c lib/memory/map.c lib/memory/pools.c lib/memory/pool_table.c lib/memory/reclaim.c lib/memory/late.c lib/memory/graphs.c lib/hooks/work/graph_instantiate.c lib/memory/graph_need.c lib/hooks/allocations/arrays.c lib/hooks/allocations/array_size.c lib/memory/request.c */
#include "fake_vmm.h"

static bool charged_is_given(void)
{
    return fake_charged[0] == given(0) && fake_charged[1] == given(1);
}

static CUresult create_on(CUmemLocationType type, int device, uint64_t size,
                          CUmemGenericAllocationHandle *handle)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = type, .id = device}};

    return cuMemCreate(handle, size, &properties, 0);
}

static CUmemGenericAllocationHandle create(uint64_t size)
{
    CUmemGenericAllocationHandle handle = 0;

    EXPECT(create_on(CU_MEM_LOCATION_TYPE_DEVICE, 0, size, &handle) == CUDA_SUCCESS);
    return handle;
}

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

static int export(CUmemGenericAllocationHandle handle)
{
    int fd = -1;

    EXPECT(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
           CUDA_SUCCESS);
    return fd;
}

static CUmemGenericAllocationHandle import(int fd)
{
    CUmemGenericAllocationHandle handle = 0;

    EXPECT(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ==
           CUDA_SUCCESS);
    return handle;
}

static void an_open_descriptor_holds_memory_as_a_handle_does(void)
{
    CUmemGenericAllocationHandle handle;
    int fd;

    fake_vmm_start(100 * MIB);
    handle = create(60 * MIB);
    fd = export(handle);
    EXPECT(fake_flags == HAMI_SLOT_EXPORTS);
    EXPECT(cuMemRelease(handle) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 60 * MIB && charged_is_given());
    EXPECT(create_on(CU_MEM_LOCATION_TYPE_DEVICE, 0, 50 * MIB, &handle) ==
           CUDA_ERROR_OUT_OF_MEMORY);
    close(fd);
    handle = create(50 * MIB); /* which looks again before it is refused */
    EXPECT(fake_charged[0] == 50 * MIB && charged_is_given());
    fd = export(handle);
    close(fd);
    EXPECT(cuMemRelease(handle) == CUDA_SUCCESS && fake_charged[0] == 0);
    handle = create(10 * MIB);
    fd = export(handle);
    EXPECT(cuMemRelease(handle) == CUDA_SUCCESS && fake_charged[0] == 10 * MIB);
    close(fd);
    hami_memory_settle(0);
    EXPECT(fake_charged[0] == 0);
}

static void another_file_under_a_descriptors_number_is_not_the_export(void)
{
    CUmemGenericAllocationHandle handle;
    int other = memfd_create("other", MFD_CLOEXEC), fd;

    fake_vmm_start(100 * MIB);
    handle = create(60 * MIB);
    fd = export(handle);
    EXPECT(dup2(other, fd) == fd);
    EXPECT(cuMemRelease(handle) == CUDA_SUCCESS && fake_charged[0] == 0 && charged_is_given());
    close(fd);
    close(other);
}

/* As a driver's descriptors are, which are all of one device. */
static int export_as_one_of_many(CUmemGenericAllocationHandle handle)
{
    struct object *object = &objects[handle - 0x100];
    struct stat now;

    fake_real.cuMemExportToShareableHandle = fake_export_as_device;
    object->fd = export(handle);
    EXPECT(fstat(object->fd, &now) == 0);
    object->exported = now.st_ino;
    return object->fd;
}

static void the_next_export_under_a_descriptors_number_ends_the_last(void)
{
    CUmemGenericAllocationHandle one, two;
    int fd;

    fake_vmm_start(100 * MIB);
    one = create(60 * MIB);
    two = create(30 * MIB);
    fd = export_as_one_of_many(one);
    EXPECT(cuMemRelease(one) == CUDA_SUCCESS && fake_charged[0] == 90 * MIB);
    close(fd);
    EXPECT(export_as_one_of_many(two) == fd);
    objects[one - 0x100].exported = 0;
    hami_memory_settle(0);
    EXPECT(fake_charged[0] == 30 * MIB && charged_is_given());
    EXPECT(cuMemRelease(two) == CUDA_SUCCESS && fake_charged[0] == 30 * MIB);
    close(fd);
    hami_memory_settle(0);
    EXPECT(fake_charged[0] == 0 && charged_is_given());
}

/* Its sender may die: what it had stays charged as long as somebody says that he imports. */
static void what_another_process_sent_may_have_the_number_of_our_own_export(void)
{
    CUmemGenericAllocationHandle own, other;
    int fd;

    fake_vmm_start(100 * MIB);
    own = create(60 * MIB);
    fd = export_as_one_of_many(own);
    close(fd);
    objects[own - 0x100].exported = 0;
    EXPECT(open("/dev/null", O_RDWR | O_CLOEXEC) == fd); /* as received */
    fake_flags = 0;
    other = import(fd);
    EXPECT(other != own && fake_flags == HAMI_SLOT_IMPORTS);
    EXPECT(cuMemRelease(other) == CUDA_SUCCESS && fake_flags == 0);
    EXPECT(cuMemRelease(own) == CUDA_SUCCESS);
    close(fd);
    hami_memory_settle(0);
    EXPECT(fake_charged[0] == 0);
}

static uint64_t memory_of_this_process(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    EXPECT(file && fscanf(file, "%*u %lu", &pages) == 1);
    if (file)
        fclose(file);
    return (uint64_t)pages * 4096;
}

static void exporting_again_and_again_takes_no_more_memory(void)
{
    CUmemGenericAllocationHandle handle;
    unsigned char fabric[64];
    uint64_t before;

    fake_vmm_start(100 * MIB);
    handle = create(2 * MIB);
    before = memory_of_this_process();
    for (int i = 0; i < 100000; i++) {
        close(export(handle));
        EXPECT(cuMemExportToShareableHandle(fabric, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0) ==
               CUDA_SUCCESS);
    }
    EXPECT(memory_of_this_process() - before < 4 * MIB);
    EXPECT(cuMemRelease(handle) == CUDA_SUCCESS && fake_charged[0] == 0);
}

static void our_own_export_come_back_holds_the_memory(void)
{
    CUmemGenericAllocationHandle handle, back;
    int fd;

    for (int same = 0; same < 2; same++) {
        fake_vmm_start(100 * MIB);
        same_handle_for_imports = same != 0;
        handle = create(60 * MIB);
        fd = export(handle);
        fake_flags = 0;
        back = import(fd);
        EXPECT(fake_flags == (same ? 0 : HAMI_SLOT_IMPORTS) && (back == handle) == (same != 0));
        EXPECT(cuMemRelease(handle) == CUDA_SUCCESS);
        close(fd);
        hami_memory_settle(0);
        EXPECT(fake_charged[0] == 60 * MIB && charged_is_given());
        EXPECT(cuMemMap(0x40000000, 60 * MIB, 0, back, 0) == CUDA_SUCCESS);
        EXPECT(cuMemRelease(back) == CUDA_SUCCESS);
        EXPECT(fake_charged[0] == 60 * MIB && charged_is_given());
        EXPECT(cuMemUnmap(0x40000000, 60 * MIB) == CUDA_SUCCESS);
        EXPECT(fake_charged[0] == 0 && charged_is_given());
    }
}

static void memory_of_another_process_is_not_charged(void)
{
    CUmemGenericAllocationHandle handle;
    int fd = memfd_create("theirs", MFD_CLOEXEC);

    fake_vmm_start(100 * MIB);
    handle = import(fd);
    EXPECT(fake_flags == HAMI_SLOT_IMPORTS && fake_charged[0] == 0);
    EXPECT(cuMemMap(0x40000000, 60 * MIB, 0, handle, 0) == CUDA_SUCCESS);
    EXPECT(cuMemRelease(handle) == CUDA_SUCCESS);
    EXPECT(fake_flags == HAMI_SLOT_IMPORTS);
    EXPECT(cuMemUnmap(0x40000000, 60 * MIB) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 0 && fake_flags == 0);
    close(fd);
}

static void an_export_to_a_fabric_is_no_reference_but_its_import_is(void)
{
    CUmemGenericAllocationHandle handle, back;
    unsigned char fabric[64];

    fake_vmm_start(100 * MIB);
    create(2 * MIB);
    handle = create(10 * MIB);
    EXPECT(cuMemExportToShareableHandle(fabric, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0) ==
           CUDA_SUCCESS);
    EXPECT(cuMemImportFromShareableHandle(&back, fabric, CU_MEM_HANDLE_TYPE_FABRIC) ==
           CUDA_SUCCESS);
    EXPECT(cuMemRelease(handle) == CUDA_SUCCESS && fake_charged[0] == 12 * MIB);
    EXPECT(charged_is_given());
    EXPECT(cuMemRelease(back) == CUDA_SUCCESS && fake_charged[0] == 2 * MIB);
    handle = create(10 * MIB);
    EXPECT(cuMemExportToShareableHandle(fabric, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0) ==
           CUDA_SUCCESS);
    EXPECT(cuMemRelease(handle) == CUDA_SUCCESS && fake_charged[0] == 2 * MIB);
}

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
    an_open_descriptor_holds_memory_as_a_handle_does();
    another_file_under_a_descriptors_number_is_not_the_export();
    the_next_export_under_a_descriptors_number_ends_the_last();
    what_another_process_sent_may_have_the_number_of_our_own_export();
    exporting_again_and_again_takes_no_more_memory();
    our_own_export_come_back_holds_the_memory();
    memory_of_another_process_is_not_charged();
    an_export_to_a_fabric_is_no_reference_but_its_import_is();
    what_is_bound_to_a_multicast_object_is_held();
    binding_an_address_holds_what_is_mapped_there();
    what_is_bound_to_a_logical_endpoint_is_held();
    memory_in_a_sparse_array_is_held_until_unmapped_replaced_or_the_array_goes();
    memory_in_the_next_array_of_the_same_handle_is_held();
    any_order_of_calls_charges_what_the_device_gave();
    return report();
}
