/* memory_console: a program that uses CUDA as lines on its standard input say, so that a test can
 * decide which process does what and when. Each line is answered by one: the CUresult and results.
 * Things have names of one letter: a..z for memory, A..Z for contexts. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hami_cuda.h"

static union {
    CUdeviceptr address;
    CUarray array;
    CUmipmappedArray mipmap;
} memory[128];
static CUcontext contexts[128];
static CUgreenCtx greens[128];

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

static int do_linear(const struct words *line)
{
    CUdeviceptr *to = &memory[name(line, 1)].address;
    CUdeviceptr_v1 narrow = (CUdeviceptr_v1)*to;
    size_t pitch = 77;
    unsigned int narrow_pitch = 77;
    CUresult result;

    if (is(line, "alloc")) {
        say(cuMemAlloc_v2(to, number(line, 2)));
    } else if (is(line, "alloc_v1")) {
        result = cuMemAlloc(&narrow, (unsigned int)number(line, 2));
        *to = narrow;
        say(result);
    } else if (is(line, "managed")) {
        say(cuMemAllocManaged(to, number(line, 2), CU_MEM_ATTACH_GLOBAL));
    } else if (is(line, "pitch")) {
        result = cuMemAllocPitch_v2(to, &pitch, number(line, 2), number(line, 3), 4);
        printf("%d %zu\n", (int)result, pitch);
    } else if (is(line, "pitch_v1")) {
        result = cuMemAllocPitch(&narrow, &narrow_pitch, (unsigned int)number(line, 2),
                                 (unsigned int)number(line, 3), 4);
        *to = narrow;
        printf("%d %u\n", (int)result, narrow_pitch);
    } else if (is(line, "alloc_async")) {
        say(cuMemAllocAsync(to, number(line, 2), NULL));
    } else if (is(line, "free")) {
        say(cuMemFree_v2(*to));
    } else if (is(line, "free_v1")) {
        say(cuMemFree(narrow));
    } else {
        return 0;
    }
    return 1;
}

static int do_arrays(const struct words *line)
{
    CUDA_ARRAY3D_DESCRIPTOR form = {
        .Width = number(line, 2), .Height = number(line, 3), .Depth = number(line, 4),
        .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4, .Flags = (unsigned int)number(line, 5),
    };
    CUDA_ARRAY3D_DESCRIPTOR_v1 form_v1 = {
        .Width = (unsigned int)form.Width, .Height = (unsigned int)form.Height,
        .Depth = (unsigned int)form.Depth, .Format = form.Format, .NumChannels = 4,
        .Flags = form.Flags,
    };
    CUDA_ARRAY_DESCRIPTOR flat = {
        .Width = form.Width, .Height = form.Height, .Format = form.Format, .NumChannels = 4,
    };
    CUDA_ARRAY_DESCRIPTOR_v1 flat_v1 = {
        .Width = form_v1.Width, .Height = form_v1.Height, .Format = form.Format, .NumChannels = 4,
    };
    CUarray *to = &memory[name(line, 1)].array;
    CUmipmappedArray *mipmap = &memory[name(line, 1)].mipmap;

    if (is(line, "array"))
        say(cuArrayCreate_v2(to, &flat));
    else if (is(line, "array_v1"))
        say(cuArrayCreate(to, &flat_v1));
    else if (is(line, "array3d"))
        say(cuArray3DCreate_v2(to, &form));
    else if (is(line, "array3d_v1"))
        say(cuArray3DCreate(to, &form_v1));
    else if (is(line, "mipmap"))
        say(cuMipmappedArrayCreate(mipmap, &form, (unsigned int)number(line, 6)));
    else if (is(line, "array_destroy"))
        say(cuArrayDestroy(*to));
    else if (is(line, "mipmap_destroy"))
        say(cuMipmappedArrayDestroy(*mipmap));
    else
        return 0;
    return 1;
}

static int do_primary(const struct words *line)
{
    CUdevice device = (CUdevice)number(line, 1);

    if (is(line, "retain"))
        say(cuDevicePrimaryCtxRetain(&contexts[name(line, 2)], device));
    else if (is(line, "release"))
        say(cuDevicePrimaryCtxRelease_v2(device));
    else if (is(line, "release_v1"))
        say(cuDevicePrimaryCtxRelease(device));
    else if (is(line, "reset"))
        say(cuDevicePrimaryCtxReset_v2(device));
    else if (is(line, "reset_v1"))
        say(cuDevicePrimaryCtxReset(device));
    else
        return 0;
    return 1;
}

static CUresult make_green(CUgreenCtx *to, CUdevice device)
{
    CUdevResource all;
    CUdevResourceDesc description;
    CUresult result = cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM);

    if (result == CUDA_SUCCESS)
        result = cuDevResourceGenerateDesc(&description, &all, 1);
    if (result == CUDA_SUCCESS)
        result = cuGreenCtxCreate(to, description, device, CU_GREEN_CTX_DEFAULT_STREAM);
    return result;
}

static int do_contexts(const struct words *line)
{
    CUcontext *to = &contexts[name(line, 1)];
    CUdevice device = (CUdevice)number(line, 2);
    CUctxCreateParams parameters = {0};

    if (is(line, "create"))
        say(cuCtxCreate_v2(to, 0, device));
    else if (is(line, "create_v1"))
        say(cuCtxCreate(to, 0, device));
    else if (is(line, "create_v3"))
        say(cuCtxCreate_v3(to, NULL, 0, 0, device));
    else if (is(line, "create_v4"))
        say(cuCtxCreate_v4(to, &parameters, 0, device));
    else if (is(line, "destroy"))
        say(cuCtxDestroy_v2(*to));
    else if (is(line, "destroy_v1"))
        say(cuCtxDestroy(*to));
    else if (is(line, "attach"))
        say(cuCtxAttach(to, 0));
    else if (is(line, "detach"))
        say(cuCtxDetach(*to));
    else if (is(line, "current"))
        say(cuCtxSetCurrent(line->count > 1 ? *to : NULL));
    else if (is(line, "push"))
        say(cuCtxPushCurrent_v2(*to));
    else if (is(line, "push_v1"))
        say(cuCtxPushCurrent(*to));
    else if (is(line, "pop"))
        say(cuCtxPopCurrent_v2(to));
    else if (is(line, "pop_v1"))
        say(cuCtxPopCurrent(to));
    else if (is(line, "limit"))
        say(cuCtxSetLimit((CUlimit)number(line, 1), number(line, 2)));
    else if (is(line, "synchronize"))
        say(cuCtxSynchronize());
    else if (is(line, "green"))
        say(make_green(&greens[name(line, 1)], device));
    else if (is(line, "green_context"))
        say(cuCtxFromGreenCtx(to, greens[name(line, 1)]));
    else if (is(line, "green_destroy"))
        say(cuGreenCtxDestroy(greens[name(line, 1)]));
    else
        return 0;
    return 1;
}

static int do_info(const struct words *line)
{
    size_t free_bytes = 0, total = 0;
    unsigned int free_narrow = 0, total_narrow = 0;
    CUresult result;

    if (is(line, "info")) {
        result = cuMemGetInfo_v2(&free_bytes, &total);
    } else if (is(line, "info_without_free")) {
        result = cuMemGetInfo_v2(NULL, &total);
    } else if (is(line, "info_v1")) {
        result = cuMemGetInfo(&free_narrow, &total_narrow);
        free_bytes = free_narrow;
        total = total_narrow;
    } else if (is(line, "total")) {
        result = cuDeviceTotalMem_v2(&total, (CUdevice)number(line, 1));
    } else if (is(line, "total_v1")) {
        result = cuDeviceTotalMem(&total_narrow, (CUdevice)number(line, 1));
        total = total_narrow;
    } else {
        return 0;
    }
    printf("%d %zu %zu\n", (int)result, free_bytes, total);
    return 1;
}

/* "storm SEED ROUNDS MIB": allocates and frees at random; how often it was refused. */
static void storm(unsigned int seed, unsigned long rounds, size_t most)
{
    CUdeviceptr held[16] = {0};
    unsigned long refused = 0;

    for (unsigned long i = 0; rounds == 0 || i < rounds; i++) {
        size_t at = (size_t)rand_r(&seed) % 16;
        CUresult result;

        if (held[at]) {
            result = cuMemFree_v2(held[at]);
            held[at] = 0;
        } else {
            result = cuMemAlloc_v2(&held[at], (1 + (size_t)rand_r(&seed) % most) << 20);
            if (result == CUDA_ERROR_OUT_OF_MEMORY) {
                refused++;
                for (size_t j = 0; j < 16; j++) {
                    if (held[j] && cuMemFree_v2(held[j]) != CUDA_SUCCESS)
                        exit(6);
                    held[j] = 0;
                }
                continue;
            }
        }
        if (result != CUDA_SUCCESS)
            exit(5);
    }
    for (size_t j = 0; j < 16; j++)
        if (held[j])
            cuMemFree_v2(held[j]);
    printf("0 %lu\n", refused);
}

