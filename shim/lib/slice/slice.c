/* How a process comes to its slice: the page that the node agent mounted, else the limits in the
 * environment, else nothing. Whatever there is and cannot be read closes the device. */
#include "slice/slice.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/reset.h"
#include "driver/real.h"
#include "slice/devices.h"
#include "slice/env.h"
#include "slice/files.h"
#include "slice/follow.h"
#include "slice/page_read.h"
#include "slice/slot_words.h"
#include "slice/slots.h"

#define MOUNTED "/run/hami"
#define DIRECTORY MOUNTED "/nvidia"
#define CACHE "/tmp/cudevshr.cache" /* where HAMi's own library keeps its file */

/* What this process, or one that it was forked from, has open. Not wiped: a child closes what it
 * inherited. The lock on the slot stays with the parent, since both share it. */
static struct {
    struct hami_region region;
    const struct hami_limits_page *page;
    dev_t device;
    ino_t inode;
    char usage_path[PATH_MAX];
} opened = {.region = {.fd = -1}};

/* All that finding a slice comes to. */
struct slice {
    enum hami_mode mode;
    const struct hami_limits_page *page;
    union hami_limits_copy limits;
    struct hami_region region;
    char usage_path[PATH_MAX];
};

static const char *directory(void)
{
#ifdef HAMI_TEST
    const char *other = getenv("HAMI_SLICE_DIR");

    if (other)
        return other;
#endif
    return DIRECTORY;
}

/* Whether this container was given a slice, readable or not. Anything but a clear no is a yes. */
static bool expected(void)
{
    const char *mounted = MOUNTED;
    struct stat found;

#ifdef HAMI_TEST
    if (getenv("HAMI_SLICE_DIR"))
        mounted = directory();
#endif
    return getenv("HAMI_SLICE_ID") || stat(mounted, &found) == 0 ||
           (errno != ENOENT && errno != ENOTDIR);
}

static bool unlike_each_other(const struct hami_limits *limits)
{
    for (uint32_t i = 0; i < limits->device_count; i++)
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(limits->devices[i].uuid, limits->devices[j].uuid) == 0)
                return false;
    return true;
}

static bool from_page(struct slice *slice)
{
    char limits[PATH_MAX];
    const char *where = directory();

    if (snprintf(limits, sizeof(limits), "%s/limits", where) >= (int)sizeof(limits) ||
        snprintf(slice->usage_path, PATH_MAX, "%s/usage", where) >= PATH_MAX)
        return false;
    slice->page = hami_files_page(limits);
    if (!slice->page)
        return false;
    if (hami_page_read(slice->page, &slice->limits) != HAMI_PAGE_NEWER ||
        !unlike_each_other(&slice->limits.content)) {
        hami_log(HAMI_ERROR, "%s holds no limits that make sense", limits);
        return false;
    }
    return hami_files_usage(slice->usage_path, &slice->region);
}

static const char *environment(const char *name)
{
    return getenv(name);
}

static bool from_environment(const struct hami_env *env, bool driver, struct slice *slice)
{
    const char *cache = secure_getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE");
    char uuids[HAMI_MAX_DEVICES][HAMI_UUID_SIZE];
    struct hami_limits *limits = &slice->limits.content;
    int count = hami_devices_of_container(driver, uuids);

    if (count < 0) {
        hami_log(HAMI_ERROR, "cannot tell which device is limited: neither NVIDIA_VISIBLE_DEVICES "
                             "nor the driver nor NVML says which devices there are");
        return false;
    }
    limits->revision = 1;
    limits->device_count = (uint32_t)count;
    limits->priority = env->priority;
    limits->policy = env->policy;
    for (int i = 0; i < count; i++) {
        memcpy(limits->devices[i].uuid, uuids[i], HAMI_UUID_SIZE);
        limits->devices[i].memory_bytes = env->memory_bytes[i];
        limits->devices[i].cores = env->cores[i];
    }
    limits->checksum = hami_limits_sum(&slice->limits);
    if (snprintf(slice->usage_path, PATH_MAX, "%s.usage", cache && *cache ? cache : CACHE) >=
        PATH_MAX)
        return false;
    return hami_files_usage_made(slice->usage_path, &slice->region);
}

/* `driver`: cuInit has succeeded, and the driver may be asked. */
static void find(bool driver, struct slice *slice)
{
    char culprit[64];
    struct hami_env env;
    bool good;

    memset(slice, 0, sizeof(*slice));
    slice->region.fd = -1;
    if (expected()) {
        good = from_page(slice);
    } else if (!hami_env_read(environment, &env, culprit)) {
        hami_log(HAMI_ERROR, "%s is not a limit that can be read", culprit);
        good = false;
    } else if (!env.any) {
        slice->mode = HAMI_MODE_FREE;
        return;
    } else {
        good = from_environment(&env, driver, slice);
    }
    slice->mode = good ? HAMI_MODE_SLICE : HAMI_MODE_CLOSED;
    if (!good)
        hami_log(HAMI_ERROR, "the slice of this container cannot be read: every request for device "
                             "memory is refused");
}

static void let_go(struct slice *slice)
{
    hami_files_close(&slice->region);
    if (slice->page)
        munmap((void *)slice->page, sizeof(*slice->page));
    slice->page = NULL;
}

static void wipe(void)
{
    memset(hami_process, 0, sizeof(hami_process));
}

/* What pthread_atfork calls. That one is exported by libpthread of old releases for some machines
 * only, and would make every process of an old image load libpthread. */
extern int __register_atfork(void (*before)(void), void (*parent)(void), void (*child)(void),
                             void *library);
extern void *__dso_handle __attribute__((visibility("hidden")));

