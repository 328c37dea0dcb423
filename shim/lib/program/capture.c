#include "program/capture.h"

#include "base/lock.h"
#include "base/reset.h"
#include "driver/real.h"
#include "slice/slice.h"

#define ORIGINS 64

_Atomic uint32_t hami_captures_open;

static struct {
    struct hami_lock lock;
    uintptr_t origins[ORIGINS]; /* 0: free. One that finds no place counts as open for ever */
} captures;

bool hami_capturing(CUstream stream, bool per_thread)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result;

    if (__builtin_expect(atomic_load_explicit(&hami_captures_open, memory_order_acquire) == 0, 1))
        return false;
    result = per_thread ? hami_real()->cuStreamIsCapturing_ptsz(stream, &status)
                        : hami_real()->cuStreamIsCapturing(stream, &status);
    if (result != CUDA_SUCCESS)
        return result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* A stream where a capture begins; per-thread ones by their thread. */
static uintptr_t origin_of(CUstream stream, bool per_thread)
{
    static _Thread_local char thread __attribute__((tls_model("initial-exec")));

    if (stream == CU_STREAM_PER_THREAD || (per_thread && stream == NULL))
        return (uintptr_t)&thread;
    return (uintptr_t)(stream ? stream : CU_STREAM_LEGACY);
}

void hami_capture_opened(CUstream stream, bool per_thread)
{
    uintptr_t origin = origin_of(stream, per_thread);
    int i = 0;

    hami_lock(&captures.lock);
    while (i < ORIGINS && captures.origins[i] != 0)
        i++;
    if (i < ORIGINS)
        captures.origins[i] = origin;
    atomic_fetch_add_explicit(&hami_captures_open, 1, memory_order_release);
    hami_unlock(&captures.lock);
}

void hami_capture_closed(CUstream stream, bool per_thread)
{
    uintptr_t origin = origin_of(stream, per_thread);
    int i = 0;

    /* A forked child has its parent's lock, maybe held by a thread that it does not have. */
    if (hami_mode() != HAMI_MODE_SLICE)
        return;
    hami_lock(&captures.lock);
    while (i < ORIGINS && captures.origins[i] != origin)
        i++;
    if (i < ORIGINS) {
        captures.origins[i] = 0;
        atomic_fetch_sub_explicit(&hami_captures_open, 1, memory_order_release);
    }
    hami_unlock(&captures.lock);
}

void hami_captures_forget(CUstream stream)
{
    if (atomic_load_explicit(&hami_captures_open, memory_order_acquire) != 0)
        hami_capture_closed(stream, false);
}

void hami_capture_reset(void)
{
    atomic_store_explicit(&captures.lock.word, HAMI_LOCK_FREE, memory_order_relaxed);
    for (int i = 0; i < ORIGINS; i++)
        captures.origins[i] = 0;
    atomic_store_explicit(&hami_captures_open, 0, memory_order_relaxed);
}
