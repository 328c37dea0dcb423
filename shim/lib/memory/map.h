/* What this process was charged for, by handle or address: O(1), sharded, no allocation by malloc
 * (an allocator that is being replaced may be what called us). */
#ifndef HAMI_MAP_H
#define HAMI_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "hami_cuda.h"

enum hami_kind {
    HAMI_KIND_NONE,
    HAMI_KIND_LINEAR, /* cuMemAlloc, managed, pitched: freed with its context */
    HAMI_KIND_ASYNC,  /* stream-ordered: `extra` is the pool */
    HAMI_KIND_ARRAY,
    HAMI_KIND_MIPMAP,
    HAMI_KIND_VMM,
    HAMI_KIND_MODULE,
    HAMI_KIND_LIBRARY,
    HAMI_KIND_EXEC, /* an instantiated graph */
    HAMI_KIND_GRAPH,
    HAMI_KIND_POOL,
    HAMI_KIND_EXTERNAL,
    HAMI_KIND_CONTEXT,
    HAMI_KIND_FUNCTION, /* launch.c: measured durations */
};

struct hami_entry {
    uint64_t key; /* address or handle */
    uint64_t bytes;
    uint64_t extra; /* what the kind's file needs */
    CUcontext context; /* whose end ends it; NULL: none */
    int16_t row;
    uint8_t kind;
};

/* Add or replace. False: no memory for the table. */
bool hami_map_put(const struct hami_entry *entry);
/* The same, with what was replaced: its kind is HAMI_KIND_NONE when nothing was. For addresses and
 * handles that the driver gives out: if one is here already, its end was not seen, and what it was
 * charged is the caller's to refund. */
bool hami_map_exchange(const struct hami_entry *entry, struct hami_entry *old);
/* Remove into *entry; false: not there. */
bool hami_map_take(enum hami_kind kind, uint64_t key, struct hami_entry *entry);
/* What was allocated at an address, in stream order or not, off the record: each way of freeing ends
 * both. `likely`: as which it is looked for first. */
bool hami_map_take_memory(enum hami_kind likely, uint64_t address, struct hami_entry *entry);
bool hami_map_get(enum hami_kind kind, uint64_t key, struct hami_entry *entry);
/* Give back what an entry was charged, as its kind charges. */
void hami_entry_refund(const struct hami_entry *entry);
/* Remove everything that belongs to `context`, refunding each. */
void hami_map_drop_context(CUcontext context);
/* For each entry that belongs to `context`: `drop` may change what is neither key nor kind, and
 * says whether the entry goes. A lock is held meanwhile: it may neither use the map nor take long. */
void hami_map_visit(CUcontext context, bool (*drop)(struct hami_entry *entry, void *argument),
                    void *argument);
#endif
