/* Snippets: stream-ordered memory and pools. */
#include <unistd.h>

#include "matrix.h"

#define DESCRIPTOR CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

static int by_default(struct stage *s)
{
    return (int)cuDeviceGetDefaultMemPool(&s->pool, s->device);
}

CALL(cuMemPoolCreate)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .handleTypes = DESCRIPTOR,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                              .id = s->device}};
    return and_so(s->api->cuMemPoolCreate(&s->pool, &properties), s->pool != NULL);
}

CALL(cuMemPoolDestroy)
{
    return (int)s->api->cuMemPoolDestroy(s->pool);
}

/* ---- Allocations ---- */

CALL(cuMemAllocAsync)
{
    return and_so(s->api->cuMemAllocAsync(&s->address, BYTES, s->stream), s->address != 0);
}

CALL(cuMemAllocAsync_ptsz)
{
    return and_so(s->api->cuMemAllocAsync_ptsz(&s->address, BYTES, NULL), s->address != 0);
}

CALL(cuMemAllocFromPoolAsync)
{
    return and_so(s->api->cuMemAllocFromPoolAsync(&s->address, BYTES, s->pool, s->stream),
                  s->address != 0);
}

CALL(cuMemAllocFromPoolAsync_ptsz)
{
    return and_so(s->api->cuMemAllocFromPoolAsync_ptsz(&s->address, BYTES, s->pool, NULL),
                  s->address != 0);
}

CALL(cuMemFreeAsync)
{
    return (int)s->api->cuMemFreeAsync(s->address, s->stream);
}

CALL(cuMemFreeAsync_ptsz)
{
    return (int)s->api->cuMemFreeAsync_ptsz(s->address, NULL);
}

static int settle(struct stage *s)
{
    return (int)s->api->cuCtxSynchronize();
}

static int free_async(struct stage *s)
{
    CUresult result = s->api->cuMemFreeAsync(s->address, s->stream);

    return result ? (int)result : settle(s);
}

static int free_async_ptsz(struct stage *s)
{
    CUresult result = s->api->cuMemFreeAsync_ptsz(s->address, NULL);

    return result ? (int)result : settle(s);
}

/* ---- Which pool is current, its attributes ---- */

static bool current_is(struct stage *s)
{
    CUmemoryPool pool = NULL;

    return cuDeviceGetMemPool(&pool, s->device) == CUDA_SUCCESS && pool == s->pool;
}

CALL(cuDeviceSetMemPool)
{
    CUresult result = s->api->cuDeviceSetMemPool(s->device, s->pool);

    return and_so(result, current_is(s));
}

CALL(cuMemSetMemPool)
{
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = s->device};
    CUresult result =
        s->api->cuMemSetMemPool(&location, CU_MEM_ALLOCATION_TYPE_PINNED, s->pool);

    return and_so(result, current_is(s));
}

CALL(cuMemPoolSetAttribute)
{
    cuuint64_t threshold = GRANULE, found = 0;
    CUresult result =
        s->api->cuMemPoolSetAttribute(s->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);

    return result ? (int)result
                  : and_so(cuMemPoolGetAttribute(s->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                                      &found),
                           found == GRANULE);
}

CALL(cuMemPoolTrimTo)
{
    return (int)s->api->cuMemPoolTrimTo(s->pool, 0);
}

/* ---- Between processes ---- */

CALL(cuMemPoolExportToShareableHandle)
{
    s->fd = -1;
    return and_so(s->api->cuMemPoolExportToShareableHandle(&s->fd, s->pool, DESCRIPTOR, 0),
                  s->fd >= 0);
}

static int close_and_destroy(struct stage *s)
{
    return close(s->fd) ? NOT_SO : call_cuMemPoolDestroy(s);
}

static int allocate_in_own_pool(struct stage *s)
{
    int result = call_cuMemPoolCreate(s);

    return result ? result : call_cuMemAllocFromPoolAsync(s);
}

CALL(cuMemPoolExportPointer)
{
    static const CUmemPoolPtrExportData none;
    CUmemPoolPtrExportData data = none;
    CUresult result = s->api->cuMemPoolExportPointer(&data, s->address);
    bool some = false;

    for (size_t i = 0; i < sizeof(data.reserved); i++)
        some = some || data.reserved[i];
    return and_so(result, some);
}

static int free_and_destroy(struct stage *s)
{
    int result = free_async(s);

    return result ? result : call_cuMemPoolDestroy(s);
}

CALL(cuMemPoolImportFromShareableHandle)
{
    return and_so(s->api->cuMemPoolImportFromShareableHandle(
                      &s->pool, (void *)(intptr_t)s->gifts->pool, DESCRIPTOR, 0),
                  s->pool != NULL);
}

CALL(cuMemPoolImportPointer)
{
    CUmemPoolPtrExportData data = s->gifts->in_pool;

    return and_so(s->api->cuMemPoolImportPointer(&s->address, s->pool, &data),
                  s->address != 0);
}

static const struct snippet all[] = {
    SNIPPET_ALONE(cuDeviceSetMemPool, call_cuMemPoolCreate, call_cuMemPoolDestroy),
    SNIPPET(cuMemAllocAsync, nothing, free_async),
    SNIPPET(cuMemAllocAsync_ptsz, nothing, free_async_ptsz),
    SNIPPET(cuMemAllocFromPoolAsync, by_default, free_async),
    SNIPPET(cuMemAllocFromPoolAsync_ptsz, by_default, free_async_ptsz),
    SNIPPET(cuMemFreeAsync, call_cuMemAllocAsync, settle),
    SNIPPET(cuMemFreeAsync_ptsz, call_cuMemAllocAsync_ptsz, settle),
    SNIPPET(cuMemPoolCreate, nothing, call_cuMemPoolDestroy),
    SNIPPET(cuMemPoolDestroy, call_cuMemPoolCreate, nothing),
    SNIPPET(cuMemPoolExportPointer, allocate_in_own_pool, free_and_destroy),
    SNIPPET(cuMemPoolExportToShareableHandle, call_cuMemPoolCreate, close_and_destroy),
    SNIPPET(cuMemPoolImportFromShareableHandle, nothing, call_cuMemPoolDestroy),
    SNIPPET(cuMemPoolImportPointer, call_cuMemPoolImportFromShareableHandle, free_and_destroy),
    SNIPPET(cuMemPoolSetAttribute, call_cuMemPoolCreate, call_cuMemPoolDestroy),
    SNIPPET(cuMemPoolTrimTo, by_default, nothing),
    SNIPPET_ALONE(cuMemSetMemPool, call_cuMemPoolCreate, call_cuMemPoolDestroy),
};
const struct snippets matrix_pools = SNIPPETS(all);
