/* Physical allocations that are exported and imported. links: lib/hooks/allocations/vmm.c lib/memory/physical.c lib/memory/imports.c lib/memory/exports.c lib/hooks/allocations/multicast.c lib/hooks/allocations/tiles.c lib/hooks/allocations/intervals.c lib/base/slab.c lib/base/reset.c lib/memory/map.c lib/memory/pools.c lib/memory/pool_request.c lib/memory/pool_table.c lib/memory/reclaim.c lib/memory/late.c lib/memory/graph_memory.c lib/hooks/execution/graphs.c lib/hooks/execution/graph_instantiate.c lib/memory/graph_need.c lib/hooks/allocations/arrays.c lib/hooks/allocations/array_size.c lib/memory/request.c */
#include "vmm_fixture.h"

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

int main(void)
{
    an_open_descriptor_holds_memory_as_a_handle_does();
    another_file_under_a_descriptors_number_is_not_the_export();
    the_next_export_under_a_descriptors_number_ends_the_last();
    what_another_process_sent_may_have_the_number_of_our_own_export();
    exporting_again_and_again_takes_no_more_memory();
    our_own_export_come_back_holds_the_memory();
    memory_of_another_process_is_not_charged();
    an_export_to_a_fabric_is_no_reference_but_its_import_is();
    return report();
}
