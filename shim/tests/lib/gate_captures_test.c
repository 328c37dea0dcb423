/* Launches into captures. links: lib/compute/gate.c lib/compute/terms.c lib/program/capture.c lib/hooks/execution/captures.c lib/hooks/execution/launch.c lib/hooks/execution/launch_old.c lib/hooks/execution/streams.c lib/compute/samples.c lib/compute/bucket.c lib/compute/estimate.c lib/compute/correction.c lib/compute/compute.c lib/compute/horizon.c lib/compute/settle.c lib/base/clock.c lib/base/reset.c */
#include "gate_fixture.h"

/* ---- Captures -------------------------------------------------------------------------------- */

static void a_capture_is_left_alone(void)
{
    CUgraph graph;

    begin(50);
    EXPECT(cuStreamBeginCapture_v2(STREAM, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    for (int i = 0; i < 100; i++)
        EXPECT(kernel(STREAM) == CUDA_SUCCESS);
    EXPECT(cuGraphLaunch(EXEC, STREAM) == CUDA_SUCCESS);
    EXPECT(event_calls() == 0 && charged(0) == 0);
    driver.implicit = true;
    EXPECT(kernel(NULL) == CUDA_SUCCESS);
    EXPECT(event_calls() == 0 && charged(0) == 0);
    /* Beside it, life goes on. */
    EXPECT(kernel((CUstream)0x6660) == CUDA_SUCCESS);
    EXPECT(driver.records == 2 && charged(0) > 0);
    /* An end that fails and ends nothing. */
    driver.end = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    EXPECT(cuStreamEndCapture(STREAM, &graph) == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    EXPECT(hami_capturing(STREAM, false) && hami_captures_open == 1);
    driver.end = CUDA_SUCCESS;
    EXPECT(cuStreamEndCapture(STREAM, &graph) == CUDA_SUCCESS);
    EXPECT(!hami_capturing(STREAM, false) && hami_captures_open == 0);
    EXPECT(driver.unsafe == 0);
}

static void captures_are_counted_right(void)
{
    CUgraph graph;

    begin(50);
    driver.begin = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    EXPECT(cuStreamBeginCapture_v2(NULL, 0) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT(hami_captures_open == 0);
    driver.begin = CUDA_SUCCESS;
    EXPECT(cuStreamBeginCapture_v2(STREAM, 0) == CUDA_SUCCESS && hami_captures_open == 1);
    /* The end of nothing does not end what is open. */
    driver.end = CUDA_ERROR_ILLEGAL_STATE;
    EXPECT(cuStreamEndCapture((CUstream)0x6660, &graph) == CUDA_ERROR_ILLEGAL_STATE);
    EXPECT(hami_captures_open == 1);
    /* An end that fails and ends it all the same. */
    driver.end = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    driver.capturing = NULL;
    EXPECT(cuStreamEndCapture(STREAM, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT(hami_captures_open == 0);
    driver.end = CUDA_SUCCESS;
    EXPECT(cuStreamBeginCapture_v2(STREAM, 0) == CUDA_SUCCESS && hami_captures_open == 1);
    EXPECT(cuStreamDestroy_v2(STREAM) == CUDA_SUCCESS && hami_captures_open == 0);
    for (int i = 0; i < 200; i++)
        EXPECT(cuStreamBeginCapture_v2((CUstream)(uintptr_t)(0x10000 + 16 * i), 0) == CUDA_SUCCESS);
    for (int i = 0; i < 200; i++)
        EXPECT(cuStreamEndCapture((CUstream)(uintptr_t)(0x10000 + 16 * i), &graph) == CUDA_SUCCESS);
    EXPECT(hami_captures_open > 0); /* more at once than anyone has: asked for ever after */
}

int main(void)
{
    a_capture_is_left_alone();
    captures_are_counted_right();
    return failures != 0;
}
