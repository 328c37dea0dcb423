/* Graphs that allocate. links: lib/memory/graph_memory.c lib/hooks/execution/graphs.c lib/hooks/execution/graph_instantiate.c lib/memory/graph_need.c lib/hooks/execution/graph_nodes.c lib/hooks/allocations/async.c lib/memory/pools.c lib/memory/pool_request.c lib/memory/pool_table.c lib/hooks/allocations/pool_hooks.c lib/memory/reclaim.c lib/memory/late.c lib/memory/physical.c lib/memory/imports.c lib/memory/exports.c lib/hooks/allocations/vmm.c lib/hooks/allocations/multicast.c lib/hooks/allocations/tiles.c lib/hooks/allocations/intervals.c lib/base/slab.c lib/base/reset.c lib/memory/map.c */
#include <sys/wait.h>
#include <unistd.h>

#include "fake_driver.h"

#define NODES 64
#define GRAPHS 8

/* ---- A driver's side ---- */

static struct graph {
    CUgraphNodeType types[NODES];
    CUDA_MEM_ALLOC_NODE_PARAMS allocations[NODES];
    int children[NODES];
    size_t count;
} graphs[GRAPHS];
static struct {
    uint64_t reserved, used;
} memory[FAKE_DEVICES];
static uint64_t need_of_exec[GRAPHS + 1][FAKE_DEVICES]; /* by handle */
static int execs;                                     /* alive */
static bool reserves_at_instantiation;
static uint64_t unforeseen; /* what a graph takes beyond its nodes until it is destroyed */

static CUgraph graph_handle(int graph)
{
    return (CUgraph)(uintptr_t)(0x100 + graph);
}

static CUgraphExec exec_handle(int exec)
{
    return (CUgraphExec)(uintptr_t)(0x200 + exec);
}

static CUgraphNode node_handle(int graph, size_t node)
{
    return (CUgraphNode)(uintptr_t)(0x10000 + (size_t)graph * NODES + node);
}

static CUresult fake_cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *count)
{
    int graph = (int)((uintptr_t)handle - 0x100);

    if (nodes)
        for (size_t i = 0; i < *count; i++)
            nodes[i] = node_handle(graph, i);
    *count = graphs[graph].count;
    return CUDA_SUCCESS;
}

static struct graph *graph_of(CUgraphNode node, size_t *index)
{
    *index = ((uintptr_t)node - 0x10000) % NODES;
    return &graphs[((uintptr_t)node - 0x10000) / NODES];
}

static CUresult fake_cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
    size_t index;
    struct graph *graph = graph_of(node, &index);

    *type = graph->types[index];
    return CUDA_SUCCESS;
}

static CUresult fake_cuGraphMemAllocNodeGetParams(CUgraphNode node,
                                                  CUDA_MEM_ALLOC_NODE_PARAMS *parameters)
{
    size_t index;
    struct graph *graph = graph_of(node, &index);

    *parameters = graph->allocations[index];
    return CUDA_SUCCESS;
}

static CUresult fake_cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *child)
{
    size_t index;
    struct graph *graph = graph_of(node, &index);

    *child = graph_handle(graph->children[index]);
    return CUDA_SUCCESS;
}

static CUresult fake_cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph handle,
                                            const CUgraphNode *dependencies, size_t count,
                                            CUDA_MEM_ALLOC_NODE_PARAMS *parameters)
{
    struct graph *graph = &graphs[(uintptr_t)handle - 0x100];

    (void)dependencies;
    (void)count;
    *node = node_handle((int)((uintptr_t)handle - 0x100), graph->count);
    graph->types[graph->count] = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    graph->allocations[graph->count++] = *parameters;
    return CUDA_SUCCESS;
}

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
}

