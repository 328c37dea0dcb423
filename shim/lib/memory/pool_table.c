#include "memory/pool_table.h"

#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include "base/reset.h"
#include "driver/real.h"
#include "memory/map.h"
#include "program/current.h"
#include "slice/devices.h"
#include "slice/slice.h"

#define CHUNK 64 /* pools */
#define CHUNKS 64

static struct hami_pool *_Atomic chunks[CHUNKS];
static struct hami_pool graphs[HAMI_MAX_DEVICES];
static _Atomic unsigned int pools_used, graphs_used; /* records that were ever used */
static struct hami_pool *_Atomic current[HAMI_MAX_DEVICES];
static _Atomic uint64_t changes; /* of current pools: what was looked up before one is not kept */
static struct hami_lock table;

struct hami_pool *hami_pool_at(unsigned int index)
{
    unsigned int rows = atomic_load_explicit(&graphs_used, memory_order_acquire);
    struct hami_pool *chunk;

    if (index < rows)
        return &graphs[index];
    index -= rows;
    if (index >= atomic_load_explicit(&pools_used, memory_order_acquire))
        return NULL;
    chunk = atomic_load_explicit(&chunks[index / CHUNK], memory_order_acquire);
    return &chunk[index % CHUNK];
}

/* Memory mappings are kept: a forked child that attaches anew has them too. */
void hami_pool_table_reset(void)
{
    for (unsigned int i = 0; i < CHUNKS; i++) {
        struct hami_pool *chunk = atomic_load_explicit(&chunks[i], memory_order_relaxed);

        if (chunk)
            memset(chunk, 0, CHUNK * sizeof(*chunk));
    }
    memset(graphs, 0, sizeof(graphs));
    atomic_store_explicit(&pools_used, 0, memory_order_relaxed);
    atomic_store_explicit(&graphs_used, 0, memory_order_relaxed);
    for (int row = 0; row < HAMI_MAX_DEVICES; row++)
        atomic_store_explicit(&current[row], NULL, memory_order_relaxed);
    atomic_store_explicit(&table.word, 0, memory_order_relaxed);
}

static bool unused(struct hami_pool *pool)
{
    return atomic_load_explicit(&pool->state, memory_order_relaxed) == HAMI_POOL_UNUSED &&
           atomic_load_explicit(&pool->users, memory_order_relaxed) == 0;
}

static struct hami_pool *record(unsigned int index)
{
    struct hami_pool *chunk = atomic_load_explicit(&chunks[index / CHUNK], memory_order_relaxed);

    if (!chunk) {
        chunk = mmap(NULL, CHUNK * sizeof(*chunk), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (chunk == MAP_FAILED)
            return NULL;
        atomic_store_explicit(&chunks[index / CHUNK], chunk, memory_order_release);
    }
    return &chunk[index % CHUNK];
}

/* With the table's lock: a record that was of this row, or never used. */
static struct hami_pool *find_unused(int row, bool counted)
{
    unsigned int used = atomic_load_explicit(&pools_used, memory_order_relaxed);
    struct hami_pool *pool;

    for (unsigned int i = 0; i < used; i++) {
        pool = record(i);
        if (unused(pool) && pool->row == row && pool->counted == counted)
            return pool;
    }
    if (used == CHUNK * CHUNKS)
        return NULL;
    pool = record(used);
    if (pool) {
        /* Who walks through the records reads these without a lock: they never change again. */
        pool->row = (int16_t)row;
        pool->counted = counted;
        atomic_store_explicit(&pools_used, used + 1, memory_order_release);
    }
    return pool;
}

/* With the table's lock. A handle that the driver gives out anew is of a pool whose destruction is
 * just returning in another thread, or escaped us: what is left of it is still counted. */
static void replace(const struct hami_entry *old)
{
    struct hami_pool *pool = (struct hami_pool *)(uintptr_t)old->extra;

    hami_lock(&pool->lock);
    atomic_store_explicit(&pool->state, HAMI_POOL_DRAINING, memory_order_release);
    hami_unlock(&pool->lock);
}

struct hami_pool *hami_pool_add(CUmemoryPool handle, int row, bool counted, bool ours)
{
    struct hami_entry entry = {
        .key = (uintptr_t)handle, .kind = HAMI_KIND_POOL, .row = (int16_t)row};
    struct hami_entry old;
    struct hami_pool *pool;

