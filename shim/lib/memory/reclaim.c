#include "memory/reclaim.h"

#include "driver/real.h"
#include "memory/charge.h"
#include "memory/late.h"
#include "memory/physical.h"
#include "memory/pools.h"
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
