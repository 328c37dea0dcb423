/* When the driver may have given memory back, and when we ask it to. */
#include "account.h"
#include "hooks/allocations/async.h"
#include "graphs.h"
#include "imports.h"
#include "late.h"
#include "hooks/work/launch.h"
#include "physical.h"
#include "pools.h"
#include "driver/real.h"
#include "slice/slice.h"

/* The driver gives back what a pool only caches when the program waits for a stream, an event or a
 * context: here, on the thread that waited, and nowhere else. */
void hami_memory_settle(int row)
{
    if (hami_mode() != HAMI_MODE_SLICE)
        return;
    hami_pools_settle(row, false);
    hami_physical_settle();
    hami_late_settle();
}

bool hami_memory_reclaim(int row)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    uint64_t refunded;
    CUresult exchanged;

    if (hami_mode() != HAMI_MODE_SLICE)
        return false;
    /* Trimming may count as unsafe while some thread captures in global mode; ours concerns no
     * stream. */
    exchanged = hami_real()->cuThreadExchangeStreamCaptureMode(&mode);
    refunded = hami_pools_settle(row, true) + hami_physical_settle() + hami_late_settle();
    if (exchanged == CUDA_SUCCESS)
        hami_real()->cuThreadExchangeStreamCaptureMode(&mode);
    return refunded != 0;
}

bool hami_memory_charge(int row, uint64_t bytes)
{
    return hami_charge(row, bytes) || (hami_memory_reclaim(row) && hami_charge(row, bytes));
}

void hami_memory_reset(void)
{
    hami_pools_reset();
    hami_graphs_reset();
    hami_physical_reset();
    hami_imports_reset();
    hami_late_reset();
}

static CUresult waited(CUresult result)
{
    hami_memory_settle(HAMI_ROW_NONE);
    hami_launch_settle();
    return result;
}

HAMI_EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    return waited(hami_real()->cuStreamSynchronize(stream));
}

HAMI_EXPORT CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
    return waited(hami_real()->cuStreamSynchronize_ptsz(stream));
}

HAMI_EXPORT CUresult cuEventSynchronize(CUevent event)
{
    return waited(hami_real()->cuEventSynchronize(event));
}