/* ---- "threads NUMBER ROUNDS": all of them at once, on the first two devices ---- */

static unsigned long rounds_of_threads;

static CUresult use_context(CUcontext context, unsigned int *seed)
{
    CUdeviceptr held[8] = {0};
    size_t free_bytes, total;
    CUresult result = cuCtxPushCurrent_v2(context);

    for (int i = 0; i < 40 && result == CUDA_SUCCESS; i++) {
        size_t at = (size_t)rand_r(seed) % 8;

        if (held[at]) {
            result = cuMemFree_v2(held[at]);
            held[at] = 0;
        } else {
            result = cuMemAlloc_v2(&held[at], (size_t)1 << (8 + rand_r(seed) % 15));
            if (result == CUDA_ERROR_OUT_OF_MEMORY)
                result = CUDA_SUCCESS;
        }
        if (result == CUDA_SUCCESS)
            result = cuMemGetInfo_v2(&free_bytes, &total);
    }
    for (int i = 0; i < 8; i++)
        if (held[i] && i % 2) /* the others go with the context, or stay in the primary one */
            cuMemFree_v2(held[i]);
    if (result == CUDA_SUCCESS)
        result = cuCtxPopCurrent_v2(&context);
    return result;
}

static void *use_devices(void *argument)
{
    unsigned int seed = (unsigned int)(uintptr_t)argument;
    CUresult result = CUDA_SUCCESS;

    for (unsigned long i = 0; i < rounds_of_threads && result == CUDA_SUCCESS; i++) {
        CUdevice device = rand_r(&seed) % 2;
        CUcontext context;

        if (rand_r(&seed) % 2) {
            result = cuDevicePrimaryCtxRetain(&context, device);
            if (result == CUDA_SUCCESS)
                result = use_context(context, &seed);
            if (result == CUDA_SUCCESS)
                result = cuDevicePrimaryCtxRelease_v2(device);
        } else {
            result = cuCtxCreate_v2(&context, 0, device);
            if (result == CUDA_SUCCESS)
                result = use_context(context, &seed);
            if (result == CUDA_SUCCESS)
                result = cuCtxDestroy_v2(context);
        }
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            result = CUDA_SUCCESS;
    }
    return (void *)(uintptr_t)result;
}

