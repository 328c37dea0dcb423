/* Captures that a process forks in the middle of. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hooks/execution/captures.c"
#include "program/capture.c" /* for its lock */

#include "expect.h"

struct hami_process hami_process[1];

enum hami_mode hami_attach_late(void)
{
    return HAMI_MODE_UNKNOWN;
}

/* ---- A driver, which refuses a forked child ---- */

static pid_t initialised;
static bool captures_now;

static CUresult works(void)
{
    return getpid() == initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

static CUresult begin_capture(CUstream stream, CUstreamCaptureMode mode)
{
    (void)stream;
    (void)mode;
    captures_now = works() == CUDA_SUCCESS;
    return works();
}

static CUresult end_capture(CUstream stream, CUgraph *graph)
{
    (void)stream;
    *graph = NULL;
    if (works() == CUDA_SUCCESS)
        captures_now = false;
    return works();
}

static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    (void)stream;
    *status = captures_now ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return works();
}

static const struct hami_real driver = {
    .cuStreamBeginCapture_v2 = begin_capture,
    .cuStreamEndCapture = end_capture,
    .cuStreamIsCapturing = is_capturing,
};
const struct hami_real *_Atomic hami_real_found = &driver;

const struct hami_real *hami_real_load(void)
{
    return &driver;
}

/* ---- */

static CUstream stream = (CUstream)0x40;

static CUresult begin_here(void)
{
    return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static CUresult end_here(void)
{
    CUgraph graph;

    return cuStreamEndCapture(stream, &graph);
}

/* What a program and its libraries may still do in a forked child, on their way to the end. */
static void child(void)
{
    atomic_store(&hami_process->mode, HAMI_MODE_UNKNOWN); /* its page is wiped */
    alarm(10);
    EXPECT(end_here() == CUDA_ERROR_NOT_INITIALIZED);
    hami_captures_forget(stream);
    EXPECT(begin_here() == CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(!hami_capturing(stream, false));
    /* Its own cuInit succeeds: nothing that the parent captures is its own. */
    hami_capture_reset();
    initialised = getpid();
    captures_now = false;
    atomic_store(&hami_process->mode, HAMI_MODE_SLICE);
    EXPECT(hami_captures_open == 0 && !hami_capturing(stream, false));
    EXPECT(begin_here() == CUDA_SUCCESS && hami_capturing(stream, false));
    EXPECT(end_here() == CUDA_SUCCESS && hami_captures_open == 0);
    _exit(failures != 0);
}

/* The lock may be held by a thread that the child does not have. */
static void a_forked_child_waits_for_no_lock_of_its_parents(void)
{
    int status = -1;
    pid_t forked;

    EXPECT(begin_here() == CUDA_SUCCESS && hami_captures_open == 1);
    hami_lock(&captures.lock);
    forked = fork();
    if (forked == 0)
        child();
    EXPECT(forked > 0 && waitpid(forked, &status, 0) == forked && status == 0);
    hami_unlock(&captures.lock);
    EXPECT(hami_capturing(stream, false));
    EXPECT(end_here() == CUDA_SUCCESS && hami_captures_open == 0);
}

static void a_stream_that_goes_in_the_middle_is_forgotten(void)
{
    EXPECT(begin_here() == CUDA_SUCCESS && hami_captures_open == 1);
    captures_now = false;
    hami_captures_forget(stream);
    EXPECT(hami_captures_open == 0);
    hami_captures_forget(stream);
    EXPECT(hami_captures_open == 0);
}

int main(void)
{
    initialised = getpid();
    atomic_store(&hami_process->mode, HAMI_MODE_SLICE);
    a_forked_child_waits_for_no_lock_of_its_parents();
    a_stream_that_goes_in_the_middle_is_forgotten();
    return failures != 0;
}
