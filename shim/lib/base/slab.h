/* Records of one size from memory of our own: malloc may be what called us. The caller holds the
 * lock of whatever the records belong to. */
#ifndef HAMI_SLAB_H
#define HAMI_SLAB_H

#include <stddef.h>

struct hami_slab {
    size_t size; /* of a record; at least a pointer's */
    void *free;  /* records given back, each pointing to the next */
};

#define HAMI_SLAB(type) {.size = sizeof(type)}

void *hami_slab_take(struct hami_slab *slab); /* zeroed; NULL: no memory */
void hami_slab_give(struct hami_slab *slab, void *record);

#endif
