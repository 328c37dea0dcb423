/* How a process comes to its slice. links: lib/slice/slice.c lib/slice/follow.c lib/slice/files.c lib/slice/devices.c lib/slice/env.c lib/slice/process.c lib/base/log.c lib/base/reset.c */
#include <pthread.h>

#include "slice_fixture.h"

static void without_a_slice_nothing_happens(void)
{
    int before = descriptors();

    EXPECT(hami_mode_expected() == HAMI_MODE_FREE);
    EXPECT(hami_attach() == HAMI_MODE_FREE && hami_mode() == HAMI_MODE_FREE);
    EXPECT(slots_taken == 0 && descriptors() == before);
    EXPECT(hami_limits() == NULL && hami_observed() == NULL);
    EXPECT(access(in_folder("cache.usage"), F_OK) != 0);
}

static void a_mounted_slice_is_taken(void)
{
    int before = descriptors();

    mount_slice();
    setenv("CUDA_DEVICE_MEMORY_LIMIT", "rubbish", 1); /* not looked at */
    EXPECT(hami_mode_expected() == HAMI_MODE_SLICE && hami_mode() == HAMI_MODE_UNKNOWN);
    EXPECT(hami_attach() == HAMI_MODE_SLICE && hami_mode() == HAMI_MODE_SLICE);
    EXPECT(slots_taken == 1 && descriptors() == before + 1);
    EXPECT(hami_process->usage_fd > 2);
    EXPECT(fcntl(hami_process->usage_fd, F_GETFD) & FD_CLOEXEC);
    EXPECT(hami_limits()->devices[0].memory_bytes == 1000 && hami_row_count() == 1);
    EXPECT(hami_row_of_ordinal(0) == 0 && hami_ordinal_of_row(0) == 0);
    EXPECT(held(in_folder("slice/usage"), 0));
    EXPECT(hami_attach() == HAMI_MODE_SLICE && slots_taken == 1);
}

/* Each of these is a slice that cannot be read. */
static void closed(void)
{
    int before = descriptors();

    EXPECT(hami_mode_expected() != HAMI_MODE_FREE);
    EXPECT(hami_attach() == HAMI_MODE_CLOSED && hami_mode() == HAMI_MODE_CLOSED);
    EXPECT(hami_attach() == HAMI_MODE_CLOSED && slots_taken == 0);
    EXPECT(descriptors() == before);
}

static void a_mount_without_files_closes(void)
{
    mount_nothing();
    setenv("CUDA_DEVICE_MEMORY_LIMIT", "1g", 1);
    closed();
}

static void an_id_without_a_mount_closes(void)
{
    setenv("HAMI_SLICE_ID", "abc", 1);
    setenv("CUDA_DEVICE_MEMORY_LIMIT", "1g", 1);
    closed();
}

static void a_page_alone_closes(void)
{
    mount_nothing();
    put_page(UUID, NULL);
    closed();
}

static void a_region_alone_closes(void)
{
    mount_nothing();
    put_usage();
    closed();
}

static void a_truncated_region_closes(void)
{
    mount_slice();
    EXPECT(truncate(in_folder("slice/usage"), 4096) == 0);
    closed();
}

static void two_rows_of_one_device_close(void)
{
    mount_slice();
    put_page(UUID, UUID);
    closed();
}

static void a_page_without_limits_closes(void)
{
    struct hami_limits_page page;

    mount_slice();
    sample_page(&page, 1, 1);
    page.copies[0].content.checksum++;
    put("slice/limits", &page, sizeof(page));
    closed();
}

static void a_mount_that_may_not_be_looked_at_closes(void)
{
    setenv("HAMI_SLICE_DIR", in_folder("loop"), 1);
    EXPECT(symlink("loop", in_folder("loop")) == 0);
    closed();
}

static void an_unreadable_limit_closes(void)
{
    setenv("CUDA_DEVICE_MEMORY_LIMIT_0", "1.5g", 1);
    closed();
    EXPECT(access(in_folder("cache.usage"), F_OK) != 0);
}

static void an_unusable_cache_closes(void)
{
    setenv("CUDA_DEVICE_MEMORY_LIMIT", "1g", 1);
    put("cache.usage", "something else", 14);
    closed();
}

