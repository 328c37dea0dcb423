/* The memory that NVML shows of a slice. links: lib/nvml/memory.c lib/nvml/processes.c lib/nvml/utilisation.c lib/slice/alive.c */
#include "nvml_fixture.h"

static bool shows(nvmlDevice_t device, uint64_t total, uint64_t free, uint64_t used)
{
    nvmlMemory_t found = {0};
    nvmlMemory_v2_t second = {.version = nvmlMemory_v2};
    bool same;

    if (nvmlDeviceGetMemoryInfo(device, &found) || nvmlDeviceGetMemoryInfo_v2(device, &second))
        return false;
    same = found.total == second.total && found.free == second.free &&
           found.used == second.used + second.reserved;
    if (found.total != total * MIB || found.free != free * MIB || found.used != used * MIB)
        fprintf(stderr, "total %llu free %llu used %llu\n", found.total / MIB, found.free / MIB,
                found.used / MIB);
    return same && found.total == total * MIB && found.free == free * MIB &&
           found.used == used * MIB;
}

static void the_slice_is_shown_as_the_device(void)
{
    start(100 * MIB);
    EXPECT(shows(CARD, 100, 100, 0));
    charge(0, 30 * MIB);
    charge(255, 20 * MIB);
    EXPECT(shows(CARD, 100, 50, 50));
    EXPECT(shows(PART, 100, 100, 0));
    charge(7, 80 * MIB); /* after a resize below what is used */
    EXPECT(shows(CARD, 100, 0, 130));
}

static void no_more_is_free_than_the_device_has(void)
{
    start(900 * MIB);
    charge(0, 100 * MIB);
    EXPECT(shows(CARD, 900, 700, 100));
    start(2000 * MIB); /* more than there is */
    EXPECT(shows(CARD, 1000, 700, 0));
}

static void what_the_driver_reserves_is_not_the_slices(void)
{
    nvmlMemory_v2_t found = {.version = nvmlMemory_v2};

    start(100 * MIB);
    EXPECT(nvmlDeviceGetMemoryInfo_v2(CARD, &found) == NVML_SUCCESS);
    EXPECT(found.reserved == 0 && found.version == nvmlMemory_v2);
    mode_found = HAMI_MODE_FREE;
    EXPECT(nvmlDeviceGetMemoryInfo_v2(CARD, &found) == NVML_SUCCESS);
    EXPECT(found.reserved == 3 * MIB);
}

static void without_a_limit_the_device_is_shown(void)
{
    start(0);
    EXPECT(shows(CARD, 1000, 700, 300));
    start(100 * MIB);
    mode_found = HAMI_MODE_FREE;
    EXPECT(shows(CARD, 1000, 700, 300));
}

static void where_nothing_may_be_taken_nothing_is_free(void)
{
    start(100 * MIB);
    EXPECT(shows(OTHER_CARD, 1000, 0, 1000));
    mode_found = HAMI_MODE_CLOSED;
    EXPECT(shows(CARD, 1000, 0, 1000));
}

static void a_card_that_is_cut_is_shown_as_it_is(void)
{
    start(100 * MIB);
    EXPECT(shows(CUT_CARD, 1000, 700, 300));
}

static void words_that_are_no_figures_make_the_slice_full(void)
{
    start(100 * MIB);
    charge(9, UINT64_MAX);
    EXPECT(shows(CARD, 100, 0, 100));
    charge(9, UINT64_C(1) << 55);
    charge(10, UINT64_C(1) << 63);
    EXPECT(shows(CARD, 100, 0, 100));
}

static void errors_are_the_drivers(void)
{
    nvmlMemory_t found = {.total = 7};
    nvmlMemory_v2_t second = {.version = 5};

    start(100 * MIB);
    EXPECT(nvmlDeviceGetMemoryInfo(CARD, NULL) == NVML_ERROR_INVALID_ARGUMENT);
    EXPECT(nvmlDeviceGetMemoryInfo_v2(CARD, NULL) == NVML_ERROR_INVALID_ARGUMENT);
    EXPECT(nvmlDeviceGetMemoryInfo(NOBODY, &found) == NVML_ERROR_INVALID_ARGUMENT);
    EXPECT(nvmlDeviceGetMemoryInfo_v2(CARD, &second) == NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    driver_says = NVML_ERROR_UNINITIALIZED;
    EXPECT(nvmlDeviceGetMemoryInfo(CARD, &found) == NVML_ERROR_UNINITIALIZED);
    EXPECT(found.total == 7 && second.total == 0);
}

int main(void)
{
    the_slice_is_shown_as_the_device();
    no_more_is_free_than_the_device_has();
    what_the_driver_reserves_is_not_the_slices();
    without_a_limit_the_device_is_shown();
    where_nothing_may_be_taken_nothing_is_free();
    a_card_that_is_cut_is_shown_as_it_is();
    words_that_are_no_figures_make_the_slice_full();
    errors_are_the_drivers();
    return report();
}
