/* A stream's handle may be another stream's right after it is destroyed: forget it before. */
#include "launch.h"
#include "driver/real.h"
#include "slice/slice.h"

HAMI_EXPORT CUresult cuStreamDestroy(CUstream stream)
{
    if (hami_mode() == HAMI_MODE_SLICE)
        hami_launch_forget_stream(stream);
    return hami_real()->cuStreamDestroy(stream);
}

HAMI_EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
    if (hami_mode() == HAMI_MODE_SLICE)
        hami_launch_forget_stream(stream);
    return hami_real()->cuStreamDestroy_v2(stream);
}
