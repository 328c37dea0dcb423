/* Graphs that allocate: a driver's side of them, and what tests do with them. */
#ifndef HAMI_TESTS_GRAPHS_FIXTURE_H
#define HAMI_TESTS_GRAPHS_FIXTURE_H

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

/* ---- What a program does ---- */

static inline void start(uint64_t limit)
{
    fake_start(limit);
    memset(graphs, 0, sizeof(graphs));
    memset(memory, 0, sizeof(memory));
    execs = 0;
    reserves_at_instantiation = false;
    unforeseen = 0;
}

static inline void add(int graph, int device, uint64_t address, uint64_t bytes)
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
static inline void add_kept(int graph, int device, uint64_t address, uint64_t bytes)
{
    add(graph, device, address, bytes);
    graphs[graph].count--;
}

static inline CUgraphExec instantiate(int graph)
{
    CUgraphExec exec = NULL;

    EXPECT(cuGraphInstantiateWithFlags(&exec, graph_handle(graph), 0) == CUDA_SUCCESS);
    return exec;
}

/* What launch.c does. `used`: how much of the pool the graph uses while it runs. */
static inline CUresult launch(CUgraphExec exec, uintptr_t stream)
{
    struct hami_graph_launch call;
    CUresult result = hami_graph_before_launch(&call, exec, (CUstream)stream, false);

    if (result != CUDA_SUCCESS)
        return result;
    result = fake_cuGraphUpload(exec, NULL);
    hami_graph_after_launch(&call, result);
    return result;
}

static inline bool charged_is_given(void)
{
    return fake_charged[0] == fake.given[0] && fake_charged[1] == fake.given[1];
}

static inline void use_fake_graphs(void)
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
}

#endif
