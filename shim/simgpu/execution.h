/* What the files of the execution half share: the objects behind the driver's handles, and the
 * primitives on them. A handle is a pointer to one of these structures.
 *
 * Objects are never returned to the allocator: a handle that a program uses after it destroyed it
 * answers with an error, as a guess at what the real driver does, and never touches foreign memory.
 * Their first word says what they are while they live.
 *
 * One lock (sim_world) guards everything that is not marked atomic. It is never held while a
 * program's function runs. The ways to enqueue work and to record and query events take no lock
 * unless a capture, a host function or the legacy stream makes them. */
#ifndef SIM_EXECUTION_H
#define SIM_EXECUTION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "client.h"
#include "cuda_more.h"

#define SIM_LIKELY(x) __builtin_expect(!!(x), 1)
#define SIM_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* The first line of an entry point that works without cuInit. */
#define SIM_CALLED(name) SIM_REMEMBER(name)

enum sim_kind {
    SIM_GONE = 0,
    SIM_CONTEXT = 0x73430001,
    SIM_GREEN,
    SIM_STREAM,
    SIM_EVENT,
    SIM_MODULE,
    SIM_LIBRARY,
    SIM_KERNEL,
    SIM_FUNCTION,
    SIM_GRAPH,
    SIM_NODE,
    SIM_EXEC,
    SIM_RESOURCES,
};

struct sim_head {
    _Atomic uint32_t kind;    /* enum sim_kind; SIM_GONE: destroyed */
    struct sim_head *recycle; /* objects waiting to be used again (cuda_object.c) */
};

/* ---- Objects and the lock (cuda_object.c) ---- */

extern pthread_mutex_t sim_world;
static inline void sim_lock(void) { pthread_mutex_lock(&sim_world); }
static inline void sim_unlock(void) { pthread_mutex_unlock(&sim_world); }

/* Zeroed, and `kind` not set: sim_born does that when the object is whole. NULL: no memory. */
void *sim_object_new(enum sim_kind kind);
static inline void sim_born(void *object, enum sim_kind kind)
{
    atomic_store_explicit(&((struct sim_head *)object)->kind, kind, memory_order_release);
}
/* Dead from now on; false when it already was. The caller lets go of what it holds and then gives
 * the object itself back. */
bool sim_kill(void *object, enum sim_kind kind);
void sim_object_free(void *object, enum sim_kind kind);

/* Small integers are what a caller of another ABI passes where a pointer is expected. */
static inline bool sim_pointer(const void *pointer) { return (uintptr_t)pointer >= 0x10000; }

static inline bool sim_alive(const void *object, enum sim_kind kind)
{
    const struct sim_head *head = object;

    return sim_pointer(object) &&
           atomic_load_explicit(&head->kind, memory_order_acquire) == (uint32_t)kind;
}

/* What cuDriverGetVersion says: HAMI_SIM_DRIVER_VERSION, or the newest that we know. */
int sim_driver_version(void);

/* A counter for everything that has an id. */
uint64_t sim_next_id(void);

/* ---- Contexts (cuda_context.c, cuda_current.c, cuda_primary.c, cuda_green.c) ---- */

#define SIM_LIMITS 7

struct sim_nodes { /* a growing list of graph nodes, with the edges that lead to them */
    CUgraphNode *nodes;
    CUgraphEdgeData *edges;
    size_t count, room;
};

struct sim_capture;
struct sim_node_params;

/* A queue, kept by its stream and by the host functions that it waits for. */
struct sim_lane {
    struct sim_queue *queue;
    _Atomic uint32_t references;
};
void sim_lane_drop(struct sim_lane *lane);

