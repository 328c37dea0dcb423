/* Stream-ordered allocations and memory pools. */
#include "check.h"

static CUresult figure(CUmemoryPool pool, CUmemPool_attribute which, uint64_t *value)
{
    cuuint64_t found = 0;
    CUresult result = cuMemPoolGetAttribute(pool, which, &found);

    *value = found;
    return result;
}

static uint64_t reserved(CUmemoryPool pool)
{
    uint64_t value = 0;

    return figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value) == CUDA_SUCCESS ? value : 0;
}

static uint64_t used(CUmemoryPool pool)
{
    uint64_t value = 0;

    return figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value) == CUDA_SUCCESS ? value : 0;
}

static CUresult keep(CUmemoryPool pool, uint64_t threshold)
{
    cuuint64_t value = threshold;

    return cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value);
}

static CUresult a_pool(CUmemoryPool *pool, size_t most)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                 .maxSize = most};

    properties.location.id = device;
    return cuMemPoolCreate(pool, &properties);
}

static CUstream stream;

/* ---- Allocating ---- */

static const char *a_pool_takes_what_its_allocations_need(void)
{
    size_t before = available(), bytes = part_of_free(8);
    CUdeviceptr address;
    CUmemoryPool pool;

    OK(a_pool(&pool, 0));
    OK(cuMemAllocFromPoolAsync(&address, bytes, pool, stream));
    OK(cuStreamSynchronize(stream));
    SO(used(pool) == bytes && reserved(pool) >= bytes);
    SO(before - available() == reserved(pool));
    OK(cuMemFreeAsync(address, stream));
    OK(cuStreamSynchronize(stream));
    SO(used(pool) == 0 && reserved(pool) == 0 && available() == before);
    OK(cuMemPoolDestroy(pool));
    return NULL;
}

static const char *a_synchronisation_gives_back_what_exceeds_the_threshold(void)
{
    size_t bytes = part_of_free(16), half = bytes / 2 / GRANULE * GRANULE;
    CUdeviceptr first, second;
    CUmemoryPool pool;

    OK(a_pool(&pool, 0));
    OK(keep(pool, UINT64_MAX));
    OK(cuMemAllocFromPoolAsync(&first, half, pool, stream));
    OK(cuMemAllocFromPoolAsync(&second, half, pool, stream));
    OK(cuMemFreeAsync(first, stream));
    OK(cuMemFreeAsync(second, stream));
    OK(cuStreamSynchronize(stream));
    SO(used(pool) == 0 && reserved(pool) >= 2 * half);
    OK(keep(pool, 0));
    SO(reserved(pool) >= 2 * half);
    OK(cuMemAllocFromPoolAsync(&first, half, pool, stream));
    OK(cuMemFreeAsync(first, stream));
    OK(cuStreamSynchronize(stream));
    SO(reserved(pool) == 0);
    OK(cuMemPoolDestroy(pool));
    return NULL;
}

static const char *a_trim_keeps_what_it_is_told_and_what_is_in_use(void)
{
    size_t bytes = part_of_free(16);
    CUdeviceptr first, second;
    CUmemoryPool pool;

    OK(a_pool(&pool, 0));
    OK(keep(pool, UINT64_MAX));
    OK(cuMemAllocFromPoolAsync(&first, bytes, pool, stream));
    OK(cuMemAllocFromPoolAsync(&second, bytes, pool, stream));
    OK(cuMemFreeAsync(second, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolTrimTo(pool, 2 * bytes));
    SO(reserved(pool) >= 2 * bytes);
    OK(cuMemPoolTrimTo(pool, 0));
    SO(reserved(pool) >= bytes && reserved(pool) < 2 * bytes);
    OK(cuMemFreeAsync(first, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolTrimTo(pool, 0));
    SO(reserved(pool) == 0);
    OK(cuMemPoolDestroy(pool));
    return NULL;
}

static const char *freed_memory_of_a_pool_is_used_again(void)
{
    size_t bytes = part_of_free(8);
    CUdeviceptr address;
    CUmemoryPool pool;

    OK(a_pool(&pool, 0));
    for (int i = 0; i < 20; i++) {
        OK(cuMemAllocFromPoolAsync(&address, bytes, pool, stream));
        OK(cuMemFreeAsync(address, stream));
    }
    SO(reserved(pool) < 2 * bytes);
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolDestroy(pool));
    return NULL;
}

static const char *high_water_marks_fall_to_what_is_when_they_are_reset(void)
{
    cuuint64_t zero = 0, one = 1;
    uint64_t high = 0;
    CUdeviceptr address;
    CUmemoryPool pool;

    OK(a_pool(&pool, 0));
    OK(cuMemAllocFromPoolAsync(&address, 3 * GRANULE, pool, stream));
    OK(cuMemFreeAsync(address, stream));
    OK(cuStreamSynchronize(stream));
    OK(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high));
    SO(high == 3 * GRANULE);
    OK(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &high));
    SO(high >= 3 * GRANULE);
    IS(CUDA_ERROR_INVALID_VALUE,
       cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &one));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
    OK(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high));
    SO(high == 0);
    FAILS(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &zero));
    OK(cuMemPoolDestroy(pool));
    return NULL;
}