static void run_threads(size_t count)
{
    pthread_t threads[64];
    CUresult result = CUDA_SUCCESS;
    void *ended;

    for (size_t i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, use_devices, (void *)(i + 1)) != 0)
            exit(7);
    for (size_t i = 0; i < count; i++) {
        pthread_join(threads[i], &ended);
        if (ended)
            result = (CUresult)(uintptr_t)ended;
    }
    say(result);
}

/* "fork": what a child of a process with a context is told when it allocates, and frees what its
 * parent has under the name a. */
static void run_child(void)
{
    int status = 0;
    pid_t child;

    fflush(stdout);
    child = fork();
    if (child == 0) {
        CUdeviceptr address;
        size_t free_bytes, total;
        CUresult results[] = {
            cuMemAlloc_v2(&address, 1 << 20), cuMemFree_v2(memory['a'].address),
            cuMemGetInfo_v2(&free_bytes, &total), cuDevicePrimaryCtxRelease_v2(0),
            cuCtxDestroy_v2(contexts['P']), cuInit(0),
        };

        for (size_t i = 1; i < sizeof(results) / sizeof(results[0]); i++)
            if (results[i] != results[0])
                _exit(100);
        _exit((int)results[0]);
    }
    waitpid(child, &status, 0);
    printf("%d\n", WEXITSTATUS(status));
}

int main(void)
{
    char text[256];

    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(text, sizeof(text), stdin)) {
        struct words line = {.count = 0};

        for (char *word = strtok(text, " \n"); word && line.count < 16; word = strtok(NULL, " \n"))
            line.word[line.count++] = word;
        if (line.count == 0)
            continue;
        if (is(&line, "init"))
            say(cuInit(0));
        else if (is(&line, "storm"))
            storm((unsigned int)number(&line, 1), number(&line, 2), number(&line, 3));
        else if (is(&line, "fork"))
            run_child();
        else if (is(&line, "threads")) {
            rounds_of_threads = number(&line, 2);
            run_threads(number(&line, 1));
        } else if (!do_linear(&line) && !do_arrays(&line) && !do_primary(&line) &&
                 !do_contexts(&line) && !do_info(&line))
            return 2;
    }
    return 0;
}
