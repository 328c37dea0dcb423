/* An event behind each such free tells. The entry stays in the map meanwhile, so that it goes with
 * the context that the event is of; under a key that is no address, since the driver gives the
 * address out again before we look. */
#include "memory/late.h"

#include <stdatomic.h>

#include "base/reset.h"
#include "driver/real.h"
#include "program/current.h"

static _Atomic unsigned int waiting; /* or gone with a context: then one looks in vain */

void hami_late_reset(void)
{
    atomic_store_explicit(&waiting, 0, memory_order_relaxed);
}

static CUresult context_of(CUstream stream, CUcontext *context)
{
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return hami_real()->cuCtxGetCurrent(context);
    return hami_real()->cuStreamGetCtx(stream, context);
}

/* Behind what is in the stream now. */
static CUresult record(CUevent *event, CUstream stream, bool per_thread)
{
    const struct hami_real *real = hami_real();
    CUresult result = real->cuEventCreate(event, CU_EVENT_DISABLE_TIMING);

    if (result != CUDA_SUCCESS)
        return result;
    result = per_thread ? real->cuEventRecord_ptsz(*event, stream)
                        : real->cuEventRecord(*event, stream);
    if (result != CUDA_SUCCESS)
        real->cuEventDestroy_v2(*event);
    return result;
}

static CUresult record_in(CUcontext context, CUevent *event, CUstream stream, bool per_thread)
{
    const struct hami_real *real = hami_real();
    CUcontext popped;
    CUresult result = real->cuCtxPushCurrent_v2(context);

    if (result != CUDA_SUCCESS)
        return result;
    result = record(event, stream, per_thread);
    real->cuCtxPopCurrent_v2(&popped);
    return result;
}

/* Without an event nobody would tell. */
void hami_late_free(const struct hami_entry *entry, CUstream stream, bool per_thread)
{
    struct hami_entry late = *entry, old;
    CUevent event;

    late.key |= 1;
    if (context_of(stream, &late.context) != CUDA_SUCCESS || !late.context ||
        record_in(late.context, &event, stream, per_thread) != CUDA_SUCCESS) {
        hami_entry_refund(entry);
        return;
    }
    late.extra = (uintptr_t)event;
    if (!hami_map_exchange(&late, &old)) {
        hami_real()->cuEventDestroy_v2(event);
        hami_entry_refund(entry);
        return;
    }
    if (old.kind == HAMI_KIND_NONE)
        atomic_fetch_add_explicit(&waiting, 1, memory_order_release);
    else /* the address was given out again since */
        hami_entry_refund(&old);
}

struct look {
    uint64_t refunded;
    unsigned int ended;
};

/* A driver may give such memory back only when somebody waits: for what has happened that takes no
 * time. */
static bool end(struct hami_entry *entry, void *argument)
{
    struct look *look = argument;
    CUevent event = (CUevent)(uintptr_t)entry->extra;

    if (entry->kind != HAMI_KIND_LINEAR || !event ||
        hami_real()->cuEventQuery(event) == CUDA_ERROR_NOT_READY)
        return false;
    hami_real()->cuEventSynchronize(event);
    hami_real()->cuEventDestroy_v2(event);
    hami_entry_refund(entry);
    look->refunded += entry->bytes;
    look->ended++;
    return true;
}

/* Only of the current context, which nobody destroys meanwhile, nor then its events. */
uint64_t hami_late_settle(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    struct look look = {0};
    CUcontext context;
    CUresult exchanged;
    int row;

    if (__builtin_expect(atomic_load_explicit(&waiting, memory_order_acquire) == 0, 1) ||
        hami_current(&context, &row) != CUDA_SUCCESS)
        return 0;
    /* A query may count as unsafe while some thread captures. */
    exchanged = hami_real()->cuThreadExchangeStreamCaptureMode(&mode);
    hami_map_visit(context, end, &look);
    if (exchanged == CUDA_SUCCESS)
        hami_real()->cuThreadExchangeStreamCaptureMode(&mode);
    atomic_fetch_sub_explicit(&waiting, look.ended, memory_order_relaxed);
    return look.refunded;
}
