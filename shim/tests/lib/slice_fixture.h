/* What comes to a process's slice: the rest of the library, a driver, a container's files. */
#ifndef HAMI_TESTS_SLICE_FIXTURE_H
#define HAMI_TESTS_SLICE_FIXTURE_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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

static inline const char *in_folder(const char *name)
{
    static char path[4][PATH_MAX];
    static int next;
    char *at = path[next++ % 4];

    snprintf(at, PATH_MAX, "%s/%s", folder, name);
    return at;
}

static inline void put(const char *name, const void *bytes, size_t size)
{
    int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    EXPECT(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    close(fd);
}

static inline void put_page(const char *uuid, const char *second)
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

static inline void put_usage(void)
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

static inline void mount_nothing(void)
{
    mkdir(in_folder("slice"), 0755);
}

static inline void mount_slice(void)
{
    mount_nothing();
    put_page(UUID, NULL);
    put_usage();
}

static inline int descriptors(void)
{
    DIR *listing = opendir("/proc/self/fd");
    int count = 0;

    while (readdir(listing))
        count++;
    closedir(listing);
    return count;
}

/* Whether slot i of the region is held, asked with a descriptor of one's own. */
static inline bool held(const char *path, int slot)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};
    int fd = open(path, O_RDWR | O_CLOEXEC);

    fcntl(fd, F_OFD_GETLK, &lock);
    close(fd);
    return lock.l_type != F_UNLCK;
}

/* ---- Tests, each in a process of its own ---- */

static inline int status_of(pid_t child)
{
    int status = -1;

    return waitpid(child, &status, 0) == child ? status : -1;
}

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

/* Whether there is a folder for the container. */
static inline bool begin(void)
{
    if (!mkdtemp(folder))
        return false;
    setenv("HAMI_SLICE_DIR", in_folder("slice"), 1);
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", in_folder("cache"), 1);
    unsetenv("HAMI_SLICE_ID");
    unsetenv("NVIDIA_VISIBLE_DEVICES");
    unsetenv("CUDA_VISIBLE_DEVICES");
    return true;
}

static inline int end(void)
{
    rmdir(folder);
    return failures != 0;
}

#endif
