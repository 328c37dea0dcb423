/* Memory in stream order, pools and streams. */
#include "paths.h"

CUdeviceptr addresses[128];
CUmemoryPool pools[128];
CUstream streams[128];

/* A name that is "-" stands for the device's own pool. */
static CUmemoryPool pool_of(const struct words *line, int i)
{
    CUmemoryPool pool = NULL;

    if (name(line, i) != '-')
        return pools[name(line, i)];
    cuDeviceGetDefaultMemPool(&pool, device);
    return pool;
}

/* NULL where no stream is named. */
CUstream stream_of(const struct words *line, int i)
{
    return i < line->count ? streams[name(line, i)] : NULL;
}

static CUresult make_pool(CUmemoryPool *pool, int where)
{
    CUmemPoolProps properties = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = where < 0 ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
                     .id = where < 0 ? 0 : where},
    };

    return cuMemPoolCreate(pool, &properties);
}

int do_async(const struct words *line)
{
    CUdeviceptr *to = &addresses[name(line, 1)];

    if (is(line, "alloc_async"))
        say(cuMemAllocAsync(to, number(line, 2), stream_of(line, 3)));
    else if (is(line, "alloc_async_ptsz"))
        say(cuMemAllocAsync_ptsz(to, number(line, 2), stream_of(line, 3)));
    else if (is(line, "alloc_pool"))
        say(cuMemAllocFromPoolAsync(to, number(line, 2), pool_of(line, 3), stream_of(line, 4)));
    else if (is(line, "alloc_pool_ptsz"))
        say(cuMemAllocFromPoolAsync_ptsz(to, number(line, 2), pool_of(line, 3),
                                         stream_of(line, 4)));
    else if (is(line, "free_async"))
        say(cuMemFreeAsync(*to, stream_of(line, 2)));
    else if (is(line, "free_async_ptsz"))
        say(cuMemFreeAsync_ptsz(*to, stream_of(line, 2)));
    else if (is(line, "alloc"))
        say(cuMemAlloc_v2(to, number(line, 2)));
    else if (is(line, "free"))
        say(cuMemFree_v2(*to));
    else
        return 0;
    return 1;
}

int do_pools(const struct words *line)
{
    cuuint64_t threshold = number(line, 2);

    if (is(line, "pool"))
        say(make_pool(&pools[name(line, 1)], atoi(line->word[2])));
    else if (is(line, "pool_destroy"))
        say(cuMemPoolDestroy(pools[name(line, 1)]));
    else if (is(line, "pool_trim"))
        say(cuMemPoolTrimTo(pool_of(line, 1), number(line, 2)));
    else if (is(line, "pool_threshold"))
        say(cuMemPoolSetAttribute(pool_of(line, 1), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    else if (is(line, "pool_use"))
        say(cuDeviceSetMemPool((CUdevice)number(line, 1), pool_of(line, 2)));
    else
        return 0;
    return 1;
}

static CUresult wait_event(void)
{
    CUevent event;
    CUresult result = cuEventCreate(&event, 0);

    if (result == CUDA_SUCCESS)
        result = cuEventRecord(event, NULL);
    if (result == CUDA_SUCCESS)
        result = cuEventSynchronize(event);
    return result;
}

int do_streams(const struct words *line)
{
    if (is(line, "stream"))
        say(cuStreamCreate(&streams[name(line, 1)], CU_STREAM_NON_BLOCKING));
    else if (is(line, "sync_stream"))
        say(cuStreamSynchronize(stream_of(line, 1)));
    else if (is(line, "sync_stream_ptsz"))
        say(cuStreamSynchronize_ptsz(stream_of(line, 1)));
    else if (is(line, "sync_event"))
        say(wait_event());
    else if (is(line, "sync_context"))
        say(cuCtxSynchronize());
    else if (is(line, "capture"))
        say(cuStreamBeginCapture_v2(stream_of(line, 1), CU_STREAM_CAPTURE_MODE_RELAXED));
    else if (is(line, "captured"))
        say(cuStreamEndCapture(stream_of(line, 1), &graphs[name(line, 2)]));
    else
        return 0;
    return 1;
}
