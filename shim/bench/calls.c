/* calls
 *
 * What calls of the driver cost the thread that makes them. Reads one command a line and answers
 * each with one line, so that whoever measures can let two of these take turns, one with the library
 * and one without, batch by batch:
 *
 *   time WHAT COUNT [BYTES]   nanoseconds for each of COUNT calls: elapsed, and of the processor
 *   hold COUNT BYTES          that many allocations are live from now on
 *   drop                      they are not any more
 *   spin WHAT                 do it until the input ends, and be the load that others measure under
 *
 * WHAT: nothing, clock, getpid, launch, launch2 (two threads at once), alloc, async, info. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "hami_cuda.h"

#define MUST(call)                                                                                 \
    do {                                                                                           \
        CUresult got_ = (call);                                                                    \
        if (got_ != CUDA_SUCCESS) {                                                                \
            fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, (int)got_);              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static const char image[] = "hami-sim 1\nkernel nothing ns=0\n";

static CUcontext context;
static CUfunction nothing;
static CUstream streams[2];

static double now_on(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* ---- What is measured: `count` calls each --------------------------------------------------- */

struct job {
    long count;
    size_t bytes;
    CUstream stream;
};

static void do_nothing(const struct job *job)
{
    for (long i = 0; i < job->count; i++)
        __asm__ volatile("");
}

static void ask_clock(const struct job *job)
{
    struct timespec now;

    for (long i = 0; i < job->count; i++)
        clock_gettime(CLOCK_MONOTONIC, &now);
}

static void ask_pid(const struct job *job)
{
    for (long i = 0; i < job->count; i++)
        syscall(SYS_getpid);
}

static void launch(const struct job *job)
{
    for (long i = 0; i < job->count; i++)
        MUST(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, job->stream, NULL, NULL));
}

static void allocate(const struct job *job)
{
    for (long i = 0; i < job->count; i++) {
        CUdeviceptr address;

        MUST(cuMemAlloc_v2(&address, job->bytes));
        MUST(cuMemFree_v2(address));
    }
}

static void allocate_async(const struct job *job)
{
    for (long i = 0; i < job->count; i++) {
        CUdeviceptr address;

        MUST(cuMemAllocAsync(&address, job->bytes, job->stream));
        MUST(cuMemFreeAsync(address, job->stream));
    }
}

static void ask_info(const struct job *job)
{
    for (long i = 0; i < job->count; i++) {
        size_t free_bytes, total;

        MUST(cuMemGetInfo_v2(&free_bytes, &total));
    }
}

static const struct what {
    const char *name;
    void (*run)(const struct job *job);
    bool twice; /* by two threads at once */
} all[] = {
    {"nothing", do_nothing, false}, {"clock", ask_clock, false},      {"getpid", ask_pid, false},
    {"launch", launch, false},      {"launch2", launch, true},        {"alloc", allocate, false},
    {"async", allocate_async, false}, {"info", ask_info, false},
};

static const struct what *find(const char *name)
{
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (strcmp(all[i].name, name) == 0)
            return &all[i];
    fprintf(stderr, "calls: there is no %s\n", name);
    exit(2);
}

/* ---- Measuring ------------------------------------------------------------------------------ */

/* Nanoseconds for each call, by the clock on the wall and of the processor: where there are more
 * threads than processors the former is mostly about the others. */
struct took {
    double wall, cpu;
};

/* A first tenth warms up what others have cooled. */
static struct took timed(const struct what *what, const struct job *job)
{
    struct job warm = *job;
    struct took took;

    warm.count = job->count / 10;
    what->run(&warm);
    took.wall = now_on(CLOCK_MONOTONIC);
    took.cpu = now_on(CLOCK_THREAD_CPUTIME_ID);
    what->run(job);
    took.cpu = (now_on(CLOCK_THREAD_CPUTIME_ID) - took.cpu) / (double)job->count;
    took.wall = (now_on(CLOCK_MONOTONIC) - took.wall) / (double)job->count;
    return took;
}

/* The other of two threads lives on: what a thread keeps for itself is not made anew each time. */
static struct {
    pthread_barrier_t barrier;
    atomic_int awake;
    const struct what *what;
    struct job job;
    struct took took;
} other;

/* Waking up takes longer than many a batch. */
static void start_together(void)
{
    for (atomic_fetch_add(&other.awake, 1); atomic_load(&other.awake) < 2;)
        ;
}

static void *be_other(void *unused)
{
    (void)unused;
    MUST(cuCtxSetCurrent(context));
    for (;;) {
        pthread_barrier_wait(&other.barrier);
        start_together();
        other.took = timed(other.what, &other.job);
        pthread_barrier_wait(&other.barrier);
    }
    return NULL;
}

static struct took timed_twice(const struct what *what, const struct job *job)
{
    static bool started;
    pthread_t thread;
    struct took took;

    if (!started) {
        pthread_barrier_init(&other.barrier, NULL, 2);
        if (pthread_create(&thread, NULL, be_other, NULL) != 0)
            exit(1);
        started = true;
    }
    other.what = what;
    other.job = *job;
    other.job.stream = streams[1];
    atomic_store(&other.awake, 0);
    pthread_barrier_wait(&other.barrier);
    start_together();
    took = timed(what, job);
    pthread_barrier_wait(&other.barrier);
    return (struct took){(took.wall + other.took.wall) / 2, (took.cpu + other.took.cpu) / 2};
}

/* ---- Commands ------------------------------------------------------------------------------- */

static CUdeviceptr *held;
static long held_count;

static void drop(void)
{
    for (long i = 0; i < held_count; i++)
        MUST(cuMemFree_v2(held[i]));
    free(held);
    held = NULL;
    held_count = 0;
}

static void hold(long count, size_t bytes)
{
    drop();
    held = calloc((size_t)count, sizeof(*held));
    if (!held)
        exit(1);
    for (; held_count < count; held_count++)
        MUST(cuMemAlloc_v2(&held[held_count], bytes));
}

static void *spin(void *argument)
{
    const struct what *what = argument;
    struct job job = {.count = 1000, .bytes = (size_t)4 << 20, .stream = streams[0]};

    MUST(cuCtxSetCurrent(context));
    for (;;)
        what->run(&job);
    return NULL;
}

static void obey(const char *line)
{
    char command[16] = "", name[16] = "";
    long count = 1, bytes = 4 << 20;
    pthread_t thread;

    if (sscanf(line, "time %15s %ld %ld", name, &count, &bytes) >= 2) {
        const struct what *what = find(name);
        struct job job = {.count = count, .bytes = (size_t)bytes, .stream = streams[0]};

        struct took took = what->twice ? timed_twice(what, &job) : timed(what, &job);

        printf("%.3f %.3f\n", took.wall, took.cpu);
        return;
    }
    if (sscanf(line, "hold %ld %ld", &count, &bytes) == 2)
        hold(count, (size_t)bytes);
    else if (sscanf(line, "spin %15s", name) == 1) {
        if (pthread_create(&thread, NULL, spin, (void *)(uintptr_t)find(name)) != 0)
            exit(1);
    } else if (sscanf(line, "%15s", command) == 1 && strcmp(command, "drop") == 0)
        drop();
    else
        exit(2);
    puts("ok");
}

int main(void)
{
    char line[128];
    CUmodule module;
    CUdevice device;

    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, image));
    MUST(cuModuleGetFunction(&nothing, module, "nothing"));
    for (int i = 0; i < 2; i++)
        MUST(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        obey(line);
        fflush(stdout);
    }
    return 0;
}