struct CUstream_st {
    struct sim_head head;
    struct sim_queue *queue; /* lane->queue */
    struct sim_lane *lane;
    CUcontext context;
    /* Anything that keeps work from going straight to the queue: bits of enum sim_attention. */
    _Atomic uint32_t attention;
    _Atomic uint32_t legacy_seen; /* blocking streams: the legacy stream's work it waited for */
    bool blocking, legacy, per_thread;
    unsigned int flags;
    int priority;
    CUgreenCtx green;
    uint64_t id;
    struct sim_marker *order; /* for waits between the legacy and the blocking streams */
    struct CUstream_st *next, *previous; /* in its context */
    struct CUstream_st *thread_next;     /* per-thread streams of one thread */
    struct sim_capture *capture;
    struct sim_nodes tips; /* capturing: what the next node depends on */
};

enum sim_attention {
    SIM_ATTENTION_CAPTURE = 1, /* it captures; the legacy stream: a blocking one does */
    SIM_ATTENTION_LEGACY = 2,  /* the legacy stream, while its context has blocking streams */
};

struct CUctx_st {
    struct sim_head head;
    CUdevice ordinal;
    CUcontext root; /* itself; of a green context the primary one, where its modules are */
    CUgreenCtx green;
    bool primary;
    unsigned int flags, api_version;
    uint64_t id;
    unsigned int attached; /* cuCtxCreate and cuCtxAttach, less cuCtxDetach */
    uint64_t memory;       /* in the ledger */
    size_t limits[SIM_LIMITS];
    uint64_t limit_memory[SIM_LIMITS]; /* in the ledger, beyond what the context came with */
    uint64_t local_bytes, local_memory; /* local memory of kernels, in the ledger */
    uint32_t peers;                     /* a bit for each device */
    struct CUstream_st legacy;
    _Atomic uint32_t legacy_work;       /* one more with each piece of work in the legacy stream */
    _Atomic uint32_t blocking_streams;
    _Atomic uint32_t blocking_captures; /* blocking streams that are capturing */
    CUstream streams;
    CUevent events;
    CUmodule modules;
    CUcontext next, previous;
};

struct CUgreenCtx_st {
    struct sim_head head;
    CUcontext context; /* what cuCtxFromGreenCtx gives */
    unsigned int sms;
    uint64_t memory;
    CUgreenCtx next;
};

struct CUdevResourceDesc_st {
    struct sim_head head;
    unsigned int sms;
    CUdevResourceDesc next; /* nothing in the API destroys one */
};

/* Whether calls spend time as a real driver's would (sim_spend): asked once, by the first
 * context. */
extern bool sim_costly;

/* What each thread has of its own. Small: it lies in the static TLS block. */
struct sim_thread {
    CUcontext current;
    CUcontext *stack; /* below the current one */
    unsigned int depth, room;
    CUstreamCaptureMode mode;
    unsigned int captures; /* unused by the fast path: non-relaxed captures it began */
    uint64_t id;
    CUstream streams; /* its per-thread default streams */
};
extern _Thread_local struct sim_thread sim_thread __attribute__((tls_model("initial-exec")));

/* The thread's record, with its id set and its end taken care of. */
struct sim_thread *sim_thread_self(void);

/* The current context, alive, or the reason why not. */
static inline CUresult sim_context_current(CUcontext *context)
{
    CUcontext current = sim_thread.current;
    if (SIM_LIKELY(current != NULL && sim_alive(current, SIM_CONTEXT))) {
        *context = current;
        return CUDA_SUCCESS;
    }
    return current != NULL ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
}

/* A handle that a program gave: alive, and really one (garbage may not be followed). */
bool sim_context_known(CUcontext context);
CUresult sim_context_open(CUcontext context, CUdevice ordinal, unsigned int flags);
void sim_context_close(CUcontext context);
CUresult sim_context_finish(CUcontext context); /* wait for all its work */
CUresult sim_context_flags(unsigned int flags);
void sim_context_list(CUcontext context);       /* under the lock */
void sim_context_unlist(CUcontext context);
extern CUcontext sim_contexts;                  /* all, under the lock */
CUresult sim_primary_retain(CUdevice ordinal, CUcontext *context);
CUresult sim_primary_release(CUdevice ordinal);
unsigned int sim_green_close_all(CUcontext primary); /* how many */
void sim_limits_default(CUcontext context);
void sim_limits_close(CUcontext context);
CUresult sim_push(CUcontext context);

