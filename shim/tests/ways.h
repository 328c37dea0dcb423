/* Every way there is to take device memory, as a table; for storm.c. A piece is one thing that was
 * taken. */
#ifndef HAMI_TESTS_WAYS_H
#define HAMI_TESTS_WAYS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hami_cuda.h"

#define ROW ((size_t)1 << 14) /* of an array, in bytes */
#define UNTOUCHED UINT64_C(0x5a5a5a5a5a5a5a5a)

static CUdevice device;
static CUcontext context;

/* One thing that was taken. */
struct piece {
    uint64_t handle, other;
};

static _Thread_local CUmemoryPool own_pool;

/* ---- The ways ---- */

static CUresult take_linear(struct piece *piece, size_t bytes)
{
    return cuMemAlloc_v2((CUdeviceptr *)&piece->handle, bytes);
}

static CUresult give_linear(struct piece *piece)
{
    return cuMemFree_v2(piece->handle);
}

static CUresult take_linear_old(struct piece *piece, size_t bytes)
{
    CUdeviceptr_v1 address = (CUdeviceptr_v1)piece->handle;
    CUresult result = cuMemAlloc(&address, bytes > UINT32_MAX ? UINT32_MAX : (unsigned int)bytes);

    if (result == CUDA_SUCCESS)
        piece->handle = address;
    else if (address != (CUdeviceptr_v1)UNTOUCHED)
        piece->handle = 0;
    return result;
}

static CUresult give_linear_old(struct piece *piece)
{
    return cuMemFree((CUdeviceptr_v1)piece->handle);
}

static CUresult take_managed(struct piece *piece, size_t bytes)
{
    return cuMemAllocManaged((CUdeviceptr *)&piece->handle, bytes, CU_MEM_ATTACH_GLOBAL);
}

/* Rows of 100 bytes, which take 512 each: five times what they hold. */
static CUresult take_pitch(struct piece *piece, size_t bytes)
{
    size_t pitch = 0;

    return cuMemAllocPitch_v2((CUdeviceptr *)&piece->handle, &pitch, 100, bytes / 512 + 1, 4);
}

static CUresult take_pitch_old(struct piece *piece, size_t bytes)
{
    CUdeviceptr_v1 address = (CUdeviceptr_v1)piece->handle;
    size_t rows = bytes / 512 + 1;
    unsigned int pitch;
    CUresult result = cuMemAllocPitch(&address, &pitch, 100,
                                      rows > UINT32_MAX ? UINT32_MAX : (unsigned int)rows, 4);

    if (result == CUDA_SUCCESS)
        piece->handle = address;
    else if (address != (CUdeviceptr_v1)UNTOUCHED)
        piece->handle = 0;
    return result;
}

static CUresult take_async(struct piece *piece, size_t bytes)
{
    return cuMemAllocAsync((CUdeviceptr *)&piece->handle, bytes, NULL);
}

static CUresult give_async(struct piece *piece)
{
    return cuMemFreeAsync(piece->handle, NULL);
}

static CUresult take_async_own(struct piece *piece, size_t bytes)
{
    return cuMemAllocAsync_ptsz((CUdeviceptr *)&piece->handle, bytes, NULL);
}

static CUresult give_async_own(struct piece *piece)
{
    return cuMemFreeAsync_ptsz(piece->handle, NULL);
}

static CUresult pool_of_mine(CUmemoryPool *pool)
{
    CUmemPoolProps properties = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    CUresult result = own_pool ? CUDA_SUCCESS : cuMemPoolCreate(&own_pool, &properties);

    *pool = own_pool;
    return result;
}

static CUresult take_pool(struct piece *piece, size_t bytes)
{
    CUmemoryPool pool;
    CUresult result = pool_of_mine(&pool);

    if (result != CUDA_SUCCESS)
        return result;
    return cuMemAllocFromPoolAsync((CUdeviceptr *)&piece->handle, bytes, pool, NULL);
}

static CUresult take_pool_own(struct piece *piece, size_t bytes)
{
    CUmemoryPool pool;
    CUresult result = pool_of_mine(&pool);

    if (result != CUDA_SUCCESS)
        return result;
    return cuMemAllocFromPoolAsync_ptsz((CUdeviceptr *)&piece->handle, bytes, pool, NULL);
}

/* A pool of its own, which goes with the allocation. */
static CUresult take_new_pool(struct piece *piece, size_t bytes)
{
    CUmemPoolProps properties = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    CUmemoryPool pool;
    CUresult result = cuMemPoolCreate(&pool, &properties);

    if (result != CUDA_SUCCESS)
        return result;
    result = cuMemAllocFromPoolAsync((CUdeviceptr *)&piece->handle, bytes, pool, NULL);
    piece->other = (uint64_t)(uintptr_t)pool;
    if (result != CUDA_SUCCESS)
        cuMemPoolDestroy(pool);
    return result;
}

static CUresult give_new_pool(struct piece *piece)
{
    CUresult result = cuMemPoolDestroy((CUmemoryPool)(uintptr_t)piece->other);

    return result == CUDA_SUCCESS ? cuMemFreeAsync(piece->handle, NULL) : result;
}

