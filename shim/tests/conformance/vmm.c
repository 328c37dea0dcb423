/* Memory by handle: cuMemCreate, reservations, mappings, access, multicast. */
#include "check.h"

static CUmemAllocationProp on_device(void)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

    properties.location.id = device;
    return properties;
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes)
{
    CUmemAllocationProp properties = on_device();

    return cuMemCreate(handle, bytes, &properties, 0);
}

static CUresult allow(CUdeviceptr address, size_t bytes, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .flags = flags};

    access.location.id = device;
    return cuMemSetAccess(address, bytes, &access, 1);
}

/* ---- Life and death ---- */

static const char *memory_stays_while_a_handle_or_a_mapping_needs_it(void)
{
    size_t before = available(), bytes = part_of_free(8);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;

    OK(create(&handle, bytes));
    SO(before - available() == bytes);
    OK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    OK(cuMemMap(address, bytes, 0, handle, 0));
    OK(cuMemRelease(handle));
    SO(before - available() >= bytes);
    OK(cuMemUnmap(address, bytes));
    SO(available() + 16 * MIB >= before);
    OK(create(&handle, bytes));
    OK(cuMemMap(address, bytes, 0, handle, 0));
    OK(cuMemUnmap(address, bytes));
    SO(before - available() >= bytes);
    OK(cuMemRelease(handle));
    SO(available() + 16 * MIB >= before);
    OK(cuMemAddressFree(address, bytes));
    return NULL;
}

static const char *memory_is_retained_by_any_address_inside(void)
{
    size_t before = available(), bytes = part_of_free(8);
    CUmemGenericAllocationHandle handle, again = 0;
    CUdeviceptr address;

    OK(create(&handle, bytes));
    OK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    OK(cuMemMap(address, bytes, 0, handle, 0));
    OK(cuMemRelease(handle));
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(address + bytes / 2 + 123)));
    SO(again == handle);
    OK(cuMemUnmap(address, bytes));
    SO(before - available() >= bytes);
    OK(cuMemRelease(again));
    SO(available() + 16 * MIB >= before);
    FAILS(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)address));
    OK(cuMemAddressFree(address, bytes));
    return NULL;
}

static const char *memory_by_handle_outlives_a_context(void)
{
    size_t before = available(), bytes = part_of_free(8);
    CUmemGenericAllocationHandle handle;
    CUcontext context;

    OK(cuCtxCreate_v2(&context, 0, device));
    OK(create(&handle, bytes));
    OK(cuCtxDestroy_v2(context));
    OK(cuCtxSetCurrent(primary));
    SO(before - available() >= bytes);
    OK(cuMemRelease(handle));
    SO(available() + bytes > before);
    return NULL;
}

static const char *what_the_card_has_not_cannot_be_created(void)
{
    size_t before = available();
    CUmemGenericAllocationHandle handle;

    IS(CUDA_ERROR_OUT_OF_MEMORY, create(&handle, before / GRANULE * GRANULE + 64 * MIB));
    SO(available() == before);
    return NULL;
}

static const char *sizes_are_whole_granules(void)
{
    CUmemAllocationProp properties = on_device();
    CUmemGenericAllocationHandle handle;
    size_t granule = 0;

    OK(cuMemGetAllocationGranularity(&granule, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    SO(granule > 0 && (granule & (granule - 1)) == 0);
    IS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, granule + 4096, &properties, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 0, &properties, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, granule, &properties, 1));
    properties.location.id = 1000;
    FAILS(cuMemCreate(&handle, granule, &properties, 0));
    properties = on_device();
    properties.type = CU_MEM_ALLOCATION_TYPE_INVALID;
    FAILS(cuMemCreate(&handle, granule, &properties, 0));
    return NULL;
}

static const char *memory_of_the_host_takes_nothing_from_the_card(void)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};
    CUmemGenericAllocationHandle handle;
    size_t before = available();

    if (cuMemCreate(&handle, 256 * MIB, &properties, 0) != CUDA_SUCCESS)
        return SKIP("no memory of the host by handle");
    SO(before - available() < 64 * MIB);
    OK(cuMemRelease(handle));
    return NULL;
}

