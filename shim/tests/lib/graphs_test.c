/* What a graph that allocates is charged. links: lib/memory/graph_memory.c lib/hooks/execution/graphs.c lib/hooks/execution/graph_instantiate.c lib/memory/graph_need.c lib/hooks/execution/graph_nodes.c lib/hooks/allocations/async.c lib/memory/pools.c lib/memory/pool_request.c lib/memory/pool_table.c lib/hooks/allocations/pool_hooks.c lib/memory/reclaim.c lib/memory/late.c lib/memory/physical.c lib/memory/imports.c lib/memory/exports.c lib/hooks/allocations/vmm.c lib/hooks/allocations/multicast.c lib/hooks/allocations/tiles.c lib/hooks/allocations/intervals.c lib/base/slab.c lib/base/reset.c lib/memory/map.c */
#include "graphs_fixture.h"

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

int main(void)
{
    use_fake_graphs();
    a_graph_is_charged_when_the_driver_reserves_for_it();
    nodes_that_share_addresses_share_memory();
    a_graph_that_does_not_fit_is_not_instantiated();
    growth_found_after_instantiating_is_undone_where_it_does_not_fit();
    a_launch_that_does_not_fit_is_refused();
    an_upload_is_charged_like_a_launch();
    allocations_of_child_graphs_count();
    an_updated_graph_is_measured_anew();
    a_graph_without_allocations_costs_nothing();
    a_captured_launch_allocates_nothing_now();
    return report();
}
