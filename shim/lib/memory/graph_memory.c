/* Graphs that allocate. Their memory comes from one pool per device, which the driver fills when a
 * graph is instantiated, uploaded, launched or runs, and empties when asked to trim it. Charged is
 * what that pool has reserved (pools.h).
 *
 * Nobody can undo a launch, so what it may add is charged before it. Graphs that run one after the
 * other share the pool's memory; graphs that run at once do not, and which of the two it will be is
 * known only of graphs in one stream. So a graph's first launch beside others of other streams is
 * charged as if they ran at once. If later launches overlap that never did before, the growth of
 * the pool is charged when it is seen.
 *
 * What a graph allocates and does not free stays when it has run, until the program frees it, or
 * the next launch does where the graph was instantiated so. The driver counts it as used, together
 * with what runs: as soon as a graph left something, whatever is used counts beside a launch. */
#include "memory/graph_memory.h"

#include "base/reset.h"
#include "base/slab.h"
#include "driver/real.h"
#include "memory/pool_request.h"
#include "memory/pool_table.h"
#include "memory/reclaim.h"
#include "program/capture.h"
#include "slice/devices.h"
#include "slice/slice.h"

struct graph_exec {
    struct hami_graph_need need;
    bool launched;  /* its memory may be in the pool already */
    bool auto_free; /* a launch frees what the last one left */
    uint64_t frees; /* when it was launched last */
};

#define SEVERAL_STREAMS UINTPTR_MAX

static _Atomic bool allocations;   /* a graph of this process has had an allocation node */
static _Atomic unsigned int execs; /* instantiated graphs with allocation nodes */
static _Atomic bool keepers;         /* a graph that leaves memory was launched */
static _Atomic uint64_t frees;       /* of memory that a graph may have left */
static struct hami_slab slab = HAMI_SLAB(struct graph_exec);
static struct hami_lock slab_lock;
static _Atomic uintptr_t streams[HAMI_MAX_DEVICES]; /* where such graphs run now */

bool hami_graph_any_allocations(void)
{
    return atomic_load_explicit(&allocations, memory_order_acquire);
}

void hami_graph_has_allocations(void)
{
    atomic_store_explicit(&allocations, true, memory_order_release);
}

void hami_graph_memory_reset(void)
{
    atomic_store_explicit(&allocations, false, memory_order_relaxed);
    atomic_store_explicit(&execs, 0, memory_order_relaxed);
    atomic_store_explicit(&keepers, false, memory_order_relaxed);
    slab.free = NULL;
    atomic_store_explicit(&slab_lock.word, 0, memory_order_relaxed);
}

/* ---- Charging ahead ---- */

static void cancel_rows(const struct hami_graph_need *need, const uint64_t *ahead, int rows)
{
    for (int row = 0; row < rows; row++)
        if (need->bytes[row] != 0)
            hami_pool_cancel(hami_pool_graphs(row), need->bytes[row], ahead[row]);
}

void hami_graph_cancel(const struct hami_graph_need *need, const uint64_t *ahead)
{
    cancel_rows(need, ahead, HAMI_MAX_DEVICES);
}

bool hami_graph_charge(const struct hami_graph_need *need, const struct hami_pool_beside *beside,
                       uint64_t *ahead)
{
    for (int row = 0; row < HAMI_MAX_DEVICES; row++) {
        struct hami_pool *pool = hami_pool_graphs(row);
        uint64_t bytes = need->bytes[row];

        ahead[row] = 0;
        if (bytes == 0 || hami_pool_run(pool, bytes, beside, &ahead[row]))
            continue;
        /* What is given back may be what the graph would have used: the growth is another then. */
        if (hami_memory_reclaim(row) && hami_pool_run(pool, bytes, beside, &ahead[row]))
            continue;
        cancel_rows(need, ahead, row);
        return false;
    }
    return true;
}

bool hami_graph_confirm(const struct hami_graph_need *need, const uint64_t *ahead)
{
    bool fits = true;

    for (int row = 0; row < HAMI_MAX_DEVICES; row++)
        if (need->bytes[row] != 0 &&
            !hami_pool_ran(hami_pool_graphs(row), need->bytes[row], ahead[row]))
            fits = false;
    return fits;
}

/* ---- Instantiated graphs ---- */

static void give(struct graph_exec *record)
{
    hami_lock(&slab_lock);
    hami_slab_give(&slab, record);
    hami_unlock(&slab_lock);
    atomic_fetch_sub_explicit(&execs, 1, memory_order_release);
}

bool hami_graph_remember(CUgraphExec exec, const struct hami_graph_need *need,
                         unsigned long long flags)
{
    struct hami_entry old, entry = {.key = (uintptr_t)exec, .kind = HAMI_KIND_EXEC};
    struct graph_exec *record;

    hami_lock(&slab_lock);
    record = hami_slab_take(&slab);
    hami_unlock(&slab_lock);
    if (!record)
        return false;
    record->need = *need;
    record->auto_free = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
    entry.extra = (uintptr_t)record;
    atomic_fetch_add_explicit(&execs, 1, memory_order_release);
    if (!hami_map_exchange(&entry, &old)) {
        give(record);
        return false;
    }
    if (old.kind != HAMI_KIND_NONE)
        give((struct graph_exec *)(uintptr_t)old.extra);
    return true;
}

