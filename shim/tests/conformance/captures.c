/* Stream capture: where it may begin and end, what it allows meanwhile, and what breaks it. */
#include <pthread.h>

#include "kernels.h"

static const char *a_capture_begins_and_ends_where_it_may(void)
{
    CUgraph graph = NULL;
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    FAILS(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
    FAILS(cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)7));
    FAILS(cuStreamEndCapture(stream, &graph));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    FAILS(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    (void)cuStreamEndCapture(stream, &graph);
    if (graph)
        OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

/* Runs `breaks` in a capture of the mode and says whether the capture survives. */
static const char *under_capture(CUstreamCaptureMode mode, CUresult (*breaks)(CUstream),
                                 CUresult expected, bool survives)
{
    CUstreamCaptureStatus status;
    CUgraph graph = NULL;
    CUstream stream;
    CUresult got, ended;

    WITH_MODULE();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(stream, mode));
    OK(run(nothing, stream));
    got = breaks(stream);
    OK(cuStreamIsCapturing(stream, &status));
    ended = cuStreamEndCapture(stream, &graph);
    SO((graph != NULL) == (ended == CUDA_SUCCESS));
    if (graph)
        OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy_v2(stream));
    if (got != expected)
        return told("it answered %d, not %d", (int)got, (int)expected);
    SO((status == CU_STREAM_CAPTURE_STATUS_ACTIVE) == survives);
    SO(ended == (survives ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
    return NULL;
}

static CUresult query_itself(CUstream stream) { return cuStreamQuery(stream); }
static CUresult synchronise_itself(CUstream stream) { return cuStreamSynchronize(stream); }
static CUresult synchronise_context(CUstream stream)
{
    (void)stream;
    return cuCtxSynchronize();
}
static CUresult query_foreign_event(CUstream stream)
{
    CUevent event;
    CUresult result = cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);

    (void)stream;
    if (result == CUDA_SUCCESS)
        result = cuEventQuery(event);
    cuEventDestroy_v2(event);
    return result;
}
static CUresult query_captured_event(CUstream stream)
{
    CUevent event;
    CUresult result = cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);

    if (result == CUDA_SUCCESS)
        result = cuEventRecord(event, stream);
    if (result == CUDA_SUCCESS)
        result = cuEventQuery(event);
    cuEventDestroy_v2(event);
    return result;
}
static CUresult query_foreign_event_relaxed(CUstream stream)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result = cuThreadExchangeStreamCaptureMode(&mode), restored;

    if (result == CUDA_SUCCESS)
        result = query_foreign_event(stream);
    restored = cuThreadExchangeStreamCaptureMode(&mode);
    return result == CUDA_SUCCESS ? restored : result;
}
static CUresult launch_elsewhere(CUstream stream)
{
    CUstream other;
    CUresult result = cuStreamCreate(&other, CU_STREAM_NON_BLOCKING);

    (void)stream;
    if (result == CUDA_SUCCESS)
        result = run(nothing, other);
    cuStreamDestroy_v2(other);
    return result;
}
static CUresult wait_for_uncaptured(CUstream stream)
{
    CUstream other;
    CUevent event = NULL;
    CUresult result = cuStreamCreate(&other, CU_STREAM_NON_BLOCKING);

    if (result == CUDA_SUCCESS)
        result = cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = cuEventRecord(event, other);
    if (result == CUDA_SUCCESS)
        result = cuStreamWaitEvent(stream, event, 0);
    cuEventDestroy_v2(event);
    cuStreamDestroy_v2(other);
    return result;
}
static void never(CUstream stream, CUresult status, void *data)
{
    (void)stream;
    (void)status;
    *(bool *)data = true;
}
static CUresult add_callback(CUstream stream)
{
    bool called = false;
    CUresult result = cuStreamAddCallback(stream, never, &called, 0);

    return called ? CUDA_ERROR_UNKNOWN : result;
}

static const char *a_capturing_stream_cannot_be_queried_or_waited_for(void)
{
    const char *wrong = under_capture(CU_STREAM_CAPTURE_MODE_RELAXED, query_itself,
                                      CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false);
    if (!wrong)
        wrong = under_capture(CU_STREAM_CAPTURE_MODE_RELAXED, synchronise_itself,
                              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false);
    if (!wrong)
        wrong = under_capture(CU_STREAM_CAPTURE_MODE_GLOBAL, synchronise_context,
                              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false);
    return wrong;
}

static const char *a_captured_event_cannot_be_queried_in_any_mode(void)
{
    const char *wrong = under_capture(CU_STREAM_CAPTURE_MODE_GLOBAL, query_captured_event,
                                      CUDA_ERROR_CAPTURED_EVENT, false);
    if (!wrong)
        wrong = under_capture(CU_STREAM_CAPTURE_MODE_RELAXED, query_captured_event,
                              CUDA_ERROR_CAPTURED_EVENT, false);
    return wrong;
}

static const char *an_event_query_breaks_a_capture_that_is_not_relaxed(void)
{
    const char *wrong = under_capture(CU_STREAM_CAPTURE_MODE_GLOBAL, query_foreign_event,
                                      CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false);
    if (!wrong)
        wrong = under_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, query_foreign_event,
                              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false);
    if (!wrong)
        wrong = under_capture(CU_STREAM_CAPTURE_MODE_RELAXED, query_foreign_event, CUDA_SUCCESS,
                              true);
    return wrong;
}

