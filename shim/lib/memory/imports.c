#include "memory/imports.h"

#include <stdint.h>

#include "base/lock.h"
#include "base/reset.h"
#include "slice/slot_words.h"

static struct hami_lock lock;
static uint64_t imports;

void hami_imports_reset(void)
{
    atomic_store_explicit(&lock.word, HAMI_LOCK_FREE, memory_order_relaxed);
    imports = 0;
}

void hami_import_begins(void)
{
    hami_lock(&lock);
    imports++;
    hami_slot_flag(HAMI_SLOT_IMPORTS);
    hami_unlock(&lock);
}

void hami_import_ends(void)
{
    hami_lock(&lock);
    if (imports != 0 && --imports == 0)
        hami_slot_unflag(HAMI_SLOT_IMPORTS);
    hami_unlock(&lock);
}
