/* What graphs share: a stream, their cache, with pools and with other memory. links: lib/memory/graph_memory.c lib/hooks/execution/graphs.c lib/hooks/execution/graph_instantiate.c lib/memory/graph_need.c lib/hooks/execution/graph_nodes.c lib/hooks/allocations/async.c lib/memory/pools.c lib/memory/pool_request.c lib/memory/pool_table.c lib/hooks/allocations/pool_hooks.c lib/memory/reclaim.c lib/memory/late.c lib/memory/physical.c lib/memory/imports.c lib/memory/exports.c lib/hooks/allocations/vmm.c lib/hooks/allocations/multicast.c lib/hooks/allocations/tiles.c lib/hooks/allocations/intervals.c lib/base/slab.c lib/base/reset.c lib/memory/map.c */
#include <sys/wait.h>
#include <unistd.h>

#include "graphs_fixture.h"

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
    use_fake_graphs();
    graphs_in_one_stream_share_and_others_may_not();
    what_a_graph_leaves_counts_beside_the_next();
    pools_give_back_their_cache_for_a_graph();
    what_graphs_cache_is_given_back_before_a_request_is_refused();
    what_is_given_back_is_asked_for_again();
    handles_of_destroyed_graphs_are_forgotten();
    a_forked_child_waits_for_no_lock_of_its_parents();
    return report();
}
