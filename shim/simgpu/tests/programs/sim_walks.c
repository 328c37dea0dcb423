/* What a driver takes and does by itself, step by step, so that a test can ask the daemon after each:
 * a line is printed for a step, and one is read before the next.
 *
 *     sim_walks memory  contexts, code, local memory
 *     sim_walks time    every way to launch */
#include "conformance/check.h"

#define STEP(name)                                                                                 \
    do {                                                                                           \
        printf("%s\n", name);                                                                      \
        fflush(stdout);                                                                            \
        if (getchar() == EOF)                                                                      \
            return "the test went away";                                                           \
    } while (0)

static CUresult launch(CUfunction function)
{
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

/* A context, then what comes into it, then without it. */
static const char *walk_memory(void)
{
    CUcontext context, second;
    CUfunction function[4];
    CUmodule module;
    CUresult retained;
    size_t heap;

    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    retained = cuDevicePrimaryCtxRetain(&context, device);
    if (retained != CUDA_SUCCESS)
        return told("the context was refused: %d", (int)retained);
    OK(cuCtxSetCurrent(context));
    STEP("context");
    OK(cuCtxCreate_v2(&second, 0, device));
    STEP("second context");
    OK(cuCtxDestroy_v2(second));
    OK(cuCtxSetCurrent(context));
    STEP("second context destroyed");
    OK(cuModuleLoadData(&module, "hami-sim 1\nglobal big 5242880\n"
                                 "kernel code ns=10 code=3145728\n"
                                 "kernel small ns=10 code=1\n"
                                 "kernel deep ns=10 local=11264\n"
                                 "kernel deeper ns=10 local=5120\n"));
    OK(cuModuleGetFunction(&function[0], module, "code"));
    OK(cuModuleGetFunction(&function[1], module, "small"));
    OK(cuModuleGetFunction(&function[2], module, "deep"));
    OK(cuModuleGetFunction(&function[3], module, "deeper"));
    STEP("module");
    OK(launch(function[0]));
    STEP("launched");
    OK(launch(function[0]));
    OK(cuFuncLoad(function[1]));
    STEP("launched again");
    OK(launch(function[2]));
    STEP("local memory");
    OK(launch(function[3]));
    STEP("less local memory");
    OK(cuCtxGetLimit(&heap, CU_LIMIT_MALLOC_HEAP_SIZE));
    OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, heap + 64 * MIB));
    STEP("heap");
    OK(cuModuleUnload(module));
    STEP("unloaded");
    OK(cuDevicePrimaryCtxReset_v2(device));
    STEP("reset");
    return NULL;
}

/* A kernel of each kind of launch: ten of 10 ms at half the device's width. */
static const char *walk_time(void)
{
    static const char image[] = "hami-sim 1\nkernel k ns=10000000 width=500\n";
    CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
                             .blockDimY = 1, .blockDimZ = 1};
    CUcontext context;
    CUfunction function;
    CUgraphExec exec;
    CUgraph graph;
    CUmodule module;
    CUstream stream;

    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetFunction(&function, module, "k"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    STEP("captured");
    OK(launch(function));
    OK(cuLaunchKernel_ptsz(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(cuLaunchKernelEx(&config, function, NULL, NULL));
    OK(cuLaunchKernelEx_ptsz(&config, function, NULL, NULL));
    OK(cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL));
    OK(cuLaunchCooperativeKernel_ptsz(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL));
    OK(cuLaunch(function));
    OK(cuLaunchGrid(function, 1, 1));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuCtxSynchronize());
    STEP("launched");
    return NULL;
}

static const struct {
    const char *name;
    const char *(*walk)(void);
} walks[] = {{"memory", walk_memory}, {"time", walk_time}};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < sizeof(walks) / sizeof(walks[0]); i++) {
        if (strcmp(argv[1], walks[i].name) == 0) {
            const char *answer = walks[i].walk();

            printf("%s\n", answer ? answer : "end");
            return answer != NULL;
        }
    }
    return 2;
}
