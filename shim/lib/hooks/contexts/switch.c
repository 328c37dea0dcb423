/* What makes another context current in the calling thread. */
#include "driver/real.h"
#include "program/current.h"

HAMI_EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
    CUresult result = hami_real()->cuCtxSetCurrent(context);

    if (result == CUDA_SUCCESS)
        hami_current_is(context);
    return result;
}

HAMI_EXPORT CUresult cuCtxPushCurrent(CUcontext context)
{
    CUresult result = hami_real()->cuCtxPushCurrent(context);

    if (result == CUDA_SUCCESS)
        hami_current_is(context);
    return result;
}

HAMI_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    CUresult result = hami_real()->cuCtxPushCurrent_v2(context);

    if (result == CUDA_SUCCESS)
        hami_current_is(context);
    return result;
}

HAMI_EXPORT CUresult cuCtxPopCurrent(CUcontext *context)
{
    CUresult result = hami_real()->cuCtxPopCurrent(context);

    hami_current_changed();
    return result;
}

HAMI_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    CUresult result = hami_real()->cuCtxPopCurrent_v2(context);

    hami_current_changed();
    return result;
}