/* While other threads allocate from whichever pool is the device's own just now. */
static CUresult take_chosen_pool(struct piece *piece, size_t bytes)
{
    CUmemPoolProps properties = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    CUmemoryPool pool;
    CUresult result = cuMemPoolCreate(&pool, &properties);

    if (result != CUDA_SUCCESS)
        return result;
    result = cuDeviceSetMemPool(device, pool);
    if (result == CUDA_SUCCESS)
        result = cuMemAllocAsync((CUdeviceptr *)&piece->handle, bytes, NULL);
    cuMemPoolDestroy(pool);
    return result;
}

static size_t blocks(size_t bytes)
{
    const size_t block = (size_t)2 << 20;

    if (bytes > SIZE_MAX - block)
        return SIZE_MAX / block * block;
    return (bytes + block - 1) / block * block;
}

static CUresult take_physical(struct piece *piece, size_t bytes)
{
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };

    return cuMemCreate((CUmemGenericAllocationHandle *)&piece->handle, blocks(bytes), &properties,
                       0);
}

static CUresult give_physical(struct piece *piece)
{
    return cuMemRelease(piece->handle);
}

/* Of which only a mapping is left. */
static CUresult take_mapped(struct piece *piece, size_t bytes)
{
    CUmemGenericAllocationHandle handle;
    struct piece physical = {.handle = UNTOUCHED};
    CUdeviceptr address;
    CUresult result = take_physical(&physical, bytes);

    if (result != CUDA_SUCCESS)
        return result;
    handle = physical.handle;
    result = cuMemAddressReserve(&address, blocks(bytes), 0, 0, 0);
    if (result == CUDA_SUCCESS)
        result = cuMemMap(address, blocks(bytes), 0, handle, 0);
    cuMemRelease(handle);
    if (result != CUDA_SUCCESS)
        return result;
    piece->handle = address;
    piece->other = blocks(bytes);
    return CUDA_SUCCESS;
}

static CUresult give_mapped(struct piece *piece)
{
    CUresult result = cuMemUnmap(piece->handle, piece->other);

    return result == CUDA_SUCCESS ? cuMemAddressFree(piece->handle, piece->other) : result;
}

static size_t rows_of(size_t bytes)
{
    return bytes / ROW + 1;
}

static CUresult take_array(struct piece *piece, size_t bytes)
{
    CUDA_ARRAY_DESCRIPTOR form = {.Width = ROW / 16, .Height = rows_of(bytes),
                                  .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};

    return cuArrayCreate_v2((CUarray *)&piece->handle, &form);
}

static unsigned int narrow(size_t number)
{
    return number > UINT32_MAX ? UINT32_MAX : (unsigned int)number;
}

static CUresult take_array_old(struct piece *piece, size_t bytes)
{
    CUDA_ARRAY_DESCRIPTOR_v1 form = {.Width = ROW / 16, .Height = narrow(rows_of(bytes)),
                                     .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};

    return cuArrayCreate((CUarray *)&piece->handle, &form);
}

static CUresult give_array(struct piece *piece)
{
    return cuArrayDestroy((CUarray)(uintptr_t)piece->handle);
}

static CUDA_ARRAY3D_DESCRIPTOR layers(size_t bytes)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){
        .Width = ROW / 16, .Height = 8, .Depth = rows_of(bytes) / 8 + 1,
        .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4,
    };
}

static CUresult take_array3d(struct piece *piece, size_t bytes)
{
    CUDA_ARRAY3D_DESCRIPTOR form = layers(bytes);

    return cuArray3DCreate_v2((CUarray *)&piece->handle, &form);
}

static CUresult take_array3d_old(struct piece *piece, size_t bytes)
{
    CUDA_ARRAY3D_DESCRIPTOR form = layers(bytes);
    CUDA_ARRAY3D_DESCRIPTOR_v1 form_old = {
        .Width = (unsigned int)form.Width, .Height = (unsigned int)form.Height,
        .Depth = narrow(form.Depth), .Format = form.Format, .NumChannels = form.NumChannels,
    };

    return cuArray3DCreate((CUarray *)&piece->handle, &form_old);
}

/* One row takes as much as eight. */
static CUresult take_thin(struct piece *piece, size_t bytes)
{
    CUDA_ARRAY3D_DESCRIPTOR form = layers(bytes);

    form.Height = 1;
    return cuArray3DCreate_v2((CUarray *)&piece->handle, &form);
}

static CUresult take_mipmap(struct piece *piece, size_t bytes)
{
    CUDA_ARRAY3D_DESCRIPTOR form = {.Width = ROW / 16, .Height = rows_of(bytes),
                                    .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};

    return cuMipmappedArrayCreate((CUmipmappedArray *)&piece->handle, &form, 4);
}

static CUresult give_mipmap(struct piece *piece)
{
    return cuMipmappedArrayDestroy((CUmipmappedArray)(uintptr_t)piece->handle);
}

