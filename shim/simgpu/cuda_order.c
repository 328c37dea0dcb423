/* In which order streams run what they are given: the legacy stream waits for the blocking streams
 * of its context, and they for it. */
#include "execution.h"

/* `later` waits for what `earlier` was given so far. The lock is held. */
static CUresult chain(CUstream earlier, CUstream later)
{
    CUresult result;

    if (sim_queue_idle(earlier->queue))
        return CUDA_SUCCESS;
    if (earlier->order == NULL)
        earlier->order = sim_marker_create();
    if (earlier->order == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = sim_queue_mark(earlier->queue, earlier->order);
    if (result == CUDA_SUCCESS)
        result = sim_queue_wait_marker(later->queue, earlier->order);
    return result;
}

CUresult sim_order_slow(CUstream stream)
{
    CUcontext context = stream->context;
    CUresult result = CUDA_SUCCESS;

    sim_lock();
    if (stream->legacy) {
        for (CUstream each = context->streams; each != NULL && result == CUDA_SUCCESS;
             each = each->next)
            if (each->blocking)
                result = chain(each, stream);
        atomic_fetch_add_explicit(&context->legacy_work, 1, memory_order_relaxed);
    } else {
        uint32_t work = atomic_load_explicit(&context->legacy_work, memory_order_relaxed);
        result = chain(&context->legacy, stream);
        if (result == CUDA_SUCCESS)
            atomic_store_explicit(&stream->legacy_seen, work, memory_order_relaxed);
    }
    sim_unlock();
    return result;
}

CUresult sim_stream_finish(CUstream stream)
{
    CUresult result = CUDA_SUCCESS;

    if (stream->legacy)
        result = sim_order(stream);
    return result == CUDA_SUCCESS ? sim_queue_finish(stream->queue) : result;
}

bool sim_stream_idle(CUstream stream)
{
    bool idle = sim_queue_idle(stream->queue);

    if (idle && stream->legacy && stream->context->blocking_streams != 0) {
        sim_lock();
        for (CUstream each = stream->context->streams; each != NULL && idle; each = each->next)
            idle = !each->blocking || sim_queue_idle(each->queue);
        sim_unlock();
    }
    return idle;
}

CUresult sim_synchronised(CUresult result, CUdevice ordinal)
{
    if (result == CUDA_SUCCESS)
        sim_memory_synchronised(ordinal);
    return result;
}

/* For the memory half, which enqueues something right after. */
CUresult sim_stream_queue(CUstream stream, bool per_thread, struct sim_queue **queue,
                          CUdevice *ordinal)
{
    CUstream resolved;
    CUresult result = sim_stream_resolve(stream, per_thread, &resolved);

    if (result == CUDA_SUCCESS)
        result = sim_order(resolved);
    if (result != CUDA_SUCCESS)
        return result;
    if (queue != NULL)
        *queue = resolved->queue;
    if (ordinal != NULL)
        *ordinal = resolved->context->ordinal;
    return CUDA_SUCCESS;
}
