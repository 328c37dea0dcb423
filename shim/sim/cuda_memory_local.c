/* HAMI_SIM_LEDGER=local: allocations without a ledger, so cheap that what stands in front of them
 * can be measured. No lock, no call, no memory behind them, and the card never fills.
 *
 * One region of addresses in 2 MiB places. A place's word says what starts there; a free place's
 * word is the next in a list of free places of its size. Each thread has such lists of its own, and
 * gives what it has too much of to all. */
#include <pthread.h>
#include <stdatomic.h>

#include "memory.h"

#define PLACE_BITS 21
#define PLACES_BITS 21 /* 4 TiB */
#define PLACES (UINT64_C(1) << PLACES_BITS)
#define CLASSES (PLACES_BITS + 1) /* sizes are powers of two of places */
#define THREADS 1024
#define KEEPS 256
#define BATCH 64
#define REGION (UINT64_C(1) << 50) /* above all that sim_address gives out */
#define NONE 0 /* the first place is never used */

/* A used place: bytes << 16 | LIVE | async << 8 | ordinal. A free one: the next one << 16. Zero: no
 * allocation of any time started there. */
#define BYTES(word) ((word) >> 16)
#define ASYNC(word) (((word) >> 8 & 1) != 0)
#define ORDINAL(word) ((CUdevice)((word) & 0xff))
#define LIVE UINT64_C(0x8000)
#define FREE(next) ((uint64_t)(next) << 16)
#define NEXT(word) ((uint32_t)((word) >> 16))

struct list {
    uint32_t head, tail, count;
};

struct thread {
    bool known;
    struct list free[CLASSES];
    /* This thread's share of what is in use; only the sum over all threads means something, because
     * any thread may free what another allocated. */
    _Atomic uint64_t used[SIM_MAX_DEVICES][2];
};

static _Thread_local struct thread *mine __attribute__((tls_model("initial-exec")));
static struct thread threads[THREADS];
static _Atomic unsigned int threads_known;
static _Atomic uint64_t words[PLACES]; /* takes no memory until it is used */
static _Atomic uint64_t next_place = 1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list common[CLASSES];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t ending;

static void list_join(struct list *to, struct list *from)
{
    if (from->count == 0)
        return;
    atomic_store_explicit(&words[from->tail], FREE(to->head), memory_order_relaxed);
    if (to->count == 0)
        to->tail = from->tail;
    to->head = from->head;
    to->count += from->count;
    *from = (struct list){0};
}

/* A thread ends: its places go to all, its struct to the next thread; the counters stay. */
static void thread_ends(void *ended)
{
    struct thread *thread = ended;

    pthread_mutex_lock(&lock);
    for (int class = 0; class < CLASSES; class++)
        list_join(&common[class], &thread->free[class]);
    thread->known = false;
    pthread_mutex_unlock(&lock);
    mine = NULL;
}

static void make_key(void)
{
    pthread_key_create(&ending, thread_ends);
}

static struct thread *thread_begins(void)
{
    pthread_once(&once, make_key);
    pthread_mutex_lock(&lock);
    for (unsigned int i = 0; i < THREADS; i++) {
        if (threads[i].known)
            continue;
        threads[i].known = true;
        if (i >= atomic_load_explicit(&threads_known, memory_order_relaxed))
            atomic_store_explicit(&threads_known, i + 1, memory_order_release);
        mine = &threads[i];
        pthread_setspecific(ending, mine);
        break;
    }
    pthread_mutex_unlock(&lock);
    return mine;
}

static unsigned int class_of(uint64_t bytes)
{
    uint64_t places = (bytes - 1) >> PLACE_BITS;

    return places == 0 ? 0 : 64 - (unsigned int)__builtin_clzll(places);
}

