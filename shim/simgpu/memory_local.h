/* HAMI_SIM_LEDGER=local: allocations without a ledger, so cheap that what stands in front of them
 * can be measured. No lock, no call, no memory behind them, and the card never fills.
 *
 * One region of addresses in 2 MiB places. A place's word says what starts there; a free place's
 * word is the next in a list of free places of its size. Each thread has such lists of its own, and
 * gives what it has too much of to all. */
#ifndef SIM_MEMORY_LOCAL_H
#define SIM_MEMORY_LOCAL_H

#include <stdatomic.h>

#include "memory.h"

#define SIM_PLACE_BITS 21
#define SIM_PLACES_BITS 21 /* 4 TiB */
#define SIM_PLACES (UINT64_C(1) << SIM_PLACES_BITS)
#define SIM_PLACE_CLASSES (SIM_PLACES_BITS + 1) /* sizes are powers of two of places */
#define SIM_PLACES_KEPT 256
#define SIM_REGION (UINT64_C(1) << 50) /* above all that sim_address gives out */
#define SIM_NO_PLACE 0                 /* the first is never used */

/* A used place: bytes << 16 | LIVE | async << 8 | ordinal. A free one: the next one << 16. Zero: no
 * allocation of any time started there. */
#define SIM_PLACE_BYTES(word) ((word) >> 16)
#define SIM_PLACE_ASYNC(word) (((word) >> 8 & 1) != 0)
#define SIM_PLACE_ORDINAL(word) ((CUdevice)((word) & 0xff))
#define SIM_PLACE_LIVE UINT64_C(0x8000)
#define SIM_PLACE_FREE(next) ((uint64_t)(next) << 16)
#define SIM_PLACE_NEXT(word) ((uint32_t)((word) >> 16))

struct sim_places { /* a list */
    uint32_t head, tail, count;
};

struct sim_local {
    bool known;
    struct sim_places free[SIM_PLACE_CLASSES];
    /* This thread's share of what is in use; only the sum over all threads means something, because
     * any thread may free what another allocated. */
    _Atomic uint64_t used[SIM_MAX_DEVICES][2];
};

extern _Thread_local struct sim_local *sim_local_mine __attribute__((tls_model("initial-exec")));
extern _Atomic uint64_t sim_local_words[SIM_PLACES];

struct sim_local *sim_local_begin(void); /* NULL: there are too many threads */
/* Some free places of a size for this thread: what others gave up, or new ones. */
bool sim_local_refill(struct sim_local *thread, unsigned int class);
void sim_local_give_up(struct sim_local *thread, unsigned int class);

static inline unsigned int sim_place_class(uint64_t bytes)
{
    uint64_t places = (bytes - 1) >> SIM_PLACE_BITS;

    return __builtin_expect(places == 0, 1) ? 0 : 64 - (unsigned int)__builtin_clzll(places);
}

static inline void sim_local_count(struct sim_local *thread, CUdevice ordinal, bool async,
                                   uint64_t bytes)
{
    _Atomic uint64_t *used = &thread->used[ordinal][async];

    atomic_store_explicit(used, atomic_load_explicit(used, memory_order_relaxed) + bytes,
                          memory_order_relaxed);
}

/* 0: no address left. */
static inline CUdeviceptr sim_local_alloc(CUdevice ordinal, uint64_t bytes, bool async)
{
    struct sim_local *thread = sim_local_mine;
    unsigned int class;
    uint32_t place;

    if (__builtin_expect(!thread, 0))
        thread = sim_local_begin();
    if (__builtin_expect(!thread || bytes > SIM_PLACES << (SIM_PLACE_BITS - 1), 0))
        return 0;
    class = sim_place_class(bytes);
    if (__builtin_expect(thread->free[class].head == SIM_NO_PLACE, 0) &&
        !sim_local_refill(thread, class))
        return 0;
    place = thread->free[class].head;
    thread->free[class].head =
        SIM_PLACE_NEXT(atomic_load_explicit(&sim_local_words[place], memory_order_relaxed));
    thread->free[class].count--;
    atomic_store_explicit(&sim_local_words[place],
                          bytes << 16 | SIM_PLACE_LIVE | (uint64_t)async << 8 | (uint64_t)ordinal,
                          memory_order_relaxed);
    sim_local_count(thread, ordinal, async, bytes);
    return SIM_REGION + ((uint64_t)place << SIM_PLACE_BITS);
}

/* False: not an address of these. */
static inline bool sim_local_free(CUdeviceptr address)
{
    uint64_t place = (address - SIM_REGION) >> SIM_PLACE_BITS, word;
    struct sim_local *thread = sim_local_mine;
    struct sim_places *list;
    unsigned int class;

    if (place >= SIM_PLACES || (address & ((1u << SIM_PLACE_BITS) - 1)))
        return false;
    if (__builtin_expect(!thread, 0))
        thread = sim_local_begin();
    word = atomic_load_explicit(&sim_local_words[place], memory_order_relaxed);
    if (__builtin_expect(!(word & SIM_PLACE_LIVE) || !thread, 0))
        return false;
    class = sim_place_class(SIM_PLACE_BYTES(word));
    list = &thread->free[class];
    sim_local_count(thread, SIM_PLACE_ORDINAL(word), SIM_PLACE_ASYNC(word), -SIM_PLACE_BYTES(word));
    atomic_store_explicit(&sim_local_words[place], SIM_PLACE_FREE(list->head),
                          memory_order_relaxed);
    if (list->head == SIM_NO_PLACE)
        list->tail = (uint32_t)place;
    list->head = (uint32_t)place;
    if (__builtin_expect(++list->count > SIM_PLACES_KEPT, 0))
        sim_local_give_up(thread, class);
    return true;
}

#endif
