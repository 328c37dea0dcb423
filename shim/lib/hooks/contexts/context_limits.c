/* cuCtxSetLimit: the heap and the printf buffer of device code, and stacks for as many threads as
 * the device can run at once, are memory that the program asks for by size. What a context comes
 * with is in its reserve; what is asked for beyond that is charged to it. Kernels that need deeper
 * stacks than the limit says make the driver take more; that is for the monitor to see
 * (observed.c). */
#include <string.h>

#include "base/lock.h"
#include "driver/real.h"
#include "hooks/contexts/context.h"
#include "memory/account.h"
#include "memory/blocks.h"
#include "memory/map.h"
#include "memory/reclaim.h"
#include "program/current.h"
#include "slice/devices.h"
#include "slice/slice.h"

#define BLOCK HAMI_BLOCK
#define MOST ((UINT64_C(1) << 19) - 1) /* blocks; what struct hami_context_extra can hold: 1 TiB */

/* What a context has without being asked, according to the CUDA documentation. */
#define HEAP_INCLUDED (UINT64_C(8) << 20)
#define PRINTF_INCLUDED (UINT64_C(1) << 20)
#define STACK_INCLUDED UINT64_C(1024)

static uint64_t threads_of(int row)
{
    CUdevice device = hami_ordinal_of_row(row);
    int processors, each;

    if (hami_real()->cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                          device) != CUDA_SUCCESS ||
        hami_real()->cuDeviceGetAttribute(&each, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
                                          device) != CUDA_SUCCESS)
        return 0;
    return (uint64_t)processors * (uint64_t)each;
}

static uint64_t blocks_beyond(uint64_t value, uint64_t included, uint64_t times)
{
    uint64_t bytes;

    if (value <= included || times == 0)
        return 0;
    if (__builtin_mul_overflow(value - included, times, &bytes) || bytes > MOST * BLOCK)
        return MOST + 1;
    return (bytes + BLOCK - 1) / BLOCK;
}

static bool has_cost(CUlimit limit)
{
    return limit == CU_LIMIT_MALLOC_HEAP_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE ||
           limit == CU_LIMIT_STACK_SIZE;
}

static uint64_t cost_of(int row, CUlimit limit, size_t value)
{
    switch (limit) {
    case CU_LIMIT_MALLOC_HEAP_SIZE:
        return blocks_beyond(value, HEAP_INCLUDED, 1);
    case CU_LIMIT_PRINTF_FIFO_SIZE:
        return blocks_beyond(value, PRINTF_INCLUDED, 1);
    case CU_LIMIT_STACK_SIZE:
        return blocks_beyond(value, STACK_INCLUDED, threads_of(row));
    default:
        return 0;
    }
}

/* The new cost of one limit; the old one. */
static uint64_t change_cost(struct hami_entry *entry, CUlimit limit, uint64_t blocks)
{
    struct hami_context_extra extra;
    uint64_t old;

    memcpy(&extra, &entry->extra, sizeof(extra));
    if (limit == CU_LIMIT_MALLOC_HEAP_SIZE) {
        old = extra.heap;
        extra.heap = blocks & MOST;
    } else if (limit == CU_LIMIT_PRINTF_FIFO_SIZE) {
        old = extra.printf;
        extra.printf = blocks & MOST;
    } else {
        old = extra.stack;
        extra.stack = blocks & MOST;
    }
    memcpy(&entry->extra, &extra, sizeof(extra));
    entry->bytes += blocks * BLOCK - old * BLOCK;
    return old;
}

/* The context whose limits they are: a green context has its primary one's. It may have no entry
 * yet, being a primary one, or older than us. */
static struct hami_entry entry_of(CUcontext context, int row)
{
    struct hami_context_extra extra = {.uses = 1};
    struct hami_entry entry;

    for (int i = 0; i < 2; i++) {
        if (!hami_map_get(HAMI_KIND_CONTEXT, (uintptr_t)context, &entry))
            break;
        if (!entry.context)
            return entry;
        context = entry.context;
    }
    entry = (struct hami_entry){
        .kind = HAMI_KIND_CONTEXT, .row = (int16_t)row, .key = (uintptr_t)context,
    };
    memcpy(&entry.extra, &extra, sizeof(extra));
    return entry;
}

static CUresult set_limit(CUcontext context, int row, CUlimit limit, size_t value)
{
    struct hami_entry entry = entry_of(context, row);
    uint64_t new = cost_of(row, limit, value), old;
    CUresult result;

    if (new > MOST)
        return CUDA_ERROR_OUT_OF_MEMORY;
    old = change_cost(&entry, limit, new);
    if (new > old && !hami_memory_charge(row, (new - old) * BLOCK))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = hami_real()->cuCtxSetLimit(limit, value);
    if (result != CUDA_SUCCESS) {
        if (new > old)
            hami_refund(row, (new - old) * BLOCK);
        return result;
    }
    if (new < old)
        hami_refund(row, (old - new) * BLOCK);
    /* Without memory for the entry the charge stays until the process ends. */
    if (new != old)
        hami_map_put(&entry);
    return CUDA_SUCCESS;
}

HAMI_EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    CUcontext context;
    CUresult result;
    int row;

    if (!hami_counting() || !has_cost(limit))
        return hami_real()->cuCtxSetLimit(limit, value);
    result = hami_current(&context, &row);
    if (result != CUDA_SUCCESS)
        return result;
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* Over the driver's call: what is charged is to be what was set last. */
    hami_lock(&hami_context_entries);
    result = set_limit(context, row, limit, value);
    hami_unlock(&hami_context_entries);
    return result;
}
