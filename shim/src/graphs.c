/* Graphs that allocate. Their memory comes from one pool per device, which the driver fills when a
 * graph is instantiated, uploaded, launched or runs, and empties when asked to trim it. Charged is
 * what that pool has reserved (pools.h).
 *
 * Nobody can undo a launch, so what it may add is charged before it. Graphs that run one after the
 * other share the pool's memory; graphs that run at once do not, and which of the two it will be is
 * known only of graphs in one stream. So a graph's first launch beside others of other streams is
 * charged as if they ran at once. If later launches overlap that never did before, the pool's growth
 * is charged when it is seen. */
#include "graphs.h"

#include "account.h"
#include "async.h"
#include "graph_need.h"
#include "launch.h"
#include "map.h"
#include "pools.h"
#include "real.h"
#include "slab.h"
#include "slice.h"

struct graph_exec {
    struct hami_graph_need need;
    bool launched; /* its memory may be in the pool already */
};

#define SEVERAL_STREAMS UINTPTR_MAX

static _Atomic bool allocations;   /* a graph of this process has had an allocation node */
static _Atomic unsigned int execs; /* instantiated graphs with allocation nodes */
static struct hami_slab slab = HAMI_SLAB(struct graph_exec);
static struct hami_lock slab_lock;
static _Atomic uintptr_t streams[HAMI_MAX_DEVICES]; /* where such graphs run now */

void hami_graph_has_allocations(void)
{
    atomic_store_explicit(&allocations, true, memory_order_release);
}

void hami_graphs_reset(void)
{
    atomic_store_explicit(&allocations, false, memory_order_relaxed);
    atomic_store_explicit(&execs, 0, memory_order_relaxed);
    slab.free = NULL;
    atomic_store_explicit(&slab_lock.word, 0, memory_order_relaxed);
}

/* ---- Charging ahead ---- */

static void cancel_ahead(const uint64_t *ahead, int rows)
{
    for (int row = 0; row < rows; row++)
        if (ahead[row] != 0)
            hami_pool_cancel(hami_pool_graphs(row), 0, ahead[row]);
}

static bool charge_row(int row, uint64_t bytes)
{
    struct hami_pool *pool = hami_pool_graphs(row);

    return hami_pool_ahead(pool, bytes) ||
           (hami_memory_reclaim(row) && hami_pool_ahead(pool, bytes));
}

/* What a graph adds to the pool when it runs alone. */
static uint64_t least_growth(const struct hami_graph_need *need, int row)
{
    uint64_t reserved = hami_pool_reserved(hami_pool_graphs(row));

    return need->bytes[row] > reserved ? need->bytes[row] - reserved : 0;
}

static uint64_t used(int row)
{
    cuuint64_t bytes = 0;

    if (hami_real()->cuDeviceGetGraphMemAttribute(hami_ordinal_of_row(row),
                                                  CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT,
                                                  &bytes) != CUDA_SUCCESS)
        return 0;
    return bytes;
}

/* What it adds when it runs beside what runs now. */
static uint64_t most_growth(const struct hami_graph_need *need, int row)
{
    uint64_t reserved = hami_pool_reserved(hami_pool_graphs(row));
    uint64_t together = used(row) + need->bytes[row];

    return together > reserved ? together - reserved : 0;
}

static bool charge_ahead(const struct hami_graph_need *need, uint64_t *ahead,
                         uint64_t (*growth)(const struct hami_graph_need *need, int row))
{
    for (int row = 0; row < HAMI_MAX_DEVICES; row++) {
        ahead[row] = need->bytes[row] == 0 ? 0 : growth(need, row);
        if (ahead[row] != 0 && !charge_row(row, ahead[row])) {
            cancel_ahead(ahead, row);
            return false;
        }
    }
    return true;
}

