/* guest: a CUDA program with odd habits: "guest HABIT [ARGUMENT]" does what the habit is, before or
 * after cuInit, and says what then came of
 *     cuInit  the primary context  how many allocations of 2 MiB  why there were no more */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "hami_cuda.h"

#define BLOCK ((size_t)2 << 20)
#define MOST 4096

static CUdeviceptr held[MOST];
static size_t count;
static CUcontext context;

static CUresult fill(void)
{
    CUresult result = CUDA_SUCCESS;

    while (result == CUDA_SUCCESS && count < MOST) {
        result = cuMemAlloc_v2(&held[count], BLOCK);
        if (result == CUDA_SUCCESS)
            count++;
    }
    return result;
}

static CUresult empty(void)
{
    CUresult result = CUDA_SUCCESS;

    while (count > 0 && result == CUDA_SUCCESS)
        result = cuMemFree_v2(held[--count]);
    return result;
}

static CUresult start(void)
{
    CUresult result = cuDevicePrimaryCtxRetain(&context, 0);

    return result == CUDA_SUCCESS ? cuCtxSetCurrent(context) : result;
}

/* Ours, by what it is: the file named usage. */
static int usage_descriptor(void)
{
    for (int fd = 0; fd < 1024; fd++) {
        char name[32], target[4096];
        ssize_t length;

        snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
        length = readlink(name, target, sizeof(target) - 1);
        if (length < 6)
            continue;
        target[length] = 0;
        if (strcmp(target + length - 6, "/usage") == 0)
            return fd;
    }
    return -1;
}

static void close_ours(const char *unused)
{
    (void)unused;
    if (close(usage_descriptor()) != 0)
        exit(3);
}

/* The program's own file gets the number. */
static void replace_ours(const char *path)
{
    int own = open(path, O_RDWR | O_CREAT, 0600), ours = usage_descriptor();

    if (own < 0 || ours < 0 || dup2(own, ours) != ours)
        exit(3);
}

static void few_descriptors(const char *number)
{
    struct rlimit limit = {.rlim_cur = strtoul(number, NULL, 0), .rlim_max = 1024};

    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        exit(3);
}

static void no_standard_streams(const char *unused)
{
    (void)unused;
    close(0);
    close(2);
}

static void another_user(const char *unused)
{
    (void)unused;
    if (setgid(65534) != 0 || setuid(65534) != 0)
        exit(3);
}

static void another_root(const char *path)
{
    if (chroot(path) != 0 || chdir("/") != 0)
        exit(3);
}

/* "NUMBER": that system call fails with EPERM from now on. */
static void without_call(const char *number)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)strtoul(number, NULL, 0), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(code) / sizeof(*code), .filter = code};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        exit(77);
}

static void nothing(const char *unused)
{
    (void)unused;
}

static volatile sig_atomic_t ticks;

static void tick(int number)
{
    (void)number;
    ticks++;
}

/* A timer that interrupts whatever is under way, as a profiler's does. */
static void interrupted(const char *microseconds)
{
    struct sigaction action = {.sa_handler = tick};
    struct itimerspec every = {.it_interval.tv_nsec = atoi(microseconds) * 1000L,
                               .it_value.tv_nsec = 1000};
    timer_t timer;

    if (sigaction(SIGALRM, &action, NULL) != 0 ||
        timer_create(CLOCK_MONOTONIC, NULL, &timer) != 0 ||
        timer_settime(timer, 0, &every, NULL) != 0)
        exit(3);
}

static const struct habit {
    const char *name;
    void (*before)(const char *argument);
    void (*after)(const char *argument);
} habits[] = {
    {"none", nothing, nothing},
    {"closes-ours", nothing, close_ours},
    {"replaces-ours", nothing, replace_ours},
    {"few-descriptors", few_descriptors, nothing},
    {"no-standard-streams", no_standard_streams, nothing},
    {"another-user", nothing, another_user},
    {"another-root", nothing, another_root},
    {"without-call-before", without_call, nothing},
    {"without-call-after", nothing, without_call},
    {"interrupted", interrupted, nothing},
};

static void run(const struct habit *habit, const char *argument)
{
    CUresult initialised, started, last = CUDA_ERROR_UNKNOWN;

    habit->before(argument);
    initialised = cuInit(0);
    habit->after(argument);
    started = start();
    if (started == CUDA_SUCCESS) {
        fill();
        if (empty() != CUDA_SUCCESS)
            exit(4);
        last = fill();
    }
    printf("%d %d %zu %d\n", (int)initialised, (int)started, count, (int)last);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof(habits) / sizeof(*habits); i++) {
        if (strcmp(argv[1], habits[i].name) == 0) {
            run(&habits[i], argc > 2 ? argv[2] : "");
            return 0;
        }
    }
    return 2;
}