static const char *what_the_card_has_not_a_pool_has_not(void)
{
    size_t before = available();
    CUdeviceptr address;

    IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&address, before + 64 * MIB, stream));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAllocAsync(&address, 0, stream));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAllocAsync(NULL, 1, stream));
    OK(cuStreamSynchronize(stream));
    SO(available() == before);
    return NULL;
}

static const char *a_pool_grows_to_its_own_limit_at_most(void)
{
    CUdeviceptr address;
    CUmemoryPool pool;
    uint64_t most;

    OK(a_pool(&pool, 64 * MIB));
    if (figure(pool, CU_MEMPOOL_ATTR_MAX_POOL_SIZE, &most) == CUDA_SUCCESS)
        SO(most >= 64 * MIB);
    OK(cuMemAllocFromPoolAsync(&address, 32 * MIB, pool, stream));
    IS(CUDA_ERROR_OUT_OF_MEMORY,
       cuMemAllocFromPoolAsync(&(CUdeviceptr){0}, 1024 * MIB, pool, stream));
    OK(cuMemFreeAsync(address, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolDestroy(pool));
    return NULL;
}

/* ---- Other ways to free ---- */

static const char *either_way_of_freeing_frees_what_either_way_allocated(void)
{
    size_t before, bytes = part_of_free(8);
    CUdeviceptr address;

    OK(cuStreamSynchronize(stream));
    before = available();
    OK(cuMemAllocAsync(&address, bytes, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemFree_v2(address));
    OK(cuStreamSynchronize(stream));
    SO(available() == before);
    OK(cuMemAlloc_v2(&address, bytes));
    OK(cuMemFreeAsync(address, stream));
    OK(cuStreamSynchronize(stream));
    SO(available() == before);
    return NULL;
}

static const char *what_is_not_allocated_is_not_freed(void)
{
    CUdeviceptr address;

    OK(cuMemAllocAsync(&address, 4096, stream));
    OK(cuMemFreeAsync(address, stream));
    FAILS(cuMemFreeAsync(address, stream));
    OK(cuStreamSynchronize(stream));
    FAILS(cuMemFree_v2(address));
    return NULL;
}

/* ---- Which pool ---- */

static const char *the_default_pool_is_current_until_another_is_set(void)
{
    CUmemoryPool by_default, current, pool, of;
    CUdeviceptr address;

    OK(cuDeviceGetDefaultMemPool(&by_default, device));
    OK(cuDeviceGetMemPool(&current, device));
    SO(current == by_default);
    FAILS(cuMemPoolDestroy(by_default));
    OK(a_pool(&pool, 0));
    OK(cuDeviceSetMemPool(device, pool));
    OK(cuDeviceGetMemPool(&current, device));
    SO(current == pool);
    OK(cuMemAllocAsync(&address, GRANULE, stream));
    SO(used(pool) == GRANULE && used(by_default) == 0);
    OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
    SO(of == pool);
    OK(cuMemFreeAsync(address, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolDestroy(pool));
    OK(cuDeviceGetMemPool(&current, device));
    SO(current == by_default);
    return NULL;
}

static const char *a_destroyed_pool_ends_with_its_last_allocation(void)
{
    size_t before = available(), bytes = part_of_free(8);
    CUdeviceptr address;
    CUmemoryPool pool;

    OK(a_pool(&pool, 0));
    OK(cuMemAllocFromPoolAsync(&address, bytes, pool, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolDestroy(pool));
    SO(before - available() >= bytes);
    OK(cuMemFreeAsync(address, stream));
    OK(cuStreamSynchronize(stream));
    SO(available() == before);
    return NULL;
}

static const char *a_pool_of_the_host_takes_nothing_from_the_card(void)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};
    CUdeviceptr address;
    CUmemoryPool pool;
    size_t before = available();

    if (cuMemPoolCreate(&pool, &properties) != CUDA_SUCCESS)
        return SKIP("no pools of the host");
    OK(cuMemAllocFromPoolAsync(&address, 256 * MIB, pool, stream));
    OK(cuStreamSynchronize(stream));
    SO(before - available() < 64 * MIB);
    OK(cuMemFreeAsync(address, stream));
    OK(cuStreamSynchronize(stream));
    FAILS(cuDeviceSetMemPool(device, pool));
    OK(cuMemPoolDestroy(pool));
    return NULL;
}

static const char *a_pool_of_no_device_is_not_made(void)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1000}};
    CUmemoryPool pool;

    FAILS(cuMemPoolCreate(&pool, &properties));
    properties.location.id = device;
    properties.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
    FAILS(cuMemPoolCreate(&pool, &properties));
    FAILS(cuMemPoolCreate(NULL, &properties));
    return NULL;
}

