/* What the programs of `make gpu-check` share: the first device with its primary context, a module
 * for the real driver or the simulated one, and a clock. Each says on its standard output, line by
 * line, what it found; who runs it judges. */
#ifndef HAMI_GPU_H
#define HAMI_GPU_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hami_cuda.h"

#define MIB ((size_t)1 << 20)

/* Ends the program, saying what failed: nothing it measured afterwards would mean anything. */
#define MUST(call)                                                                                 \
    do {                                                                                           \
        CUresult got_ = (call);                                                                    \
        if (got_ != CUDA_SUCCESS) {                                                                \
            fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, (int)got_);              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* nothing() returns at once. work_dynamic(u64 amount) does that many steps of arithmetic in every
 * thread, however often it is interrupted: an amount of work, not of time. */
static const char gpu_ptx[] = ".version 6.0\n"
                              ".target sm_60\n"
                              ".address_size 64\n"
                              ".visible .global .align 8 .u64 result;\n"
                              ".visible .entry nothing()\n"
                              "{\n"
                              "    ret;\n"
                              "}\n"
                              ".visible .entry work_dynamic(.param .u64 amount)\n"
                              "{\n"
                              "    .reg .pred %more, %never;\n"
                              "    .reg .u64 %left, %x, %at;\n"
                              "    ld.param.u64 %left, [amount];\n"
                              "    mov.u64 %x, %clock64;\n"
                              "AGAIN:\n"
                              "    mad.lo.u64 %x, %x, 6364136223846793005, %left;\n"
                              "    sub.u64 %left, %left, 1;\n"
                              "    setp.ne.u64 %more, %left, 0;\n"
                              "    @%more bra AGAIN;\n"
                              "    setp.eq.u64 %never, %x, 1;\n"
                              "    mov.u64 %at, result;\n"
                              "    @%never st.global.u64 [%at], %x;\n"
                              "    ret;\n"
                              "}\n";

static const char gpu_simulated[] = "hami-sim 1\n"
                                    "kernel nothing ns=2000 width=8\n"
                                    "kernel work_dynamic ns=0 width=1000\n";

struct gpu {
    CUdevice device;
    CUcontext context;
    int blocks; /* that fill the card */
};

__attribute__((unused)) static struct gpu gpu_open(void)
{
    struct gpu gpu;

    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&gpu.device, 0) != CUDA_SUCCESS) {
        fprintf(stderr, "there is no CUDA device\n");
        exit(2);
    }
    MUST(cuDevicePrimaryCtxRetain(&gpu.context, gpu.device));
    MUST(cuCtxSetCurrent(gpu.context));
    MUST(cuDeviceGetAttribute(&gpu.blocks, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu.device));
    return gpu;
}

__attribute__((unused)) static CUmodule gpu_module(void)
{
    CUmodule module;

    /* A real driver refuses this one; the simulated one only knows by it how long kernels take. */
    if (cuModuleLoadData(&module, gpu_simulated) != CUDA_SUCCESS)
        MUST(cuModuleLoadData(&module, gpu_ptx));
    return module;
}

__attribute__((unused)) static double gpu_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Says that it is so far, and goes on when told to: a line on standard input, or its end. */
__attribute__((unused)) static void gpu_wait(const char *said)
{
    int got;

    printf("%s\n", said);
    fflush(stdout);
    do
        got = getchar();
    while (got != '\n' && got != EOF);
}

__attribute__((unused)) static int gpu_compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

__attribute__((unused)) static double gpu_median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), gpu_compare);
    return values[count / 2];
}

#endif
