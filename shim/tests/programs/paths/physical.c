/* Physical allocations, and what they are bound to. */
#include <unistd.h>

#include "paths.h"

CUmemGenericAllocationHandle handles[128];
static CUlogicalEndpointId endpoints[128];
static int descriptors[128];
static CUarray arrays[128];

CUmemAllocationProp properties_of(int where)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes =
            where < 0 ? CU_MEM_HANDLE_TYPE_NONE : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = where < 0 ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
                     .id = where < 0 ? 0 : where},
    };
}

int do_physical(const struct words *line)
{
    CUmemGenericAllocationHandle *handle = &handles[name(line, 1)];
    CUdeviceptr address = addresses[name(line, 1)];
    CUmemAllocationProp properties;

    if (is(line, "create") || is(line, "create_tiles")) {
        properties = properties_of(atoi(line->word[2]));
        if (is(line, "create_tiles"))
            properties.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
        say(cuMemCreate(handle, number(line, 3), &properties, 0));
    } else if (is(line, "release")) {
        say(cuMemRelease(*handle));
    } else if (is(line, "reserve")) {
        say(cuMemAddressReserve(&addresses[name(line, 1)], number(line, 2), 0, 0, 0));
    } else if (is(line, "map")) { /* address offset size handle */
        say(cuMemMap(address + number(line, 2), number(line, 3), 0, handles[name(line, 4)], 0));
    } else if (is(line, "unmap")) {
        say(cuMemUnmap(address + number(line, 2), number(line, 3)));
    } else if (is(line, "retain")) { /* handle address offset */
        say(cuMemRetainAllocationHandle(
            handle, (void *)(uintptr_t)(addresses[name(line, 2)] + number(line, 3))));
    } else if (is(line, "export")) { /* descriptor handle */
        say(cuMemExportToShareableHandle(&descriptors[name(line, 1)], handles[name(line, 2)],
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    } else if (is(line, "import")) { /* handle descriptor */
        say(cuMemImportFromShareableHandle(handle, (void *)(intptr_t)descriptors[name(line, 2)],
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    } else if (is(line, "close")) {
        printf("%d\n", close(descriptors[name(line, 1)]));
    } else {
        return 0;
    }
    return 1;
}

static CUresult make_multicast(CUmemGenericAllocationHandle *handle, size_t size)
{
    CUmulticastObjectProp properties = {.numDevices = 1, .size = size};
    CUresult result = cuMulticastCreate(handle, &properties);

    return result == CUDA_SUCCESS ? cuMulticastAddDevice(*handle, device) : result;
}

static CUresult make_endpoint(CUlogicalEndpointId *id, size_t size)
{
    CUlogicalEndpointProp properties = {.type = CU_LOGICAL_ENDPOINT_TYPE_UNICAST, .size = size};
    CUresult result = cuLogicalEndpointIdReserve(id, 1);
    int ready = 0;

    properties.unicast.device = device;
    if (result == CUDA_SUCCESS)
        result = cuLogicalEndpointCreate(*id, &properties);
    return result == CUDA_SUCCESS ? cuLogicalEndpointQuery(*id, 1, &ready) : result;
}

static CUresult map_tile(CUarray array, unsigned int x, CUmemGenericAllocationHandle memory)
{
    CUarrayMapInfo map = {
        .resourceType = CU_RESOURCE_TYPE_ARRAY,
        .subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL,
        .memOperationType = memory ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP,
        .memHandleType = CU_MEM_HANDLE_TYPE_GENERIC,
        .deviceBitMask = 1u << device,
    };

    map.resource.array = array;
    map.memHandle.memHandle = memory;
    map.subresource.sparseLevel.offsetX = x;
    map.subresource.sparseLevel.extentWidth = 128;
    map.subresource.sparseLevel.extentHeight = 128;
    map.subresource.sparseLevel.extentDepth = 1;
    return cuMemMapArrayAsync(&map, 1, NULL);
}

int do_bindings(const struct words *line)
{
    CUmemGenericAllocationHandle handle = handles[name(line, 1)];
    CUDA_ARRAY3D_DESCRIPTOR form = {.Width = 4096, .Height = 128, .NumChannels = 1,
                                    .Format = CU_AD_FORMAT_FLOAT, .Flags = CUDA_ARRAY3D_SPARSE};

    if (is(line, "multicast"))
        say(make_multicast(&handles[name(line, 1)], number(line, 2)));
    else if (is(line, "bind")) /* multicast handle size */
        say(cuMulticastBindMem(handle, 0, handles[name(line, 2)], 0, number(line, 3), 0));
    else if (is(line, "bind_address"))
        say(cuMulticastBindAddr(handle, 0, addresses[name(line, 2)], number(line, 3), 0));
    else if (is(line, "unbind"))
        say(cuMulticastUnbind(handle, device, 0, number(line, 2)));
    else if (is(line, "sparse"))
        say(cuArray3DCreate_v2(&arrays[name(line, 1)], &form));
    else if (is(line, "tile")) /* array x handle or nothing */
        say(map_tile(arrays[name(line, 1)], (unsigned int)number(line, 2),
                     line->count > 3 ? handles[name(line, 3)] : 0));
    else if (is(line, "array_destroy"))
        say(cuArrayDestroy(arrays[name(line, 1)]));
    else
        return 0;
    return 1;
}

int do_endpoints(const struct words *line)
{
    CUlogicalEndpointId *id = &endpoints[name(line, 1)];
    void *address = (void *)(uintptr_t)addresses[name(line, 2)];

    if (is(line, "endpoint"))
        say(make_endpoint(id, number(line, 2)));
    else if (is(line, "endpoint_bind")) /* endpoint handle size */
        say(cuLogicalEndpointBindMem(*id, device, 0, handles[name(line, 2)], 0, number(line, 3),
                                     0));
    else if (is(line, "endpoint_bind_address"))
        say(cuLogicalEndpointBindAddr(*id, device, 0, address, number(line, 3), 0));
    else if (is(line, "endpoint_unbind"))
        say(cuLogicalEndpointUnbind(*id, device, 0, number(line, 2)));
    else if (is(line, "endpoint_destroy"))
        say(cuLogicalEndpointDestroy(*id));
    else
        return 0;
    return 1;
}
