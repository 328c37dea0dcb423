/* The objects behind the handles: made of memory that keeps its type for ever, and used again only
 * after many others of the kind, so that a stale handle meets a dead object rather than
 * another's. */
#include <stdlib.h>

#include "graphs.h"

#define QUARANTINE 1024

pthread_mutex_t sim_world = PTHREAD_MUTEX_INITIALIZER;

struct shelf { /* first in, first out */
    struct sim_head *first, **last;
    unsigned int count;
};

static struct shelf shelves[SIM_RESOURCES - SIM_CONTEXT + 1];
static pthread_mutex_t shelves_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t size_of(enum sim_kind kind)
{
    switch (kind) {
    case SIM_CONTEXT: return sizeof(struct CUctx_st);
    case SIM_GREEN: return sizeof(struct CUgreenCtx_st);
    case SIM_STREAM: return sizeof(struct CUstream_st);
    case SIM_EVENT: return sizeof(struct CUevent_st);
    case SIM_MODULE: return sizeof(struct CUmod_st);
    case SIM_LIBRARY: return sizeof(struct CUlib_st);
    case SIM_KERNEL: return sizeof(struct CUkern_st);
    case SIM_FUNCTION: return sizeof(struct CUfunc_st);
    case SIM_GRAPH: return sizeof(struct CUgraph_st);
    case SIM_NODE: return sizeof(struct CUgraphNode_st);
    case SIM_EXEC: return sizeof(struct CUgraphExec_st);
    case SIM_RESOURCES: return sizeof(struct CUdevResourceDesc_st);
    case SIM_GONE: break;
    }
    abort();
}

void *sim_object_new(enum sim_kind kind)
{
    struct shelf *shelf = &shelves[kind - SIM_CONTEXT];
    size_t size = size_of(kind);
    struct sim_head *object = NULL;

    pthread_mutex_lock(&shelves_lock);
    if (shelf->count > QUARANTINE) {
        object = shelf->first;
        shelf->first = object->recycle;
        shelf->count--;
    }
    pthread_mutex_unlock(&shelves_lock);
    if (object == NULL)
        return calloc(1, size);
    /* A stale handle may be looked at meanwhile: the first word stays an atomic zero. */
    memset((char *)object + sizeof *object, 0, size - sizeof *object);
    object->recycle = NULL;
    return object;
}

bool sim_kill(void *object, enum sim_kind kind)
{
    uint32_t expected = kind;
    return sim_pointer(object) &&
           atomic_compare_exchange_strong_explicit(&((struct sim_head *)object)->kind, &expected,
                                                   SIM_GONE, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

void sim_object_free(void *object, enum sim_kind kind)
{
    struct shelf *shelf = &shelves[kind - SIM_CONTEXT];
    struct sim_head *head = object;

    if (object == NULL)
        return;
    atomic_store_explicit(&head->kind, SIM_GONE, memory_order_relaxed);
    head->recycle = NULL;
    pthread_mutex_lock(&shelves_lock);
    if (shelf->first == NULL)
        shelf->first = head;
    else
        *shelf->last = head;
    shelf->last = &head->recycle;
    shelf->count++;
    pthread_mutex_unlock(&shelves_lock);
}

uint64_t sim_next_id(void)
{
    static _Atomic uint64_t last;
    return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}
