/* storm: takes and gives device memory by every way there is. As memory_console, each line on its
 * standard input is answered by one: the CUresult and results. What it holds it holds by number of
 * the way, in the order in which it took it. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
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

static size_t blocks(size_t bytes)
{
    const size_t block = (size_t)2 << 20;

    return bytes > SIZE_MAX - block ? SIZE_MAX / block * block : (bytes + block - 1) / block * block;
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

/* What the driver caches goes back. */
static CUresult settle(void)
{
    CUresult result = cuCtxSynchronize();

    if (result == CUDA_SUCCESS)
        result = cuDeviceGraphMemTrim(device);
    return result;
}

/* ---- One call at a time ---- */

#define MOST 100000

static struct {
    struct piece pieces[MOST];
    size_t count;
} held[WAYS];

static size_t way_named(const char *name)
{
    for (size_t i = 0; i < WAYS; i++)
        if (strcmp(ways[i].name, name) == 0)
            return i;
    fprintf(stderr, "no way is called %s\n", name);
    exit(3);
}

/* "take WAY BYTES COUNT": until so many or refused; the last result, how many. */
static void do_take(size_t way, size_t bytes, size_t count)
{
    CUresult result = CUDA_SUCCESS;
    size_t taken = 0;

    while (taken < count && result == CUDA_SUCCESS) {
        if (held[way].count == MOST)
            exit(9);
        result = take(way, &held[way].pieces[held[way].count], bytes);
        if (result == CUDA_SUCCESS) {
            held[way].count++;
            taken++;
        }
    }
    printf("%d %zu\n", (int)result, taken);
}

/* "give WAY KEEP": of each KEEP, in the order of taking, the first stays; 0: none does. */
static void do_give(size_t way, size_t keep)
{
    CUresult result = CUDA_SUCCESS;
    size_t left = 0;

    for (size_t i = 0; i < held[way].count; i++) {
        if (keep && i % keep == 0) {
            held[way].pieces[left++] = held[way].pieces[i];
            continue;
        }
        if (result == CUDA_SUCCESS)
            result = ways[way].give(&held[way].pieces[i]);
    }
    held[way].count = left;
    if (result == CUDA_SUCCESS)
        result = settle();
    printf("%d\n", (int)result);
}

/* ---- "storm SEED ROUNDS MOST SMALL THREADS FORKS [WAY...]" ----
 * At random, up to MOST bytes at a time; of 100 requests SMALL are below 1 MiB; of 1000 rounds
 * FORKS fork. ROUNDS of 0: until killed. How often refused, and how often granted by each way. */

#define HANDS 12

struct storm {
    pthread_t thread;
    unsigned int seed;
    unsigned long rounds;
    size_t most;
    unsigned int small, forks;
    unsigned long refused, granted[WAYS];
};
static size_t allowed[WAYS], allowed_count;

static void nap(unsigned int *seed)
{
    struct timespec time = {.tv_nsec = rand_r(seed) % 30 * 1000000};

    nanosleep(&time, NULL);
}

/* A child that lives on for a while as what children are: a copy that holds what was open, another
 * program, or a daemon that closed everything. */
static void fork_one(unsigned int *seed)
{
    int what = rand_r(seed) % 4;
    pid_t child = fork();

    if (child != 0)
        return;
    if (what == 0) {
        execl("/bin/sleep", "sleep", "0.01", (char *)NULL);
        _exit(127);
    }
    if (what == 1)
        for (int fd = 3; fd < 256; fd++)
            close(fd);
    if (what == 2)
        nap(seed);
    nap(seed);
    _exit(0);
}

static size_t size_of_request(struct storm *of)
{
    size_t most = of->most;

    if ((unsigned int)(rand_r(&of->seed) % 100) < of->small)
        most = (size_t)1 << (9 + rand_r(&of->seed) % 12);
    return 1 + (((size_t)(unsigned int)rand_r(&of->seed) << 31) + (size_t)rand_r(&of->seed)) % most;
}

static void fail(const char *what, size_t way, CUresult result)
{
    fprintf(stderr, "storm: %s by %s: %d\n", what, ways[way].name, (int)result);
    exit(5);
}

static void drop_all(struct piece *pieces, size_t *by, size_t *count)
{
    CUresult result;

    while (*count > 0) {
        size_t last = --*count;

        result = ways[by[last]].give(&pieces[last]);
        if (result != CUDA_SUCCESS)
            fail("giving back", by[last], result);
    }
    result = settle();
    if (result != CUDA_SUCCESS)
        fail("settling", 0, result);
}

