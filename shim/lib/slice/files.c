#include "slice/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "slice/page_read.h"

/* Nothing in the way may make us wait, be followed elsewhere or survive an exec. */
#define CAREFULLY (O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY)
#define TEMPORARY_NAMES 64

/* A program that starts with its standard streams closed must not find us there. */
static int above_standard_streams(int fd)
{
    int higher;

    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(fd);
    return higher;
}

/* A regular file of at least so many bytes, mapped; NULL: logged why. */
static void *mapped(const char *path, int fd, size_t size, int protection)
{
    struct stat found;
    void *at;

    if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode) || found.st_size < (off_t)size) {
        hami_log(HAMI_ERROR, "%s is not a file of %zu bytes or more", path, size);
        return NULL;
    }
    at = mmap(NULL, size, protection, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        hami_log(HAMI_ERROR, "%s cannot be mapped: %s", path, strerror(errno));
        return NULL;
    }
    return at;
}

const struct hami_limits_page *hami_files_page(const char *path)
{
    int fd = open(path, O_RDONLY | CAREFULLY);
    struct hami_limits_page *page;

    if (fd < 0) {
        hami_log(HAMI_ERROR, "%s cannot be opened: %s", path, strerror(errno));
        return NULL;
    }
    page = mapped(path, fd, sizeof(*page), PROT_READ);
    close(fd);
    if (!page || hami_page_check(page, sizeof(*page)))
        return page;
    hami_log(HAMI_ERROR, "%s is not a limits page that this library can read", path);
    munmap(page, sizeof(*page));
    return NULL;
}

static bool usage_check(const struct hami_usage *usage)
{
    return usage->magic == HAMI_USAGE_MAGIC && usage->abi == HAMI_USAGE_ABI &&
           usage->size == sizeof(*usage) && usage->device_capacity == HAMI_MAX_DEVICES &&
           usage->slot_capacity == HAMI_MAX_SLOTS &&
           usage->slots_offset == offsetof(struct hami_usage, slots) &&
           usage->charged_offset == offsetof(struct hami_usage, charged) &&
           usage->buckets_offset == offsetof(struct hami_usage, buckets);
}

static bool usage_of(const char *path, int fd, struct hami_region *region)
{
    region->fd = fd;
    if (region->fd < 0) {
        hami_log(HAMI_ERROR, "%s cannot be opened: %s", path, strerror(errno));
        return false;
    }
    region->usage = mapped(path, region->fd, sizeof(*region->usage), PROT_READ | PROT_WRITE);
    /* A mapping keeps the file's locks as a descriptor does: a child that closes every descriptor
     * gives back the device memory of its dead parent, and so must let go of the parent's slot. */
    if (region->usage)
        madvise(region->usage, sizeof(*region->usage), MADV_DONTFORK);
    if (region->usage && usage_check(region->usage))
        return true;
    if (region->usage)
        hami_log(HAMI_ERROR, "%s is not a usage region that this library can use", path);
    hami_files_close(region);
    return false;
}

int hami_files_open(const char *path)
{
    return above_standard_streams(open(path, O_RDWR | CAREFULLY));
}

bool hami_files_usage(const char *path, struct hami_region *region)
{
    *region = (struct hami_region){.fd = -1};
    return usage_of(path, hami_files_open(path), region);
}

void hami_files_close(struct hami_region *region)
{
    if (region->usage)
        munmap(region->usage, sizeof(*region->usage));
    if (region->fd >= 0)
        close(region->fd);
    *region = (struct hami_region){.fd = -1};
}

/* All of the file's blocks at once, because a full disk would be a SIGBUS later; and none where the
 * program may not have so large a file, because that is a signal too. */
static bool allocated(int fd, size_t size)
{
    struct rlimit most;

    errno = EFBIG;
    if (getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur < size)
        return false;
    errno = posix_fallocate(fd, 0, (off_t)size);
    return errno == 0;
}

/* A whole, empty region in an open file. Its mode is set afterwards: the umask belongs to the
 * program. */
static bool filled(int fd)
{
    const struct {
        uint64_t magic;
        uint32_t words[7];
    } head = {
        HAMI_USAGE_MAGIC,
        {HAMI_USAGE_ABI, sizeof(struct hami_usage), HAMI_MAX_DEVICES, HAMI_MAX_SLOTS,
         offsetof(struct hami_usage, slots), offsetof(struct hami_usage, charged),
         offsetof(struct hami_usage, buckets)},
    };
    const size_t length = offsetof(struct hami_usage, reserved);

    _Static_assert(offsetof(struct hami_usage, reserved) == 8 + sizeof(head.words), "the header");
    return allocated(fd, sizeof(struct hami_usage)) &&
           pwrite(fd, &head, length, 0) == (ssize_t)length && fchmod(fd, 0666) == 0;
}

/* Give a finished file its name, unless another has that name already; false: neither. */
static bool named(const char *temporary, const char *path)
{
    if (link(temporary, path) == 0 || errno == EEXIST)
        return true;
    /* Where the file system has no links. */
    return syscall(SYS_renameat2, AT_FDCWD, temporary, AT_FDCWD, path, RENAME_NOREPLACE) == 0 ||
           errno == EEXIST;
}

static bool make(const char *path)
{
    char temporary[PATH_MAX];
    int fd = -1, kept;
    bool made;

    /* Whoever was killed in the middle has left a file behind, and its pid may be ours today. */
    for (int i = 0; i < TEMPORARY_NAMES && fd < 0; i++) {
        int length = snprintf(temporary, sizeof(temporary), "%s.%d.%d", path, (int)getpid(), i);

        if (length < 0 || (size_t)length >= sizeof(temporary))
            return false;
        fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | CAREFULLY, 0600);
        if (fd < 0 && errno != EEXIST)
            return false;
    }
    if (fd < 0)
        return false;
    made = filled(fd) && named(temporary, path);
    kept = errno;
    close(fd);
    unlink(temporary);
    errno = kept;
    return made;
}

bool hami_files_usage_made(const char *path, struct hami_region *region)
{
    int fd = hami_files_open(path);

    *region = (struct hami_region){.fd = -1};
    if (fd < 0 && errno == ENOENT) {
        if (!make(path)) {
            hami_log(HAMI_ERROR, "%s cannot be made: %s", path, strerror(errno));
            return false;
        }
        fd = hami_files_open(path);
    }
    return usage_of(path, fd, region);
}