static const char *a_pools_own_device_cannot_be_shut_out(void)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE};
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CUmemoryPool pool;

    access.location.id = device;
    OK(a_pool(&pool, 0));
    OK(cuMemPoolGetAccess(&flags, pool, &access.location));
    SO(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    FAILS(cuMemPoolSetAccess(pool, &access, 1));
    OK(cuMemPoolDestroy(pool));
    return NULL;
}

/* ---- In a capture ---- */

static const char *a_captured_allocation_is_a_node_and_takes_nothing(void)
{
    size_t before = available(), bytes = part_of_free(8), count = 2;
    CUgraphNode nodes[2];
    CUgraphNodeType type;
    CUdeviceptr address;
    CUgraph graph;

    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemAllocAsync(&address, bytes, stream));
    OK(cuMemFreeAsync(address, stream));
    OK(cuStreamEndCapture(stream, &graph));
    SO(available() == before);
    OK(cuGraphGetNodes(graph, nodes, &count));
    SO(count == 2);
    for (size_t i = 0; i < count; i++) {
        OK(cuGraphNodeGetType(nodes[i], &type));
        SO(type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE);
    }
    OK(cuGraphDestroy(graph));
    return NULL;
}

static const char *graphs_memory_is_kept_until_it_is_trimmed(void)
{
    size_t before, bytes = part_of_free(8);
    CUdeviceptr address;
    CUgraphExec exec;
    CUgraph graph;
    cuuint64_t value = 0;

    OK(cuDeviceGraphMemTrim(device));
    before = available();
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemAllocAsync(&address, bytes, stream));
    OK(cuMemFreeAsync(address, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &value));
    SO(value >= bytes && before - available() >= bytes);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuDeviceGraphMemTrim(device));
    OK(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &value));
    SO(value == 0 && available() + 64 * MIB >= before);
    value = 0;
    OK(cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &value));
    FAILS(cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &value));
    return NULL;
}

static const char *what_a_graph_leaves_allocated_is_freed_outside(void)
{
    size_t bytes = part_of_free(8);
    CUdeviceptr address;
    CUgraphExec exec;
    CUgraph graph;
    cuuint64_t value = 1;

    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemAllocAsync(&address, bytes, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuMemsetD8Async(address, 1, 4096, stream));
    OK(cuStreamSynchronize(stream));
    FAILS(cuGraphLaunch(exec, stream));
    OK(cuMemFreeAsync(address, stream));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemFree_v2(address));
    FAILS(cuMemFree_v2(address));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuDeviceGraphMemTrim(device));
    OK(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &value));
    SO(value == 0);
    return NULL;
}

/* Before all others: the stream that they use, and whether they can. */
static const char *pools_are_there(void)
{
    if (!attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)) {
        printf("ok - pools # skip: no memory pools\n");
        exit(0);
    }
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return NULL;
}

static const struct check checks[] = {
    FIRST(pools_are_there),
    CHECK(a_pool_takes_what_its_allocations_need),
    CHECK(a_synchronisation_gives_back_what_exceeds_the_threshold),
    CHECK(a_trim_keeps_what_it_is_told_and_what_is_in_use),
    CHECK(freed_memory_of_a_pool_is_used_again),
    CHECK(high_water_marks_fall_to_what_is_when_they_are_reset),
    CHECK(what_the_card_has_not_a_pool_has_not),
    CHECK(a_pool_grows_to_its_own_limit_at_most),
    CHECK(either_way_of_freeing_frees_what_either_way_allocated),
    CHECK(what_is_not_allocated_is_not_freed),
    CHECK(the_default_pool_is_current_until_another_is_set),
    CHECK(a_destroyed_pool_ends_with_its_last_allocation),
    CHECK(a_pool_of_the_host_takes_nothing_from_the_card),
    CHECK(a_pool_of_no_device_is_not_made),
    CHECK(a_pools_own_device_cannot_be_shut_out),
    CHECK(a_captured_allocation_is_a_node_and_takes_nothing),
    CHECK(graphs_memory_is_kept_until_it_is_trimmed),
    CHECK(what_a_graph_leaves_allocated_is_freed_outside),
};

CONFORMANCE(checks)