static const char *a_handle_tells_what_it_was_created_with(void)
{
    CUmemAllocationProp properties;
    CUmemGenericAllocationHandle handle;

    OK(create(&handle, GRANULE));
    memset(&properties, 0xff, sizeof(properties));
    OK(cuMemGetAllocationPropertiesFromHandle(&properties, handle));
    SO(properties.type == CU_MEM_ALLOCATION_TYPE_PINNED);
    SO(properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE && properties.location.id == device);
    OK(cuMemRelease(handle));
    return NULL;
}

/* ---- Addresses ---- */

static const char *mappings_lie_inside_reservations_and_do_not_overlap(void)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;

    OK(create(&handle, 2 * GRANULE));
    OK(cuMemAddressReserve(&address, 4 * GRANULE, 0, 0, 0));
    SO(address % GRANULE == 0);
    FAILS(cuMemMap(address + 3 * GRANULE, 2 * GRANULE, 0, handle, 0));
    FAILS(cuMemMap(address, 4 * GRANULE, 0, handle, 0));
    FAILS(cuMemMap(address + 4096, GRANULE, 0, handle, 0));
    OK(cuMemMap(address + GRANULE, 2 * GRANULE, 0, handle, 0));
    FAILS(cuMemMap(address + 2 * GRANULE, 2 * GRANULE, 0, handle, 0));
    FAILS(cuMemAddressFree(address, 4 * GRANULE));
    OK(cuMemUnmap(address + GRANULE, 2 * GRANULE));
    FAILS(cuMemUnmap(address + GRANULE, 2 * GRANULE));
    OK(cuMemRelease(handle));
    FAILS(cuMemAddressFree(address + GRANULE, 3 * GRANULE));
    OK(cuMemAddressFree(address, 4 * GRANULE));
    FAILS(cuMemAddressFree(address, 4 * GRANULE));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, 0, 0, 0, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, GRANULE, 3 * GRANULE, 0, 0));
    return NULL;
}

static const char *mappings_are_unmapped_whole_and_many_at_once(void)
{
    CUmemGenericAllocationHandle handle[2];
    CUdeviceptr address;

    OK(cuMemAddressReserve(&address, 4 * GRANULE, 0, 0, 0));
    for (size_t i = 0; i < 2; i++) {
        OK(create(&handle[i], 2 * GRANULE));
        OK(cuMemMap(address + i * 2 * GRANULE, 2 * GRANULE, 0, handle[i], 0));
        OK(cuMemRelease(handle[i]));
    }
    FAILS(cuMemUnmap(address, GRANULE));
    FAILS(cuMemUnmap(address + GRANULE, 2 * GRANULE));
    OK(cuMemUnmap(address, 4 * GRANULE));
    OK(cuMemAddressFree(address, 4 * GRANULE));
    return NULL;
}

