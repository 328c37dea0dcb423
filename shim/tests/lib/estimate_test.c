/* What a launch is thought to take. links: lib/compute/bucket.c lib/compute/estimate.c lib/compute/correction.c lib/compute/compute.c lib/compute/horizon.c lib/compute/settle.c */
#include "compute_fixture.h"

static void estimates_are_of_a_function_a_context_and_a_size(void)
{
    struct hami_estimates *table = fresh();

    for (uint64_t handle = 0; handle < 20; handle++)
        for (uint64_t context = 0; context < 4; context++)
            for (uint32_t size = 0; size < 10; size++) {
                struct hami_what what = {0x7f0000001000 + handle * 16, context, size};
                struct hami_estimate *entry = hami_estimate_make(table, &what);

                EXPECT(!hami_estimate_known(table, entry));
                hami_estimate_measured(table, entry,
                                       (int64_t)(handle * 1000 + context * 100 + size + 1) * US);
            }
    for (uint64_t handle = 0; handle < 20; handle++)
        for (uint64_t context = 0; context < 4; context++)
            for (uint32_t size = 0; size < 10; size++) {
                struct hami_what what = {0x7f0000001000 + handle * 16, context, size};
                struct hami_estimate *entry = hami_estimate_find(table, hami_what_key(&what));

                EXPECT(entry && entry->mean ==
                                    (int64_t)(handle * 1000 + context * 100 + size + 1) * US);
            }
}

static void sizes_are_orders_of_magnitude(void)
{
    EXPECT(hami_grid_size(1, 1, 1) == 0 && hami_grid_size(2, 1, 1) == 1);
    EXPECT(hami_grid_size(1024, 1024, 64) == 26 && hami_grid_size(0, 5, 5) == 0);
    EXPECT(hami_grid_size(65536, 65536, 1) == 32);
    EXPECT(hami_grid_size(UINT32_MAX, UINT32_MAX, UINT32_MAX) < HAMI_ESTIMATE_GRAPH);
}

static void an_interruption_is_not_believed_a_change_is(void)
{
    struct hami_estimates *table = fresh();
    struct hami_what what = {1, 1, 1};
    struct hami_estimate *entry = hami_estimate_make(table, &what);

    for (int i = 0; i < 30; i++)
        hami_estimate_measured(table, entry, 10 * US);
    hami_estimate_measured(table, entry, 2 * MS);
    EXPECT(entry->mean < 12 * US);
    for (int i = 0; i < 200; i++)
        hami_estimate_measured(table, entry, 2 * MS);
    EXPECT(entry->mean > 1900 * US);
    for (int i = 0; i < 200; i++)
        hami_estimate_measured(table, entry, 0);
    EXPECT(entry->mean > 0 && entry->mean < 30 * US);
}

static void what_is_forgotten_is_a_guess(void)
{
    struct hami_estimates *table = fresh();
    struct hami_what what = {1, 1, 7};
    struct hami_what graph = {2, 0, HAMI_ESTIMATE_GRAPH};
    struct hami_estimate *entry = hami_estimate_make(table, &what);
    struct hami_estimate *exec = hami_estimate_make(table, &graph);

    EXPECT(hami_estimate_guess(table, entry) == HAMI_BUCKET_FULL * 2 / 3);
    for (int i = 0; i < 10; i++) {
        hami_estimate_measured(table, entry, 3 * MS);
        hami_estimate_measured(table, exec, 5 * MS);
    }
    hami_estimate_suspect_all(table);
    EXPECT(!hami_estimate_known(table, entry) && hami_estimate_guess(table, entry) == 3 * MS);
    hami_estimate_measured(table, entry, 50 * US); /* something else by now: taken at its word */
    EXPECT(hami_estimate_known(table, entry) && entry->mean == 50 * US);
    hami_estimate_forget(table, &graph);
    EXPECT(!hami_estimate_known(table, exec) && exec->mean == 0);
    /* What was never seen is taken to be like the rest at first, then to be longer and longer, for
     * as long as a measurement is under way; and like the rest when there can be none. */
    exec->pending = 1;
    for (exec->launches = 0; exec->launches < 20; exec->launches++)
        EXPECT(hami_estimate_guess(table, exec) >= table->mean);
    EXPECT(hami_estimate_guess(table, exec) == HAMI_BUCKET_FULL * 2 / 3);
    exec->pending = 0;
    EXPECT(hami_estimate_guess(table, exec) == table->mean);
}

static void a_new_size_is_guessed_from_its_neighbours(void)
{
    struct hami_estimates *table = fresh();
    struct hami_what what = {1, 1, 10};

    hami_estimate_measured(table, hami_estimate_make(table, &what), MS);
    what.size = 12;
    EXPECT(hami_estimate_guess(table, hami_estimate_make(table, &what)) == 4 * MS);
    what.size = 8;
    EXPECT(hami_estimate_guess(table, hami_estimate_make(table, &what)) == MS);
}

static void a_full_table_gives_way(void)
{
    struct hami_estimates *table = fresh();

    for (uint64_t handle = 1; handle <= 3 * HAMI_ESTIMATES; handle++) {
        struct hami_what what = {handle * 4096, 1, 3};
        struct hami_estimate *entry = hami_estimate_make(table, &what);

        EXPECT(entry == hami_estimate_find(table, hami_what_key(&what)));
        hami_estimate_measured(table, entry, (int64_t)handle);
    }
}

int main(void)
{
    estimates_are_of_a_function_a_context_and_a_size();
    sizes_are_orders_of_magnitude();
    an_interruption_is_not_believed_a_change_is();
    what_is_forgotten_is_a_guess();
    a_new_size_is_guessed_from_its_neighbours();
    a_full_table_gives_way();
    free(compute);
    return failures != 0;
}