static CUresult add_node(CUgraph graph, size_t bytes, CUdeviceptr *address)
{
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}},
        .bytesize = bytes,
    };
    CUgraphNode node;
    CUresult result = cuGraphAddMemAllocNode(&node, graph, NULL, 0, &parameters);

    *address = parameters.dptr;
    return result;
}

/* What a graph allocated when it ran, and did not free. */
static CUresult take_graph(struct piece *piece, size_t bytes)
{
    CUgraphExec exec = NULL;
    CUdeviceptr address;
    CUgraph graph;
    CUresult result = cuGraphCreate(&graph, 0);

    if (result != CUDA_SUCCESS)
        return result;
    result = add_node(graph, bytes, &address);
    if (result == CUDA_SUCCESS)
        result = cuGraphInstantiateWithFlags(&exec, graph, 0);
    cuGraphDestroy(graph);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuGraphLaunch(exec, NULL);
    if (result == CUDA_SUCCESS)
        result = cuStreamSynchronize(NULL);
    if (result != CUDA_SUCCESS) {
        cuGraphExecDestroy(exec);
        return result;
    }
    piece->handle = (uint64_t)(uintptr_t)exec;
    piece->other = address;
    return CUDA_SUCCESS;
}

static CUresult give_graph(struct piece *piece)
{
    CUresult result = cuMemFreeAsync(piece->other, NULL);

    return result == CUDA_SUCCESS ? cuGraphExecDestroy((CUgraphExec)(uintptr_t)piece->handle)
                                  : result;
}

static CUresult take_external(struct piece *piece, size_t bytes)
{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC description = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .size = bytes};
    CUresult result;

    description.handle.fd = memfd_create("external", MFD_CLOEXEC);
    result = cuImportExternalMemory((CUexternalMemory *)&piece->handle, &description);
    if (result != CUDA_SUCCESS)
        close(description.handle.fd);
    return result;
}

static CUresult give_external(struct piece *piece)
{
    return cuDestroyExternalMemory((CUexternalMemory)(uintptr_t)piece->handle);
}

/* Never freed itself: it goes with a context of its own. */
static CUresult take_with_context(struct piece *piece, size_t bytes)
{
    CUdeviceptr address = UNTOUCHED;
    CUcontext made, popped;
    CUresult result = cuCtxCreate_v2(&made, 0, device);

    if (result != CUDA_SUCCESS)
        return result;
    result = cuMemAlloc_v2(&address, bytes);
    cuCtxPopCurrent_v2(&popped);
    if (result != CUDA_SUCCESS) {
        cuCtxDestroy_v2(made);
        if (address != UNTOUCHED)
            piece->handle = 0;
        return result;
    }
    piece->handle = (uint64_t)(uintptr_t)made;
    return CUDA_SUCCESS;
}

static CUresult give_with_context(struct piece *piece)
{
    return cuCtxDestroy_v2((CUcontext)(uintptr_t)piece->handle);
}

static const struct way {
    const char *name;
    CUresult (*take)(struct piece *piece, size_t bytes);
    CUresult (*give)(struct piece *piece);
} ways[] = {
    {"cuMemAlloc_v2", take_linear, give_linear},
    {"cuMemAlloc", take_linear_old, give_linear_old},
    {"cuMemAllocManaged", take_managed, give_linear},
    {"cuMemAllocPitch_v2", take_pitch, give_linear},
    {"cuMemAllocPitch", take_pitch_old, give_linear_old},
    {"cuMemAllocAsync", take_async, give_async},
    {"cuMemAllocAsync_ptsz", take_async_own, give_async_own},
    {"cuMemAllocFromPoolAsync", take_pool, give_async},
    {"cuMemAllocFromPoolAsync_ptsz", take_pool_own, give_async_own},
    {"new-pool", take_new_pool, give_new_pool},
    {"chosen-pool", take_chosen_pool, give_async},
    {"freed-late", take_linear, give_async},
    {"cuMemCreate", take_physical, give_physical},
    {"cuMemMap", take_mapped, give_mapped},
    {"cuArrayCreate_v2", take_array, give_array},
    {"cuArrayCreate", take_array_old, give_array},
    {"cuArray3DCreate_v2", take_array3d, give_array},
    {"cuArray3DCreate", take_array3d_old, give_array},
    {"thin-array", take_thin, give_array},
    {"cuMipmappedArrayCreate", take_mipmap, give_mipmap},
    {"graph", take_graph, give_graph},
    {"cuImportExternalMemory", take_external, give_external},
    {"context", take_with_context, give_with_context},
};
#define WAYS (sizeof(ways) / sizeof(*ways))

/* Refused, whoever asks finds their variable as it was. */
static CUresult take(size_t way, struct piece *piece, size_t bytes)
{
    struct piece made = {.handle = UNTOUCHED};
    CUresult result = ways[way].take(&made, bytes);

    if (result == CUDA_SUCCESS) {
        *piece = made;
    } else if (made.handle != UNTOUCHED) {
        fprintf(stderr, "%s refused with %d and wrote a result\n", ways[way].name, (int)result);
        exit(4);
    }
    return result;
}

#endif