    hami_lock(&table);
    if (!ours && hami_map_get(HAMI_KIND_POOL, entry.key, &entry)) { /* another thread was first */
        hami_unlock(&table);
        return (struct hami_pool *)(uintptr_t)entry.extra;
    }
    pool = find_unused(row, counted);
    if (pool) {
        hami_lock(&pool->lock); /* one may still settle what it was before */
        atomic_store_explicit(&pool->live, 0, memory_order_relaxed);
        atomic_store_explicit(&pool->charged, 0, memory_order_relaxed);
        pool->pending = 0;
        pool->reserved = 0;
        pool->handle = handle;
        if (pool->ours != ours) /* one may still ask this of what it was before */
            pool->ours = ours;
        entry.extra = (uintptr_t)pool;
        atomic_store_explicit(&pool->state, HAMI_POOL_LIVE, memory_order_release);
        hami_unlock(&pool->lock);
        if (!hami_map_exchange(&entry, &old)) {
            atomic_store_explicit(&pool->state, HAMI_POOL_UNUSED, memory_order_release);
            pool = NULL;
        } else if (old.kind != HAMI_KIND_NONE) {
            replace(&old);
        }
    }
    hami_unlock(&table);
    return pool;
}

bool hami_location_row(const CUmemLocation *location, CUmemAllocationType type, int *row)
{
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        *row = hami_row_of_ordinal(location->id);
        return true;
    case CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN:
        *row = hami_row_of_ordinal(location->localized.deviceId);
        return true;
    default:
        /* Managed memory lives where it is used: all of it is charged to the current device, as
         * cuMemAllocManaged's is. */
        if (type == CU_MEM_ALLOCATION_TYPE_MANAGED) {
            if (hami_current_row(row) != CUDA_SUCCESS)
                *row = hami_row_of_ordinal(0);
            return true;
        }
        *row = HAMI_ROW_NONE;
        return false;
    }
}

/* What drivers since CUDA 13 say of a pool themselves. */
static bool described(CUmemoryPool handle, CUmemLocation *location, CUmemAllocationType *type)
{
    const struct hami_real *real = hami_real();
    cuuint64_t where = 0, which = 0, what = 0;

    if (real->cuMemPoolGetAttribute(handle, CU_MEMPOOL_ATTR_LOCATION_TYPE, &where) ||
        real->cuMemPoolGetAttribute(handle, CU_MEMPOOL_ATTR_LOCATION_ID, &which) ||
        real->cuMemPoolGetAttribute(handle, CU_MEMPOOL_ATTR_ALLOCATION_TYPE, &what))
        return false;
    *location = (CUmemLocation){.type = (CUmemLocationType)(uint32_t)where,
                                .id = (int)(uint32_t)which};
    *type = (CUmemAllocationType)(uint32_t)what;
    return true;
}

/* A pool that nobody created before our eyes: some default one. */
static struct hami_pool *add_unknown(CUmemoryPool handle)
{
    const struct hami_real *real = hami_real();
    CUmemAllocationType type = CU_MEM_ALLOCATION_TYPE_PINNED;
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_HOST};
    CUmemoryPool found;
    bool counted;
    int count = 0, row;

    if (real->cuDeviceGetCount(&count) != CUDA_SUCCESS)
        count = 0;
    for (int ordinal = 0; ordinal < count; ordinal++)
        if (real->cuDeviceGetDefaultMemPool(&found, ordinal) == CUDA_SUCCESS && found == handle)
            return hami_pool_add(handle, hami_row_of_ordinal(ordinal), true, false);
    if (real->cuMemGetDefaultMemPool(&found, &location, type) == CUDA_SUCCESS && found == handle)
        return hami_pool_add(handle, HAMI_ROW_NONE, false, false);
    if (described(handle, &location, &type)) {
        counted = hami_location_row(&location, type, &row);
        return hami_pool_add(handle, row, counted, false);
    }
    if (hami_current_row(&row) != CUDA_SUCCESS)
        return NULL;
    return hami_pool_add(handle, row, true, false);
}

struct hami_pool *hami_pool_of(CUmemoryPool handle)
{
    struct hami_entry entry;

    if (__builtin_expect(hami_map_get(HAMI_KIND_POOL, (uintptr_t)handle, &entry), 1))
        return (struct hami_pool *)(uintptr_t)entry.extra;
    return add_unknown(handle);
}

/* One whose record is gone is not entered; where the program may destroy it, it waits for us. */
static bool enter(struct hami_pool *pool)
{
    if (!pool->ours)
        return true;
    atomic_fetch_add_explicit(&pool->users, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&pool->state, memory_order_seq_cst) == HAMI_POOL_LIVE)
        return true;
    hami_pool_leave(pool);
    return false;
}

void hami_pool_leave(struct hami_pool *pool)
{
    if (pool->ours)
        atomic_fetch_sub_explicit(&pool->users, 1, memory_order_release);
}

/* NULL: ask again. One that is not on record may have been destroyed since we asked: its end is
 * counted among the changes before it leaves the record. */
