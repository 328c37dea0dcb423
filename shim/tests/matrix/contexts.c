/* Snippets: contexts. */
#include "matrix.h"

#define OTHER_DEVICE 1 /* whose primary context nobody else uses */

static bool current_is(CUcontext context)
{
    CUcontext found = NULL;

    return cuCtxGetCurrent(&found) == CUDA_SUCCESS && found == context;
}

/* ---- Made and destroyed ---- */

CALL(cuCtxCreate)
{
    CUresult result = s->api->cuCtxCreate(&s->made, 0, s->device);

    return and_so(result, current_is(s->made));
}

CALL(cuCtxCreate_v2)
{
    CUresult result = s->api->cuCtxCreate_v2(&s->made, 0, s->device);

    return and_so(result, current_is(s->made));
}

CALL(cuCtxCreate_v3)
{
    CUresult result = s->api->cuCtxCreate_v3(&s->made, NULL, 0, 0, s->device);

    return and_so(result, current_is(s->made));
}

CALL(cuCtxCreate_v4)
{
    CUresult result = s->api->cuCtxCreate_v4(&s->made, NULL, 0, s->device);

    return and_so(result, current_is(s->made));
}

CALL(cuCtxDestroy)
{
    CUresult result = s->api->cuCtxDestroy(s->made);

    return and_so(result, current_is(s->context));
}

CALL(cuCtxDestroy_v2)
{
    CUresult result = s->api->cuCtxDestroy_v2(s->made);

    return and_so(result, current_is(s->context));
}

CALL(cuCtxAttach)
{
    return and_so(s->api->cuCtxAttach(&s->made, 0), s->made == s->context);
}

CALL(cuCtxDetach)
{
    CUresult result = s->api->cuCtxDetach(s->context);

    return and_so(result, current_is(s->context));
}

/* ---- Current ---- */

CALL(cuCtxPushCurrent)
{
    CUresult result = s->api->cuCtxPushCurrent(s->context);

    return and_so(result, current_is(s->context));
}

CALL(cuCtxPushCurrent_v2)
{
    CUresult result = s->api->cuCtxPushCurrent_v2(s->context);

    return and_so(result, current_is(s->context));
}

CALL(cuCtxPopCurrent)
{
    return and_so(s->api->cuCtxPopCurrent(&s->made), s->made == s->context);
}

CALL(cuCtxPopCurrent_v2)
{
    return and_so(s->api->cuCtxPopCurrent_v2(&s->made), s->made == s->context);
}

CALL(cuCtxSetCurrent)
{
    CUresult result = s->api->cuCtxSetCurrent(NULL);

    return and_so(result, current_is(NULL));
}

static int current_again(struct stage *s)
{
    return (int)s->api->cuCtxSetCurrent(s->context);
}

static int ask_limit(struct stage *s)
{
    return (int)cuCtxGetLimit(&s->number, CU_LIMIT_PRINTF_FIFO_SIZE);
}

CALL(cuCtxSetLimit)
{
    size_t found = 0;
    CUresult result = s->api->cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, s->number);

    return result ? (int)result : and_so(cuCtxGetLimit(&found, CU_LIMIT_PRINTF_FIFO_SIZE),
                                         found == s->number);
}

CALL(cuCtxSynchronize)
{
    return (int)s->api->cuCtxSynchronize();
}

CALL(cuCtxSynchronize_v2)
{
    return (int)s->api->cuCtxSynchronize_v2(s->context);
}

/* ---- Primary ---- */

static bool other_is_active(void)
{
    unsigned int flags;
    int active = -1;

    return cuDevicePrimaryCtxGetState(OTHER_DEVICE, &flags, &active) != CUDA_SUCCESS || active;
}

CALL(cuDevicePrimaryCtxRetain)
{
    CUresult result = s->api->cuDevicePrimaryCtxRetain(&s->made, OTHER_DEVICE);

    return and_so(result, s->made && other_is_active());
}

CALL(cuDevicePrimaryCtxRelease)
{
    CUresult result = s->api->cuDevicePrimaryCtxRelease(OTHER_DEVICE);

    return and_so(result, !other_is_active());
}

CALL(cuDevicePrimaryCtxRelease_v2)
{
    CUresult result = s->api->cuDevicePrimaryCtxRelease_v2(OTHER_DEVICE);

    return and_so(result, !other_is_active());
}

