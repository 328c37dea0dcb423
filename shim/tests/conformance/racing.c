/* Many threads at once. */
#include <pthread.h>

#include "kernels.h"

struct note {
    _Atomic int calls;
};

static void take_note(void *data)
{
    struct note *note = data;

    note->calls++;
}

#define LAUNCHES 200

static void *launch_many(void *answer)
{
    CUstream stream;
    CUevent event;
    CUresult result = cuCtxSetCurrent(primary);

    if (result == CUDA_SUCCESS)
        result = cuStreamCreate(&stream, CU_STREAM_DEFAULT);
    if (result == CUDA_SUCCESS)
        result = cuEventCreate(&event, 0);
    for (int i = 0; i < LAUNCHES && result == CUDA_SUCCESS; i++) {
        result = run(nothing, i % 3 == 0 ? NULL : i % 3 == 1 ? stream : CU_STREAM_PER_THREAD);
        if (result == CUDA_SUCCESS)
            result = cuEventRecord(event, stream);
        if (result == CUDA_SUCCESS && cuEventQuery(event) == CUDA_ERROR_UNKNOWN)
            result = CUDA_ERROR_UNKNOWN;
    }
    if (result == CUDA_SUCCESS)
        result = cuEventSynchronize(event);
    if (result == CUDA_SUCCESS)
        result = cuEventDestroy_v2(event);
    if (result == CUDA_SUCCESS)
        result = cuStreamDestroy_v2(stream);
    *(CUresult *)answer = result;
    return NULL;
}

static const char *many_threads_launch_at_once(void)
{
    CUresult answers[8];
    pthread_t threads[8];

    WITH_MODULE();
    for (int i = 0; i < 8; i++)
        SO(pthread_create(&threads[i], NULL, launch_many, &answers[i]) == 0);
    for (int i = 0; i < 8; i++)
        SO(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < 8; i++)
        OK(answers[i]);
    OK(cuCtxSynchronize());
    return NULL;
}

/* Everything that a thread can make, made and destroyed while others do the same. */
static void *come_and_go(void *answer)
{
    CUresult result = CUDA_SUCCESS;

    for (int i = 0; i < 10 && result == CUDA_SUCCESS; i++) {
        struct note note = {0};
        CUcontext context;
        CUfunction function;
        CUlibrary library;
        CUkernel kernel;
        CUstream stream;
        CUevent event;

        result = i == 5 ? cuCtxCreate_v2(&context, 0, device) : cuCtxSetCurrent(primary);
        if (result == CUDA_SUCCESS)
            result = load_test_library(&library);
        if (result == CUDA_SUCCESS)
            result = cuLibraryGetKernel(&kernel, library, "nothing");
        if (result == CUDA_SUCCESS)
            result = cuKernelGetFunction(&function, kernel);
        if (result == CUDA_SUCCESS)
            result = cuStreamCreate(&stream, i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
        if (result == CUDA_SUCCESS)
            result = cuEventCreate(&event, 0);
        if (result == CUDA_SUCCESS)
            result = run(function, stream);
        if (result == CUDA_SUCCESS)
            result = cuLaunchHostFunc(stream, take_note, &note);
        if (result == CUDA_SUCCESS)
            result = run((CUfunction)kernel, CU_STREAM_PER_THREAD);
        if (result == CUDA_SUCCESS)
            result = cuEventRecord(event, stream);
        if (result == CUDA_SUCCESS)
            result = cuStreamWaitEvent(NULL, event, 0);
        if (result == CUDA_SUCCESS)
            result = cuEventSynchronize(event);
        if (result == CUDA_SUCCESS)
            result = note.calls == 1 ? cuEventDestroy_v2(event) : CUDA_ERROR_UNKNOWN;
        if (result == CUDA_SUCCESS)
            result = cuStreamDestroy_v2(stream);
        if (result == CUDA_SUCCESS)
            result = cuStreamSynchronize(CU_STREAM_PER_THREAD);
        if (result == CUDA_SUCCESS)
            result = cuLibraryUnload(library);
        if (result == CUDA_SUCCESS && i == 5)
            result = cuCtxDestroy_v2(context);
    }
    *(CUresult *)answer = result;
    return NULL;
}

static const char *many_threads_make_and_destroy_at_once(void)
{
    CUresult answers[4];
    pthread_t threads[4];

    for (int i = 0; i < 4; i++)
        SO(pthread_create(&threads[i], NULL, come_and_go, &answers[i]) == 0);
    for (int i = 0; i < 4; i++)
        SO(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < 4; i++)
        OK(answers[i]);
    OK(cuCtxSynchronize());
    return NULL;
}

static void *capture_and_launch(void *answer)
{
    CUgraph graph = NULL;
    CUgraphExec exec;
    CUstream stream;
    CUresult result = cuCtxSetCurrent(primary);

    if (result == CUDA_SUCCESS)
        result = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 20 && result == CUDA_SUCCESS; i++) {
        result = cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        for (int k = 0; k < 5 && result == CUDA_SUCCESS; k++)
            result = run(nothing, stream);
        if (result == CUDA_SUCCESS)
            result = cuStreamEndCapture(stream, &graph);
        if (result == CUDA_SUCCESS)
            result = cuGraphInstantiateWithFlags(&exec, graph, 0);
        for (int k = 0; k < 3 && result == CUDA_SUCCESS; k++)
            result = cuGraphLaunch(exec, stream);
        if (result == CUDA_SUCCESS)
            result = cuGraphExecDestroy(exec);
        if (result == CUDA_SUCCESS)
            result = cuGraphDestroy(graph);
    }
    if (result == CUDA_SUCCESS)
        result = cuStreamDestroy_v2(stream);
    *(CUresult *)answer = result;
    return NULL;
}

static const char *many_threads_capture_at_once(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    CUresult answers[4];
    pthread_t threads[4];

    WITH_MODULE();
    for (int i = 0; i < 4; i++)
        SO(pthread_create(&threads[i], NULL, capture_and_launch, &answers[i]) == 0);
    for (int i = 0; i < 4; i++)
        SO(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < 4; i++)
        OK(answers[i]);
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    OK(cuCtxSynchronize());
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    SO(mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    return NULL;
}

static const struct check checks[] = {
    CHECK(many_threads_launch_at_once),
    CHECK(many_threads_make_and_destroy_at_once),
    CHECK(many_threads_capture_at_once),
};

CONFORMANCE(checks)
