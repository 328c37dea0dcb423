/* paths_console: as memory_console, for the ways to device memory beside cuMemAlloc: pools,
 * physical allocations, graphs, modules, memory of others. Each line is answered by one: the
 * CUresult.
 * Things have names of one letter, in a name space of each kind. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hami_cuda.h"

static CUdeviceptr addresses[128];
static CUmemoryPool pools[128];
static CUstream streams[128];
static CUmemGenericAllocationHandle handles[128];
static CUlogicalEndpointId endpoints[128];
static int descriptors[128];
static CUgraph graphs[128];
static CUgraphNode last_nodes[128]; /* of each graph */
static CUgraphExec execs[128];
static CUmodule modules[128];
static CUlibrary libraries[128];
static CUexternalMemory externals[128];
static CUarray arrays[128];
static CUcontext context;
static CUdevice device;

struct words {
    char *word[16];
    int count;
};

static size_t number(const struct words *line, int i)
{
    return i < line->count ? strtoull(line->word[i], NULL, 0) : 0;
}

static size_t name(const struct words *line, int i)
{
    return i < line->count ? (unsigned char)line->word[i][0] & 127 : 0;
}

static int is(const struct words *line, const char *command)
{
    return strcmp(line->word[0], command) == 0;
}

static void say(CUresult result)
{
    printf("%d\n", (int)result);
}

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
static CUstream stream_of(const struct words *line, int i)
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

static int do_async(const struct words *line)
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

static int do_pools(const struct words *line)
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

static int do_streams(const struct words *line)
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

static CUmemAllocationProp properties_of(int where)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes =
            where < 0 ? CU_MEM_HANDLE_TYPE_NONE : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = where < 0 ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
                     .id = where < 0 ? 0 : where},
    };
}

static int do_physical(const struct words *line)
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

static int do_bindings(const struct words *line)
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

static int do_endpoints(const struct words *line)
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

static CUresult add_allocation(size_t graph, CUdeviceptr *address, size_t bytes)
{
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}},
        .bytesize = bytes,
    };
    CUgraphNode *last = &last_nodes[graph];
    CUresult result = cuGraphAddMemAllocNode(last, graphs[graph], last, *last ? 1 : 0, &parameters);

    *address = parameters.dptr;
    return result;
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, size_t how)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {0};
    CUgraphNode node;

    switch (how) {
    case 0:
        return cuGraphInstantiateWithFlags(exec, graph, 0);
    case 1:
        return cuGraphInstantiate_v2(exec, graph, &node, NULL, 0);
    case 2:
        return cuGraphInstantiateWithParams(exec, graph, &parameters);
    case 3:
        return cuGraphInstantiateWithParams_ptsz(exec, graph, &parameters);
    default:
        return cuGraphInstantiate(exec, graph, &node, NULL, 0);
    }
}

static int do_graphs(const struct words *line)
{
    size_t graph = name(line, 1);

    if (is(line, "graph")) {
        last_nodes[graph] = NULL;
        say(cuGraphCreate(&graphs[graph], 0));
    } else if (is(line, "graph_alloc")) { /* graph address bytes */
        say(add_allocation(graph, &addresses[name(line, 2)], number(line, 3)));
    } else if (is(line, "graph_free")) { /* graph address */
        say(cuGraphAddMemFreeNode(&last_nodes[graph], graphs[graph], &last_nodes[graph],
                                  last_nodes[graph] ? 1 : 0, addresses[name(line, 2)]));
    } else if (is(line, "graph_destroy")) {
        say(cuGraphDestroy(graphs[graph]));
    } else if (is(line, "graph_trim")) {
        say(cuDeviceGraphMemTrim(device));
    } else if (is(line, "instantiate")) { /* exec graph how */
        say(instantiate(&execs[name(line, 1)], graphs[name(line, 2)], number(line, 3)));
    } else if (is(line, "upload")) {
        say(cuGraphUpload(execs[name(line, 1)], stream_of(line, 2)));
    } else if (is(line, "launch")) {
        say(cuGraphLaunch(execs[name(line, 1)], stream_of(line, 2)));
    } else if (is(line, "launch_ptsz")) {
        say(cuGraphLaunch_ptsz(execs[name(line, 1)], stream_of(line, 2)));
    } else if (is(line, "exec_destroy")) {
        say(cuGraphExecDestroy(execs[name(line, 1)]));
    } else {
        return 0;
    }
    return 1;
}

