/* Many threads at once on all kinds of memory: nothing is lost, nothing is given out twice. */
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

#define THREADS 8
#define ROUNDS 300

static _Atomic int wrong;
static const char *_Atomic what;

static void expect(bool holds, const char *sentence)
{
    if (!holds) {
        atomic_store(&what, sentence);
        atomic_fetch_add(&wrong, 1);
    }
}

/* A word of the thread's own must still be there after others did what they do. */
static void linear(unsigned int mine, unsigned int round)
{
    size_t bytes = ((size_t)round * 7919 + mine * 104729) % (3 * MIB) + 4;
    unsigned int word = mine << 16 | round, back = 0;
    CUdeviceptr address;

    if (cuMemAlloc_v2(&address, bytes) != CUDA_SUCCESS) {
        expect(false, "an allocation of linear memory");
        return;
    }
    expect(cuMemcpyHtoD_v2(address + bytes / 8 * 4, &word, 4) == CUDA_SUCCESS, "a copy in");
    expect(cuMemcpyDtoH_v2(&back, address + bytes / 8 * 4, 4) == CUDA_SUCCESS, "a copy out");
    if (bytes <= 2 * MIB)
        expect(back == word, "the word that was copied in");
    expect(cuMemFree_v2(address) == CUDA_SUCCESS, "freeing linear memory");
}

static void pooled(unsigned int round, CUstream stream)
{
    CUdeviceptr address;

    if (cuMemAllocAsync(&address, (round % 64 + 1) * 65536, stream) != CUDA_SUCCESS) {
        expect(false, "an allocation from the pool");
        return;
    }
    expect(cuMemFreeAsync(address, stream) == CUDA_SUCCESS, "freeing to the pool");
    if (round % 8 == 0)
        expect(cuStreamSynchronize(stream) == CUDA_SUCCESS, "waiting for the stream");
}

static void by_handle(void)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle, again;
    CUdeviceptr address;

    properties.location.id = device;
    if (cuMemCreate(&handle, GRANULE, &properties, 0) != CUDA_SUCCESS ||
        cuMemAddressReserve(&address, 2 * GRANULE, 0, 0, 0) != CUDA_SUCCESS) {
        expect(false, "memory by handle");
        return;
    }
    expect(cuMemMap(address, GRANULE, 0, handle, 0) == CUDA_SUCCESS, "mapping");
    expect(cuMemRelease(handle) == CUDA_SUCCESS, "releasing");
    expect(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(address + 100)) ==
                   CUDA_SUCCESS && again == handle, "retaining");
    expect(cuMemUnmap(address, GRANULE) == CUDA_SUCCESS, "unmapping");
    expect(cuMemRelease(again) == CUDA_SUCCESS, "releasing what was retained");
    expect(cuMemAddressFree(address, 2 * GRANULE) == CUDA_SUCCESS, "freeing the addresses");
}

static void array(void)
{
    CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = 256, .Height = 256, .NumChannels = 1,
                                     .Format = CU_AD_FORMAT_FLOAT};
    CUarray made;

    expect(cuArray3DCreate_v2(&made, &shape) == CUDA_SUCCESS &&
               cuArrayDestroy(made) == CUDA_SUCCESS, "an array");
}

static void *work(void *number)
{
    unsigned int mine = (unsigned int)(uintptr_t)number;
    CUstream stream;

    if (cuCtxSetCurrent(primary) != CUDA_SUCCESS ||
        cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
        expect(false, "a thread's start");
        return NULL;
    }
    for (unsigned int round = 0; round < ROUNDS; round++) {
        linear(mine, round);
        pooled(round, stream);
        if (round % 4 == mine % 4)
            by_handle();
        if (round % 16 == mine)
            array();
        expect(available() > 0, "an amount of free memory");
    }
    expect(cuStreamSynchronize(stream) == CUDA_SUCCESS &&
               cuStreamDestroy_v2(stream) == CUDA_SUCCESS, "a thread's end");
    return NULL;
}

static const char *nothing_is_lost_between_threads(void)
{
    pthread_t threads[THREADS];
    CUmemoryPool pool;
    size_t before;

    OK(cuDeviceGetDefaultMemPool(&pool, device));
    OK(cuCtxSynchronize());
    before = available();
    for (uintptr_t i = 0; i < THREADS; i++)
        SO(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (size_t i = 0; i < THREADS; i++)
        SO(pthread_join(threads[i], NULL) == 0);
    if (atomic_load(&wrong))
        return told("%d times something failed, last: %s", atomic_load(&wrong),
                    atomic_load(&what));
    OK(cuCtxSynchronize());
    OK(cuMemPoolTrimTo(pool, 0));
    SO(available() + 64 * MIB >= before);
    return NULL;
}

/* One thread allocates, another frees: what was allocated counts once. */
static CUdeviceptr passed[64];
static _Atomic unsigned int put, got;

static void *free_them(void *count)
{
    unsigned int until = (unsigned int)(uintptr_t)count;

    expect(cuCtxSetCurrent(primary) == CUDA_SUCCESS, "the other thread's start");
    while (atomic_load(&got) < until)
        if (atomic_load(&got) < atomic_load(&put)) {
            expect(cuMemFree_v2(passed[atomic_load(&got) % 64]) == CUDA_SUCCESS,
                   "freeing what another thread allocated");
            atomic_fetch_add(&got, 1);
        }
    return NULL;
}

static const char *any_thread_frees_what_any_thread_allocated(void)
{
    size_t before = available();
    unsigned int count = 2000;
    pthread_t other;

    atomic_store(&wrong, 0);
    SO(pthread_create(&other, NULL, free_them, (void *)(uintptr_t)count) == 0);
    while (atomic_load(&put) < count)
        if (atomic_load(&put) - atomic_load(&got) < 64) {
            unsigned int place = atomic_load(&put) % 64;

            OK(cuMemAlloc_v2(&passed[place], (size_t)(place + 1) * 100000));
            atomic_fetch_add(&put, 1);
        }
    SO(pthread_join(other, NULL) == 0);
    if (atomic_load(&wrong))
        return told("%d frees failed", atomic_load(&wrong));
    SO(available() == before);
    return NULL;
}

static const struct check checks[] = {
    CHECK(nothing_is_lost_between_threads),
    CHECK(any_thread_frees_what_any_thread_allocated),
};

CONFORMANCE(checks)
