/* Snippets: memory by handle, mapped, in arrays, in multicast teams, between processes. */
#include <unistd.h>

#include "matrix.h"

#define DESCRIPTOR CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

static int create(struct stage *s, unsigned short usage, CUmemAllocationHandleType types)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = types,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                                   .id = s->device},
                                      .allocFlags = {.usage = usage}};
    return and_so(s->api->cuMemCreate(&s->handle, GRANULE, &properties, 0), s->handle != 0);
}

CALL(cuMemCreate)
{
    return create(s, 0, DESCRIPTOR);
}

CALL(cuMemRelease)
{
    return (int)s->api->cuMemRelease(s->handle);
}

/* ---- Mapped ---- */

static int create_and_reserve(struct stage *s)
{
    int result = call_cuMemCreate(s);

    return result ? result : (int)cuMemAddressReserve(&s->reserved, GRANULE, 0, 0, 0);
}

CALL(cuMemMap)
{
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = s->device};
    CUresult result = s->api->cuMemMap(s->reserved, GRANULE, 0, s->handle, 0);
    unsigned long long flags = 77;

    return result ? (int)result
                  : and_so(cuMemGetAccess(&flags, &location, s->reserved), flags == 0);
}

CALL(cuMemUnmap)
{
    return (int)s->api->cuMemUnmap(s->reserved, GRANULE);
}

static int mapped(struct stage *s)
{
    int result = create_and_reserve(s);

    return result ? result : call_cuMemMap(s);
}

static int release_all(struct stage *s)
{
    CUresult result = s->api->cuMemRelease(s->handle);

    return result ? (int)result : (int)cuMemAddressFree(s->reserved, GRANULE);
}

static int unmap_all(struct stage *s)
{
    int result = call_cuMemUnmap(s);

    return result ? result : release_all(s);
}

CALL(cuMemRetainAllocationHandle)
{
    CUmemGenericAllocationHandle again = 0;
    void *inside = (void *)(uintptr_t)(s->reserved + 1000);

    return and_so(s->api->cuMemRetainAllocationHandle(&again, inside), again == s->handle);
}

static int release_twice(struct stage *s)
{
    int result = call_cuMemRelease(s);

    return result ? result : unmap_all(s);
}

/* ---- Between processes ---- */

CALL(cuMemExportToShareableHandle)
{
    s->fd = -1;
    return and_so(s->api->cuMemExportToShareableHandle(&s->fd, s->handle, DESCRIPTOR, 0),
                  s->fd >= 0);
}

static int close_and_release(struct stage *s)
{
    return close(s->fd) ? NOT_SO : call_cuMemRelease(s);
}

CALL(cuMemImportFromShareableHandle)
{
    void *from = (void *)(intptr_t)s->gifts->physical;

    return and_so(s->api->cuMemImportFromShareableHandle(&s->handle, from, DESCRIPTOR),
                  s->handle != 0);
}

/* ---- In arrays ---- */

static int sparse(struct stage *s)
{
    CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = 8192, .Height = 4096, .Format = CU_AD_FORMAT_FLOAT,
                                     .NumChannels = 4, .Flags = CUDA_ARRAY3D_SPARSE};
    CUresult result = s->api->cuArray3DCreate_v2(&s->array, &shape);

    return result ? (int)result
                  : create(s, CU_MEM_CREATE_USAGE_TILE_POOL, CU_MEM_HANDLE_TYPE_NONE);
}

static CUarrayMapInfo a_tile(struct stage *s)
{
    return (CUarrayMapInfo){
        .resourceType = CU_RESOURCE_TYPE_ARRAY,
        .resource = {.array = s->array},
        .subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL,
        .subresource = {.sparseLevel = {.extentWidth = 64, .extentHeight = 64, .extentDepth = 1}},
        .memOperationType = CU_MEM_OPERATION_TYPE_MAP,
        .memHandleType = CU_MEM_HANDLE_TYPE_GENERIC,
        .memHandle = {.memHandle = s->handle},
        .deviceBitMask = 1u << s->device};
}

CALL(cuMemMapArrayAsync)
{
    CUarrayMapInfo tile = a_tile(s);

    return (int)s->api->cuMemMapArrayAsync(&tile, 1, s->stream);
}

CALL(cuMemMapArrayAsync_ptsz)
{
    CUarrayMapInfo tile = a_tile(s);

    return (int)s->api->cuMemMapArrayAsync_ptsz(&tile, 1, NULL);
}

static int array_and_memory(struct stage *s)
{
    CUresult result = s->api->cuCtxSynchronize();

    if (result == CUDA_SUCCESS)
        result = s->api->cuArrayDestroy(s->array);
    return result ? (int)result : call_cuMemRelease(s);
}

/* ---- In multicast teams ---- */

CALL(cuMulticastCreate)
{
    CUmulticastObjectProp properties = {.numDevices = 1, .size = GRANULE};

    return and_so(s->api->cuMulticastCreate(&s->team, &properties), s->team != 0);
}

CALL(cuMulticastAddDevice)
{
    return (int)s->api->cuMulticastAddDevice(s->team, s->device);
}

static int a_team(struct stage *s)
{
    int result = call_cuMulticastCreate(s);

    return result ? result : call_cuMulticastAddDevice(s);
}

static int a_team_and_mapped(struct stage *s)
{
    int result = a_team(s);

    return result ? result : mapped(s);
}

static int end_team(struct stage *s)
{
    return (int)s->api->cuMemRelease(s->team);
}

