/* memory CHUNK_MIB
 *
 * Takes all the memory it is given, by one interface after another, and gives it back:
 *
 *     context FREE TOTAL                        when there is a context and nothing else
 *     NAME GRANTED CODE FREE TOTAL              bytes until CODE was the answer; what is free then
 *     small CODE                                a last request of one byte more than is free
 *     held                                      with all of it; goes on when told to */
#include "gpu.h"

#define MOST 65536

static CUdeviceptr taken[MOST];
static CUdevice device;
static size_t chunk;

static CUresult take_linear(CUdeviceptr *memory)
{
    return cuMemAlloc_v2(memory, chunk);
}

static CUresult give_linear(CUdeviceptr memory)
{
    return cuMemFree_v2(memory);
}

static CUresult take_pitched(CUdeviceptr *memory)
{
    size_t pitch;

    return cuMemAllocPitch_v2(memory, &pitch, 4096, chunk / 4096, 4);
}

static CUresult take_async(CUdeviceptr *memory)
{
    CUresult result = cuMemAllocAsync(memory, chunk, NULL);

    return result == CUDA_SUCCESS ? cuStreamSynchronize(NULL) : result;
}

static CUresult give_async(CUdeviceptr memory)
{
    CUresult result = cuMemFreeAsync(memory, NULL);

    return result == CUDA_SUCCESS ? cuStreamSynchronize(NULL) : result;
}

static CUresult take_physical(CUdeviceptr *memory)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

    properties.location.id = device;
    return cuMemCreate(memory, chunk, &properties, 0);
}

static CUresult give_physical(CUdeviceptr memory)
{
    return cuMemRelease(memory);
}

static CUresult take_array(CUdeviceptr *memory)
{
    CUDA_ARRAY3D_DESCRIPTOR shape = {
        .Width = 4096, .Height = chunk / 16384, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUarray array;
    CUresult result = cuArray3DCreate_v2(&array, &shape);

    *memory = (CUdeviceptr)(uintptr_t)array;
    return result;
}

static CUresult give_array(CUdeviceptr memory)
{
    return cuArrayDestroy((CUarray)(uintptr_t)memory);
}

/* Not managed memory: with more of it than the card has a driver may hang. */
static const struct interface {
    const char *name;
    CUresult (*take)(CUdeviceptr *memory);
    CUresult (*give)(CUdeviceptr memory);
} interfaces[] = {
    {"cuMemAlloc", take_linear, give_linear},
    {"cuMemAllocPitch", take_pitched, give_linear},
    {"cuMemAllocAsync", take_async, give_async},
    {"cuMemCreate", take_physical, give_physical},
    {"cuArray3DCreate", take_array, give_array},
};

static void use(const struct interface *interface, bool hold)
{
    size_t count = 0, free_now = 0, total = 0;
    CUresult answer = CUDA_SUCCESS;

    while (count < MOST && (answer = interface->take(&taken[count])) == CUDA_SUCCESS)
        count++;
    MUST(cuMemGetInfo_v2(&free_now, &total));
    printf("%s %zu %d %zu %zu\n", interface->name, count * chunk, (int)answer, free_now, total);
    if (hold) {
        CUdeviceptr more = 0;

        printf("small %d\n", (int)cuMemAlloc_v2(&more, free_now + 1));
        gpu_wait("held");
    }
    while (count > 0)
        MUST(interface->give(taken[--count]));
    MUST(cuCtxSynchronize());
}

int main(int argc, char **argv)
{
    struct gpu gpu = gpu_open();
    CUmemoryPool pool;
    size_t free_now, total;

    chunk = (size_t)(argc > 1 ? atoi(argv[1]) : 64) * MIB;
    device = gpu.device;
    MUST(cuMemGetInfo_v2(&free_now, &total));
    printf("context %zu %zu\n", free_now, total);
    gpu_wait("ready");
    for (size_t i = 0; i < sizeof(interfaces) / sizeof(*interfaces); i++) {
        use(&interfaces[i], i == 0);
        /* What a pool caches is taken for all other interfaces. */
        if (interfaces[i].take == take_async &&
            cuDeviceGetDefaultMemPool(&pool, gpu.device) == CUDA_SUCCESS)
            MUST(cuMemPoolTrimTo(pool, 0));
    }
    return 0;
}
