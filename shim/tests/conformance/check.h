/* Conformance: what programs may expect of a CUDA driver, as named checks that run on the simulator
 * and on real cards. Nothing here knows which of them it runs on; amounts are relative to the card.
 *
 * A check returns NULL when all is so, SKIP(why) where the driver or card cannot, or what is not
 * so. Programs take names of checks as arguments; without any they run them all. They print a
 * line per check and end with 1 if one failed. */
#ifndef HAMI_CONFORMANCE_CHECK_H
#define HAMI_CONFORMANCE_CHECK_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hami_cuda.h"

#define MIB ((size_t)1 << 20)
#define GRANULE (2 * MIB)

struct check {
    const char *name; /* a sentence, with underscores */
    const char *(*run)(void);
    bool first; /* prepares for the others: always runs */
};
#define CHECK(name) {#name, name, false}
#define FIRST(name) {#name, name, true}

__attribute__((format(printf, 1, 2), unused)) static const char *told(const char *format, ...)
{
    static char text[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return text;
}

/* `call` answers exactly `expected`. */
#define IS(expected, call)                                                                         \
    do {                                                                                           \
        CUresult got_ = (call);                                                                    \
        if (got_ != (expected))                                                                    \
            return told("line %d: %s: %d, not %s", __LINE__, #call, (int)got_, #expected);         \
    } while (0)
#define OK(call) IS(CUDA_SUCCESS, call)
/* The documentation promises a refusal, not which. */
#define FAILS(call)                                                                                \
    do {                                                                                           \
        if ((call) == CUDA_SUCCESS)                                                                \
            return told("line %d: %s: accepted", __LINE__, #call);                                 \
    } while (0)
#define SO(what)                                                                                   \
    do {                                                                                           \
        if (!(what))                                                                               \
            return told("line %d: not so: %s", __LINE__, #what);                                   \
    } while (0)
#define SKIP(why) ("skip: " why)

static CUdevice device;
static CUcontext primary;

/* Bytes free on the card now. */
__attribute__((unused)) static size_t available(void)
{
    size_t free_now = 0, total;

    return cuMemGetInfo_v2(&free_now, &total) == CUDA_SUCCESS ? free_now : 0;
}

/* A part of what is free, in whole granules. */
__attribute__((unused)) static size_t part_of_free(size_t divisor)
{
    return available() / divisor / GRANULE * GRANULE;
}

__attribute__((unused)) static int attribute(CUdevice_attribute which)
{
    int value = 0;

    return cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

/* What the driver takes for itself when it first does something is no check's business. */
static bool warm_up(void)
{
    CUdeviceptr address;
    CUstream stream;
    char byte = 0;

    return cuMemAlloc_v2(&address, 1) == CUDA_SUCCESS &&
           cuMemcpyHtoD_v2(address, &byte, 1) == CUDA_SUCCESS &&
           cuMemsetD8_v2(address, 0, 1) == CUDA_SUCCESS && cuMemFree_v2(address) == CUDA_SUCCESS &&
           cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
           cuStreamDestroy_v2(stream) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS;
}

static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return argc == 1;
}

__attribute__((unused)) static int run_checks(const struct check *checks, size_t count, int argc,
                                              char **argv)
{
    int failed = 0, ran = 0;

    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS ||
        cuDevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS ||
        cuCtxSetCurrent(primary) != CUDA_SUCCESS || !warm_up()) {
        fprintf(stderr, "there is no CUDA device to check\n");
        return 2;
    }
    for (size_t i = 0; i < count; i++) {
        const char *answer;

        if (!checks[i].first && !wanted(checks[i].name, argc, argv))
            continue;
        ran++;
        answer = checks[i].run();
        if (answer && strncmp(answer, "skip: ", 6) == 0)
            printf("ok - %s # %s\n", checks[i].name, answer);
        else if (answer)
            printf("not ok - %s # %s\n", checks[i].name, answer);
        else
            printf("ok - %s\n", checks[i].name);
        fflush(stdout);
        failed += answer && strncmp(answer, "skip: ", 6) != 0;
        if (cuCtxSetCurrent(primary) != CUDA_SUCCESS)
            break;
    }
    if (ran == 0)
        fprintf(stderr, "no check has that name\n");
    return failed || !ran;
}

#define CONFORMANCE(checks)                                                                        \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        return run_checks(checks, sizeof(checks) / sizeof((checks)[0]), argc, argv);               \
    }

#endif