static CUresult look_up(int row, struct hami_pool **pool)
{
    struct hami_entry entry;
    CUmemoryPool handle;
    CUresult result;
    uint64_t seen = atomic_load_explicit(&changes, memory_order_acquire);

    *pool = NULL;
    result = hami_real()->cuDeviceGetMemPool(&handle, hami_ordinal_of_row(row));
    if (result != CUDA_SUCCESS)
        return result;
    if (!hami_map_get(HAMI_KIND_POOL, (uintptr_t)handle, &entry) &&
        seen != atomic_load_explicit(&changes, memory_order_acquire))
        return CUDA_SUCCESS;
    *pool = hami_pool_of(handle);
    if (!*pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    hami_lock(&table);
    if (seen == atomic_load_explicit(&changes, memory_order_relaxed))
        atomic_store_explicit(&current[row], *pool, memory_order_release);
    hami_unlock(&table);
    return CUDA_SUCCESS;
}

CUresult hami_pool_current(int row, struct hami_pool **pool)
{
    if (row < 0 || row >= HAMI_MAX_DEVICES)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pool = atomic_load_explicit(&current[row], memory_order_acquire);
    while (__builtin_expect(!*pool || !enter(*pool), 0)) {
        CUresult result;

        if (*pool)
            sched_yield(); /* it is just being destroyed */
        result = look_up(row, pool);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

void hami_pool_current_changed(void)
{
    hami_lock(&table);
    atomic_fetch_add_explicit(&changes, 1, memory_order_release);
    for (int row = 0; row < HAMI_MAX_DEVICES; row++)
        atomic_store_explicit(&current[row], NULL, memory_order_release);
    hami_unlock(&table);
}

struct hami_pool *hami_pool_graphs(int row)
{
    struct hami_pool *pool;

    if (row < 0 || row >= HAMI_MAX_DEVICES)
        return NULL;
    pool = &graphs[row];
    if (__builtin_expect(atomic_load_explicit(&pool->state, memory_order_acquire) ==
                             HAMI_POOL_GRAPHS, 1))
        return pool;
    hami_lock(&table);
    pool->row = (int16_t)row;
    pool->ordinal = hami_ordinal_of_row(row);
    pool->counted = true;
    atomic_store_explicit(&pool->state, HAMI_POOL_GRAPHS, memory_order_release);
    if (atomic_load_explicit(&graphs_used, memory_order_relaxed) <= (unsigned int)row)
        atomic_store_explicit(&graphs_used, (unsigned int)row + 1, memory_order_release);
    hami_unlock(&table);
    return pool;
}

/* It stays in the map until the driver has answered: another thread that is told that it is its
 * device's current pool finds the record, and asks again. */
struct hami_pool *hami_pool_destroying(CUmemoryPool handle)
{
    struct hami_entry entry;
    struct hami_pool *pool;

    if (!hami_map_get(HAMI_KIND_POOL, (uintptr_t)handle, &entry))
        return NULL;
    pool = (struct hami_pool *)(uintptr_t)entry.extra;
    hami_lock(&pool->lock);
    atomic_store_explicit(&pool->state, HAMI_POOL_DESTROYING, memory_order_seq_cst);
    hami_unlock(&pool->lock);
    while (atomic_load_explicit(&pool->users, memory_order_acquire) != 0)
        sched_yield();
    return pool;
}

/* Unless the record is another pool's by now. */
static bool change(struct hami_pool *pool, uint32_t from, uint32_t to)
{
    return atomic_compare_exchange_strong_explicit(&pool->state, &from, to, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

void hami_pool_destroyed(struct hami_pool *pool, CUmemoryPool handle)
{
    struct hami_entry entry;

    change(pool, HAMI_POOL_DESTROYING, HAMI_POOL_DRAINING);
    hami_lock(&table);
    /* Unless the driver has given the handle to another one by now. */
    if (hami_map_get(HAMI_KIND_POOL, (uintptr_t)handle, &entry) &&
        entry.extra == (uintptr_t)pool)
        hami_map_take(HAMI_KIND_POOL, (uintptr_t)handle, &entry);
    hami_unlock(&table);
    /* What it only cached went with it; allocations, and frees that the device has not come to,
     * keep it: the latter until the program next waits for the device. */
    if (atomic_load_explicit(&pool->charged, memory_order_relaxed) == 0)
        hami_pool_drained(pool);
}

void hami_pool_kept(struct hami_pool *pool)
{
    change(pool, HAMI_POOL_DESTROYING, HAMI_POOL_LIVE);
}

void hami_pool_drained(struct hami_pool *pool)
{
    change(pool, HAMI_POOL_DRAINING, HAMI_POOL_UNUSED);
}
