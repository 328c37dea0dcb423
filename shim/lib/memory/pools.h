/* What a pool of the driver holds and is charged for. A pool keeps memory that nobody uses now, so
 * it is charged the larger of what is live and what the driver says it has reserved. The memory
 * that the graphs of a device share is such a pool too, without a handle.
 *
 * What an allocation of one calls is in pool_request.h. */
#ifndef HAMI_POOLS_H
#define HAMI_POOLS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "hami_cuda.h"

enum hami_pool_state {
    HAMI_POOL_UNUSED,
    HAMI_POOL_LIVE,
    HAMI_POOL_GRAPHS,     /* a device's graph memory */
    HAMI_POOL_DESTROYING, /* the driver is being asked to: charged as it was until it has answered */
    HAMI_POOL_DRAINING,   /* destroyed by the program while allocations of it are live */
};

/* Never unmapped, and used again only for a pool of the same row: a thread that still holds a
 * pointer to a destroyed one counts for the right device. */
struct hami_pool {
    _Atomic uint64_t live;    /* sizes of allocations, also of those just being asked for; of graph
                                 memory: of the graphs just being launched */
    _Atomic uint64_t charged; /* never below what of `live` the driver was asked for */
    uint64_t pending;         /* charged for growth that calls under way may bring */
    uint64_t reserved;        /* as last read */
    struct hami_lock lock;    /* for the two above, and for lowering `charged` */
    _Atomic uint32_t state;   /* enum hami_pool_state; leaves LIVE under the lock */
    _Atomic uint32_t users;   /* threads that got it as the current pool: it is not destroyed now */
    CUmemoryPool handle;
    CUdevice ordinal; /* of graph memory */
    int16_t row;
    bool counted; /* false: memory of the host, or another process's */
    bool ours;    /* the program made it and may destroy it */
    bool kept;    /* graph memory: some of it was left by graphs that have run */
};

/* Larger than any device, small enough that sums do not overflow. */
#define HAMI_POOL_IMPOSSIBLE (UINT64_C(1) << 50)

/* What an allocation takes of its pool: the driver gives out multiples of 512 bytes. */
static inline uint64_t hami_pool_size(size_t bytes)
{
    return bytes > HAMI_POOL_IMPOSSIBLE ? UINT64_MAX : (bytes + 511) & ~UINT64_C(511);
}

/* Count `bytes` more as live, and charge what the pool may grow by for them. False: that does not
 * fit now; hami_pool_ask_again may be tried (`least`: with only what is missing, for growth beyond
 * it is found afterwards), else hami_pool_cancel with ahead 0. *ahead goes to
 * hami_pool_given or to cancel. While the bytes fit into what is charged: one addition and one load. */
bool hami_pool_ask(struct hami_pool *pool, uint64_t bytes, uint64_t *ahead);
bool hami_pool_ask_again(struct hami_pool *pool, uint64_t bytes, bool least, uint64_t *ahead);
/* The driver allocated: charge what the pool grew by. False: by more than was charged, and beyond
 * the limit. */
bool hami_pool_given(struct hami_pool *pool, uint64_t ahead);
/* It did not, or the allocation was undone. */
void hami_pool_cancel(struct hami_pool *pool, uint64_t bytes, uint64_t ahead);
/* An allocation was freed; the memory stays reserved for a while. */
void hami_pool_freed(struct hami_pool *pool, uint64_t bytes);
/* The same by a call that waited: what the driver has given back for it is read at once. */
void hami_pool_freed_waited(struct hami_pool *pool, uint64_t bytes);

/* What graph memory may be in use beside a graph that runs. */
struct hami_pool_beside {
    bool others;  /* other graphs may run */
    bool keeps;   /* this graph leaves what it allocates */
    bool own_too; /* it left memory when it ran before, which its launch frees */
};
/* Before a graph runs that takes `bytes` of graph memory: charge what that may grow by. `beside` is
 * NULL where it is only instantiated: when it runs, the memory may be free. False: over the limit,
 * nothing changed. Then hami_pool_ran, or hami_pool_cancel. */
bool hami_pool_run(struct hami_pool *pool, uint64_t bytes, const struct hami_pool_beside *beside,
                   uint64_t *ahead);
/* Of graph memory, what the driver says is in use. */
uint64_t hami_pool_used(struct hami_pool *pool);
/* Read again what the driver reserved; what was given back to the account. */
uint64_t hami_pool_settle(struct hami_pool *pool);
/* All pools of a row (or of all: -1) that may have shrunk; `trim`: let them give back their caches
 * first. What was given back to the account. */
uint64_t hami_pools_settle(int row, bool trim);
#endif