/* A module's text, padded to a size. */
static CUresult load(const struct words *line)
{
    static char text[8 << 20];
    size_t bytes = number(line, 2), length;

    length = (size_t)snprintf(text, sizeof(text), "hami-sim 1\nkernel k ns=1000 code=%zu\n", bytes);
    for (; length < bytes && length < sizeof(text) - 1; length++)
        text[length] = '\n';
    text[length] = 0;
    if (is(line, "module"))
        return cuModuleLoadData(&modules[name(line, 1)], text);
    if (is(line, "module_ex"))
        return cuModuleLoadDataEx(&modules[name(line, 1)], text, 0, NULL, NULL);
    return cuLibraryLoadData(&libraries[name(line, 1)], text, NULL, NULL, 0, NULL, NULL, 0);
}

/* An image from a file, by the calls that take one in memory. */
static CUresult load_image(const struct words *line)
{
    const char *way = line->word[0];
    int fd = open(line->word[2], O_RDONLY | O_CLOEXEC);
    static char image[1 << 20];
    CUmodule *module = &modules[name(line, 1)];

    memset(image, 0, sizeof(image));
    if (fd < 0 || read(fd, image, sizeof(image) - 1) < 0 || close(fd) != 0)
        exit(8);
    if (strcmp(way, "image_data") == 0)
        return cuModuleLoadData(module, image);
    if (strcmp(way, "image_ex") == 0)
        return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
    if (strcmp(way, "image_fat") == 0)
        return cuModuleLoadFatBinary(module, image);
    return cuLibraryLoadData(&libraries[name(line, 1)], image, NULL, NULL, 0, NULL, NULL, 0);
}

static int do_modules(const struct words *line)
{
    CUmodule module;

    if (strncmp(line->word[0], "image_", 6) == 0)
        say(load_image(line));
    else if (is(line, "library_use"))
        say(cuLibraryGetModule(&module, libraries[name(line, 1)]));
    else if (is(line, "module") || is(line, "module_ex") || is(line, "library"))
        say(load(line));
    else if (is(line, "module_file"))
        say(cuModuleLoad(&modules[name(line, 1)], line->word[2]));
    else if (is(line, "library_file"))
        say(cuLibraryLoadFromFile(&libraries[name(line, 1)], line->word[2], NULL, NULL, 0, NULL,
                                  NULL, 0));
    else if (is(line, "module_unload"))
        say(cuModuleUnload(modules[name(line, 1)]));
    else if (is(line, "library_unload"))
        say(cuLibraryUnload(libraries[name(line, 1)]));
    else
        return 0;
    return 1;
}

static CUresult import_external(CUexternalMemory *memory, size_t bytes)
{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC description = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .size = bytes};

    description.handle.fd = memfd_create("external", MFD_CLOEXEC);
    return cuImportExternalMemory(memory, &description);
}