static void the_environment_makes_a_slice(void)
{
    setenv("CUDA_DEVICE_MEMORY_LIMIT_0", "3000m", 1);
    setenv("CUDA_DEVICE_SM_LIMIT", "40", 1);
    setenv("CUDA_TASK_PRIORITY", "0", 1);
    EXPECT(hami_mode_expected() == HAMI_MODE_SLICE);
    EXPECT(access(in_folder("cache.usage"), F_OK) != 0); /* not made by asking */
    EXPECT(hami_attach() == HAMI_MODE_SLICE && slots_taken == 1);
    EXPECT(hami_limits()->devices[0].memory_bytes == UINT64_C(3000) << 20);
    EXPECT(hami_limits()->devices[0].cores == 40 && hami_limits()->priority == 0);
    EXPECT(hami_row_of_ordinal(0) == 0 && hami_row_of_uuid(UUID) == 0);
    EXPECT(held(in_folder("cache.usage"), 0) && hami_observed() == NULL);
}

static void a_reader_holds_no_slot(void)
{
    mount_slice();
    EXPECT(hami_attach_reader() == HAMI_MODE_SLICE && hami_mode() == HAMI_MODE_UNKNOWN);
    EXPECT(slots_taken == 0 && hami_process->usage && hami_row_of_uuid(UUID) == 0);
    EXPECT(hami_limits()->revision == 1);
    EXPECT(hami_attach() == HAMI_MODE_SLICE && slots_taken == 1);
    EXPECT(hami_row_of_ordinal(0) == 0 && hami_attach_reader() == HAMI_MODE_SLICE);
}

/* Its threads are in hooks meanwhile: what they look at is there. */
static void a_process_without_room_may_try_again(void)
{
    mount_slice();
    room = false;
    EXPECT(hami_attach() == HAMI_MODE_CLOSED && resets == PARTS);
    EXPECT(hami_attach() == HAMI_MODE_CLOSED && resets == PARTS);
    room = true;
    EXPECT(hami_attach() == HAMI_MODE_SLICE && hami_mode() == HAMI_MODE_SLICE && resets == PARTS);
}

static void a_late_hook_attaches_where_the_driver_works(void)
{
    mount_slice();
    driver_works = false;
    EXPECT(hami_mode_settled() == HAMI_MODE_UNKNOWN && slots_taken == 0);
    driver_works = true;
    EXPECT(hami_mode_settled() == HAMI_MODE_SLICE && slots_taken == 1);
}

static void a_bypass_is_shown_when_there_is_a_slot(void)
{
    mount_slice();
    hami_bypass_seen();
    EXPECT(flags == 0);
    hami_attach();
    EXPECT(flags == HAMI_SLOT_BYPASS);
    flags = 0;
    hami_bypass_seen();
    EXPECT(flags == HAMI_SLOT_BYPASS);
}

static pthread_barrier_t together;

static void *attach(void *unused)
{
    (void)unused;
    pthread_barrier_wait(&together);
    return (void *)(uintptr_t)hami_attach();
}

/* Those that looked for the slice in vain leave nothing open. */
static void many_threads_attach_once(void)
{
    enum { THREADS = 16 };
    pthread_t threads[THREADS];
    int before = descriptors();

    mount_slice();
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&threads[i], NULL, attach, NULL) == 0);
    for (int i = 0; i < THREADS; i++) {
        void *mode;

        pthread_join(threads[i], &mode);
        EXPECT((uintptr_t)mode == HAMI_MODE_SLICE);
    }
    EXPECT(slots_taken == 1 && descriptors() == before + 1);
}

int main(void)
{
    if (!begin())
        return 1;
    RUN(without_a_slice_nothing_happens);
    RUN(a_mounted_slice_is_taken);
    RUN(a_mount_without_files_closes);
    RUN(an_id_without_a_mount_closes);
    RUN(a_page_alone_closes);
    RUN(a_region_alone_closes);
    RUN(a_truncated_region_closes);
    RUN(two_rows_of_one_device_close);
    RUN(a_page_without_limits_closes);
    RUN(a_mount_that_may_not_be_looked_at_closes);
    RUN(an_unreadable_limit_closes);
    RUN(an_unusable_cache_closes);
    RUN(the_environment_makes_a_slice);
    RUN(a_reader_holds_no_slot);
    RUN(a_process_without_room_may_try_again);
    RUN(a_late_hook_attaches_where_the_driver_works);
    RUN(a_bypass_is_shown_when_there_is_a_slot);
    for (int i = 0; i < 10; i++)
        RUN(many_threads_attach_once);
    return end();
}
