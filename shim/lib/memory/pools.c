/* How pools are charged; see pools.h.
 *
 * `live` and `charged` are a Dekker pair. An allocation adds to `live` and then loads `charged`;
 * who lowers `charged` stores it and then loads `live` (all seq_cst), and likewise for the driver's
 * reserved figure, which is read again after every allocation and after every lowering. Whichever
 * comes second sees the other, so the fast path needs no lock. Refunds are made when the lowered
 * value stands.
 *
 * The reserved figure is asked for after each allocation: a pool may grow although what is live
 * would fit, when free memory lies in pieces or waits for another stream. */
#include "memory/pools.h"

#include "driver/real.h"
#include "memory/account.h"
#include "memory/charge.h"
#include "memory/pool_table.h"
#include "slice/slice.h"

#define MIB (UINT64_C(1) << 20)
#define STEP_MIN (2 * MIB)
#define STEP_MAX (1024 * MIB)

/* By how much pools grow at a time, and graph memory, which need not be the same. Not documented;
 * drivers of today take 32 MiB. Learned. */
static _Atomic uint64_t pool_step = 32 * MIB, graph_step = 32 * MIB;

static _Atomic uint64_t *step_of(struct hami_pool *pool)
{
    return atomic_load_explicit(&pool->state, memory_order_relaxed) == HAMI_POOL_GRAPHS
               ? &graph_step
               : &pool_step;
}

static uint64_t stepped(struct hami_pool *pool, uint64_t bytes)
{
    uint64_t step = atomic_load_explicit(step_of(pool), memory_order_relaxed);

    return bytes > UINT64_MAX - step ? UINT64_MAX : (bytes + step - 1) & ~(step - 1);
}

static void learn_step(struct hami_pool *pool, uint64_t growth, uint64_t predicted)
{
    uint64_t step = atomic_load_explicit(step_of(pool), memory_order_relaxed);
    uint64_t unit = growth & -growth; /* the largest power of two that divides it */

    if (unit < STEP_MIN)
        unit = STEP_MIN;
    if (unit > STEP_MAX)
        unit = STEP_MAX;
    if (unit < step || (predicted != 0 && growth > predicted && unit > step))
        atomic_store_explicit(step_of(pool), unit, memory_order_relaxed);
}

static uint64_t live_of(struct hami_pool *pool)
{
    return atomic_load_explicit(&pool->live, memory_order_seq_cst);
}

static uint64_t charged_of(struct hami_pool *pool)
{
    return atomic_load_explicit(&pool->charged, memory_order_seq_cst);
}

static uint64_t reserved_of(struct hami_pool *pool)
{
    cuuint64_t bytes = 0;

    switch (atomic_load_explicit(&pool->state, memory_order_acquire)) {
    case HAMI_POOL_LIVE:
        if (hami_real()->cuMemPoolGetAttribute(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                               &bytes) != CUDA_SUCCESS)
            return 0; /* what is live remains */
        return bytes;
    case HAMI_POOL_GRAPHS:
        if (hami_real()->cuDeviceGetGraphMemAttribute(
                pool->ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes) != CUDA_SUCCESS)
            return 0;
        return bytes;
    case HAMI_POOL_DESTROYING:
        return charged_of(pool);
    case HAMI_POOL_DRAINING:
        /* Its handle is gone, so nobody can say. The driver keeps it whole until the last
         * allocation is freed. */
        return live_of(pool) != 0 ? charged_of(pool) : 0;
    default:
        return 0;
    }
}

uint64_t hami_pool_used(struct hami_pool *pool)
{
    cuuint64_t bytes = 0;

    if (hami_real()->cuDeviceGetGraphMemAttribute(pool->ordinal, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT,
                                                  &bytes) != CUDA_SUCCESS)
        return 0;
    return bytes;
}

/* Of graph memory the driver knows what is in use; `live` are the launches under way. */
static uint64_t wanted_of(struct hami_pool *pool)
{
    uint64_t live = live_of(pool);

    if (live != 0 &&
        atomic_load_explicit(&pool->state, memory_order_relaxed) == HAMI_POOL_GRAPHS)
        live += hami_pool_used(pool);
    return live;
}

/* With the lock: what must stay charged. What is live beyond the reserve is being asked for just
 * now, and grows the pool by whole steps. */
static uint64_t needed(struct hami_pool *pool)
{
    uint64_t live = wanted_of(pool);
    uint64_t reserved = pool->reserved = reserved_of(pool);
    uint64_t growing = live > reserved ? stepped(pool, live) : 0;

    return growing > reserved + pool->pending ? growing : reserved + pool->pending;
}

/* With the lock. True: the pool had grown beyond what was charged. *refunded: what was given
 * back. */
static bool settle(struct hami_pool *pool, uint64_t predicted, uint64_t *refunded)
{
    uint64_t was = charged_of(pool), before = pool->reserved;
    uint64_t need = needed(pool);

    *refunded = 0;
    if (pool->reserved > before)
        learn_step(pool, pool->reserved - before, predicted);
    if (pool->reserved > was) {
        atomic_store_explicit(&pool->charged, pool->reserved, memory_order_seq_cst);
        hami_charge_taken(pool->row, pool->reserved - was);
        return true;
    }
    if (need >= was)
        return false;
    /* Allocations that wait to be charged (their bytes are in `live` already) charge themselves:
     * what they want beyond what was charged is not raised here. */
    for (uint64_t again;; need = again) {
        atomic_store_explicit(&pool->charged, need, memory_order_seq_cst);
        again = needed(pool);
        if (again > was)
            again = pool->reserved > was ? pool->reserved : was;
        if (again <= need)
            break;
    }
    if (need > was) {
        hami_charge_taken(pool->row, need - was);
        return true;
    }
    hami_refund(pool->row, was - need);
    *refunded = was - need;
    return false;
}

