/* The slow side of memory_local.h: threads that come and go, places that they share, questions. */
#include <pthread.h>

#include "memory_local.h"

#define THREADS 1024
#define BATCH 64

_Thread_local struct sim_local *sim_local_mine __attribute__((tls_model("initial-exec")));
_Atomic uint64_t sim_local_words[SIM_PLACES]; /* takes no memory until it is used */

static struct sim_local threads[THREADS];
static _Atomic unsigned int threads_known;
static _Atomic uint64_t next_place = 1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_places common[SIM_PLACE_CLASSES];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t ending;

static void join(struct sim_places *to, struct sim_places *from)
{
    if (from->count == 0)
        return;
    atomic_store_explicit(&sim_local_words[from->tail], SIM_PLACE_FREE(to->head),
                          memory_order_relaxed);
    if (to->count == 0)
        to->tail = from->tail;
    to->head = from->head;
    to->count += from->count;
    *from = (struct sim_places){0};
}

/* A thread ends: its places go to all, its struct to the next thread; the counters stay. */
static void thread_ends(void *ended)
{
    struct sim_local *thread = ended;

    pthread_mutex_lock(&lock);
    for (int class = 0; class < SIM_PLACE_CLASSES; class++)
        join(&common[class], &thread->free[class]);
    thread->known = false;
    pthread_mutex_unlock(&lock);
    sim_local_mine = NULL;
}

static void make_key(void)
{
    pthread_key_create(&ending, thread_ends);
}

struct sim_local *sim_local_begin(void)
{
    pthread_once(&once, make_key);
    pthread_mutex_lock(&lock);
    for (unsigned int i = 0; i < THREADS; i++) {
        if (threads[i].known)
            continue;
        threads[i].known = true;
        if (i >= atomic_load_explicit(&threads_known, memory_order_relaxed))
            atomic_store_explicit(&threads_known, i + 1, memory_order_release);
        sim_local_mine = &threads[i];
        pthread_setspecific(ending, sim_local_mine);
        break;
    }
    pthread_mutex_unlock(&lock);
    return sim_local_mine;
}

bool sim_local_refill(struct sim_local *thread, unsigned int class)
{
    struct sim_places *list = &thread->free[class];
    uint64_t batch = class == 0 ? BATCH : 1, from;

    pthread_mutex_lock(&lock);
    join(list, &common[class]);
    pthread_mutex_unlock(&lock);
    if (list->count)
        return true;
    from = atomic_load(&next_place);
    do {
        if (from + (batch << class) > SIM_PLACES)
            return false;
    } while (!atomic_compare_exchange_weak(&next_place, &from, from + (batch << class)));
    for (uint64_t i = 0; i < batch; i++) {
        uint32_t place = (uint32_t)(from + (i << class));
        struct sim_places one = {place, place, 1};

        join(list, &one);
    }
    return true;
}

void sim_local_give_up(struct sim_local *thread, unsigned int class)
{
    pthread_mutex_lock(&lock);
    join(&common[class], &thread->free[class]);
    pthread_mutex_unlock(&lock);
}

/* A place keeps its size for good, so the first place at or below the address where ever something
 * started is the only one that can hold it. */
bool sim_local_find(CUdeviceptr address, CUdeviceptr *base, uint64_t *bytes, CUdevice *ordinal,
                    bool *async)
{
    uint64_t place = (address - SIM_REGION) >> SIM_PLACE_BITS, word = 0;

    if (place >= SIM_PLACES)
        return false;
    while (place && !(word = atomic_load_explicit(&sim_local_words[place], memory_order_relaxed)))
        place--;
    *base = SIM_REGION + (place << SIM_PLACE_BITS);
    *bytes = SIM_PLACE_BYTES(word);
    *ordinal = SIM_PLACE_ORDINAL(word);
    *async = SIM_PLACE_ASYNC(word);
    return (word & SIM_PLACE_LIVE) && address - *base < *bytes;
}

uint64_t sim_local_used(CUdevice ordinal, bool async)
{
    unsigned int known = atomic_load_explicit(&threads_known, memory_order_acquire);
    uint64_t sum = 0;

    for (unsigned int i = 0; i < known; i++)
        sum += atomic_load_explicit(&threads[i].used[ordinal][async], memory_order_relaxed);
    return sum;
}
