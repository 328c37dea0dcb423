/* How a process comes to its slice. links: lib/slice/slice.c lib/slice/follow.c lib/slice/files.c lib/slice/devices.c lib/slice/env.c lib/slice/process.c lib/base/log.c lib/base/reset.c */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/reset.h"
#include "driver/real.h"
#include "expect.h"
#include "sample.h"
#include "slice/devices.h"
#include "slice/follow.h"
#include "slice/slice.h"
#include "slice/slot_words.h"
#include "slice/slots.h"

#define UUID "GPU-10000000-0000-4000-8000-000000000001"

/* ---- What the rest of the library would do ---- */

static bool room = true;
static _Atomic int slots_taken, resets;
#define PARTS 2 /* that start anew with a process */
static _Atomic uint32_t flags;

bool hami_slot_take(struct hami_process *process)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};

    if (!room)
        return false;
    for (lock.l_start = 0; fcntl(process->usage_fd, F_OFD_SETLK, &lock) != 0; lock.l_start++)
        ;
    process->slot = (uint32_t)lock.l_start;
    process->generation = 1;
    slots_taken++;
    return true;
}

void hami_slot_flag(uint32_t more)
{
    atomic_fetch_or(&flags, more);
}

void hami_map_reset(void)
{
    resets++;
}

void hami_gate_reset(void)
{
    resets++;
}

static bool driver_works = true;

static CUresult device_count(int *count)
{
    *count = 1;
    return driver_works ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

static CUresult device_get(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return CUDA_SUCCESS;
}

static CUresult device_uuid(CUuuid *uuid, CUdevice device)
{
    static const uint8_t id[16] = {0x10, [6] = 0x40, [8] = 0x80, [15] = 1};

    (void)device;
    memcpy(uuid, id, sizeof(id));
    return CUDA_SUCCESS;
}

static CUresult device_place(char *place, int size, CUdevice device)
{
    snprintf(place, (size_t)size, "0000:%02x:00.0", device);
    return CUDA_SUCCESS;
}

static const struct hami_real real = {
    .cuDeviceGetCount = device_count,
    .cuDeviceGet = device_get,
    .cuDeviceGetUuid_v2 = device_uuid,
    .cuDeviceGetPCIBusId = device_place,
};
const struct hami_real *_Atomic hami_real_found = &real;
const struct hami_real_nvml *_Atomic hami_real_nvml_found;

const struct hami_real *hami_real_load(void)
{
    abort();
}

const struct hami_real_nvml *hami_real_load_nvml(void)
{
    abort();
}

bool hami_real_has(const char *name)
{
    (void)name;
    return true;
}

/* A kernel before 4.14, if a test wants one. */
static bool old_kernel;

int madvise(void *at, size_t length, int advice)
{
    if (old_kernel && advice == MADV_WIPEONFORK) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_madvise, at, length, advice);
}

/* ---- The container of a test ---- */

static char folder[] = "/tmp/hami-slice-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[4][PATH_MAX];
    static int next;
    char *at = path[next++ % 4];

    snprintf(at, PATH_MAX, "%s/%s", folder, name);
    return at;
}

static void put(const char *name, const void *bytes, size_t size)
{
    int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    EXPECT(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    close(fd);
}

static void put_page(const char *uuid, const char *second)
{
    struct hami_limits_page page;
    struct hami_limits *limits = &page.copies[0].content;

    sample_page(&page, 1, second ? 2 : 1);
    memset(limits->devices[0].uuid, 0, HAMI_UUID_SIZE);
    strcpy(limits->devices[0].uuid, uuid);
    if (second) {
        memset(limits->devices[1].uuid, 0, HAMI_UUID_SIZE);
        strcpy(limits->devices[1].uuid, second);
    }
    limits->checksum = hami_limits_sum(&page.copies[0]);
    put("slice/limits", &page, sizeof(page));
}

static void put_usage(void)
{
    static struct hami_usage usage;

    usage = (struct hami_usage){
        .magic = HAMI_USAGE_MAGIC,
        .abi = HAMI_USAGE_ABI,
        .size = sizeof(struct hami_usage),
        .device_capacity = HAMI_MAX_DEVICES,
        .slot_capacity = HAMI_MAX_SLOTS,
        .slots_offset = offsetof(struct hami_usage, slots),
        .charged_offset = offsetof(struct hami_usage, charged),
        .buckets_offset = offsetof(struct hami_usage, buckets),
    };
    put("slice/usage", &usage, sizeof(usage));
}

static void mount_nothing(void)
{
    mkdir(in_folder("slice"), 0755);
}

static void mount_slice(void)
{
    mount_nothing();
    put_page(UUID, NULL);
    put_usage();
}

static int descriptors(void)
{
    DIR *listing = opendir("/proc/self/fd");
    int count = 0;

    while (readdir(listing))
        count++;
    closedir(listing);
    return count;
}

/* Whether slot i of the region is held, asked with a descriptor of one's own. */
static bool held(const char *path, int slot)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};
    int fd = open(path, O_RDWR | O_CLOEXEC);

    fcntl(fd, F_OFD_GETLK, &lock);
    close(fd);
    return lock.l_type != F_UNLCK;
}