CALL(cuMulticastBindMem)
{
    return (int)s->api->cuMulticastBindMem(s->team, 0, s->handle, 0, GRANULE, 0);
}

CALL(cuMulticastBindMem_v2)
{
    return (int)s->api->cuMulticastBindMem_v2(s->team, s->device, 0, s->handle, 0, GRANULE, 0);
}

CALL(cuMulticastBindAddr)
{
    return (int)s->api->cuMulticastBindAddr(s->team, 0, s->reserved, GRANULE, 0);
}

CALL(cuMulticastBindAddr_v2)
{
    return (int)s->api->cuMulticastBindAddr_v2(s->team, s->device, 0, s->reserved, GRANULE, 0);
}

CALL(cuMulticastUnbind)
{
    return (int)s->api->cuMulticastUnbind(s->team, s->device, 0, GRANULE);
}

static int bound(struct stage *s)
{
    int result = a_team_and_mapped(s);

    return result ? result : call_cuMulticastBindMem(s);
}

static int dissolve(struct stage *s)
{
    int result = unmap_all(s);

    return result ? result : end_team(s);
}

static int unbind_and_dissolve(struct stage *s)
{
    int result = call_cuMulticastUnbind(s);

    return result ? result : dissolve(s);
}

/* ---- At logical endpoints ---- */

static int an_endpoint(struct stage *s)
{
    CUlogicalEndpointProp properties = {.type = CU_LOGICAL_ENDPOINT_TYPE_UNICAST, .size = GRANULE};
    CUresult result = cuLogicalEndpointIdReserve(&s->endpoint, 1);
    int ready = 0;

    properties.unicast.device = s->device;
    if (result == CUDA_SUCCESS)
        result = cuLogicalEndpointCreate(s->endpoint, &properties);
    if (result == CUDA_SUCCESS)
        result = cuLogicalEndpointQuery(s->endpoint, 1, &ready);
    return result == CUDA_SUCCESS && !ready ? NOT_SO : (int)result;
}

static int an_endpoint_and_mapped(struct stage *s)
{
    int result = an_endpoint(s);

    return result ? result : mapped(s);
}

CALL(cuLogicalEndpointBindMem)
{
    return (int)s->api->cuLogicalEndpointBindMem(s->endpoint, s->device, 0, s->handle, 0, GRANULE,
                                                 0);
}

CALL(cuLogicalEndpointBindAddr)
{
    return (int)s->api->cuLogicalEndpointBindAddr(s->endpoint, s->device, 0,
                                                  (void *)(uintptr_t)s->reserved, GRANULE, 0);
}

CALL(cuLogicalEndpointUnbind)
{
    return (int)s->api->cuLogicalEndpointUnbind(s->endpoint, s->device, 0, GRANULE);
}

CALL(cuLogicalEndpointDestroy)
{
    return (int)s->api->cuLogicalEndpointDestroy(s->endpoint);
}

static int release_number(struct stage *s)
{
    return (int)cuLogicalEndpointIdRelease(s->endpoint, 1);
}

static int bound_at_endpoint(struct stage *s)
{
    int result = an_endpoint_and_mapped(s);

    return result ? result : call_cuLogicalEndpointBindMem(s);
}

static int end_endpoint(struct stage *s)
{
    int result = call_cuLogicalEndpointDestroy(s);

    return result ? result : release_number(s);
}

static int end_endpoint_and_unmap(struct stage *s)
{
    int result = end_endpoint(s);

    return result ? result : unmap_all(s);
}

static const struct snippet all[] = {
    SNIPPET(cuLogicalEndpointBindAddr, an_endpoint_and_mapped, end_endpoint_and_unmap),
    SNIPPET(cuLogicalEndpointBindMem, an_endpoint_and_mapped, end_endpoint_and_unmap),
    SNIPPET(cuLogicalEndpointDestroy, an_endpoint, release_number),
    SNIPPET(cuLogicalEndpointUnbind, bound_at_endpoint, end_endpoint_and_unmap),
    SNIPPET(cuMemCreate, nothing, call_cuMemRelease),
    SNIPPET(cuMemExportToShareableHandle, call_cuMemCreate, close_and_release),
    SNIPPET(cuMemImportFromShareableHandle, nothing, call_cuMemRelease),
    SNIPPET(cuMemMap, create_and_reserve, unmap_all),
    SNIPPET(cuMemMapArrayAsync, sparse, array_and_memory),
    SNIPPET(cuMemMapArrayAsync_ptsz, sparse, array_and_memory),
    SNIPPET(cuMemRelease, call_cuMemCreate, nothing),
    SNIPPET(cuMemRetainAllocationHandle, mapped, release_twice),
    SNIPPET(cuMemUnmap, mapped, release_all),
    SNIPPET(cuMulticastAddDevice, call_cuMulticastCreate, end_team),
    SNIPPET(cuMulticastBindAddr, a_team_and_mapped, unbind_and_dissolve),
    SNIPPET(cuMulticastBindAddr_v2, a_team_and_mapped, unbind_and_dissolve),
    SNIPPET(cuMulticastBindMem, a_team_and_mapped, unbind_and_dissolve),
    SNIPPET(cuMulticastBindMem_v2, a_team_and_mapped, unbind_and_dissolve),
    SNIPPET(cuMulticastCreate, nothing, end_team),
    SNIPPET(cuMulticastUnbind, bound, dissolve),
};
const struct snippets matrix_physical = SNIPPETS(all);
