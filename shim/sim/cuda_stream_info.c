/* What a stream tells about itself. */
#include "execution.h"

/* Of a green context's stream the first spelling gives the green context in the form of a context. */
static CUresult context_of(CUstream handle, bool per_thread, CUcontext *context, CUgreenCtx *green,
                           bool first)
{
    CUstream stream;
    CUresult result;

    if (context == NULL || (!first && green == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_stream_resolve(handle, per_thread, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!first) {
        *green = stream->context->green;
        *context = *green != NULL ? NULL : stream->context;
    } else {
        *context = stream->context;
    }
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    SIM_ENTER(cuStreamGetCtx);
    return context_of(stream, false, context, NULL, true);
}

SIM_EXPORT CUresult cuStreamGetCtx_ptsz(CUstream stream, CUcontext *context)
{
    SIM_ENTER(cuStreamGetCtx_ptsz);
    return context_of(stream, true, context, NULL, true);
}

SIM_EXPORT CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *context, CUgreenCtx *green_context)
{
    SIM_ENTER(cuStreamGetCtx_v2);
    return context_of(stream, false, context, green_context, false);
}

SIM_EXPORT CUresult cuStreamGetCtx_v2_ptsz(CUstream stream, CUcontext *context,
                                           CUgreenCtx *green_context)
{
    SIM_ENTER(cuStreamGetCtx_v2_ptsz);
    return context_of(stream, true, context, green_context, false);
}

#define INFO(name, type, field)                                                                    \
    static CUresult name##_of(CUstream handle, bool per_thread, type *value)                       \
    {                                                                                              \
        CUstream stream;                                                                           \
        CUresult result;                                                                           \
        if (value == NULL)                                                                         \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        result = sim_stream_resolve(handle, per_thread, &stream);                                  \
        if (result == CUDA_SUCCESS)                                                                \
            *value = stream->field;                                                                \
        return result;                                                                             \
    }                                                                                              \
    SIM_EXPORT CUresult cuStreamGet##name(CUstream stream, type *value)                            \
    {                                                                                              \
        SIM_ENTER(cuStreamGet##name);                                                              \
        return name##_of(stream, false, value);                                                    \
    }                                                                                              \
    SIM_EXPORT CUresult cuStreamGet##name##_ptsz(CUstream stream, type *value)                     \
    {                                                                                              \
        SIM_ENTER(cuStreamGet##name##_ptsz);                                                       \
        return name##_of(stream, true, value);                                                     \
    }

INFO(Flags, unsigned int, flags)
INFO(Priority, int, priority)
INFO(Id, unsigned long long, id)