/* ---- Tests, each in a process of its own ---- */

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

static bool all_zero(void)
{
    const unsigned char *at = (const unsigned char *)hami_process;

    for (size_t i = 0; i < sizeof(hami_process); i++)
        if (at[i])
            return false;
    return true;
}

static int status_of(pid_t child)
{
    int status = -1;

    return waitpid(child, &status, 0) == child ? status : -1;
}

/* What a forked child must be: nobody, whose own attaching leaves the parent's slot alone. */
static int as_a_child(void)
{
    int before;

    if (!all_zero() || hami_mode() != HAMI_MODE_UNKNOWN)
        return 1;
    before = descriptors();
    resets = 0;
    if (hami_attach() != HAMI_MODE_SLICE || hami_process->slot != 1 || resets != PARTS)
        return 2;
    if (descriptors() != before) /* one closed, one opened */
        return 3;
    if (!held(in_folder("slice/usage"), 0) || !held(in_folder("slice/usage"), 1))
        return 4;
    return hami_limits()->revision == 1 ? 0 : 5;
}

static void a_forked_child_is_nobody(void)
{
    pid_t child;

    mount_slice();
    EXPECT(hami_attach() == HAMI_MODE_SLICE && hami_process->slot == 0);
    child = fork();
    if (child == 0)
        _exit(as_a_child());
    EXPECT(status_of(child) == 0);
    EXPECT(hami_mode() == HAMI_MODE_SLICE && hami_process->slot == 0);
    EXPECT(held(in_folder("slice/usage"), 0) && !held(in_folder("slice/usage"), 1));
}

static void so_is_one_of_a_raw_clone(void)
{
    pid_t child;

    mount_slice();
    EXPECT(hami_attach() == HAMI_MODE_SLICE);
    child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0)
        syscall(SYS_exit_group, all_zero() ? 0 : 1);
    EXPECT(status_of(child) == 0);
    EXPECT(hami_mode() == HAMI_MODE_SLICE);
}

static void so_is_one_on_an_old_kernel(void)
{
    old_kernel = true;
    a_forked_child_is_nobody();
}

/* A daemon closes every descriptor that it does not know, and opens its own. */
static void a_descriptor_that_became_another_file_is_not_closed(void)
{
    pid_t child;
    int fd;

    mount_slice();
    EXPECT(hami_attach() == HAMI_MODE_SLICE);
    fd = hami_process->usage_fd;
    child = fork();
    if (child == 0) {
        if (dup2(open(in_folder("slice/limits"), O_RDONLY | O_CLOEXEC), fd) != fd)
            _exit(9);
        if (hami_attach() != HAMI_MODE_SLICE || fcntl(fd, F_GETFD) < 0)
            _exit(1);
        _exit(hami_process->usage_fd != fd ? 0 : 2);
    }
    EXPECT(status_of(child) == 0);
}

/* A fork in the middle of another thread's attaching leaves the child free to attach. */
static void a_lock_held_at_the_fork_holds_nobody(void)
{
    pid_t child;

    mount_slice();
    EXPECT(hami_attach_reader() == HAMI_MODE_SLICE);
    hami_lock(&hami_process->attaching);
    child = fork();
    if (child == 0) {
        alarm(10);
        _exit(hami_attach() == HAMI_MODE_SLICE ? 0 : 1);
    }
    EXPECT(status_of(child) == 0);
    hami_unlock(&hami_process->attaching);
}

/* ---- */

static void cleared(const char *directory)
{
    DIR *listing = opendir(directory);
    struct dirent *entry;
    char path[PATH_MAX];

    while (listing && (entry = readdir(listing))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
        if (unlink(path) != 0) {
            cleared(path);
            rmdir(path);
        }
    }
    if (listing)
        closedir(listing);
}

#define RUN(test)                                                                                  \
    do {                                                                                           \
        pid_t child = fork();                                                                      \
        if (child == 0) {                                                                          \
            alarm(60);                                                                             \
            failures = 0;                                                                          \
            test();                                                                                \
            _exit(failures != 0);                                                                  \
        }                                                                                          \
        if (status_of(child) != 0) {                                                               \
            fprintf(stderr, "failed: %s\n", #test);                                                \
            failures++;                                                                            \
        }                                                                                          \
        cleared(folder);                                                                           \
    } while (0)

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    setenv("HAMI_SLICE_DIR", in_folder("slice"), 1);
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", in_folder("cache"), 1);
    unsetenv("HAMI_SLICE_ID");
    unsetenv("NVIDIA_VISIBLE_DEVICES");
    unsetenv("CUDA_VISIBLE_DEVICES");
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
    RUN(a_forked_child_is_nobody);
    RUN(so_is_one_of_a_raw_clone);
    RUN(so_is_one_on_an_old_kernel);
    RUN(a_descriptor_that_became_another_file_is_not_closed);
    RUN(a_lock_held_at_the_fork_holds_nobody);
    rmdir(folder);
    return failures != 0;
}