/* False: what the pools really grew by does not fit. */
static bool confirm_ahead(const struct hami_graph_need *need, const uint64_t *ahead)
{
    bool fits = true;

    for (int row = 0; row < HAMI_MAX_DEVICES; row++)
        if (need->bytes[row] != 0 && !hami_pool_confirm(hami_pool_graphs(row), ahead[row]))
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

static bool remember(CUgraphExec exec, const struct hami_graph_need *need)
{
    struct hami_entry old, entry = {.key = (uintptr_t)exec, .kind = HAMI_KIND_EXEC};
    struct graph_exec *record;

    hami_lock(&slab_lock);
    record = hami_slab_take(&slab);
    hami_unlock(&slab_lock);
    if (!record)
        return false;
    record->need = *need;
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

    if (atomic_load_explicit(&execs, memory_order_acquire) == 0 ||
        !hami_map_get(HAMI_KIND_EXEC, (uintptr_t)exec, &entry))
        return NULL;
    return (struct graph_exec *)(uintptr_t)entry.extra;
}

void hami_graph_updated(CUgraphExec exec, CUgraph graph)
{
    struct graph_exec *record;
    struct hami_graph_need need;

    if (!atomic_load_explicit(&allocations, memory_order_acquire) ||
        hami_graph_need(graph, &need) != CUDA_SUCCESS)
        return;
    record = recall(exec);
    if (record)
        record->need = need;
    else if (need.any)
        remember(exec, &need);
}

static void settle_graphs(void)
{
    if (!atomic_load_explicit(&allocations, memory_order_acquire) || !hami_counting())
        return;
    for (int row = 0; row < hami_row_count(); row++) {
        struct hami_pool *pool = hami_pool_graphs(row);

        if (pool && atomic_load_explicit(&pool->charged, memory_order_relaxed) != 0)
            hami_pool_settle(pool);
    }
}

/* One spelling of cuGraphInstantiate with its other arguments. */
struct instantiation {
    CUresult (*driver)(CUgraphExec *exec, CUgraph graph, const struct instantiation *of);
    CUgraphNode *error_node;
    char *log;
    size_t log_size;
    unsigned long long flags;
    CUDA_GRAPH_INSTANTIATE_PARAMS *parameters;
};

static CUresult instantiate_counted(CUgraphExec *exec, CUgraph graph,
                                    const struct hami_graph_need *need,
                                    const struct instantiation *of)
{
    uint64_t ahead[HAMI_MAX_DEVICES];
    CUgraphExec made;
    CUresult result;

    if (!charge_ahead(need, ahead, least_growth))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = of->driver(&made, graph, of);
    if (result != CUDA_SUCCESS) {
        cancel_ahead(ahead, HAMI_MAX_DEVICES);
        return result;
    }
    if (confirm_ahead(need, ahead) && remember(made, need)) {
        *exec = made;
        return CUDA_SUCCESS;
    }
    hami_real()->cuGraphExecDestroy(made);
    for (int row = 0; row < HAMI_MAX_DEVICES; row++)
        if (need->bytes[row] != 0)
            hami_memory_reclaim(row);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, const struct instantiation *of)
{
    struct hami_graph_need need;
    CUresult result;

    if (!atomic_load_explicit(&allocations, memory_order_acquire) || !exec || !hami_counting())
        return of->driver(exec, graph, of);
    result = hami_graph_need(graph, &need);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return result;
    if (result != CUDA_SUCCESS || !need.any) /* what is wrong with the graph is the driver's to say */
        return of->driver(exec, graph, of);
    return instantiate_counted(exec, graph, &need, of);
}

static CUresult driver_v1(CUgraphExec *exec, CUgraph graph, const struct instantiation *of)
{
    return hami_real()->cuGraphInstantiate(exec, graph, of->error_node, of->log, of->log_size);
}

static CUresult driver_v2(CUgraphExec *exec, CUgraph graph, const struct instantiation *of)
{
    return hami_real()->cuGraphInstantiate_v2(exec, graph, of->error_node, of->log, of->log_size);
}

static CUresult driver_flags(CUgraphExec *exec, CUgraph graph, const struct instantiation *of)
{
    return hami_real()->cuGraphInstantiateWithFlags(exec, graph, of->flags);
}

static CUresult driver_parameters(CUgraphExec *exec, CUgraph graph, const struct instantiation *of)
{
    return hami_real()->cuGraphInstantiateWithParams(exec, graph, of->parameters);
}

static CUresult driver_parameters_ptsz(CUgraphExec *exec, CUgraph graph,
                                       const struct instantiation *of)
{
    return hami_real()->cuGraphInstantiateWithParams_ptsz(exec, graph, of->parameters);
}

HAMI_EXPORT CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                        char *log, size_t log_size)
{
    return instantiate(exec, graph, &(struct instantiation){.driver = driver_v1,
                                                            .error_node = error_node,
                                                            .log = log,
                                                            .log_size = log_size});
}

