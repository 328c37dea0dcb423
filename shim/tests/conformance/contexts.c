/* Contexts: current ones, primary ones, green ones. */
#include <pthread.h>

#include "kernels.h"

/* ---- Contexts ---- */

static const char *a_new_context_is_current_and_destroyed_with_its_handle(void)
{
    CUcontext context, current = NULL;
    CUdevice where = -1;

    OK(cuCtxCreate_v2(&context, 0, device));
    OK(cuCtxGetCurrent(&current));
    SO(current == context);
    OK(cuCtxGetDevice(&where));
    SO(where == device);
    OK(cuCtxDestroy_v2(context));
    OK(cuCtxGetCurrent(&current));
    SO(current == primary);
    return NULL;
}

static const char *contexts_are_a_stack(void)
{
    CUcontext one, two, popped = NULL, current = NULL;

    OK(cuCtxCreate_v2(&one, 0, device));
    OK(cuCtxCreate_v2(&two, 0, device));
    OK(cuCtxPushCurrent_v2(one));
    OK(cuCtxPopCurrent_v2(&popped));
    SO(popped == one);
    OK(cuCtxGetCurrent(&current));
    SO(current == two);
    OK(cuCtxDestroy_v2(two));
    OK(cuCtxGetCurrent(&current));
    SO(current == one);
    OK(cuCtxDestroy_v2(one));
    return NULL;
}

static const char *nothing_works_without_a_context(void)
{
    CUcontext current = primary;
    CUstream stream;
    CUevent event;
    CUdevice where;

    OK(cuCtxSetCurrent(NULL));
    OK(cuCtxGetCurrent(&current));
    SO(current == NULL);
    IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&where));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());
    IS(CUDA_ERROR_INVALID_CONTEXT, cuStreamCreate(&stream, 0));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuEventCreate(&event, 0));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(&current));
    return NULL;
}

static const char *contexts_have_a_version_an_id_and_flags(void)
{
    unsigned int version = 0, flags = 0;
    unsigned long long one = 0, two = 0;
    CUcontext context;

    OK(cuCtxCreate_v2(&context, CU_CTX_SCHED_BLOCKING_SYNC, device));
    OK(cuCtxGetApiVersion(context, &version));
    SO(version >= 3020);
    OK(cuCtxGetId(context, &one));
    OK(cuCtxGetId(primary, &two));
    SO(one != two);
    OK(cuCtxGetFlags(&flags));
    SO((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC);
    OK(cuCtxDestroy_v2(context));
    FAILS(cuCtxCreate_v2(&context, 0x10000, device));
    FAILS(cuCtxCreate_v2(&context, CU_CTX_SCHED_SPIN | CU_CTX_SCHED_YIELD, device));
    IS(CUDA_ERROR_INVALID_DEVICE, cuCtxCreate_v2(&context, 0, 99));
    return NULL;
}

static const char *attaching_keeps_a_context_until_it_is_detached(void)
{
    CUcontext context, attached = NULL, current = NULL;

    OK(cuCtxCreate_v2(&context, 0, device));
    OK(cuCtxAttach(&attached, 0));
    SO(attached == context);
    OK(cuCtxDetach(context));
    OK(cuCtxGetCurrent(&current));
    SO(current == context);
    OK(cuCtxDetach(context));
    OK(cuCtxGetCurrent(&current));
    SO(current != context);
    return NULL;
}

static const char *the_primary_context_is_counted(void)
{
    unsigned int flags = 0;
    CUcontext one = NULL;
    int active = 0;

    OK(cuDevicePrimaryCtxRetain(&one, device));
    SO(one == primary);
    OK(cuDevicePrimaryCtxRelease_v2(device));
    OK(cuDevicePrimaryCtxGetState(device, &flags, &active));
    SO(active == 1);
    IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(primary));
    return NULL;
}