static int do_others(const struct words *line)
{
    CUipcMemHandle shared;

    if (is(line, "external")) {
        say(import_external(&externals[name(line, 1)], number(line, 2)));
    } else if (is(line, "external_destroy")) {
        say(cuDestroyExternalMemory(externals[name(line, 1)]));
    } else if (is(line, "ipc_get")) {
        say(cuIpcGetMemHandle(&shared, addresses[name(line, 1)]));
    } else if (is(line, "ipc_export")) { /* address file */
        CUresult result = cuIpcGetMemHandle(&shared, addresses[name(line, 1)]);
        FILE *file = fopen(line->word[2], "w");

        if (!file || fwrite(&shared, sizeof(shared), 1, file) != 1 || fclose(file) != 0)
            exit(4);
        say(result);
    } else if (is(line, "ipc_open")) {
        FILE *file = fopen(line->word[2], "r");

        if (!file || fread(&shared, sizeof(shared), 1, file) != 1 || fclose(file) != 0)
            exit(4);
        say(cuIpcOpenMemHandle_v2(&addresses[name(line, 1)], shared,
                                  CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    } else if (is(line, "ipc_close")) {
        say(cuIpcCloseMemHandle(addresses[name(line, 1)]));
    } else {
        return 0;
    }
    return 1;
}

/* "storm SEED ROUNDS MIB THREADS": allocates and frees at random, by pools, physical allocations
 * and cuMemAlloc; how often it was refused. Without rounds it goes on until it is killed. */
static CUresult take(unsigned int *seed, size_t bytes, int *kind, unsigned long long *held)
{
    CUmemAllocationProp properties = properties_of(device);

    *kind = rand_r(seed) % 3;
    if (*kind == 0)
        return cuMemAllocAsync(held, bytes, NULL);
    if (*kind == 1)
        return cuMemCreate(held, bytes, &properties, 0);
    return cuMemAlloc_v2(held, bytes);
}

static CUresult give_back(int kind, unsigned long long held)
{
    return kind == 0 ? cuMemFreeAsync(held, NULL)
                     : kind == 1 ? cuMemRelease(held) : cuMemFree_v2(held);
}

struct storm {
    unsigned int seed;
    unsigned long rounds;
    size_t most;
    unsigned long refused;
    pthread_t thread;
};

static void drop(unsigned long long *held, const int *kinds)
{
    for (size_t k = 0; k < 16; k++) {
        if (held[k] && give_back(kinds[k], held[k]) != CUDA_SUCCESS)
            exit(6);
        held[k] = 0;
    }
    if (cuStreamSynchronize(NULL) != CUDA_SUCCESS)
        exit(7);
}

static void *storm(void *argument)
{
    struct storm *of = argument;
    unsigned long long held[16] = {0}; /* addresses and handles */
    int kinds[16] = {0};

    if (cuCtxSetCurrent(context) != CUDA_SUCCESS)
        exit(8);
    for (unsigned long i = 0; of->rounds == 0 || i < of->rounds; i++) {
        size_t at = (size_t)rand_r(&of->seed) % 16;
        CUresult result;

        if (held[at]) {
            result = give_back(kinds[at], held[at]);
            held[at] = 0;
        } else {
            result = take(&of->seed, (1 + (size_t)rand_r(&of->seed) % of->most) << 21, &kinds[at],
                          &held[at]);
        }
        if (result == CUDA_ERROR_OUT_OF_MEMORY) {
            of->refused++;
            held[at] = 0;
            drop(held, kinds);
        } else if (result != CUDA_SUCCESS) {
            exit(5);
        }
    }
    drop(held, kinds);
    return NULL;
}

static void storms(const struct words *line)
{
    static struct storm all[64];
    size_t threads = line->count > 4 ? number(line, 4) : 1;
    unsigned long refused = 0;

    for (size_t i = 0; i < threads; i++) {
        all[i] = (struct storm){.seed = (unsigned int)(number(line, 1) * 100 + i),
                                .rounds = number(line, 2), .most = number(line, 3)};
        if (pthread_create(&all[i].thread, NULL, storm, &all[i]) != 0)
            exit(9);
    }
    for (size_t i = 0; i < threads; i++) {
        pthread_join(all[i].thread, NULL);
        refused += all[i].refused;
    }
    printf("0 %lu\n", refused);
}

/* A child that goes on where its parent was: what it is told when it waits, and frees. */
static int forked(const struct words *line)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        CUresult freed = cuMemFreeAsync(addresses[name(line, 1)], NULL);
        CUresult released = cuMemRelease(handles[name(line, 2)]);
        CUresult launched = cuGraphLaunch(execs[name(line, 3)], NULL);
        CUresult waited = cuStreamSynchronize(NULL);

        _exit(freed == waited && released == waited && launched == waited ? (int)waited : 255);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        exit(10);
    return WEXITSTATUS(status);
}

static int do_process(const struct words *line)
{
    if (is(line, "init")) {
        say(cuInit(0));
    } else if (is(line, "device")) { /* its primary context becomes current */
        CUresult result;

        device = (CUdevice)number(line, 1);
        result = cuDevicePrimaryCtxRetain(&context, device);
        say(result == CUDA_SUCCESS ? cuCtxSetCurrent(context) : result);
    } else if (is(line, "drop")) {
        say(cuDevicePrimaryCtxRelease_v2(device));
    } else if (is(line, "fork")) {
        printf("%d\n", forked(line));
    } else if (is(line, "storm")) {
        storms(line);
    } else {
        return 0;
    }
    return 1;
}

int main(void)
{
    char text[512];

    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(text, sizeof(text), stdin)) {
        struct words line = {.count = 0};

        for (char *word = strtok(text, " \n"); word && line.count < 16; word = strtok(NULL, " \n"))
            line.word[line.count++] = word;
        if (line.count == 0)
            continue;
        if (!do_process(&line) && !do_async(&line) && !do_pools(&line) && !do_streams(&line) &&
            !do_physical(&line) && !do_bindings(&line) && !do_endpoints(&line) &&
            !do_graphs(&line) && !do_modules(&line) && !do_others(&line))
            return 2;
    }
    return 0;
}
