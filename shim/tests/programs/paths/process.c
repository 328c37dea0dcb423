/* The process itself, and storms of calls in it. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "paths.h"

CUcontext context;
CUdevice device;

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

int do_process(const struct words *line)
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