/* The union of address ranges, the slow way: page by page. */
static void mark(int graph, bool pages[FAKE_DEVICES][4096])
{
    for (size_t i = 0; i < graphs[graph].count; i++) {
        CUDA_MEM_ALLOC_NODE_PARAMS *allocation = &graphs[graph].allocations[i];

        if (graphs[graph].types[i] == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            for (uint64_t at = 0; at < allocation->bytesize; at += MIB)
                pages[allocation->poolProps.location.id][(allocation->dptr + at) / MIB] = true;
        else if (graphs[graph].types[i] == CU_GRAPH_NODE_TYPE_GRAPH)
            mark(graphs[graph].children[i], pages);
    }
}

static void measure(int graph, uint64_t *need)
{
    static bool pages[FAKE_DEVICES][4096];

    memset(pages, 0, sizeof(pages));
    memset(need, 0, FAKE_DEVICES * sizeof(*need));
    mark(graph, pages);
    for (int device = 0; device < FAKE_DEVICES; device++)
        for (int page = 0; page < 4096; page++)
            need[device] += pages[device][page] ? MIB : 0;
}

static void reserve(int exec)
{
    for (int device = 0; device < FAKE_DEVICES; device++) {
        uint64_t wanted = memory[device].used + rounded(need_of_exec[exec][device]);

        if (unforeseen != 0 && need_of_exec[exec][device] != 0) {
            memory[device].used += unforeseen;
            wanted += unforeseen;
        }
        if (wanted > memory[device].reserved) {
            give(device, (int64_t)(wanted - memory[device].reserved));
            memory[device].reserved = wanted;
        }
    }
}

static CUresult fake_cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                                 unsigned long long flags)
{
    int made = (int)((uintptr_t)graph - 0x100); /* one of a graph at a time */

    (void)flags;
    if (refused() != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    measure(made, need_of_exec[made]);
    if (reserves_at_instantiation)
        reserve(made);
    execs++;
    *exec = exec_handle(made);
    return CUDA_SUCCESS;
}

static CUresult fake_cuGraphExecDestroy(CUgraphExec exec)
{
    int gone = (int)((uintptr_t)exec - 0x200);

    execs--;
    for (int device = 0; device < FAKE_DEVICES; device++)
        if (need_of_exec[gone][device] != 0 && memory[device].used != 0)
            memory[device].used -= unforeseen;
    return CUDA_SUCCESS;
}

static CUresult fake_cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute,
                                                  void *value)
{
    fake.asked++;
    *(cuuint64_t *)value = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT
                               ? memory[device].used
                               : memory[device].reserved;
    return CUDA_SUCCESS;
}

static CUresult fake_cuDeviceGraphMemTrim(CUdevice device)
{
    fake.trims++;
    give(device, -(int64_t)(memory[device].reserved - memory[device].used));
    memory[device].reserved = memory[device].used;
    return CUDA_SUCCESS;
}

static CUresult fake_cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    (void)stream;
    if (refused() != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    reserve((int)((uintptr_t)exec - 0x200));
    return CUDA_SUCCESS;
}

static CUresult fake_cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                          CUgraphExecUpdateResultInfo *result)
{
    int changed = (int)((uintptr_t)exec - 0x200);

    (void)result;
    measure((int)((uintptr_t)graph - 0x100), need_of_exec[changed]);
    return CUDA_SUCCESS;
}

/* ---- The tests ---- */

static void start(uint64_t limit)
{
    fake_start(limit);
    memset(graphs, 0, sizeof(graphs));
    memset(memory, 0, sizeof(memory));
    execs = 0;
    reserves_at_instantiation = false;
    unforeseen = 0;
}

static void add(int graph, int device, uint64_t address, uint64_t bytes)
{
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}},
        .bytesize = bytes,
        .dptr = address,
    };
    CUgraphNode node;

    EXPECT(cuGraphAddMemAllocNode(&node, graph_handle(graph), NULL, 0, &parameters) ==
           CUDA_SUCCESS);
    graphs[graph].types[graphs[graph].count++] = CU_GRAPH_NODE_TYPE_MEM_FREE;
}

/* Without a node that frees it. */
static void add_kept(int graph, int device, uint64_t address, uint64_t bytes)
{
    add(graph, device, address, bytes);
    graphs[graph].count--;
}

static CUgraphExec instantiate(int graph)
{
    CUgraphExec exec = NULL;

    EXPECT(cuGraphInstantiateWithFlags(&exec, graph_handle(graph), 0) == CUDA_SUCCESS);
    return exec;
}

