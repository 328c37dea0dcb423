/* What calls of the simulated driver cost the caller, in nanoseconds: the least of many. */
#include <stdio.h>
#include <time.h>

#include "hami_cuda.h"

#define ROUNDS 200

static long now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

#define LEAST(name, call)                                                                          \
    do {                                                                                           \
        long least = -1;                                                                           \
        for (int i = 0; i < ROUNDS; i++) {                                                         \
            long start = now(), took;                                                              \
            if ((call) != CUDA_SUCCESS)                                                            \
                return 1;                                                                          \
            took = now() - start;                                                                  \
            least = least < 0 || took < least ? took : least;                                      \
        }                                                                                          \
        printf("%s %ld\n", name, least);                                                           \
    } while (0)

int main(void)
{
    CUcontext context;
    CUfunction function;
    CUmodule module;
    CUstream stream;
    CUevent event, done;

    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS ||
        cuModuleLoadData(&module, "hami-sim 1\nkernel k ns=0\n") != CUDA_SUCCESS ||
        cuModuleGetFunction(&function, module, "k") != CUDA_SUCCESS ||
        cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
        cuEventCreate(&event, 0) != CUDA_SUCCESS || cuEventCreate(&done, 0) != CUDA_SUCCESS)
        return 1;
    LEAST("launch", cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    LEAST("record", cuEventRecord(event, stream));
    LEAST("query", cuEventQuery(done));
    return 0;
}