static const char *a_relaxed_thread_may_query_events_during_a_global_capture(void)
{
    return under_capture(CU_STREAM_CAPTURE_MODE_GLOBAL, query_foreign_event_relaxed, CUDA_SUCCESS,
                         true);
}

static const char *other_streams_go_on_during_a_capture(void)
{
    return under_capture(CU_STREAM_CAPTURE_MODE_GLOBAL, launch_elsewhere, CUDA_SUCCESS, true);
}

static const char *a_capture_cannot_wait_for_what_is_outside(void)
{
    return under_capture(CU_STREAM_CAPTURE_MODE_GLOBAL, wait_for_uncaptured,
                         CUDA_ERROR_STREAM_CAPTURE_ISOLATION, false);
}

static const char *a_callback_cannot_be_captured(void)
{
    return under_capture(CU_STREAM_CAPTURE_MODE_GLOBAL, add_callback,
                         CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false);
}

struct elsewhere {
    CUresult (*what)(CUstream);
    CUstreamCaptureMode mode;
    CUstream stream;
    CUresult got;
};

static void *in_another_thread(void *data)
{
    struct elsewhere *elsewhere = data;

    elsewhere->got = cuCtxSetCurrent(primary);
    if (elsewhere->got == CUDA_SUCCESS)
        elsewhere->got = cuThreadExchangeStreamCaptureMode(&elsewhere->mode);
    if (elsewhere->got == CUDA_SUCCESS)
        elsewhere->got = elsewhere->what(elsewhere->stream);
    return NULL;
}

/* What a thread in `thread_mode` gets for an event query while another captures in `mode`. */
static const char *beside(CUstreamCaptureMode mode, CUstreamCaptureMode thread_mode,
                          CUresult expected)
{
    struct elsewhere elsewhere = {query_foreign_event, thread_mode, NULL, CUDA_ERROR_UNKNOWN};
    CUgraph graph = NULL;
    CUstream stream;
    CUresult ended;
    pthread_t thread;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(stream, mode));
    SO(pthread_create(&thread, NULL, in_another_thread, &elsewhere) == 0);
    SO(pthread_join(thread, NULL) == 0);
    ended = cuStreamEndCapture(stream, &graph);
    if (graph)
        OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy_v2(stream));
    IS(expected, elsewhere.got);
    IS(expected == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, ended);
    return NULL;
}

static const char *only_a_global_capture_binds_other_threads(void)
{
    const char *wrong = beside(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL,
                               CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (!wrong)
        wrong = beside(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                       CUDA_SUCCESS);
    if (!wrong)
        wrong = beside(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_SUCCESS);
    if (!wrong)
        wrong = beside(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_GLOBAL,
                       CUDA_SUCCESS);
    if (!wrong)
        wrong = beside(CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL, CUDA_SUCCESS);
    return wrong;
}

static CUresult end_it(CUstream stream)
{
    CUgraph graph = NULL;
    CUresult result = cuStreamEndCapture(stream, &graph);

    return result == CUDA_SUCCESS ? cuGraphDestroy(graph) : result;
}

static const char *only_a_relaxed_capture_may_end_in_another_thread(void)
{
    struct elsewhere elsewhere = {end_it, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, CUDA_ERROR_UNKNOWN};
    pthread_t thread;

    OK(cuStreamCreate(&elsewhere.stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(elsewhere.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    SO(pthread_create(&thread, NULL, in_another_thread, &elsewhere) == 0);
    SO(pthread_join(thread, NULL) == 0);
    IS(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, elsewhere.got);
    (void)end_it(elsewhere.stream);
    OK(cuStreamBeginCapture_v2(elsewhere.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    SO(pthread_create(&thread, NULL, in_another_thread, &elsewhere) == 0);
    SO(pthread_join(thread, NULL) == 0);
    OK(elsewhere.got);
    OK(cuStreamDestroy_v2(elsewhere.stream));
    return NULL;
}

static const char *the_legacy_stream_is_unusable_while_a_blocking_stream_captures(void)
{
    CUstreamCaptureStatus status;
    CUgraph graph = NULL;
    CUstream stream;

    WITH_MODULE();
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(NULL, &status));
    OK(cuStreamIsCapturing(stream, &status));
    SO(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, run(nothing, NULL));
    OK(cuStreamIsCapturing(stream, &status));
    SO(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, run(nothing, stream));
    IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
    OK(run(nothing, NULL));
    OK(run(nothing, stream));
    OK(cuCtxSynchronize());
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}


static const struct check checks[] = {
    CHECK(a_capture_begins_and_ends_where_it_may),
    CHECK(a_capturing_stream_cannot_be_queried_or_waited_for),
    CHECK(a_captured_event_cannot_be_queried_in_any_mode),
    CHECK(an_event_query_breaks_a_capture_that_is_not_relaxed),
    CHECK(a_relaxed_thread_may_query_events_during_a_global_capture),
    CHECK(other_streams_go_on_during_a_capture),
    CHECK(a_capture_cannot_wait_for_what_is_outside),
    CHECK(a_callback_cannot_be_captured),
    CHECK(only_a_global_capture_binds_other_threads),
    CHECK(only_a_relaxed_capture_may_end_in_another_thread),
    CHECK(the_legacy_stream_is_unusable_while_a_blocking_stream_captures),
};

CONFORMANCE(checks)