/* What launch.c does. `used`: how much of the pool the graph uses while it runs. */
static CUresult launch(CUgraphExec exec, uintptr_t stream)
{
    struct hami_graph_launch call;
    CUresult result = hami_graph_before_launch(&call, exec, (CUstream)stream, false);

    if (result != CUDA_SUCCESS)
        return result;
    result = fake_cuGraphUpload(exec, NULL);
    hami_graph_after_launch(&call, result);
    return result;
}

static bool charged_is_given(void)
{
    return fake_charged[0] == fake.given[0] && fake_charged[1] == fake.given[1];
}

static void a_graph_is_charged_when_the_driver_reserves_for_it(void)
{
    CUgraphExec exec;

    start(100 * MIB);
    add(0, 0, 0, 40 * MIB);
    add(0, 1, 0, 10 * MIB);
    exec = instantiate(0);
    EXPECT(fake_charged[0] == 0 && charged_is_given());
    EXPECT(launch(exec, 0) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 40 * MIB && fake_charged[1] == 10 * MIB && charged_is_given());
    EXPECT(launch(exec, 0) == CUDA_SUCCESS && charged_is_given());
    EXPECT(cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 40 * MIB); /* cached for other graphs */
    EXPECT(cuDeviceGraphMemTrim(0) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 0 && fake_charged[1] == 10 * MIB && charged_is_given());
}

static void nodes_that_share_addresses_share_memory(void)
{
    struct hami_graph_launch call;
    CUgraphExec exec;

    start(100 * MIB);
    for (int i = 0; i < 30; i++)
        add(0, 0, 0, 40 * MIB); /* a chain: each allocates what the last one freed */
    add(0, 0, 70 * MIB, 10 * MIB);
    add(0, 0, 30 * MIB, 20 * MIB);
    exec = instantiate(0);
    EXPECT(hami_graph_before_launch(&call, exec, NULL, false) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 60 * MIB); /* known before the driver says so */
    hami_graph_after_launch(&call, CUDA_ERROR_INVALID_VALUE);
    EXPECT(launch(exec, 0) == CUDA_SUCCESS && fake_charged[0] == 60 * MIB && charged_is_given());
}

