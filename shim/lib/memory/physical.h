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
    /* With the lock, when it ends, if not NULL: of who has more on record of it. */
    void (*gone)(struct hami_physical *physical);
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
void hami_physical_ended(struct hami_physical *physical);   /* a descriptor (exports.h) */

/* Without the lock: refund what only closed descriptors held. What was refunded. */
uint64_t hami_physical_settle(void);

#endif
