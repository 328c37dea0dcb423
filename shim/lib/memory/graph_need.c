/* The driver gives an allocation node its address when the node is made, and lets nodes whose
 * lifetimes cannot overlap share addresses. So what a graph takes is the union of its nodes'
 * address ranges, not their sum: a chain of a hundred nodes that allocate and free a GiB takes
 * one. */
#include "memory/graph_need.h"

#include <sys/mman.h>

#include "driver/real.h"
#include "memory/pool_table.h"
#include "slice/slice.h"

#define BLOCK (UINT64_C(2) << 20)
#define DEPTH 16 /* of child graphs; the driver allows fewer with allocations in them */

struct range {
    uint64_t start, end;
    int row;
};

struct ranges {
    struct range *all;
    size_t count, room;
    size_t allocations, frees;
};

static void *pages(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

static bool add(struct ranges *ranges, const struct range *range)
{
    if (ranges->count == ranges->room) {
        size_t room = ranges->room ? 2 * ranges->room : 128;
        struct range *all = pages(room * sizeof(*all));

        if (!all)
            return false;
        for (size_t i = 0; i < ranges->count; i++)
            all[i] = ranges->all[i];
        if (ranges->all)
            munmap(ranges->all, ranges->room * sizeof(*all));
        ranges->all = all;
        ranges->room = room;
    }
    ranges->all[ranges->count++] = *range;
    return true;
}

static CUresult add_node(struct ranges *ranges, CUgraphNode node)
{
    CUDA_MEM_ALLOC_NODE_PARAMS parameters;
    struct range range;
    CUresult result = hami_real()->cuGraphMemAllocNodeGetParams(node, &parameters);

    ranges->allocations++;
    if (result != CUDA_SUCCESS)
        return result;
    if (!hami_location_row(&parameters.poolProps.location, parameters.poolProps.allocType,
                           &range.row))
        return CUDA_SUCCESS; /* memory of the host */
    if (range.row < 0 || range.row >= HAMI_MAX_DEVICES)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range.start = parameters.dptr;
    range.end = parameters.dptr + parameters.bytesize;
    return add(ranges, &range) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult collect(struct ranges *ranges, CUgraph graph, int depth);

static CUresult collect_nodes(struct ranges *ranges, const CUgraphNode *nodes, size_t count,
                              int depth)
{
    const struct hami_real *real = hami_real();

    for (size_t i = 0; i < count; i++) {
        CUgraphNodeType type;
        CUgraph child;
        CUresult result = real->cuGraphNodeGetType(nodes[i], &type);

        if (result == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_MEM_FREE)
            ranges->frees++;
        if (result == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            result = add_node(ranges, nodes[i]);
        else if (result == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_GRAPH &&
                 real->cuGraphChildGraphNodeGetGraph(nodes[i], &child) == CUDA_SUCCESS)
            result = collect(ranges, child, depth + 1);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

static CUresult collect(struct ranges *ranges, CUgraph graph, int depth)
{
    const struct hami_real *real = hami_real();
    size_t count = 0, room;
    CUgraphNode *nodes;
    CUresult result;

    if (depth > DEPTH)
        return CUDA_SUCCESS;
    result = real->cuGraphGetNodes(graph, NULL, &count);
    if (result != CUDA_SUCCESS || count == 0)
        return result;
    room = count * sizeof(*nodes);
    nodes = pages(room);
    if (!nodes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = real->cuGraphGetNodes(graph, nodes, &count);
    if (result == CUDA_SUCCESS)
        result = collect_nodes(ranges, nodes, count, depth);
    munmap(nodes, room);
    return result;
}

static bool before(const struct range *a, const struct range *b)
{
    return a->row != b->row ? a->row < b->row : a->start < b->start;
}

static void sift_down(struct range *heap, size_t at, size_t count)
{
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        struct range moved = heap[at];

        if (child + 1 < count && before(&heap[child], &heap[child + 1]))
            child++;
        if (!before(&heap[at], &heap[child]))
            return;
        heap[at] = heap[child];
        heap[child] = moved;
    }
}

/* libc's qsort may call malloc, which may be what called us. */
static void sort(struct range *all, size_t count)
{
    for (size_t i = count / 2; i > 0; i--)
        sift_down(all, i - 1, count);
    for (size_t i = count; i > 1; i--) {
        struct range last = all[i - 1];

        all[i - 1] = all[0];
        all[0] = last;
        sift_down(all, 0, i - 1);
    }
}

static void sum_union(const struct ranges *ranges, struct hami_graph_need *need)
{
    uint64_t covered = 0;

    for (size_t i = 0; i < ranges->count; i++) {
        const struct range *range = &ranges->all[i];
        uint64_t start = range->start;

        if (i == 0 || range->row != ranges->all[i - 1].row)
            covered = 0;
        if (start < covered)
            start = covered;
        if (range->end > start) {
            need->bytes[range->row] += range->end - start;
            covered = range->end;
        }
    }
    for (int row = 0; row < HAMI_MAX_DEVICES; row++) {
        need->bytes[row] = (need->bytes[row] + BLOCK - 1) & ~(BLOCK - 1);
        need->any = need->any || need->bytes[row] != 0;
    }
}

CUresult hami_graph_need(CUgraph graph, struct hami_graph_need *need)
{
    struct ranges ranges = {0};
    CUresult result = collect(&ranges, graph, 0);

    *need = (struct hami_graph_need){0};
    if (result == CUDA_SUCCESS) {
        sort(ranges.all, ranges.count);
        sum_union(&ranges, need);
        need->keeps = ranges.allocations > ranges.frees;
    }
    if (ranges.all)
        munmap(ranges.all, ranges.room * sizeof(*ranges.all));
    return result;
}