static const char *a_reset_primary_context_is_dead_until_it_is_retained_again(void)
{
    unsigned int flags = 0;
    CUdeviceptr address;
    CUcontext again = NULL;
    int active = 1;

    OK(cuMemAlloc_v2(&address, 4096));
    OK(cuDevicePrimaryCtxReset_v2(device));
    module = NULL;
    OK(cuDevicePrimaryCtxGetState(device, &flags, &active));
    SO(active == 0);
    FAILS(cuMemAlloc_v2(&address, 4096));
    OK(cuDevicePrimaryCtxRetain(&again, device));
    SO(again == primary);
    OK(cuDevicePrimaryCtxRelease_v2(device));
    OK(cuCtxSetCurrent(again));
    OK(cuMemAlloc_v2(&address, 4096));
    OK(cuMemFree_v2(address));
    return NULL;
}

static const char *limits_can_be_read_and_set(void)
{
    size_t before = 0, after = 0;

    OK(cuCtxGetLimit(&before, CU_LIMIT_MALLOC_HEAP_SIZE));
    SO(before > 0);
    OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, before));
    OK(cuCtxGetLimit(&after, CU_LIMIT_MALLOC_HEAP_SIZE));
    SO(after == before);
    FAILS(cuCtxGetLimit(&after, (CUlimit)99));
    return NULL;
}

static void *in_another_thread(void *answer)
{
    CUcontext current = primary;

    *(CUresult *)answer = cuCtxGetCurrent(&current);
    return current;
}

static const char *each_thread_has_its_own_current_context(void)
{
    CUresult answer = CUDA_ERROR_UNKNOWN;
    pthread_t thread;
    void *current;

    SO(pthread_create(&thread, NULL, in_another_thread, &answer) == 0);
    SO(pthread_join(thread, &current) == 0);
    OK(answer);
    SO(current == NULL);
    return NULL;
}

static const char *a_green_context_gives_a_context_and_streams(void)
{
    CUdevResource all, part[1];
    CUdevResourceDesc descriptor;
    unsigned int groups = 1;
    CUgreenCtx green, of_stream = NULL;
    CUcontext context = NULL, of_stream_too = primary;
    CUstream stream;
    CUdevice where = -1;

    WITH_MODULE();
    if (cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS ||
        all.sm.smCount < 16)
        return SKIP("no multiprocessors to divide");
    OK(cuDevSmResourceSplitByCount(part, &groups, &all, NULL, 0, 8));
    SO(groups == 1 && part[0].sm.smCount >= 8 && part[0].sm.smCount < all.sm.smCount);
    OK(cuDevResourceGenerateDesc(&descriptor, part, 1));
    OK(cuGreenCtxCreate(&green, descriptor, device, CU_GREEN_CTX_DEFAULT_STREAM));
    OK(cuCtxFromGreenCtx(&context, green));
    OK(cuCtxSetCurrent(context));
    OK(cuCtxGetDevice(&where));
    SO(where == device);
    OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    OK(cuStreamGetCtx_v2(stream, &of_stream_too, &of_stream));
    SO(of_stream == green);
    OK(run(nothing, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy_v2(stream));
    OK(cuCtxSetCurrent(primary));
    OK(cuGreenCtxDestroy(green));
    return NULL;
}

static const struct check checks[] = {
    CHECK(a_new_context_is_current_and_destroyed_with_its_handle),
    CHECK(contexts_are_a_stack),
    CHECK(nothing_works_without_a_context),
    CHECK(contexts_have_a_version_an_id_and_flags),
    CHECK(attaching_keeps_a_context_until_it_is_detached),
    CHECK(the_primary_context_is_counted),
    CHECK(limits_can_be_read_and_set),
    CHECK(each_thread_has_its_own_current_context),
    CHECK(a_green_context_gives_a_context_and_streams),
    CHECK(a_reset_primary_context_is_dead_until_it_is_retained_again),
};

CONFORMANCE(checks)