static struct graph_exec *recall(CUgraphExec exec)
{
    struct hami_entry entry;

    if (!hami_map_get(HAMI_KIND_EXEC, (uintptr_t)exec, &entry))
        return NULL;
    return (struct graph_exec *)(uintptr_t)entry.extra;
}

/* Whether one may be on record. Not in a forked child, where the map may be locked by nobody. */
static bool any_execs(void)
{
    return atomic_load_explicit(&execs, memory_order_acquire) != 0 && hami_counting();
}

void hami_graph_updated(CUgraphExec exec, CUgraph graph)
{
    struct graph_exec *record;
    struct hami_graph_need need;

    if (!hami_graph_any_allocations() ||
        hami_graph_need(graph, &need) != CUDA_SUCCESS)
        return;
    record = recall(exec);
    if (record)
        record->need = need;
    else if (need.any)
        hami_graph_remember(exec, &need, 0);
}

void hami_graphs_settle(void)
{
    if (!hami_graph_any_allocations() || !hami_counting())
        return;
    for (int row = 0; row < hami_row_count(); row++) {
        struct hami_pool *pool = hami_pool_graphs(row);

        if (pool && atomic_load_explicit(&pool->charged, memory_order_relaxed) != 0)
            hami_pool_settle(pool);
    }
}

bool hami_graph_destroying(CUgraphExec exec, struct hami_entry *entry)
{
    return any_execs() && hami_map_take(HAMI_KIND_EXEC, (uintptr_t)exec, entry);
}

void hami_graph_destroyed(const struct hami_entry *entry, CUresult result)
{
    if (result == CUDA_SUCCESS) {
        give((struct graph_exec *)(uintptr_t)entry->extra);
        hami_graphs_settle();
    } else {
        hami_map_put(entry);
    }
}

/* ---- Running ---- */

/* The calling thread's default stream has no handle of its own. */
static uintptr_t identity(CUstream stream, bool per_thread)
{
    static _Thread_local char thread __attribute__((tls_model("initial-exec")));

    if (stream == CU_STREAM_PER_THREAD || (stream == NULL && per_thread))
        return (uintptr_t)&thread;
    return stream == NULL ? (uintptr_t)CU_STREAM_LEGACY : (uintptr_t)stream;
}

/* Whether all graphs with memory on the device, this one with them, run in one stream. */
static bool in_one_stream(int row, uintptr_t stream)
{
    uintptr_t before = atomic_load_explicit(&streams[row], memory_order_relaxed);

    if (before != stream && hami_pool_used(hami_pool_graphs(row)) == 0)
        before = stream;
    atomic_store_explicit(&streams[row], before == stream ? stream : SEVERAL_STREAMS,
                          memory_order_relaxed);
    return before == stream;
}

void hami_graph_left_freed(void)
{
    if (__builtin_expect(atomic_load_explicit(&keepers, memory_order_relaxed), 0))
        atomic_fetch_add_explicit(&frees, 1, memory_order_relaxed);
}

static struct hami_pool_beside beside_of(const struct graph_exec *record, bool alone)
{
    struct hami_pool_beside beside = {
        .others = !alone && !record->launched,
        .keeps = record->need.keeps,
    };

    /* Where nothing was freed since, what it left is there, and the driver frees it first. */
    if (record->launched && record->auto_free && record->need.keeps &&
        record->frees == atomic_load_explicit(&frees, memory_order_relaxed))
        beside.own_too = true;
    return beside;
}

CUresult hami_graph_before_launch(struct hami_graph_launch *launch, CUgraphExec exec,
                                  CUstream stream, bool per_thread)
{
    struct graph_exec *record;
    struct hami_pool_beside beside;
    bool alone = true;

    launch->exec = exec;
    launch->memory = false;
    if (__builtin_expect(!any_execs(), 1))
        return CUDA_SUCCESS;
    record = recall(exec);
    if (!record || hami_capturing(stream, per_thread))
        return CUDA_SUCCESS;
    for (int row = 0; row < HAMI_MAX_DEVICES; row++)
        if (record->need.bytes[row] != 0 && !in_one_stream(row, identity(stream, per_thread)))
            alone = false;
    beside = beside_of(record, alone);
    launch->need = record->need;
    if (!hami_graph_charge(&launch->need, &beside, launch->ahead))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (record->need.keeps)
        atomic_store_explicit(&keepers, true, memory_order_relaxed);
    launch->memory = true;
    return CUDA_SUCCESS;
}

void hami_graph_after_launch(struct hami_graph_launch *launch, CUresult result)
{
    struct graph_exec *record;

    if (__builtin_expect(!launch->memory, 1))
        return;
    if (result != CUDA_SUCCESS) {
        hami_graph_cancel(&launch->need, launch->ahead);
        return;
    }
    record = recall(launch->exec);
    if (record) {
        record->launched = true;
        record->frees = atomic_load_explicit(&frees, memory_order_relaxed);
    }
    hami_graph_confirm(&launch->need, launch->ahead);
}
