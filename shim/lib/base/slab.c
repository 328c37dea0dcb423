#include "base/slab.h"

#include <string.h>
#include <sys/mman.h>

#define SLAB_BYTES ((size_t)64 << 10)

/* Chunks are never unmapped: a process that once had many records will have them again. */
static void more(struct hami_slab *slab)
{
    char *chunk =
        mmap(NULL, SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (chunk == MAP_FAILED)
        return;
    for (size_t i = SLAB_BYTES / slab->size; i > 0; i--)
        hami_slab_give(slab, chunk + (i - 1) * slab->size);
}

void *hami_slab_take(struct hami_slab *slab)
{
    void *record;

    if (!slab->free)
        more(slab);
    record = slab->free;
    if (!record)
        return NULL;
    memcpy(&slab->free, record, sizeof(void *));
    memset(record, 0, slab->size);
    return record;
}

void hami_slab_give(struct hami_slab *slab, void *record)
{
    memcpy(record, &slab->free, sizeof(void *));
    slab->free = record;
}