static void a_graph_that_does_not_fit_is_not_instantiated(void)
{
    CUgraphExec exec = (CUgraphExec)77;

    start(100 * MIB);
    add(0, 0, 0, 40 * MIB);
    add(0, 0, 40 * MIB, 70 * MIB);
    EXPECT(cuGraphInstantiateWithFlags(&exec, graph_handle(0), 0) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(exec == (CUgraphExec)77 && execs == 0 && fake_charged[0] == 0);
    start(100 * MIB);
    add(0, 0, 0, 40 * MIB);
    fake_charged[0] = 90 * MIB; /* other memory of the process */
    EXPECT(cuGraphInstantiateWithFlags(&exec, graph_handle(0), 0) == CUDA_ERROR_OUT_OF_MEMORY);
}

static void growth_found_after_instantiating_is_undone_where_it_does_not_fit(void)
{
    CUgraphExec exec = (CUgraphExec)77;

    start(60 * MIB);
    reserves_at_instantiation = true;
    unforeseen = 80 * MIB;
    add(0, 0, 0, 40 * MIB);
    EXPECT(cuGraphInstantiateWithFlags(&exec, graph_handle(0), 0) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(exec == (CUgraphExec)77 && execs == 0);
    EXPECT(charged_is_given() && fake_charged[0] == 0);
    unforeseen = 20 * MIB;
    exec = instantiate(0);
    EXPECT(charged_is_given() && fake_charged[0] == 60 * MIB);
}

static void a_launch_that_does_not_fit_is_refused(void)
{
    CUgraphExec exec;

    start(100 * MIB);
    add(0, 0, 0, 40 * MIB);
    exec = instantiate(0);
    EXPECT(hami_charge(0, 90 * MIB));
    EXPECT(launch(exec, 0) == CUDA_ERROR_OUT_OF_MEMORY && fake_charged[0] == 90 * MIB);
    hami_refund(0, 90 * MIB);
    fake.refuse = CUDA_ERROR_INVALID_VALUE;
    EXPECT(launch(exec, 0) == CUDA_ERROR_INVALID_VALUE && fake_charged[0] == 0);
    EXPECT(launch(exec, 0) == CUDA_SUCCESS && fake_charged[0] == 40 * MIB);
}

static void graphs_in_one_stream_share_and_others_may_not(void)
{
    struct hami_graph_launch call;
    CUgraphExec one, two, three;

    start(100 * MIB);
    for (int i = 0; i < 3; i++)
        add(i, 0, 0, 60 * MIB);
    one = instantiate(0);
    two = instantiate(1);
    three = instantiate(2);
    EXPECT(launch(one, 5) == CUDA_SUCCESS);
    EXPECT(launch(two, 5) == CUDA_SUCCESS && fake_charged[0] == 60 * MIB);
    memory[0].used = 60 * MIB; /* they run */
    EXPECT(launch(three, 6) == CUDA_ERROR_OUT_OF_MEMORY); /* beside them: as much again */
    EXPECT(fake.peak[0] <= fake_limit && charged_is_given());
    memory[0].used = 0;
    EXPECT(launch(three, 6) == CUDA_SUCCESS && charged_is_given());
    memory[0].used = 60 * MIB; /* that one runs, in the only stream */
    EXPECT(cuGraphExecDestroy(one) == CUDA_SUCCESS);
    one = instantiate(0);
    EXPECT(hami_graph_before_launch(&call, one, (CUstream)6, false) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 60 * MIB);
    hami_graph_after_launch(&call, CUDA_ERROR_INVALID_VALUE);
}

/* Whatever the stream: it is there when the next graph runs. */
static void what_a_graph_leaves_counts_beside_the_next(void)
{
    CUgraphExec one, two, again;
    CUgraphExec plain;

    start(100 * MIB);
    add_kept(0, 0, 0, 30 * MIB);
    add_kept(1, 0, 32 * MIB, 30 * MIB);
    add_kept(2, 0, 64 * MIB, 50 * MIB);
    add(3, 0, 0, 70 * MIB);
    one = instantiate(0);
    two = instantiate(1);
    EXPECT(cuGraphInstantiateWithFlags(&again, graph_handle(2),
                                       CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) ==
           CUDA_SUCCESS);
    plain = instantiate(3);
    EXPECT(launch(one, 5) == CUDA_SUCCESS);
    memory[0].used = 30 * MIB;
    EXPECT(launch(two, 5) == CUDA_SUCCESS && charged_is_given());
    memory[0].used = 60 * MIB;
    EXPECT(fake_charged[0] == 60 * MIB);
    EXPECT(launch(again, 5) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(launch(plain, 5) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(fake.peak[0] <= fake_limit && charged_is_given());
    memory[0].used = 0;
    EXPECT(launch(again, 5) == CUDA_SUCCESS);
    memory[0].used = 50 * MIB;
    /* The driver would free it first: that it does is known unless something was freed since. */
    EXPECT(hami_graph_before_launch(&(struct hami_graph_launch){0}, again, NULL, false) ==
           CUDA_SUCCESS);
    hami_graph_left_freed();
    EXPECT(hami_graph_before_launch(&(struct hami_graph_launch){0}, again, NULL, false) ==
           CUDA_ERROR_OUT_OF_MEMORY);
}

static void pools_give_back_their_cache_for_a_graph(void)
{
    CUdeviceptr address;
    CUgraphExec exec;

    start(100 * MIB);
    fake_pools[0].threshold = UINT64_MAX;
    EXPECT(cuMemAllocAsync(&address, 60 * MIB, NULL) == CUDA_SUCCESS);
    EXPECT(cuMemFreeAsync(address, NULL) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 64 * MIB);
    add(0, 0, 0, 80 * MIB);
    exec = instantiate(0);
    EXPECT(launch(exec, 0) == CUDA_SUCCESS && fake_charged[0] == 80 * MIB && charged_is_given());
}

static void what_graphs_cache_is_given_back_before_a_request_is_refused(void)
{
    CUgraphExec exec;

    start(100 * MIB);
    add(0, 0, 0, 60 * MIB);
    exec = instantiate(0);
    EXPECT(launch(exec, 0) == CUDA_SUCCESS);
    EXPECT(hami_memory_charge(0, 80 * MIB) && fake.trims != 0);
    EXPECT(fake.given[0] == 0 && fake_charged[0] == 80 * MIB);
}

static void what_is_given_back_is_asked_for_again(void)
{
    CUgraphExec small, large;

    start(100 * MIB);
    add(0, 0, 0, 60 * MIB);
    add(1, 0, 0, 80 * MIB);
    small = instantiate(0);
    large = instantiate(1);
    EXPECT(launch(small, 0) == CUDA_SUCCESS && hami_charge(0, 30 * MIB));
    fake.given[0] += 30 * MIB;
    /* 20 MiB are missing; to give back the 60 that are cached only makes it 80. */
    EXPECT(launch(large, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(fake.peak[0] <= fake_limit && charged_is_given());
}

static void an_upload_is_charged_like_a_launch(void)
{
    CUgraphExec exec;

    start(100 * MIB);
    add(0, 0, 0, 60 * MIB);
    exec = instantiate(0);
    EXPECT(cuGraphUpload(exec, NULL) == CUDA_SUCCESS && fake_charged[0] == 60 * MIB);
    EXPECT(cuDeviceGraphMemTrim(0) == CUDA_SUCCESS && hami_charge(0, 50 * MIB));
    EXPECT(cuGraphUpload(exec, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
}

static void allocations_of_child_graphs_count(void)
{
    CUgraphExec exec = NULL;

    start(100 * MIB);
    add(1, 0, 0, 60 * MIB);
    graphs[0].types[0] = CU_GRAPH_NODE_TYPE_GRAPH;
    graphs[0].children[0] = 1;
    graphs[0].count = 1;
    add(0, 0, 60 * MIB, 60 * MIB);
    EXPECT(cuGraphInstantiateWithFlags(&exec, graph_handle(0), 0) == CUDA_ERROR_OUT_OF_MEMORY);
    fake_limit = 120 * MIB;
    exec = instantiate(0);
    EXPECT(launch(exec, 0) == CUDA_SUCCESS && fake_charged[0] == 120 * MIB && charged_is_given());
}

static void an_updated_graph_is_measured_anew(void)
{
    CUgraphExec exec;

    start(100 * MIB);
    add(0, 0, 0, 10 * MIB);
    add(1, 0, 0, 90 * MIB);
    exec = instantiate(0);
    EXPECT(cuGraphExecUpdate_v2(exec, graph_handle(1), NULL) == CUDA_SUCCESS);
    EXPECT(hami_charge(0, 20 * MIB));
    EXPECT(launch(exec, 0) == CUDA_ERROR_OUT_OF_MEMORY && charged_is_given() == false);
    hami_refund(0, 20 * MIB);
    EXPECT(launch(exec, 0) == CUDA_SUCCESS && fake_charged[0] == 90 * MIB && charged_is_given());
}

static void a_graph_without_allocations_costs_nothing(void)
{
    CUgraphExec exec;

    start(100 * MIB);
    graphs[0].count = 1;
    graphs[0].types[0] = CU_GRAPH_NODE_TYPE_KERNEL;
    exec = instantiate(0);
    EXPECT(launch(exec, 0) == CUDA_SUCCESS && fake.asked == 0);
    add(1, 0, 0, MIB);
    EXPECT(cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    exec = instantiate(0);
    EXPECT(launch(exec, 0) == CUDA_SUCCESS && fake.asked == 0 && fake_charged[0] == 0);
}

static void handles_of_destroyed_graphs_are_forgotten(void)
{
    start(100 * MIB);
    add(0, 0, 0, 10 * MIB);
    for (int i = 0; i < 5000; i++) {
        CUgraphExec exec = instantiate(0);

        EXPECT(launch(exec, 0) == CUDA_SUCCESS);
        EXPECT(cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    }
    EXPECT(execs == 0 && fake_charged[0] == 10 * MIB && charged_is_given());
}

static void a_captured_launch_allocates_nothing_now(void)
{
    struct hami_graph_launch call;
    CUgraphExec exec;

    start(100 * MIB);
    add(0, 0, 0, 90 * MIB);
    exec = instantiate(0);
    fake_capturing = true;
    EXPECT(hami_graph_before_launch(&call, exec, NULL, false) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 0);
    hami_graph_after_launch(&call, CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 0);
}

static CUgraphExec inherited;

/* With the lock of a part of the map, as another thread may have it when a program forks. */
static bool fork_here(struct hami_entry *entry, void *argument)
{
    struct hami_graph_launch call;
    int status = -1;
    pid_t child = failures == 0 ? fork() : -1;

    (void)entry;
    (void)argument;
    if (child == 0) {
        atomic_store(&hami_process->mode, HAMI_MODE_UNKNOWN); /* its page is wiped */
        alarm(5);
        if (hami_graph_before_launch(&call, inherited, NULL, false) == CUDA_SUCCESS)
            hami_graph_after_launch(&call, CUDA_ERROR_NOT_INITIALIZED);
        cuGraphExecDestroy(inherited);
        _exit(0);
    }
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    return false;
}

static void a_forked_child_waits_for_no_lock_of_its_parents(void)
{
    CUcontext context = (CUcontext)0x40;

    start(100 * MIB);
    add(0, 0, 0, 10 * MIB);
    inherited = instantiate(0);
    for (uint64_t key = 1; key <= 128; key++) /* in every part of the map */
        EXPECT(hami_map_put(&(struct hami_entry){
            .key = key << 9, .context = context, .kind = HAMI_KIND_LINEAR}));
    hami_map_visit(context, fork_here, NULL);
    EXPECT(cuGraphExecDestroy(inherited) == CUDA_SUCCESS);
}

int main(void)
{
    fake_real.cuGraphGetNodes = fake_cuGraphGetNodes;
    fake_real.cuGraphNodeGetType = fake_cuGraphNodeGetType;
    fake_real.cuGraphMemAllocNodeGetParams = fake_cuGraphMemAllocNodeGetParams;
    fake_real.cuGraphChildGraphNodeGetGraph = fake_cuGraphChildGraphNodeGetGraph;
    fake_real.cuGraphAddMemAllocNode = fake_cuGraphAddMemAllocNode;
    fake_real.cuGraphInstantiateWithFlags = fake_cuGraphInstantiateWithFlags;
    fake_real.cuGraphExecDestroy = fake_cuGraphExecDestroy;
    fake_real.cuDeviceGetGraphMemAttribute = fake_cuDeviceGetGraphMemAttribute;
    fake_real.cuDeviceGraphMemTrim = fake_cuDeviceGraphMemTrim;
    fake_real.cuGraphUpload = fake_cuGraphUpload;
    fake_real.cuGraphExecUpdate_v2 = fake_cuGraphExecUpdate_v2;
    a_graph_is_charged_when_the_driver_reserves_for_it();
    nodes_that_share_addresses_share_memory();
    a_graph_that_does_not_fit_is_not_instantiated();
    growth_found_after_instantiating_is_undone_where_it_does_not_fit();
    a_launch_that_does_not_fit_is_refused();
    graphs_in_one_stream_share_and_others_may_not();
    what_a_graph_leaves_counts_beside_the_next();
    pools_give_back_their_cache_for_a_graph();
    what_graphs_cache_is_given_back_before_a_request_is_refused();
    what_is_given_back_is_asked_for_again();
    an_upload_is_charged_like_a_launch();
    allocations_of_child_graphs_count();
    an_updated_graph_is_measured_anew();
    a_graph_without_allocations_costs_nothing();
    handles_of_destroyed_graphs_are_forgotten();
    a_captured_launch_allocates_nothing_now();
    a_forked_child_waits_for_no_lock_of_its_parents();
    return report();
}
