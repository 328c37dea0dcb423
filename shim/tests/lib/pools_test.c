/* Stream-ordered memory. links: lib/hooks/allocations/async.c lib/memory/pools.c lib/memory/pool_request.c lib/memory/pool_table.c lib/hooks/allocations/pool_hooks.c lib/memory/reclaim.c lib/hooks/execution/waits.c lib/memory/late.c lib/memory/graph_memory.c lib/hooks/execution/graphs.c lib/hooks/execution/graph_instantiate.c lib/memory/graph_need.c lib/memory/physical.c lib/memory/imports.c lib/memory/exports.c lib/hooks/allocations/vmm.c lib/hooks/allocations/multicast.c lib/hooks/allocations/tiles.c lib/hooks/allocations/intervals.c lib/base/slab.c lib/base/reset.c lib/memory/map.c */
#include "pools_fixture.h"

static void a_pool_is_charged_what_it_reserved(void)
{
    CUdeviceptr address;

    fake_start(1000 * MIB);
    address = allocate(1000);
    EXPECT(address && fake_charged[0] == 32 * MIB && charged_is_given());
    release(address);
    EXPECT(fake_charged[0] == 32 * MIB);
    wait_for_the_device();
    EXPECT(fake_charged[0] == 0 && charged_is_given());
}

static void what_a_threshold_keeps_stays_charged_until_it_is_trimmed(void)
{
    cuuint64_t threshold = 64 * MIB;

    fake_start(1000 * MIB);
    EXPECT(cuMemPoolSetAttribute(fake_handle(0), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold) ==
           CUDA_SUCCESS);
    release(allocate(60 * MIB));
    wait_for_the_device();
    EXPECT(fake_charged[0] == 64 * MIB && charged_is_given());
    EXPECT(cuMemPoolTrimTo(fake_handle(0), 0) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 0 && charged_is_given());
}

static void over_the_limit_is_out_of_memory(void)
{
    CUdeviceptr address;

    fake_start(100 * MIB);
    address = allocate(90 * MIB);
    EXPECT(address && fake_charged[0] == 96 * MIB);
    EXPECT(refuses(10 * MIB));
    EXPECT(refuses(UINT64_MAX));
    EXPECT(refuses(UINT64_MAX / 2));
    EXPECT(allocate(6 * MIB)); /* fits into what is reserved */
    EXPECT(fake.peak[0] <= fake_limit && charged_is_given());
}

static void a_limit_is_reached_to_the_last_step(void)
{
    int count = 0;

    fake_start(100 * MIB);
    fake.step = 2 * MIB; /* learned from the first growth */
    while (allocate(2 * MIB))
        count++;
    EXPECT(count == 50 && fake.given[0] == 100 * MIB && fake.peak[0] == 100 * MIB);
}

static void cached_memory_is_given_back_before_a_request_is_refused(void)
{
    fake_start(128 * MIB);
    fake_pools[0].threshold = UINT64_MAX;
    release(allocate(60 * MIB));
    wait_for_the_device();
    EXPECT(fake.given[0] == 64 * MIB && fake.trims == 0);
    EXPECT(allocate(100 * MIB));
    EXPECT(fake.trims != 0 && fake.peak[0] <= fake_limit && charged_is_given());
}