static void *storm(void *argument)
{
    struct storm *of = argument;
    struct piece pieces[HANDS];
    size_t by[HANDS], count = 0;

    if (cuCtxSetCurrent(context) != CUDA_SUCCESS)
        exit(8);
    for (unsigned long i = 0; of->rounds == 0 || i < of->rounds; i++) {
        size_t at = (size_t)rand_r(&of->seed) % HANDS;
        CUresult result;

        if (of->forks && (unsigned int)(rand_r(&of->seed) % 1000) < of->forks)
            fork_one(&of->seed);
        if (at < count) {
            result = ways[by[at]].give(&pieces[at]);
            if (result != CUDA_SUCCESS)
                fail("giving back", by[at], result);
            pieces[at] = pieces[--count];
            by[at] = by[count];
            continue;
        }
        by[count] = allowed[(size_t)rand_r(&of->seed) % allowed_count];
        result = take(by[count], &pieces[count], size_of_request(of));
        if (result == CUDA_SUCCESS) {
            of->granted[by[count++]]++;
        } else if (result == CUDA_ERROR_OUT_OF_MEMORY) {
            of->refused++;
            drop_all(pieces, by, &count);
        } else {
            fail("taking", by[count], result);
        }
    }
    drop_all(pieces, by, &count);
    if (own_pool && cuMemPoolDestroy(own_pool) != CUDA_SUCCESS)
        exit(7);
    own_pool = NULL;
    return NULL;
}

static void storms(char **word, int words)
{
    static struct storm all[64];
    unsigned long numbers[6] = {0}, refused = 0;
    size_t threads;

    for (int i = 0; i < 6 && i < words; i++)
        numbers[i] = strtoul(word[i], NULL, 0);
    allowed_count = 0;
    for (int i = 6; i < words; i++)
        allowed[allowed_count++] = way_named(word[i]);
    if (allowed_count == 0)
        for (; allowed_count < WAYS; allowed_count++)
            allowed[allowed_count] = allowed_count;
    signal(SIGCHLD, SIG_IGN);
    threads = numbers[4] ? numbers[4] : 1;
    for (size_t i = 0; i < threads; i++) {
        all[i] = (struct storm){.seed = (unsigned int)(numbers[0] * 64 + i + 1),
                                .rounds = numbers[1], .most = numbers[2],
                                .small = (unsigned int)numbers[3],
                                .forks = (unsigned int)numbers[5]};
        if (pthread_create(&all[i].thread, NULL, storm, &all[i]) != 0)
            exit(9);
    }
    for (size_t i = 0; i < threads; i++) {
        pthread_join(all[i].thread, NULL);
        refused += all[i].refused;
    }
    printf("0 %lu", refused);
    for (size_t way = 0; way < WAYS; way++) {
        unsigned long granted = 0;

        for (size_t i = 0; i < threads; i++)
            granted += all[i].granted[way];
        printf(" %lu", granted);
    }
    putchar('\n');
}

/* "fork SECONDS HOW": a child of this process lives so long, as a copy ("copy"), as another program
 * ("exec"), or having closed all it inherited ("closed"); its pid. */
static void do_fork(const char *seconds, const char *how)
{
    pid_t child = fork();

    if (child == 0) {
        if (strcmp(how, "exec") == 0) {
            execl("/bin/sleep", "sleep", seconds, (char *)NULL);
            _exit(127);
        }
        /* The pipes too: a test waits for their end. */
        for (int fd = 0; fd < (strcmp(how, "closed") == 0 ? 256 : 3); fd++)
            close(fd);
        usleep((useconds_t)(strtod(seconds, NULL) * 1e6));
        _exit(0);
    }
    signal(SIGCHLD, SIG_IGN);
    printf("0 %d\n", (int)child);
}

static CUresult become(CUdevice ordinal)
{
    CUresult result;

    device = ordinal;
    result = cuDevicePrimaryCtxRetain(&context, device);
    return result == CUDA_SUCCESS ? cuCtxSetCurrent(context) : result;
}

static int obey(char **word, int words)
{
    if (strcmp(word[0], "init") == 0)
        printf("%d\n", (int)cuInit(0));
    else if (strcmp(word[0], "device") == 0 && words == 2)
        printf("%d\n", (int)become(atoi(word[1])));
    else if (strcmp(word[0], "take") == 0 && words == 4)
        do_take(way_named(word[1]), strtoull(word[2], NULL, 0), strtoull(word[3], NULL, 0));
    else if (strcmp(word[0], "give") == 0 && words == 3)
        do_give(way_named(word[1]), strtoull(word[2], NULL, 0));
    else if (strcmp(word[0], "storm") == 0)
        storms(word + 1, words - 1);
    else if (strcmp(word[0], "fork") == 0 && words == 3)
        do_fork(word[1], word[2]);
    else
        return 0;
    return 1;
}

int main(int argc, char **argv)
{
    char text[1024];

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 2 && strcmp(argv[1], "ways") == 0) {
        for (size_t way = 0; way < WAYS; way++)
            puts(ways[way].name);
        return 0;
    }
    while (fgets(text, sizeof(text), stdin)) {
        char *word[40];
        int words = 0;

        for (char *at = strtok(text, " \n"); at && words < 40; at = strtok(NULL, " \n"))
            word[words++] = at;
        if (words > 0 && !obey(word, words))
            return 2;
    }
    return 0;
}
