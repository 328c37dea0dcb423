/* Kernels for checks: the test module in the primary context, ways to launch it, and a clock. */
#ifndef HAMI_CONFORMANCE_KERNELS_H
#define HAMI_CONFORMANCE_KERNELS_H

#include <time.h>

#include "check.h"
#include "module.h"

#define MS UINT64_C(1000000)

static CUmodule module;
static CUfunction nothing, spin;

__attribute__((unused)) static const char *with_module(void)
{
    if (module)
        return NULL;
    OK(load_test_module(&module));
    OK(cuModuleGetFunction(&nothing, module, "nothing"));
    OK(cuModuleGetFunction(&spin, module, "spin_dynamic"));
    /* The first launch loads what later ones do not. */
    OK(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(cuCtxSynchronize());
    return NULL;
}

#define WITH_MODULE()                                                                              \
    do {                                                                                           \
        const char *missing_ = with_module();                                                      \
        if (missing_)                                                                              \
            return missing_;                                                                       \
    } while (0)

__attribute__((unused)) static CUresult run(CUfunction function, CUstream stream)
{
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

__attribute__((unused)) static CUresult run_for(uint64_t ns, CUstream stream)
{
    void *parameters[] = {&ns};

    return cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

__attribute__((unused)) static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

__attribute__((unused)) static size_t nodes_of(CUgraph graph)
{
    size_t count = 999;

    return cuGraphGetNodes(graph, NULL, &count) == CUDA_SUCCESS ? count : 999;
}

__attribute__((unused)) static CUDA_KERNEL_NODE_PARAMS kernel_node(CUfunction function,
                                                                   void **parameters)
{
    return (CUDA_KERNEL_NODE_PARAMS){.func = function, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
                                     .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1,
                                     .kernelParams = parameters};
}

#endif
