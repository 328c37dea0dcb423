/* The life of contexts: made in every spelling, attached, destroyed with all that is in them. */
#include <sched.h>
#include <stdlib.h>

#include "modules.h"

#define MIB (UINT64_C(1) << 20)
#define COREDUMP_FLAGS 0x60u

CUcontext sim_contexts;
bool sim_costly;

void sim_context_list(CUcontext context)
{
    context->previous = NULL;
    context->next = sim_contexts;
    if (sim_contexts != NULL)
        sim_contexts->previous = context;
    sim_contexts = context;
}

void sim_context_unlist(CUcontext context)
{
    if (context->previous != NULL)
        context->previous->next = context->next;
    else
        sim_contexts = context->next;
    if (context->next != NULL)
        context->next->previous = context->previous;
}

bool sim_context_known(CUcontext context)
{
    bool known = false;

    if (context == NULL)
        return false;
    if (context == sim_thread.current)
        return sim_alive(context, SIM_CONTEXT);
    sim_lock();
    for (CUcontext each = sim_contexts; each != NULL && !known; each = each->next)
        known = each == context;
    sim_unlock();
    return known && sim_alive(context, SIM_CONTEXT);
}

CUresult sim_context_flags(unsigned int flags)
{
    unsigned int schedule = flags & CU_CTX_SCHED_MASK;
    unsigned int known = CU_CTX_SCHED_MASK | CU_CTX_MAP_HOST | CU_CTX_LMEM_RESIZE_TO_MAX |
                         CU_CTX_SYNC_MEMOPS | COREDUMP_FLAGS;

    if ((flags & ~known) != 0 || (schedule & (schedule - 1)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* About what a context of a current driver takes: by far the most is local memory for the threads
 * that can be resident, 1 KiB of stack for each and as much again. */
static uint64_t context_bytes(CUdevice ordinal)
{
    uint64_t mib = sim_device_threads(sim_device(ordinal)) / 512 + 10;

    return sim_knob("CONTEXT_MIB", mib) * MIB;
}

/* The context's own part; a green one has no memory, and its modules are the primary one's. */
CUresult sim_context_open(CUcontext context, CUdevice ordinal, unsigned int flags)
{
    CUresult result = CUDA_SUCCESS;

    context->ordinal = ordinal;
    context->flags = flags;
    context->api_version = 3020;
    context->id = sim_next_id();
    context->attached = 1;
    if (context->root == NULL || context->root == context) {
        context->root = context;
        result = sim_take(ordinal, context_bytes(ordinal), SIM_MEMORY_CONTEXT, &context->memory);
        if (result != CUDA_SUCCESS)
            return result;
    }
    if (sim_knob("LAUNCH_NS", 0) != 0 || sim_knob("EVENT_NS", 0) != 0)
        sim_costly = true;
    sim_limits_default(context);
    context->legacy.legacy = true;
    result = sim_stream_open(&context->legacy, context, 0);
    if (result != CUDA_SUCCESS) {
        if (context->root == context)
            sim_give(context->memory);
        return result;
    }
    sim_lock();
    sim_context_list(context);
    sim_born(context, SIM_CONTEXT);
    sim_unlock();
    result = sim_library_load_all(context);
    if (result != CUDA_SUCCESS && sim_kill(context, SIM_CONTEXT))
        sim_context_close(context);
    return result;
}

/* The first of a context's streams, events or modules, killed; NULL when none is left. One that is
 * just being destroyed elsewhere disappears from the list by itself. */
#define KILL_FIRST(list, kind)                                                                     \
    ({                                                                                             \
        __typeof__(context->list) first;                                                           \
        for (;;) {                                                                                 \
            sim_lock();                                                                            \
            first = context->list;                                                                 \
            bool mine = first == NULL || sim_kill(first, kind);                                    \
            sim_unlock();                                                                          \
            if (mine)                                                                              \
                break;                                                                             \
            sched_yield();                                                                         \
        }                                                                                          \
        first;                                                                                     \
    })

/* Of a context that is already dead. The work in it comes to its end first. */
void sim_context_close(CUcontext context)
{
    CUstream stream;
    CUevent event;
    CUmodule module;

    sim_device_finish(context->ordinal);
    while ((stream = KILL_FIRST(streams, SIM_STREAM)) != NULL) {
        bool own = !stream->per_thread && stream != &context->legacy;
        sim_stream_close(stream);
        if (own) /* a per-thread stream is its thread's to give back */
            sim_object_free(stream, SIM_STREAM);
    }
    while ((event = KILL_FIRST(events, SIM_EVENT)) != NULL)
        sim_event_close(event);
    while ((module = KILL_FIRST(modules, SIM_MODULE)) != NULL)
        sim_module_close(module);
    sim_memory_context_gone(context);
    sim_limits_close(context);
    if (context->root == context)
        sim_give(context->memory);
    sim_lock();
    sim_context_unlist(context);
    sim_unlock();
}

CUresult sim_context_finish(CUcontext context)
{
    CUresult result = sim_device_finish(context->ordinal);
    return sim_synchronised(result, context->ordinal);
}

static CUresult create(CUcontext *context, unsigned int flags, CUdevice device,
                       unsigned int api_version)
{
    CUcontext made;
    CUresult result;

    if (!sim_pointer(context) || sim_context_flags(flags) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device(device) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    made = sim_object_new(SIM_CONTEXT);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = sim_context_open(made, device, flags);
    if (result == CUDA_SUCCESS) {
        result = sim_push(made);
        if (result != CUDA_SUCCESS && sim_kill(made, SIM_CONTEXT))
            sim_context_close(made);
    }
    if (result != CUDA_SUCCESS) {
        sim_object_free(made, SIM_CONTEXT);
        return result;
    }
    made->api_version = api_version;
    *context = made;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
    SIM_ENTER(cuCtxCreate);
    return create(context, flags, device, 3010);
}

SIM_EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    SIM_ENTER(cuCtxCreate_v2);
    return create(context, flags, device, 3020);
}

/* Affinities need MPS, which we do not simulate. */
static CUresult affinities(const CUexecAffinityParam *list, int count)
{
    if (count < 0 || count > 1 || (count > 0) != (list != NULL) ||
        (list != NULL && !sim_pointer(list)))
        return CUDA_ERROR_INVALID_VALUE;
    return count == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

SIM_EXPORT CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *list, int count,
                                   unsigned int flags, CUdevice device)
{
    SIM_ENTER(cuCtxCreate_v3);
    CUresult result = affinities(list, count);
    return result == CUDA_SUCCESS ? create(context, flags, device, 3020) : result;
}

SIM_EXPORT CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *parameters,
                                   unsigned int flags, CUdevice device)
{
    SIM_ENTER(cuCtxCreate_v4);
    CUresult result = CUDA_SUCCESS;

    if (parameters != NULL) {
        if (!sim_pointer(parameters) ||
            (parameters->cigParams != NULL && parameters->execAffinityParams != NULL))
            return CUDA_ERROR_INVALID_VALUE;
        if (parameters->cigParams != NULL)
            return CUDA_ERROR_NOT_SUPPORTED;
        result = affinities(parameters->execAffinityParams, parameters->numExecAffinityParams);
    }
    return result == CUDA_SUCCESS ? create(context, flags, device, 3020) : result;
}

static CUresult destroy(CUcontext context)
{
    struct sim_thread *thread = sim_thread_self();
    CUresult result;

    if (!sim_context_known(context) || context->primary || context->green != NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_kill(context, SIM_CONTEXT))
        return CUDA_ERROR_INVALID_CONTEXT;
    /* Only off the top of the caller's stack; wherever else it is current it stays, and is dead. */
    if (thread->current == context)
        thread->current = thread->depth > 0 ? thread->stack[--thread->depth] : NULL;
    sim_context_close(context);
    sim_object_free(context, SIM_CONTEXT);
    return CUDA_SUCCESS;
}

/* Before CUDA 4.0 a context that others were attached to could not be destroyed. */
SIM_EXPORT CUresult cuCtxDestroy(CUcontext context)
{
    SIM_ENTER(cuCtxDestroy);
    if (sim_context_known(context) && context->attached != 1)
        return CUDA_ERROR_INVALID_CONTEXT;
    return destroy(context);
}

SIM_EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
    SIM_ENTER(cuCtxDestroy_v2);
    return destroy(context);
}

SIM_EXPORT CUresult cuCtxAttach(CUcontext *context, unsigned int flags)
{
    SIM_ENTER(cuCtxAttach);
    CUcontext current;
    CUresult result;

    if (context == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_context_current(&current);
    if (result != CUDA_SUCCESS)
        return result;
    sim_lock();
    current->attached++;
    sim_unlock();
    *context = current;
    return CUDA_SUCCESS;
}

/* Of the current context only; the last one destroys it. */
SIM_EXPORT CUresult cuCtxDetach(CUcontext context)
{
    SIM_ENTER(cuCtxDetach);
    bool last;

    if (context == NULL || context != sim_thread.current || !sim_context_known(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    sim_lock();
    last = context->attached <= 1;
    if (!last)
        context->attached--;
    sim_unlock();
    return last ? destroy(context) : CUDA_SUCCESS;
}
