/* What a stream tells about itself. */
#include "execution.h"

/* Of a green context's stream the first spelling gives the green context in the form of a
 * context. */
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

SIM_EXPORT CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *context,
                                      CUgreenCtx *green_context)
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

/* Copies a field of the stream out. */
#define FIELD(field)                                                                               \
    do {                                                                                           \
        CUstream resolved_;                                                                        \
        CUresult result_;                                                                          \
        if (field == NULL)                                                                         \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        result_ = sim_stream_resolve(stream, per_thread, &resolved_);                              \
        if (result_ == CUDA_SUCCESS)                                                               \
            *field = resolved_->field;                                                             \
        return result_;                                                                            \
    } while (0)

static CUresult flags_of(CUstream stream, bool per_thread, unsigned int *flags) { FIELD(flags); }
static CUresult priority_of(CUstream stream, bool per_thread, int *priority) { FIELD(priority); }
static CUresult id_of(CUstream stream, bool per_thread, unsigned long long *id) { FIELD(id); }

SIM_EXPORT CUresult cuStreamGetFlags(CUstream stream, unsigned int *flags)
{
    SIM_ENTER(cuStreamGetFlags);
    return flags_of(stream, false, flags);
}

SIM_EXPORT CUresult cuStreamGetFlags_ptsz(CUstream stream, unsigned int *flags)
{
    SIM_ENTER(cuStreamGetFlags_ptsz);
    return flags_of(stream, true, flags);
}

SIM_EXPORT CUresult cuStreamGetPriority(CUstream stream, int *priority)
{
    SIM_ENTER(cuStreamGetPriority);
    return priority_of(stream, false, priority);
}

SIM_EXPORT CUresult cuStreamGetPriority_ptsz(CUstream stream, int *priority)
{
    SIM_ENTER(cuStreamGetPriority_ptsz);
    return priority_of(stream, true, priority);
}

SIM_EXPORT CUresult cuStreamGetId(CUstream stream, unsigned long long *id)
{
    SIM_ENTER(cuStreamGetId);
    return id_of(stream, false, id);
}

SIM_EXPORT CUresult cuStreamGetId_ptsz(CUstream stream, unsigned long long *id)
{
    SIM_ENTER(cuStreamGetId_ptsz);
    return id_of(stream, true, id);
}