/* Before anything is written there: a child must find zeroes. Kernels before 4.14 do not know the
 * advice; there a child of a raw clone is not noticed, one of fork() is. */
static void wiped_by_fork(void)
{
    static _Atomic bool handled;

    if (madvise(hami_process, sizeof(hami_process), MADV_WIPEONFORK) == 0)
        return;
    if (!atomic_exchange(&handled, true))
        __register_atfork(NULL, NULL, wipe, __dso_handle);
}

/* What a forked child finds open. The program may have closed the descriptor, and its number be
 * another file's by now. The region is not mapped in a child, and others may be mapped there. */
static void close_inherited(void)
{
    struct stat found;

    if (opened.region.fd >= 0 &&
        (fstat(opened.region.fd, &found) != 0 || found.st_dev != opened.device ||
         found.st_ino != opened.inode))
        opened.region.fd = -1;
    opened.region.usage = NULL;
    hami_files_close(&opened.region);
    if (opened.page)
        munmap((void *)opened.page, sizeof(*opened.page));
    opened.page = NULL;
}

/* Under the lock, once in the life of a process. */
static void take_over(const struct slice *slice)
{
    struct stat found;

    close_inherited();
    opened.region = slice->region;
    opened.page = slice->page;
    if (slice->region.fd >= 0 && fstat(slice->region.fd, &found) == 0) {
        opened.device = found.st_dev;
        opened.inode = found.st_ino;
    }
    memcpy(opened.usage_path, slice->usage_path, PATH_MAX);
    hami_process->usage_fd = slice->region.fd;
    hami_process->usage_path = opened.usage_path;
    hami_process->usage = slice->region.usage;
    if (slice->mode == HAMI_MODE_SLICE) {
        hami_devices_as_rows(&slice->limits.content);
        hami_limits_start(slice->page, &slice->limits);
        hami_log(HAMI_INFO, "a slice of %u devices, from %s", slice->limits.content.device_count,
                 slice->page ? directory() : "the environment");
    }
}

/* Find the slice, unless that was done; what it is, without a slot. Looked for without the lock:
 * it asks the driver, which may have locks of its own. */
static enum hami_mode found(bool driver)
{
    enum hami_mode mode =
        (enum hami_mode)atomic_load_explicit(&hami_process->found, memory_order_acquire);
    struct slice slice;

    if (mode != HAMI_MODE_UNKNOWN)
        return mode;
    find(driver, &slice);
    wiped_by_fork();
    hami_lock(&hami_process->attaching);
    mode = (enum hami_mode)atomic_load_explicit(&hami_process->found, memory_order_relaxed);
    if (mode == HAMI_MODE_UNKNOWN) {
        mode = slice.mode;
        if (mode == HAMI_MODE_CLOSED)
            let_go(&slice);
        take_over(&slice);
        atomic_store_explicit(&hami_process->found, mode, memory_order_release);
    } else {
        let_go(&slice);
    }
    hami_unlock(&hami_process->attaching);
    return mode;
}

enum hami_mode hami_attach_reader(void)
{
    return found(false);
}

/* A forked child has no share in what its parent holds. Once in the life of a process, while its
 * hooks stand aside: later, other threads look at all this. */
static void start_anew(void)
{
    hami_devices_learn_ordinals();
    hami_reset_all();
}

/* Under the lock, in a slice. */
static enum hami_mode with_slot(void)
{
    hami_process->crowded = !hami_slot_take(hami_process);
    if (!hami_process->crowded)
        return HAMI_MODE_SLICE;
    hami_log(HAMI_ERROR, "%d processes of this container hold device memory; no more can",
             HAMI_MAX_SLOTS);
    return HAMI_MODE_CLOSED;
}

enum hami_mode hami_attach(void)
{
    enum hami_mode mode = hami_mode(), as_found;

    /* Another cuInit of a process that found no room may find some. */
    if (mode != HAMI_MODE_UNKNOWN && !hami_process->crowded)
        return mode;
    as_found = found(true);
    hami_lock(&hami_process->attaching);
    mode = hami_mode();
    if (mode == HAMI_MODE_UNKNOWN || hami_process->crowded) {
        if (as_found == HAMI_MODE_SLICE && mode == HAMI_MODE_UNKNOWN)
            start_anew();
        mode = as_found == HAMI_MODE_SLICE ? with_slot() : as_found;
        atomic_store(&hami_process->mode, mode);
        if (mode == HAMI_MODE_SLICE && atomic_load(&hami_process->bypass))
            hami_slot_flag(HAMI_SLOT_BYPASS);
    }
    hami_unlock(&hami_process->attaching);
    return mode;
}

enum hami_mode hami_attach_late(void)
{
    int count;

    return hami_real()->cuDeviceGetCount(&count) == CUDA_SUCCESS ? hami_attach()
                                                                 : HAMI_MODE_UNKNOWN;
}

enum hami_mode hami_mode_expected(void)
{
    enum hami_mode mode =
        (enum hami_mode)atomic_load_explicit(&hami_process->found, memory_order_acquire);
    char culprit[64];
    struct hami_env env;

    if (mode != HAMI_MODE_UNKNOWN)
        return mode;
    if (expected())
        return HAMI_MODE_SLICE;
    if (!hami_env_read(environment, &env, culprit))
        return HAMI_MODE_CLOSED;
    return env.any ? HAMI_MODE_SLICE : HAMI_MODE_FREE;
}

/* Either we see the mode, or whoever attaches sees the word: both are sequentially consistent. */
void hami_bypass_seen(void)
{
    wiped_by_fork();
    atomic_store(&hami_process->bypass, 1);
    if (atomic_load(&hami_process->mode) == HAMI_MODE_SLICE)
        hami_slot_flag(HAMI_SLOT_BYPASS);
}
