/* Physical allocations of cuMemCreate. The driver frees one when nothing refers to it any more: no
 * handle (each creation, retention and import is one, and each release ends one), no mapping, no
 * binding to a multicast object or a logical endpoint, no array's tile, no descriptor that it was
 * exported as. Until then it is charged.
 *
 * Handles of other kinds are here too, charged with nothing, where something depends on how long
 * they live: multicast objects, and imports. */
#ifndef HAMI_PHYSICAL_H
#define HAMI_PHYSICAL_H

#include <stdbool.h>
#include <stdint.h>

#include "hami_cuda.h"

struct hami_physical {
    uint64_t handle;
    uint64_t bytes;
    struct hami_physical *backing; /* whose memory it is, where it is an import of our own export */
    uint32_t handles;              /* references to the handle */
    uint32_t uses;                 /* everything else, calls under way among it */
    uint32_t exports;              /* descriptors */
    int16_t row;
    bool orphan; /* nothing but descriptors hold it */
    bool import; /* perhaps of another process (imports.h) */
};

/* All below with the lock. */
void hami_physical_lock(void);
void hami_physical_unlock(void);

/* With one handle, charged by the caller. NULL: no memory for it. */
struct hami_physical *hami_physical_add(uint64_t handle, int row, uint64_t bytes);
struct hami_physical *hami_physical_of(uint64_t handle); /* NULL: none of ours */
void hami_physical_use(struct hami_physical *physical);
/* These may be the end of it, which refunds. */
void hami_physical_unuse(struct hami_physical *physical);
void hami_physical_release(struct hami_physical *physical); /* a handle */

/* Exports (exports.c). */
void hami_export_add(struct hami_physical *physical, const void *shareable,
                     CUmemAllocationHandleType type);
/* Whose export this is, if it is one of this process. */
struct hami_physical *hami_export_source(const void *shareable, CUmemAllocationHandleType type);
/* Forget descriptors that were closed; how many are left. */
uint32_t hami_exports_open(struct hami_physical *physical);
void hami_exports_forget(struct hami_physical *physical);
/* The next allocation that nothing but descriptors hold and whose last was closed. */
struct hami_physical *hami_exports_next_closed(void);
void hami_exports_reset(void);

/* Bindings to multicast objects (multicast.c): end those of one that goes. */
void hami_multicast_gone(struct hami_physical *multicast);
void hami_multicast_reset(void);
void hami_tiles_reset(void); /* tiles.c */
void hami_vmm_reset(void);   /* vmm.c */

/* A mapping's memory, for binding by address (vmm.c): the first that overlaps [*start, end), and
 * *start behind it. NULL: no more. */
struct hami_physical *hami_mapped_in(uint64_t *start, uint64_t end);

/* Without the lock: refund what only closed descriptors held. What was refunded. */
uint64_t hami_physical_settle(void);
void hami_physical_reset(void);

#endif