static const char *two_mappings_show_the_same_memory(void)
{
    CUmemGenericAllocationHandle handle;
    unsigned int word = 0x12345678, back = 0;
    CUdeviceptr address;

    OK(create(&handle, GRANULE));
    OK(cuMemAddressReserve(&address, 2 * GRANULE, 0, 0, 0));
    OK(cuMemMap(address, GRANULE, 0, handle, 0));
    OK(cuMemMap(address + GRANULE, GRANULE, 0, handle, 0));
    OK(allow(address, 2 * GRANULE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(cuMemcpyHtoD_v2(address + 4000, &word, 4));
    OK(cuMemcpyDtoH_v2(&back, address + GRANULE + 4000, 4));
    SO(back == word);
    OK(cuMemUnmap(address, GRANULE));
    back = 0;
    OK(cuMemcpyDtoH_v2(&back, address + GRANULE + 4000, 4));
    SO(back == word);
    OK(cuMemUnmap(address + GRANULE, GRANULE));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(address, 2 * GRANULE));
    return NULL;
}

static const char *a_mapping_starts_without_access(void)
{
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUmemGenericAllocationHandle handle;
    unsigned long long flags = 77;
    CUdeviceptr address;
    int word = 0;

    location.id = device;
    OK(create(&handle, GRANULE));
    OK(cuMemAddressReserve(&address, 2 * GRANULE, 0, 0, 0));
    FAILS(allow(address, GRANULE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(cuMemMap(address, GRANULE, 0, handle, 0));
    OK(cuMemGetAccess(&flags, &location, address));
    SO(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    FAILS(cuMemcpyHtoD_v2(address, &word, 4));
    FAILS(allow(address, 2 * GRANULE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(allow(address, GRANULE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(cuMemGetAccess(&flags, &location, address));
    SO(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemcpyHtoD_v2(address, &word, 4));
    OK(cuMemUnmap(address, GRANULE));
    OK(cuMemMap(address, GRANULE, 0, handle, 0));
    OK(cuMemGetAccess(&flags, &location, address));
    SO(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    OK(cuMemUnmap(address, GRANULE));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(address, 2 * GRANULE));
    return NULL;
}

static const char *mapped_memory_is_not_cuMemFrees(void)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;

    OK(create(&handle, GRANULE));
    OK(cuMemAddressReserve(&address, GRANULE, 0, 0, 0));
    OK(cuMemMap(address, GRANULE, 0, handle, 0));
    FAILS(cuMemFree_v2(address));
    OK(cuMemUnmap(address, GRANULE));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(address, GRANULE));
    return NULL;
}

/* ---- Multicast ---- */

static CUresult a_team(CUmemGenericAllocationHandle *team)
{
    CUmulticastObjectProp properties = {.numDevices = 1, .size = 4 * GRANULE};

    return cuMulticastCreate(team, &properties);
}

static const char *bound_memory_stays_until_it_is_unbound(void)
{
    CUmulticastObjectProp properties = {.numDevices = 1, .size = 4 * GRANULE};
    CUmemGenericAllocationHandle team, memory;
    size_t granule = 0, before;

    if (!attribute(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED))
        return SKIP("no multicast");
    OK(cuMulticastGetGranularity(&granule, &properties, CU_MULTICAST_GRANULARITY_MINIMUM));
    if (granule > GRANULE || a_team(&team) != CUDA_SUCCESS)
        return SKIP("no multicast team of one device");
    OK(cuMulticastAddDevice(team, device));
    FAILS(cuMulticastAddDevice(team, device));
    before = available();
    OK(create(&memory, 4 * GRANULE));
    OK(cuMulticastBindMem(team, 0, memory, 0, 4 * GRANULE, 0));
    OK(cuMemRelease(memory));
    SO(before - available() >= 4 * GRANULE);
    OK(cuMulticastUnbind(team, device, 0, 4 * GRANULE));
    SO(available() == before);
    OK(create(&memory, 4 * GRANULE));
    FAILS(cuMulticastBindMem(team, GRANULE, memory, 0, 4 * GRANULE, 0));
    OK(cuMulticastBindMem(team, 0, memory, 0, 4 * GRANULE, 0));
    OK(cuMemRelease(memory));
    OK(cuMemRelease(team));
    SO(available() == before);
    return NULL;
}

/* Before all others. */
static const char *memory_by_handle_is_there(void)
{
    if (!attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
        printf("ok - vmm # skip: no memory by handle\n");
        exit(0);
    }
    return NULL;
}

static const struct check checks[] = {
    FIRST(memory_by_handle_is_there),
    CHECK(memory_stays_while_a_handle_or_a_mapping_needs_it),
    CHECK(memory_is_retained_by_any_address_inside),
    CHECK(memory_by_handle_outlives_a_context),
    CHECK(what_the_card_has_not_cannot_be_created),
    CHECK(sizes_are_whole_granules),
    CHECK(memory_of_the_host_takes_nothing_from_the_card),
    CHECK(a_handle_tells_what_it_was_created_with),
    CHECK(mappings_lie_inside_reservations_and_do_not_overlap),
    CHECK(mappings_are_unmapped_whole_and_many_at_once),
    CHECK(two_mappings_show_the_same_memory),
    CHECK(a_mapping_starts_without_access),
    CHECK(mapped_memory_is_not_cuMemFrees),
    CHECK(bound_memory_stays_until_it_is_unbound),
};

CONFORMANCE(checks)