/* With the lock: charge `growth` if the account allows it. */
static bool grow(struct hami_pool *pool, uint64_t growth)
{
    if (!hami_charge(pool->row, growth))
        return false;
    pool->pending += growth;
    atomic_fetch_add_explicit(&pool->charged, growth, memory_order_seq_cst);
    return true;
}

/* What is live no longer fits into what is charged. The driver grows a pool by whole steps, and
 * may not be able to use what the pool has free: most of all it grows by what is asked for. Where
 * that does not fit, by what is missing: growth beyond it is found afterwards and undone. */
bool hami_pool_ask_again(struct hami_pool *pool, uint64_t bytes, bool least, uint64_t *ahead)
{
    uint64_t live, charged;
    bool granted = true;

    hami_lock(&pool->lock);
    live = live_of(pool);
    charged = charged_of(pool);
    *ahead = 0;
    if (live > charged) {
        uint64_t least_growth = stepped(pool, live - charged), most = stepped(pool, bytes);

        *ahead = least || most < least_growth ? least_growth : most;
        granted = grow(pool, *ahead);
    }
    hami_unlock(&pool->lock);
    return granted;
}

bool hami_pool_ask(struct hami_pool *pool, uint64_t bytes, uint64_t *ahead)
{
    uint64_t live = atomic_fetch_add_explicit(&pool->live, bytes, memory_order_seq_cst) + bytes;

    *ahead = 0;
    return __builtin_expect(live <= charged_of(pool), 1) ||
           hami_pool_ask_again(pool, bytes, false, ahead);
}

bool hami_pool_given(struct hami_pool *pool, uint64_t ahead)
{
    uint64_t refunded;
    bool grown;

    if (__builtin_expect(ahead == 0 && reserved_of(pool) <= charged_of(pool), 1))
        return true;
    hami_lock(&pool->lock);
    pool->pending -= ahead;
    grown = settle(pool, ahead, &refunded);
    hami_unlock(&pool->lock);
    return !grown || hami_within(pool->row);
}

void hami_pool_cancel(struct hami_pool *pool, uint64_t bytes, uint64_t ahead)
{
    uint64_t refunded;

    atomic_fetch_sub_explicit(&pool->live, bytes, memory_order_seq_cst);
    if (ahead == 0)
        return;
    hami_lock(&pool->lock);
    pool->pending -= ahead;
    settle(pool, 0, &refunded);
    hami_unlock(&pool->lock);
}

void hami_pool_freed(struct hami_pool *pool, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&pool->live, bytes, memory_order_seq_cst);
}

/* Two that are launched at once see each other: the bytes of one are in `live` until the driver has
 * them in what is used, which is asked for afterwards; what it grows by is charged and pending. */
bool hami_pool_run(struct hami_pool *pool, uint64_t bytes, const struct hami_pool_beside *beside,
                   uint64_t *ahead)
{
    uint64_t together, used = 0, there;
    bool granted = true;

    *ahead = 0;
    if (bytes > HAMI_POOL_IMPOSSIBLE)
        return false;
    hami_lock(&pool->lock);
    together = atomic_fetch_add_explicit(&pool->live, bytes, memory_order_seq_cst) + bytes;
    if (beside) {
        pool->kept = pool->kept || beside->keeps;
        if (pool->kept || beside->others)
            used = hami_pool_used(pool);
        if (beside->own_too)
            used -= used < bytes ? used : bytes;
        together += used;
    }
    there = charged_of(pool);
    if (together > there) {
        *ahead = stepped(pool, together - there);
        granted = grow(pool, *ahead);
    }
    if (!granted) {
        *ahead = 0;
        atomic_fetch_sub_explicit(&pool->live, bytes, memory_order_seq_cst);
    }
    hami_unlock(&pool->lock);
    return granted;
}

/* With the lock, so that the handle is not destroyed meanwhile. */
static void trim(struct hami_pool *pool)
{
    uint32_t state = atomic_load_explicit(&pool->state, memory_order_relaxed);

    if (state == HAMI_POOL_LIVE)
        hami_real()->cuMemPoolTrimTo(pool->handle, 0);
    else if (state == HAMI_POOL_GRAPHS)
        hami_real()->cuDeviceGraphMemTrim(pool->ordinal);
}

static uint64_t settle_one(struct hami_pool *pool, bool trimmed)
{
    uint64_t refunded;
    bool drained;

    hami_lock(&pool->lock);
    if (trimmed)
        trim(pool);
    settle(pool, 0, &refunded);
    drained = atomic_load_explicit(&pool->state, memory_order_relaxed) == HAMI_POOL_DRAINING &&
              charged_of(pool) == 0;
    hami_unlock(&pool->lock);
    if (drained)
        hami_pool_drained(pool);
    return refunded;
}

uint64_t hami_pool_settle(struct hami_pool *pool)
{
    return settle_one(pool, false);
}

void hami_pool_freed_waited(struct hami_pool *pool, uint64_t bytes)
{
    hami_pool_freed(pool, bytes);
    hami_pool_settle(pool);
}

uint64_t hami_pools_settle(int row, bool trimmed)
{
    struct hami_pool *pool;
    uint64_t refunded = 0;

    for (unsigned int i = 0; (pool = hami_pool_at(i)) != NULL; i++) {
        /* A pool never has less reserved than is live: one that caches nothing cannot shrink. */
        if (pool->counted && (row < 0 || pool->row == row) && charged_of(pool) != live_of(pool))
            refunded += settle_one(pool, trimmed);
    }
    return refunded;
}
