/* A descriptor that is open holds the memory as a handle does, and who
 * has no handle and no mapping left can import it again. Nobody tells us when a descriptor is
 * closed, so those of memory that nothing else holds are looked at when the process synchronises or
 * is about to be refused.
 *
 * Copies of a descriptor escape us, here and in other processes, and so do imports by them: memory
 * shared between processes is charged to the one that made it, as long as it holds it. */
#include "memory/exports.h"

#include <string.h>
#include <sys/stat.h>

#include "base/reset.h"
#include "base/slab.h"

#define FABRIC_BYTES 64

struct exported {
    struct exported *next;
    struct hami_physical *physical;
    CUmemAllocationHandleType type;
    int fd;
    dev_t device, special;
    ino_t inode;
    unsigned char fabric[FABRIC_BYTES];
};

static struct exported *exports;
static struct hami_slab slab = HAMI_SLAB(struct exported);

void hami_exports_reset(void)
{
    exports = NULL;
    slab.free = NULL;
}

/* Under a descriptor's number there may be another file by now. All that a driver exports are the
 * same file, of its device: of those only who got the number last is known. */
static bool is_open(const struct exported *record)
{
    struct stat now;

    return record->type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
           fstat(record->fd, &now) == 0 && now.st_dev == record->device &&
           now.st_ino == record->inode && now.st_rdev == record->special;
}

/* What had the same number has been closed: nothing may hold its memory any more. */
static struct hami_physical *end_same(const struct exported *made)
{
    struct exported **place = &exports;
    struct exported *old;
    struct hami_physical *physical;

    while (*place && ((*place)->type != made->type || (*place)->fd != made->fd ||
                      memcmp((*place)->fabric, made->fabric, FABRIC_BYTES) != 0))
        place = &(*place)->next;
    old = *place;
    if (!old)
        return NULL;
    physical = old->physical;
    *place = old->next;
    hami_slab_give(&slab, old);
    physical->exports--;
    return physical;
}

struct hami_physical *hami_export_add(struct hami_physical *physical, const void *shareable,
                                      CUmemAllocationHandleType type)
{
    struct hami_physical *closed;
    struct exported *record;
    struct stat found;

    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && type != CU_MEM_HANDLE_TYPE_FABRIC)
        return NULL;
    record = hami_slab_take(&slab);
    if (!record)
        return NULL; /* then it is held by what else holds it */
    record->physical = physical;
    record->type = type;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
        memcpy(record->fabric, shareable, FABRIC_BYTES);
    } else {
        record->fd = *(const int *)shareable;
        if (fstat(record->fd, &found) != 0) {
            hami_slab_give(&slab, record);
            return NULL;
        }
        record->device = found.st_dev;
        record->inode = found.st_ino;
        record->special = found.st_rdev;
    }
    closed = end_same(record);
    record->next = exports;
    exports = record;
    physical->exports++;
    return closed;
}

/* A descriptor is passed by value where a pointer is expected. */
struct hami_physical *hami_export_source(const void *shareable, CUmemAllocationHandleType type)
{
    for (struct exported *record = exports; record; record = record->next) {
        if (record->type != type)
            continue;
        if (type == CU_MEM_HANDLE_TYPE_FABRIC
                ? memcmp(record->fabric, shareable, FABRIC_BYTES) == 0
                : record->fd == (int)(intptr_t)shareable && is_open(record))
            return record->physical;
    }
    return NULL;
}

static void forget(struct hami_physical *physical, bool open_too)
{
    struct exported **place = &exports;

    while (*place) {
        struct exported *record = *place;

        /* What is exported to a fabric is not held by that. */
        if (record->physical == physical && (open_too || !is_open(record))) {
            *place = record->next;
            hami_slab_give(&slab, record);
            physical->exports--;
        } else {
            place = &record->next;
        }
    }
}

uint32_t hami_exports_open(struct hami_physical *physical)
{
    forget(physical, false);
    return physical->exports;
}

void hami_exports_forget(struct hami_physical *physical)
{
    forget(physical, true);
}

struct hami_physical *hami_exports_next_closed(void)
{
    struct exported *record = exports;

    while (record) {
        struct hami_physical *physical = record->physical;

        if (!physical->orphan || is_open(record)) {
            record = record->next;
        } else if (hami_exports_open(physical) == 0) {
            return physical;
        } else {
            record = exports; /* the one we were at is gone */
        }
    }
    return NULL;
}
