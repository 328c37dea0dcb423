/* Which context is a thread's current one. */
#include <stdlib.h>

#include "graphs.h"

_Thread_local struct sim_thread sim_thread __attribute__((tls_model("initial-exec")));

static pthread_key_t end_key;
static pthread_once_t end_once = PTHREAD_ONCE_INIT;

/* A thread ends: its default streams go, and its stack of contexts. */
static void thread_end(void *argument)
{
    struct sim_thread *thread = argument;
    CUstream stream = thread->streams;

    thread->streams = NULL;
    while (stream != NULL) {
        CUstream next = stream->thread_next;
        if (sim_kill(stream, SIM_STREAM))
            sim_stream_close(stream);
        sim_object_free(stream, SIM_STREAM);
        stream = next;
    }
    free(thread->stack);
    *thread = (struct sim_thread){ 0 };
}

static void make_key(void) { pthread_key_create(&end_key, thread_end); }

struct sim_thread *sim_thread_self(void)
{
    if (sim_thread.id == 0) {
        sim_thread.id = sim_next_id();
        pthread_once(&end_once, make_key);
        pthread_setspecific(end_key, &sim_thread);
    }
    return &sim_thread;
}

CUresult sim_push(CUcontext context)
{
    struct sim_thread *thread = sim_thread_self();

    if (thread->current != NULL) {
        if (thread->depth == thread->room) {
            unsigned int room = thread->room ? 2 * thread->room : 8;
            CUcontext *stack = realloc(thread->stack, room * sizeof *stack);
            if (stack == NULL)
                return CUDA_ERROR_OUT_OF_MEMORY;
            thread->stack = stack;
            thread->room = room;
        }
        thread->stack[thread->depth++] = thread->current;
    }
    thread->current = context;
    return CUDA_SUCCESS;
}

static CUresult push_known(CUcontext context)
{
    if (!sim_context_known(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    return sim_push(context);
}

SIM_EXPORT CUresult cuCtxPushCurrent(CUcontext context)
{
    SIM_ENTER(cuCtxPushCurrent);
    return push_known(context);
}

SIM_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    SIM_ENTER(cuCtxPushCurrent_v2);
    return push_known(context);
}

static CUresult pop(CUcontext *context)
{
    struct sim_thread *thread = sim_thread_self();

    if (thread->current == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context != NULL)
        *context = thread->current;
    thread->current = thread->depth > 0 ? thread->stack[--thread->depth] : NULL;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxPopCurrent(CUcontext *context)
{
    SIM_ENTER(cuCtxPopCurrent);
    return pop(context);
}

SIM_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    SIM_ENTER(cuCtxPopCurrent_v2);
    return pop(context);
}

/* Replaces the top of the stack; NULL takes it away. */
SIM_EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
    SIM_ENTER(cuCtxSetCurrent);
    struct sim_thread *thread = sim_thread_self();

    if (context == NULL) {
        if (thread->current != NULL)
            thread->current = thread->depth > 0 ? thread->stack[--thread->depth] : NULL;
        return CUDA_SUCCESS;
    }
    if (!sim_context_known(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    thread->current = context;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxGetCurrent(CUcontext *context)
{
    SIM_ENTER(cuCtxGetCurrent);
    if (context == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *context = sim_thread.current;
    return CUDA_SUCCESS;
}

CUresult sim_current(CUcontext *context, CUdevice *ordinal)
{
    CUcontext current;
    CUresult result = sim_context_current(&current);

    if (result != CUDA_SUCCESS)
        return result;
    if (context != NULL)
        *context = current;
    if (ordinal != NULL)
        *ordinal = current->ordinal;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
    SIM_ENTER(cuCtxGetDevice);
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_current(NULL, device);
}

/* A context that was given, or the current one where it is NULL. */
static CUresult given_or_current(CUcontext given, CUcontext *context)
{
    if (given == NULL)
        return sim_context_current(context);
    *context = given;
    return sim_context_known(given) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

SIM_EXPORT CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context)
{
    SIM_ENTER(cuCtxGetDevice_v2);
    CUresult result;

    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = given_or_current(context, &context);
    if (result == CUDA_SUCCESS)
        *device = context->ordinal;
    return result;
}

SIM_EXPORT CUresult cuCtxGetApiVersion(CUcontext context, unsigned int *version)
{
    SIM_ENTER(cuCtxGetApiVersion);
    CUresult result;

    if (version == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = given_or_current(context, &context);
    if (result == CUDA_SUCCESS)
        *version = context->api_version;
    return result;
}

SIM_EXPORT CUresult cuCtxGetId(CUcontext context, unsigned long long *id)
{
    SIM_ENTER(cuCtxGetId);
    CUresult result;

    if (id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = given_or_current(context, &context);
    if (result == CUDA_SUCCESS)
        *id = context->id;
    return result;
}

SIM_EXPORT CUresult cuCtxGetFlags(unsigned int *flags)
{
    SIM_ENTER(cuCtxGetFlags);
    CUcontext context;
    CUresult result;

    if (flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_context_current(&context);
    if (result == CUDA_SUCCESS)
        *flags = context->flags;
    return result;
}

static CUresult synchronise(CUcontext given)
{
    CUcontext context;
    CUresult result = given_or_current(given, &context);

    if (result == CUDA_SUCCESS)
        result = sim_capture_unsafe();
    if (result == CUDA_SUCCESS)
        result = sim_capture_refuse_context(context);
    if (result == CUDA_SUCCESS)
        result = sim_context_finish(context);
    return result;
}

SIM_EXPORT CUresult cuCtxSynchronize(void)
{
    SIM_ENTER(cuCtxSynchronize);
    return synchronise(NULL);
}

SIM_EXPORT CUresult cuCtxSynchronize_v2(CUcontext context)
{
    SIM_ENTER(cuCtxSynchronize_v2);
    return synchronise(context);
}
