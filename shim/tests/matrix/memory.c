/* Snippets: linear memory, arrays, memory of other interfaces and processes, amounts. */
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "matrix.h"

static int allocate(struct stage *s)
{
    return (int)s->api->cuMemAlloc_v2(&s->address, BYTES);
}

static int release(struct stage *s)
{
    return (int)s->api->cuMemFree_v2(s->address);
}

static int allocate_low(struct stage *s)
{
    return (int)s->api->cuMemAlloc(&s->low, BYTES);
}

static int release_low(struct stage *s)
{
    return (int)s->api->cuMemFree(s->low);
}

/* ---- Linear ---- */

/* What is freed is not looked at again: another thread may have got the address. */

CALL(cuMemAlloc)
{
    CUdeviceptr_v1 base = 0;
    CUresult result = s->api->cuMemAlloc(&s->low, BYTES);

    return result ? (int)result : and_so(cuMemGetAddressRange(&base, NULL, s->low),
                                         base == s->low && base);
}

CALL(cuMemAlloc_v2)
{
    size_t bytes = 0;
    CUresult result = s->api->cuMemAlloc_v2(&s->address, BYTES);

    return result ? (int)result : and_so(cuMemGetAddressRange_v2(NULL, &bytes, s->address),
                                         bytes == BYTES);
}

CALL(cuMemAllocPitch)
{
    unsigned int pitch = 0;

    return and_so(s->api->cuMemAllocPitch(&s->low, &pitch, 100, 10, 4),
                  s->low && pitch >= 100);
}

CALL(cuMemAllocPitch_v2)
{
    size_t pitch = 0;

    return and_so(s->api->cuMemAllocPitch_v2(&s->address, &pitch, 100, 10, 4),
                  s->address && pitch >= 100);
}

CALL(cuMemAllocManaged)
{
    return and_so(s->api->cuMemAllocManaged(&s->address, BYTES, CU_MEM_ATTACH_GLOBAL),
                  s->address != 0);
}

CALL(cuMemFree)
{
    return (int)s->api->cuMemFree(s->low);
}

CALL(cuMemFree_v2)
{
    return (int)s->api->cuMemFree_v2(s->address);
}

/* ---- Arrays ---- */

CALL(cuArrayCreate)
{
    CUDA_ARRAY_DESCRIPTOR_v1 shape = {.Width = 64, .Height = 32, .Format = CU_AD_FORMAT_FLOAT,
                                      .NumChannels = 1};

    return and_so(s->api->cuArrayCreate(&s->array, &shape), s->array != NULL);
}

CALL(cuArrayCreate_v2)
{
    CUDA_ARRAY_DESCRIPTOR shape = {.Width = 64, .Height = 32, .Format = CU_AD_FORMAT_FLOAT,
                                   .NumChannels = 1}, found = {0};
    CUresult result = s->api->cuArrayCreate_v2(&s->array, &shape);

    return result ? (int)result : and_so(cuArrayGetDescriptor_v2(&found, s->array),
                                         found.Width == 64 && found.Height == 32);
}

CALL(cuArray3DCreate)
{
    CUDA_ARRAY3D_DESCRIPTOR_v1 shape = {.Width = 16, .Height = 16, .Depth = 4,
                                        .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 2};

    return and_so(s->api->cuArray3DCreate(&s->array, &shape), s->array != NULL);
}

static const CUDA_ARRAY3D_DESCRIPTOR cube = {.Width = 16, .Height = 16, .Depth = 4,
                                             .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 2};

CALL(cuArray3DCreate_v2)
{
    CUDA_ARRAY3D_DESCRIPTOR found = {0};
    CUresult result = s->api->cuArray3DCreate_v2(&s->array, &cube);

    return result ? (int)result : and_so(cuArray3DGetDescriptor_v2(&found, s->array),
                                         found.Depth == 4 && found.NumChannels == 2);
}

static int make_array(struct stage *s)
{
    return (int)s->api->cuArray3DCreate_v2(&s->array, &cube);
}

CALL(cuArrayDestroy)
{
    return (int)s->api->cuArrayDestroy(s->array);
}

static int destroy_array(struct stage *s)
{
    return (int)s->api->cuArrayDestroy(s->array);
}

CALL(cuMipmappedArrayCreate)
{
    CUarray level = NULL;
    CUresult result = s->api->cuMipmappedArrayCreate(&s->mipmap, &cube, 3);

    return result ? (int)result
                  : and_so(cuMipmappedArrayGetLevel(&level, s->mipmap, 2), level != NULL);
}

static int make_mipmap(struct stage *s)
{
    return (int)s->api->cuMipmappedArrayCreate(&s->mipmap, &cube, 3);
}

CALL(cuMipmappedArrayDestroy)
{
    return (int)s->api->cuMipmappedArrayDestroy(s->mipmap);
}

/* ---- Of other interfaces ---- */

/* The descriptor is the driver's from the import on. */
static int open_descriptor(struct stage *s)
{
    s->fd = (int)syscall(SYS_memfd_create, "memory of another interface", 0u);
    return s->fd < 0 ? NOT_SO : 0;
}

