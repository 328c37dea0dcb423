/* launches BATCHES
 *
 * What a launch of an empty kernel costs the thread that makes it: the median over batches that fit
 * the driver's queue, in nanoseconds; and the median of launching one and waiting for it. */
#include "gpu.h"

#define BATCH 200
#define MOST 10000

int main(int argc, char **argv)
{
    static double launching[MOST], waiting[MOST];
    int batches = argc > 1 ? atoi(argv[1]) : 200;
    CUfunction nothing;
    CUstream stream;

    gpu_open();
    if (batches < 1 || batches > MOST)
        return 2;
    MUST(cuModuleGetFunction(&nothing, gpu_module(), "nothing"));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int batch = -5; batch < batches; batch++) { /* the first are not counted */
        double start = gpu_seconds(), end;

        for (int i = 0; i < BATCH; i++)
            MUST(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
        end = gpu_seconds();
        MUST(cuStreamSynchronize(stream));
        if (batch >= 0)
            launching[batch] = (end - start) / BATCH * 1e9;
        start = gpu_seconds();
        MUST(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
        MUST(cuStreamSynchronize(stream));
        if (batch >= 0)
            waiting[batch] = (gpu_seconds() - start) * 1e9;
    }
    printf("launch %.1f\n", gpu_median(launching, (size_t)batches));
    printf("wait %.1f\n", gpu_median(waiting, (size_t)batches));
    return 0;
}
