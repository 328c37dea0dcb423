/* One request for memory of a pool: hami_pool_reserve, the driver's call, then hami_pool_confirm,
 * or hami_pool_cancel (pools.h). Over the limit, what pools only cache is had back first. */
#ifndef HAMI_POOL_REQUEST_H
#define HAMI_POOL_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/pools.h"

/* Charge for `bytes` more. False: over the limit, nothing changed. *ahead goes to confirm or to
 * cancel. */
bool hami_pool_reserve(struct hami_pool *pool, uint64_t bytes, uint64_t *ahead);
/* The driver allocated: did the pool grow by more than was charged, and beyond the limit? False:
 * give the allocation back to the driver, then hami_pool_cancel with ahead 0. */
bool hami_pool_confirm(struct hami_pool *pool, uint64_t ahead);
/* The driver launched the graph that hami_pool_run was for. False as of hami_pool_confirm. */
bool hami_pool_ran(struct hami_pool *pool, uint64_t bytes, uint64_t ahead);

#endif
