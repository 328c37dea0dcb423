/* A stream ends. */
#include "compute/gate.h"
#include "driver/real.h"
#include "program/capture.h"
#include "slice/slice.h"

/* Its handle may be another stream's right after it is destroyed: forget it before. */
static void forget(CUstream stream)
{
    if (hami_mode() != HAMI_MODE_SLICE)
        return;
    hami_gate_forget_stream(stream);
    hami_captures_forget(stream);
}

HAMI_EXPORT CUresult cuStreamDestroy(CUstream stream)
{
    forget(stream);
    return hami_real()->cuStreamDestroy(stream);
}

HAMI_EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
    forget(stream);
    return hami_real()->cuStreamDestroy_v2(stream);
}
