#include "memory/pool_request.h"

#include "memory/account.h"
#include "memory/reclaim.h"

bool hami_pool_reserve(struct hami_pool *pool, uint64_t bytes, uint64_t *ahead)
{
    if (__builtin_expect(hami_pool_ask(pool, bytes, ahead), 1) ||
        (hami_memory_reclaim(pool->row) && hami_pool_ask_again(pool, bytes, false, ahead)) ||
        hami_pool_ask_again(pool, bytes, true, ahead))
        return true;
    *ahead = 0;
    hami_pool_cancel(pool, bytes, 0);
    return false;
}

bool hami_pool_confirm(struct hami_pool *pool, uint64_t ahead)
{
    if (__builtin_expect(hami_pool_given(pool, ahead), 1))
        return true;
    hami_memory_reclaim(pool->row);
    return hami_within(pool->row);
}

bool hami_pool_ran(struct hami_pool *pool, uint64_t bytes, uint64_t ahead)
{
    hami_pool_cancel(pool, bytes, 0); /* those bytes are the driver's now, who counts them as used */
    return hami_pool_confirm(pool, ahead);
}