/* Some free places of a size for this thread: what others gave up, or new ones. */
static bool refill(struct thread *thread, unsigned int class)
{
    struct list *list = &thread->free[class];
    uint64_t batch = class == 0 ? BATCH : 1, from;

    pthread_mutex_lock(&lock);
    list_join(list, &common[class]);
    pthread_mutex_unlock(&lock);
    if (list->count)
        return true;
    from = atomic_load(&next_place);
    do {
        if (from + (batch << class) > PLACES)
            return false;
    } while (!atomic_compare_exchange_weak(&next_place, &from, from + (batch << class)));
    for (uint64_t i = 0; i < batch; i++) {
        struct list one = {(uint32_t)(from + (i << class)), (uint32_t)(from + (i << class)), 1};

        list_join(list, &one);
    }
    return true;
}

static inline void count(struct thread *thread, CUdevice ordinal, bool async, uint64_t bytes)
{
    _Atomic uint64_t *used = &thread->used[ordinal][async];

    atomic_store_explicit(used, atomic_load_explicit(used, memory_order_relaxed) + bytes,
                          memory_order_relaxed);
}

CUdeviceptr sim_local_alloc(CUdevice ordinal, uint64_t bytes, bool async)
{
    struct thread *thread = mine ? mine : thread_begins();
    struct list *list;
    unsigned int class;
    uint32_t place;

    if (!thread || bytes > PLACES << (PLACE_BITS - 1))
        return 0;
    class = class_of(bytes);
    list = &thread->free[class];
    if (__builtin_expect(list->head == NONE, 0) && !refill(thread, class))
        return 0;
    place = list->head;
    list->head = NEXT(atomic_load_explicit(&words[place], memory_order_relaxed));
    list->count--;
    atomic_store_explicit(&words[place],
                          bytes << 16 | LIVE | (uint64_t)async << 8 | (uint64_t)ordinal,
                          memory_order_relaxed);
    count(thread, ordinal, async, bytes);
    return REGION + ((uint64_t)place << PLACE_BITS);
}

bool sim_local_free(CUdeviceptr address)
{
    uint64_t place = (address - REGION) >> PLACE_BITS, word;
    struct thread *thread;
    struct list *list;
    unsigned int class;

    if (address - REGION >= PLACES << PLACE_BITS || (address & ((1u << PLACE_BITS) - 1)))
        return false;
    word = atomic_load_explicit(&words[place], memory_order_relaxed);
    thread = mine ? mine : thread_begins();
    if (!(word & LIVE) || !thread)
        return false;
    class = class_of(BYTES(word));
    list = &thread->free[class];
    count(thread, ORDINAL(word), ASYNC(word), -BYTES(word));
    atomic_store_explicit(&words[place], FREE(list->head), memory_order_relaxed);
    if (list->head == NONE)
        list->tail = (uint32_t)place;
    list->head = (uint32_t)place;
    if (__builtin_expect(++list->count > KEEPS, 0)) {
        pthread_mutex_lock(&lock);
        list_join(&common[class], list);
        pthread_mutex_unlock(&lock);
    }
    return true;
}

/* A place keeps its size for good, so the first place at or below the address where ever something
 * started is the only one that can hold it. */
bool sim_local_find(CUdeviceptr address, CUdeviceptr *base, uint64_t *bytes, CUdevice *ordinal,
                    bool *async)
{
    uint64_t place = (address - REGION) >> PLACE_BITS, word = 0;

    if (address - REGION >= PLACES << PLACE_BITS)
        return false;
    while (place && !(word = atomic_load_explicit(&words[place], memory_order_relaxed)))
        place--;
    *base = REGION + (place << PLACE_BITS);
    *bytes = BYTES(word);
    *ordinal = ORDINAL(word);
    *async = ASYNC(word);
    return (word & LIVE) && address - *base < *bytes;
}

uint64_t sim_local_used(CUdevice ordinal, bool async)
{
    unsigned int known = atomic_load_explicit(&threads_known, memory_order_acquire);
    uint64_t sum = 0;

    for (unsigned int i = 0; i < known; i++)
        sum += atomic_load_explicit(&threads[i].used[ordinal][async], memory_order_relaxed);
    return sum;
}
