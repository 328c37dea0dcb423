/* A program waits: for a stream, an event, a context. Pools may have shrunk then, and what was
 * measured has come in. */
#include "compute/gate.h"
#include "driver/real.h"
#include "memory/charge.h"
#include "memory/reclaim.h"
#include "program/current.h"
#include "slice/devices.h"
#include "slice/slice.h"

static CUresult waited(CUresult result)
{
    hami_memory_settle(HAMI_ROW_NONE);
    hami_gate_settle();
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

static CUresult settled(CUresult result)
{
    int row;

    if (hami_mode() == HAMI_MODE_SLICE && hami_current_row(&row) == CUDA_SUCCESS) {
        hami_memory_settle(row);
        hami_gate_settle();
        hami_correct();
    }
    return result;
}

HAMI_EXPORT CUresult cuCtxSynchronize(void)
{
    return settled(hami_real()->cuCtxSynchronize());
}

/* Of a context that need not be the current one. */
HAMI_EXPORT CUresult cuCtxSynchronize_v2(CUcontext context)
{
    CUresult result = hami_real()->cuCtxSynchronize_v2(context);
    CUdevice device;

    if (!context)
        return settled(result);
    if (hami_mode() == HAMI_MODE_SLICE &&
        hami_real()->cuCtxGetDevice_v2(&device, context) == CUDA_SUCCESS) {
        hami_memory_settle(hami_row_of_ordinal(device));
        hami_gate_settle();
        hami_correct();
    }
    return result;
}