CALL(cuDevicePrimaryCtxReset)
{
    CUresult result = s->api->cuDevicePrimaryCtxReset(OTHER_DEVICE);

    return and_so(result, !other_is_active());
}

CALL(cuDevicePrimaryCtxReset_v2)
{
    CUresult result = s->api->cuDevicePrimaryCtxReset_v2(OTHER_DEVICE);

    return and_so(result, !other_is_active());
}

/* ---- Green ---- */

CALL(cuGreenCtxCreate)
{
    CUdevResource all, some;
    unsigned int groups = 1;
    CUdevResourceDesc described;
    CUresult result = cuDeviceGetDevResource(s->device, &all, CU_DEV_RESOURCE_TYPE_SM);

    if (result == CUDA_SUCCESS)
        result = cuDevSmResourceSplitByCount(&some, &groups, &all, NULL, 0, 8);
    if (result == CUDA_SUCCESS)
        result = cuDevResourceGenerateDesc(&described, &some, 1);
    if (result != CUDA_SUCCESS)
        described = NULL; /* after a fork: what is asked for matters no more */
    return and_so(s->api->cuGreenCtxCreate(&s->green, described, s->device,
                                                CU_GREEN_CTX_DEFAULT_STREAM),
                  s->green != NULL);
}

CALL(cuGreenCtxDestroy)
{
    return (int)s->api->cuGreenCtxDestroy(s->green);
}

CALL(cuCtxFromGreenCtx)
{
    return and_so(s->api->cuCtxFromGreenCtx(&s->made, s->green), s->made != NULL);
}

static const struct snippet all[] = {
    SNIPPET(cuCtxAttach, nothing, call_cuCtxDetach),
    SNIPPET(cuCtxCreate, nothing, call_cuCtxDestroy_v2),
    SNIPPET(cuCtxCreate_v2, nothing, call_cuCtxDestroy_v2),
    SNIPPET(cuCtxCreate_v3, nothing, call_cuCtxDestroy_v2),
    SNIPPET(cuCtxCreate_v4, nothing, call_cuCtxDestroy_v2),
    SNIPPET(cuCtxDestroy, call_cuCtxCreate_v2, nothing),
    SNIPPET(cuCtxDestroy_v2, call_cuCtxCreate_v2, nothing),
    SNIPPET(cuCtxDetach, call_cuCtxAttach, nothing),
    SNIPPET(cuCtxFromGreenCtx, call_cuGreenCtxCreate, call_cuGreenCtxDestroy),
    SNIPPET(cuCtxPopCurrent, call_cuCtxPushCurrent_v2, nothing),
    SNIPPET(cuCtxPopCurrent_v2, call_cuCtxPushCurrent_v2, nothing),
    SNIPPET(cuCtxPushCurrent, nothing, call_cuCtxPopCurrent_v2),
    SNIPPET(cuCtxPushCurrent_v2, nothing, call_cuCtxPopCurrent_v2),
    SNIPPET(cuCtxSetCurrent, nothing, current_again),
    SNIPPET_ALONE(cuCtxSetLimit, ask_limit, nothing),
    SNIPPET(cuCtxSynchronize, nothing, nothing),
    SNIPPET(cuCtxSynchronize_v2, nothing, nothing),
    SNIPPET_ALONE(cuDevicePrimaryCtxRelease, call_cuDevicePrimaryCtxRetain, nothing),
    SNIPPET_ALONE(cuDevicePrimaryCtxRelease_v2, call_cuDevicePrimaryCtxRetain, nothing),
    SNIPPET_ALONE(cuDevicePrimaryCtxReset, call_cuDevicePrimaryCtxRetain,
                  call_cuDevicePrimaryCtxRelease_v2),
    SNIPPET_ALONE(cuDevicePrimaryCtxReset_v2, call_cuDevicePrimaryCtxRetain,
                  call_cuDevicePrimaryCtxRelease_v2),
    SNIPPET_ALONE(cuDevicePrimaryCtxRetain, nothing, call_cuDevicePrimaryCtxRelease_v2),
    SNIPPET(cuGreenCtxCreate, nothing, call_cuGreenCtxDestroy),
    SNIPPET(cuGreenCtxDestroy, call_cuGreenCtxCreate, nothing),
};
const struct snippets matrix_contexts = SNIPPETS(all);