CALL(cuImportExternalMemory)
{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC what = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
                                             .handle = {.fd = s->fd}, .size = BYTES};

    return and_so(s->api->cuImportExternalMemory(&s->external, &what), s->external != NULL);
}

static int import_external(struct stage *s)
{
    return open_descriptor(s) ? NOT_SO : call_cuImportExternalMemory(s);
}

CALL(cuDestroyExternalMemory)
{
    return (int)s->api->cuDestroyExternalMemory(s->external);
}

/* ---- Of other processes ---- */

CALL(cuIpcGetMemHandle)
{
    static const CUipcMemHandle none;
    CUipcMemHandle handle = none;
    CUresult result = s->api->cuIpcGetMemHandle(&handle, s->address);
    bool some = false;

    for (size_t i = 0; i < sizeof(handle.reserved); i++)
        some = some || handle.reserved[i];
    return and_so(result, some);
}

CALL(cuIpcOpenMemHandle)
{
    return and_so(s->api->cuIpcOpenMemHandle(&s->address, s->gifts->memory,
                                                  CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                  s->address != 0);
}

CALL(cuIpcOpenMemHandle_v2)
{
    return and_so(s->api->cuIpcOpenMemHandle_v2(&s->address, s->gifts->memory,
                                                     CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                  s->address != 0);
}

CALL(cuIpcCloseMemHandle)
{
    return (int)s->api->cuIpcCloseMemHandle(s->address);
}

/* ---- Amounts ---- */

CALL(cuDeviceTotalMem)
{
    unsigned int bytes = 0;

    return and_so(s->api->cuDeviceTotalMem(&bytes, s->device), bytes != 0);
}

CALL(cuDeviceTotalMem_v2)
{
    size_t bytes = 0;

    return and_so(s->api->cuDeviceTotalMem_v2(&bytes, s->device), bytes > UINT32_MAX);
}

CALL(cuMemGetInfo)
{
    unsigned int available = 0, total = 0;

    return and_so(s->api->cuMemGetInfo(&available, &total), available && available <= total);
}

CALL(cuMemGetInfo_v2)
{
    size_t available = 0, total = 0;

    return and_so(s->api->cuMemGetInfo_v2(&available, &total),
                  available && available <= total);
}

/* ---- What hands out the rest ---- */

CALL(cuInit)
{
    return (int)s->api->cuInit(0);
}

CALL(cuGetProcAddress)
{
    void *found = NULL;

    return and_so(s->api->cuGetProcAddress("cuDriverGetVersion", &found, 11030, 0),
                  found != NULL);
}

CALL(cuGetProcAddress_v2)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    void *found = NULL;

    return and_so(s->api->cuGetProcAddress_v2("cuDriverGetVersion", &found, 12000, 0, &status),
                  found && status == CU_GET_PROC_ADDRESS_SUCCESS);
}

static const struct snippet all[] = {
    SNIPPET(cuInit, nothing, nothing),
    SNIPPET(cuGetProcAddress, nothing, nothing),
    SNIPPET(cuGetProcAddress_v2, nothing, nothing),
    SNIPPET(cuArray3DCreate, nothing, destroy_array),
    SNIPPET(cuArray3DCreate_v2, nothing, destroy_array),
    SNIPPET(cuArrayCreate, nothing, destroy_array),
    SNIPPET(cuArrayCreate_v2, nothing, destroy_array),
    SNIPPET(cuArrayDestroy, make_array, nothing),
    SNIPPET(cuDestroyExternalMemory, import_external, nothing),
    SNIPPET(cuImportExternalMemory, open_descriptor, call_cuDestroyExternalMemory),
    SNIPPET(cuIpcCloseMemHandle, call_cuIpcOpenMemHandle_v2, nothing),
    SNIPPET(cuIpcGetMemHandle, allocate, release),
    SNIPPET(cuIpcOpenMemHandle, nothing, call_cuIpcCloseMemHandle),
    SNIPPET(cuIpcOpenMemHandle_v2, nothing, call_cuIpcCloseMemHandle),
    SNIPPET(cuMemAlloc, nothing, release_low),
    SNIPPET(cuMemAllocManaged, nothing, release),
    SNIPPET(cuMemAllocPitch, nothing, release_low),
    SNIPPET(cuMemAllocPitch_v2, nothing, release),
    SNIPPET(cuMemAlloc_v2, nothing, release),
    SNIPPET(cuMemFree, allocate_low, nothing),
    SNIPPET(cuMemFree_v2, allocate, nothing),
    SNIPPET(cuMipmappedArrayCreate, nothing, call_cuMipmappedArrayDestroy),
    SNIPPET(cuMipmappedArrayDestroy, make_mipmap, nothing),
    SNIPPET(cuDeviceTotalMem, nothing, nothing),
    SNIPPET(cuDeviceTotalMem_v2, nothing, nothing),
    SNIPPET(cuMemGetInfo, nothing, nothing),
    SNIPPET(cuMemGetInfo_v2, nothing, nothing),
};
const struct snippets matrix_memory = SNIPPETS(all);
