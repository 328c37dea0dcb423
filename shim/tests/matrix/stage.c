/* What snippets find: the primary context of the first card, a stream, a kernel, the card in NVML. */
#include <stdlib.h>
#include <string.h>

#include "matrix.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        int result_ = (int)(call);                                                                 \
        if (result_ != 0)                                                                          \
            return result_;                                                                        \
    } while (0)

int matrix_stage_open(struct stage *s)
{
    TRY(cuInit(0));
    TRY(cuDeviceGet(&s->device, 0));
    TRY(cuDevicePrimaryCtxRetain(&s->context, s->device));
    TRY(cuCtxSetCurrent(s->context));
    TRY(cuStreamCreate(&s->stream, CU_STREAM_NON_BLOCKING));
    TRY(cuModuleLoadData(&s->module, s->image));
    TRY(cuModuleGetFunction(&s->function, s->module, "nothing"));
    TRY(nvmlInit_v2());
    TRY(nvmlDeviceGetHandleByIndex_v2(0, &s->card));
    return 0;
}

int matrix_stage_close(struct stage *s)
{
    TRY(nvmlShutdown());
    TRY(cuModuleUnload(s->module));
    TRY(cuStreamDestroy_v2(s->stream));
    TRY(cuCtxSetCurrent(NULL));
    TRY(cuDevicePrimaryCtxRelease_v2(s->device));
    return 0;
}