HAMI_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph,
                                           CUgraphNode *error_node, char *log, size_t log_size)
{
    return instantiate(exec, graph, &(struct instantiation){.driver = driver_v2,
                                                            .error_node = error_node,
                                                            .log = log,
                                                            .log_size = log_size});
}

HAMI_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                                 unsigned long long flags)
{
    return instantiate(exec, graph, &(struct instantiation){.driver = driver_flags, .flags = flags});
}

HAMI_EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                                  CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)
{
    return instantiate(exec, graph, &(struct instantiation){.driver = driver_parameters,
                                                            .parameters = parameters});
}

HAMI_EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                                       CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)
{
    return instantiate(exec, graph, &(struct instantiation){.driver = driver_parameters_ptsz,
                                                            .parameters = parameters});
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

    if (before != stream && used(row) == 0)
        before = stream;
    atomic_store_explicit(&streams[row], before == stream ? stream : SEVERAL_STREAMS,
                          memory_order_relaxed);
    return before == stream;
}

CUresult hami_graph_before_launch(struct hami_graph_launch *launch, CUgraphExec exec,
                                  CUstream stream, bool per_thread)
{
    struct graph_exec *record = recall(exec);
    bool alone = true;

    launch->exec = exec;
    launch->memory = false;
    if (__builtin_expect(!record, 1) || hami_capturing(stream, per_thread))
        return CUDA_SUCCESS;
    for (int row = 0; row < HAMI_MAX_DEVICES; row++)
        if (record->need.bytes[row] != 0 && !in_one_stream(row, identity(stream, per_thread)))
            alone = false;
    if (!charge_ahead(&record->need, launch->ahead,
                      alone || record->launched ? least_growth : most_growth))
        return CUDA_ERROR_OUT_OF_MEMORY;
    launch->memory = true;
    return CUDA_SUCCESS;
}

void hami_graph_after_launch(struct hami_graph_launch *launch, CUresult result)
{
    struct graph_exec *record;

    if (__builtin_expect(!launch->memory, 1))
        return;
    record = recall(launch->exec);
    if (result != CUDA_SUCCESS || !record) {
        cancel_ahead(launch->ahead, HAMI_MAX_DEVICES);
        return;
    }
    record->launched = true;
    confirm_ahead(&record->need, launch->ahead);
}

static CUresult upload(CUgraphExec exec, CUstream stream, bool per_thread)
{
    struct hami_graph_launch launch;
    CUresult result = hami_graph_before_launch(&launch, exec, stream, per_thread);

    if (result != CUDA_SUCCESS)
        return result;
    result = per_thread ? hami_real()->cuGraphUpload_ptsz(exec, stream)
                        : hami_real()->cuGraphUpload(exec, stream);
    hami_graph_after_launch(&launch, result);
    return result;
}

HAMI_EXPORT CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    return upload(exec, stream, false);
}

HAMI_EXPORT CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
    return upload(exec, stream, true);
}

HAMI_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    struct hami_entry entry;
    bool known = atomic_load_explicit(&execs, memory_order_acquire) != 0 &&
                 hami_map_take(HAMI_KIND_EXEC, (uintptr_t)exec, &entry);
    CUresult result;

    /* Before the driver's call: the handle may be another graph's right after it. */
    hami_launch_forget_exec(exec);
    result = hami_real()->cuGraphExecDestroy(exec);
    if (!known)
        return result;
    if (result == CUDA_SUCCESS) {
        give((struct graph_exec *)(uintptr_t)entry.extra);
        settle_graphs();
    } else {
        hami_map_put(&entry);
    }
    return result;
}

HAMI_EXPORT CUresult cuGraphDestroy(CUgraph graph)
{
    CUresult result = hami_real()->cuGraphDestroy(graph);

    if (result == CUDA_SUCCESS)
        settle_graphs();
    return result;
}

HAMI_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    CUresult result = hami_real()->cuDeviceGraphMemTrim(device);

    if (result == CUDA_SUCCESS)
        settle_graphs();
    return result;
}