static void another_pools_cache_is_given_back_too(void)
{
    CUmemoryPool pool;

    fake_start(128 * MIB);
    pool = make_pool(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    fake_pools[fake_pool_of(pool)].threshold = UINT64_MAX;
    release(allocate_from(pool, 90 * MIB));
    wait_for_the_device();
    EXPECT(fake_charged[0] == 96 * MIB);
    EXPECT(hami_memory_charge(0, 100 * MIB)); /* what cuMemAlloc does */
    EXPECT(fake_charged[0] == 100 * MIB && fake.given[0] == 0);
    hami_refund(0, 100 * MIB);
}

static void growth_that_is_found_afterwards_and_does_not_fit_is_undone(void)
{
    CUdeviceptr kept;

    fake_start(64 * MIB);
    kept = allocate(10 * MIB);
    fake.fragmented = 64 * MIB;
    fake.stuck = true;
    EXPECT(refuses(MIB));
    EXPECT(fake.given[0] == 32 * MIB && charged_is_given());
    release(kept);
    wait_for_the_device();
    EXPECT(charged_is_given() && fake.given[0] == 0);
}

static void growth_that_trimming_takes_back_is_no_reason_to_refuse(void)
{
    fake_start(64 * MIB);
    EXPECT(allocate(10 * MIB));
    fake.fragmented = 64 * MIB;
    EXPECT(allocate(MIB));
    EXPECT(fake.given[0] == 32 * MIB && charged_is_given());
}

static void growth_that_is_found_afterwards_and_fits_is_charged(void)
{
    fake_start(200 * MIB);
    EXPECT(allocate(10 * MIB));
    fake.fragmented = 64 * MIB;
    EXPECT(allocate(MIB));
    EXPECT(fake_charged[0] == 96 * MIB && charged_is_given());
}

static void a_captured_allocation_charges_nothing(void)
{
    CUdeviceptr address;

    fake_start(64 * MIB);
    fake_capturing = true;
    EXPECT(cuMemAllocAsync(&address, 900 * MIB, NULL) == CUDA_SUCCESS);
    EXPECT(fake_charged[0] == 0);
    EXPECT(cuMemFreeAsync(address, NULL) == CUDA_SUCCESS);
}

static void allocate_a_little(void)
{
    EXPECT(allocate(MIB));
}

static void an_allocation_while_a_pool_is_found_to_have_shrunk_is_charged(void)
{
    fake_start(640 * MIB);
    release(allocate(60 * MIB));
    fake.meanwhile = allocate_a_little; /* it fits into what is charged until the answer is used */
    wait_for_the_device();
    EXPECT(fake.given[0] == 32 * MIB && charged_is_given());
}

static void within_the_reserve_an_allocation_costs_one_question_and_a_free_none(void)
{
    unsigned int asked;

    fake_start(640 * MIB);
    EXPECT(allocate(MIB));
    asked = fake.asked;
    for (int i = 0; i < 100; i++)
        release(allocate(MIB));
    EXPECT(fake.asked == asked + 100 && fake_charged[0] == 32 * MIB);
}

/* ---- Many threads ---- */

#define THREADS 6

static unsigned int random_below(unsigned int *state, unsigned int bound)
{
    *state = *state * 1664525 + 1013904223;
    return (*state >> 8) % bound;
}

static void *work(void *argument)
{
    unsigned int state = (unsigned int)(uintptr_t)argument;
    CUdeviceptr held[8] = {0};

    for (int i = 0; i < 4000; i++) {
        unsigned int which = random_below(&state, 8);

        if (random_below(&state, 40) == 0)
            wait_for_the_device();
        if (held[which])
            release(held[which]);
        held[which] = held[which] ? 0 : allocate((1 + random_below(&state, 300)) * (MIB / 16));
    }
    for (int i = 0; i < 8; i++)
        if (held[i])
            release(held[i]);
    return NULL;
}

static void threads_never_have_more_than_the_limit_together(void)
{
    pthread_t threads[THREADS];

    fake_start(96 * MIB);
    for (uintptr_t i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    EXPECT(fake.peak[0] <= fake_limit && fake.peak[0] >= fake_limit / 2);
    wait_for_the_device();
    EXPECT(fake_charged[0] == 0 && fake.given[0] == 0);
}

int main(void)
{
    a_pool_is_charged_what_it_reserved();
    what_a_threshold_keeps_stays_charged_until_it_is_trimmed();
    over_the_limit_is_out_of_memory();
    a_limit_is_reached_to_the_last_step();
    cached_memory_is_given_back_before_a_request_is_refused();
    another_pools_cache_is_given_back_too();
    growth_that_is_found_afterwards_and_does_not_fit_is_undone();
    growth_that_trimming_takes_back_is_no_reason_to_refuse();
    growth_that_is_found_afterwards_and_fits_is_charged();
    a_captured_allocation_charges_nothing();
    an_allocation_while_a_pool_is_found_to_have_shrunk_is_charged();
    within_the_reserve_an_allocation_costs_one_question_and_a_free_none();
    threads_never_have_more_than_the_limit_together();
    return report();
}