/* ---- Streams and their order (cuda_stream.c, cuda_order.c, cuda_callback.c) ---- */

CUresult sim_stream_open(CUstream stream, CUcontext context, unsigned int flags);
void sim_stream_close(CUstream stream);
/* What a handle means here: for NULL and the special handles the current context's stream. Aware of
 * `per_thread`. The stream's context need not be the current one. */
CUresult sim_stream_special(CUstream handle, bool per_thread, CUstream *stream);
static inline CUresult sim_stream_resolve(CUstream handle, bool per_thread, CUstream *stream)
{
    if (SIM_LIKELY(sim_alive(handle, SIM_STREAM))) {
        *stream = handle;
        return CUDA_SUCCESS;
    }
    return sim_stream_special(handle, per_thread, stream);
}

/* Before work is enqueued: the waits that the legacy stream and the blocking ones owe each
 * other. */
CUresult sim_order_slow(CUstream stream);
static inline CUresult sim_order(CUstream stream)
{
    if (stream->blocking) {
        uint32_t work = atomic_load_explicit(&stream->context->legacy_work, memory_order_relaxed);
        if (SIM_UNLIKELY(work != atomic_load_explicit(&stream->legacy_seen, memory_order_relaxed)))
            return sim_order_slow(stream);
    } else if (SIM_UNLIKELY(atomic_load_explicit(&stream->attention, memory_order_relaxed) &
                            SIM_ATTENTION_LEGACY)) {
        return sim_order_slow(stream);
    }
    return CUDA_SUCCESS;
}

/* Enqueue on a stream that does not capture. */
static inline CUresult sim_run(CUstream stream, const struct sim_work *work)
{
    CUresult result = sim_order(stream);
    return SIM_LIKELY(result == CUDA_SUCCESS) ? sim_queue_run(stream->queue, work) : result;
}
static inline CUresult sim_record(CUstream stream, struct sim_marker *marker)
{
    CUresult result = sim_order(stream);
    return SIM_LIKELY(result == CUDA_SUCCESS) ? sim_queue_mark(stream->queue, marker) : result;
}
static inline CUresult sim_wait(CUstream stream, struct sim_marker *marker)
{
    CUresult result = sim_order(stream);
    return SIM_LIKELY(result == CUDA_SUCCESS) ? sim_queue_wait_marker(stream->queue, marker)
                                              : result;
}
/* Call a function of the program on a thread of ours when the stream comes to it; what is enqueued
 * later waits for it (cuda_callback.c). */
typedef void (*sim_host_call)(void *function, CUstream stream, void *data);
CUresult sim_host(CUstream stream, sim_host_call call, void *function, void *data);
CUresult sim_host_function(CUstream stream, CUhostFn function, void *data); /* the program's */
/* Wait for, or ask about, everything that was enqueued; for the legacy stream that is the work of
 * the blocking streams too. */
CUresult sim_stream_finish(CUstream stream);
bool sim_stream_idle(CUstream stream);
/* Around them: what the memory half does after a synchronisation. */
CUresult sim_synchronised(CUresult result, CUdevice ordinal);

/* ---- Events (cuda_event.c) ---- */

struct CUevent_st {
    struct sim_head head;
    struct sim_marker *marker;
    CUcontext context;
    unsigned int flags;
    _Atomic bool recorded;
    _Atomic bool captured;       /* the last record was, in `capture`, behind `nodes` */
    struct sim_capture *capture;
    struct sim_nodes nodes;
    struct CUevent_st *next, *previous; /* in its context */
};

void sim_event_close(CUevent event);
CUresult sim_event_record(CUevent event, CUstream stream, bool per_thread);

#endif
