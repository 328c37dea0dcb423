/* Streams and events: what runs when, and how a program finds out. */
#include "kernels.h"

/* ---- Streams ---- */

static const char *a_stream_tells_what_it_is(void)
{
    int least = 1, greatest = 1, priority = 99;
    unsigned int flags = 99;
    unsigned long long one = 0, two = 0;
    CUcontext context = NULL;
    CUstream stream;

    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    SO(greatest <= least);
    OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest - 1));
    OK(cuStreamGetPriority(stream, &priority));
    SO(priority == greatest);
    OK(cuStreamGetFlags(stream, &flags));
    SO(flags == CU_STREAM_NON_BLOCKING);
    OK(cuStreamGetCtx(stream, &context));
    SO(context == primary);
    OK(cuStreamGetId(stream, &one));
    OK(cuStreamGetId(NULL, &two));
    SO(one != two);
    OK(cuStreamDestroy_v2(stream));
    FAILS(cuStreamCreate(&stream, 0x80));
    return NULL;
}

static const char *a_stream_is_busy_until_its_kernel_is_done(void)
{
    CUstream stream;

    WITH_MODULE();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamQuery(stream));
    OK(run_for(30 * MS, stream));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    OK(cuStreamSynchronize(stream));
    OK(cuStreamQuery(stream));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static const char *a_destroyed_stream_finishes_its_work(void)
{
    double before = seconds();
    CUstream stream;

    WITH_MODULE();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(run_for(30 * MS, stream));
    OK(cuStreamDestroy_v2(stream));
    OK(cuCtxSynchronize());
    SO(seconds() - before >= 0.029);
    return NULL;
}

static const char *the_legacy_stream_waits_for_blocking_streams_and_they_for_it(void)
{
    CUstream blocking, other;

    WITH_MODULE();
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&other, CU_STREAM_DEFAULT));
    OK(run_for(30 * MS, blocking));
    OK(run(nothing, NULL));
    OK(run(nothing, other));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(other));
    OK(cuStreamSynchronize(other));
    OK(cuStreamQuery(blocking));
    OK(cuStreamDestroy_v2(blocking));
    OK(cuStreamDestroy_v2(other));
    return NULL;
}

static const char *non_blocking_streams_do_not_wait_for_the_legacy_stream(void)
{
    CUstream stream;

    WITH_MODULE();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(run_for(50 * MS, NULL));
    OK(run(nothing, stream));
    OK(cuStreamSynchronize(stream));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    OK(cuStreamSynchronize(NULL));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static const char *the_per_thread_stream_is_a_stream_of_its_own(void)
{
    unsigned long long legacy = 0, own = 0, by_handle = 0;

    WITH_MODULE();
    OK(cuStreamGetId(NULL, &legacy));
    OK(cuStreamGetId_ptsz(NULL, &own));
    OK(cuStreamGetId(CU_STREAM_PER_THREAD, &by_handle));
    SO(own == by_handle && own != legacy);
    OK(cuStreamGetId_ptsz(CU_STREAM_LEGACY, &by_handle));
    SO(by_handle == legacy);
    OK(cuLaunchKernel_ptsz(nothing, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(cuStreamSynchronize_ptsz(NULL));
    return NULL;
}

static const char *streams_run_beside_each_other(void)
{
    CUstream stream[4];
    double before;

    WITH_MODULE();
    for (int i = 0; i < 4; i++)
        OK(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
    OK(run(nothing, stream[0]));
    OK(cuCtxSynchronize());
    before = seconds();
    for (int i = 0; i < 4; i++)
        OK(run_for(50 * MS, stream[i]));
    OK(cuCtxSynchronize());
    SO(seconds() - before >= 0.05 && seconds() - before < 0.15);
    for (int i = 0; i < 4; i++)
        OK(cuStreamDestroy_v2(stream[i]));
    return NULL;
}

/* ---- Events ---- */

static const char *an_event_never_recorded_is_done(void)
{
    CUevent event;

    OK(cuEventCreate(&event, 0));
    OK(cuEventQuery(event));
    OK(cuEventSynchronize(event));
    OK(cuEventDestroy_v2(event));
    FAILS(cuEventCreate(&event, 0x100));
    return NULL;
}

static const char *events_measure_the_time_between_them(void)
{
    CUevent start, end;
    CUstream stream;
    float ms = 0;

    WITH_MODULE();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuEventRecord(start, stream));
    OK(run_for(20 * MS, stream));
    OK(cuEventRecord(end, stream));
    IS(CUDA_ERROR_NOT_READY, cuEventQuery(end));
    IS(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&ms, start, end));
    OK(cuEventSynchronize(end));
    OK(cuEventQuery(end));
    OK(cuEventElapsedTime(&ms, start, end));
    SO(ms >= 19.9f && ms < 30.0f);
    OK(cuEventElapsedTime(&ms, end, start));
    SO(ms <= -19.9f);
    OK(cuEventDestroy_v2(start));
    OK(cuEventDestroy_v2(end));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static const char *events_without_timing_measure_nothing(void)
{
    CUevent timed, untimed, fresh;
    float ms;

    OK(cuEventCreate(&timed, 0));
    OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&fresh, 0));
    OK(cuEventRecord(timed, NULL));
    OK(cuEventRecord(untimed, NULL));
    OK(cuCtxSynchronize());
    IS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, timed, untimed));
    IS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, timed, fresh));
    OK(cuEventDestroy_v2(timed));
    OK(cuEventDestroy_v2(untimed));
    OK(cuEventDestroy_v2(fresh));
    return NULL;
}

static const char *a_stream_waits_for_an_event_of_another(void)
{
    CUstream first, second;
    CUevent event;

    WITH_MODULE();
    OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(run_for(30 * MS, first));
    OK(cuEventRecord(event, first));
    OK(cuStreamWaitEvent(second, event, 0));
    OK(run(nothing, second));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(second));
    OK(cuStreamSynchronize(second));
    OK(cuStreamQuery(first));
    FAILS(cuStreamWaitEvent(second, event, 77));
    OK(cuEventDestroy_v2(event));
    OK(cuStreamDestroy_v2(first));
    OK(cuStreamDestroy_v2(second));
    return NULL;
}

static const char *an_event_may_be_destroyed_before_it_is_done(void)
{
    CUevent event;

    WITH_MODULE();
    OK(cuEventCreate(&event, 0));
    OK(run_for(20 * MS, NULL));
    OK(cuEventRecord(event, NULL));
    OK(cuEventDestroy_v2(event));
    OK(cuCtxSynchronize());
    return NULL;
}

static const struct check checks[] = {
    CHECK(a_stream_tells_what_it_is),
    CHECK(a_stream_is_busy_until_its_kernel_is_done),
    CHECK(a_destroyed_stream_finishes_its_work),
    CHECK(the_legacy_stream_waits_for_blocking_streams_and_they_for_it),
    CHECK(non_blocking_streams_do_not_wait_for_the_legacy_stream),
    CHECK(the_per_thread_stream_is_a_stream_of_its_own),
    CHECK(streams_run_beside_each_other),
    CHECK(an_event_never_recorded_is_done),
    CHECK(events_measure_the_time_between_them),
    CHECK(events_without_timing_measure_nothing),
    CHECK(a_stream_waits_for_an_event_of_another),
    CHECK(an_event_may_be_destroyed_before_it_is_done),
};

CONFORMANCE(checks)
