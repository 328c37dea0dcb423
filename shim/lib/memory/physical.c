#include "memory/physical.h"

#include <stdatomic.h>

#include "base/lock.h"
#include "base/reset.h"
#include "base/slab.h"
#include "memory/account.h"
#include "memory/exports.h"
#include "memory/imports.h"
#include "memory/map.h"

static struct hami_lock lock;
static struct hami_slab slab = HAMI_SLAB(struct hami_physical);
static _Atomic uint32_t orphans;

void hami_physical_lock(void)
{
    hami_lock(&lock);
}

void hami_physical_unlock(void)
{
    hami_unlock(&lock);
}

struct hami_physical *hami_physical_of(uint64_t handle)
{
    struct hami_entry entry;

    if (!hami_map_get(HAMI_KIND_VMM, handle, &entry))
        return NULL;
    return (struct hami_physical *)(uintptr_t)entry.extra;
}

/* The handle may be another's by now: the driver gives it out again as soon as it is free. */
static void forget_handle(const struct hami_physical *physical)
{
    struct hami_entry entry;

    if (hami_physical_of(physical->handle) == physical)
        hami_map_take(HAMI_KIND_VMM, physical->handle, &entry);
}

static void set_orphan(struct hami_physical *physical, bool orphan)
{
    if (physical->orphan == orphan)
        return;
    physical->orphan = orphan;
    if (orphan)
        atomic_fetch_add_explicit(&orphans, 1, memory_order_relaxed);
    else
        atomic_fetch_sub_explicit(&orphans, 1, memory_order_relaxed);
}

/* The chain of backings is as long as imports of imports: walked, not recursed into. */
static void end_if_unused(struct hami_physical *physical)
{
    while (physical && physical->handles == 0 && physical->uses == 0) {
        struct hami_physical *backing = physical->backing;

        if (physical->exports != 0 && hami_exports_open(physical) != 0) {
            set_orphan(physical, true);
            return;
        }
        set_orphan(physical, false);
        hami_exports_forget(physical);
        if (physical->gone)
            physical->gone(physical);
        forget_handle(physical);
        hami_refund(physical->row, physical->bytes);
        if (physical->import)
            hami_import_ends();
        hami_slab_give(&slab, physical);
        if (backing)
            backing->uses--;
        physical = backing;
    }
}

struct hami_physical *hami_physical_add(uint64_t handle, int row, uint64_t bytes)
{
    struct hami_entry old, entry = {.key = handle, .row = (int16_t)row, .kind = HAMI_KIND_VMM};
    struct hami_physical *physical = hami_slab_take(&slab);

    if (!physical)
        return NULL;
    *physical = (struct hami_physical){
        .handle = handle, .bytes = bytes, .handles = 1, .row = (int16_t)row};
    entry.extra = (uintptr_t)physical;
    if (!hami_map_exchange(&entry, &old)) {
        hami_slab_give(&slab, physical);
        return NULL;
    }
    if (old.kind != HAMI_KIND_NONE) {
        /* The driver gives the handle out anew, so no handle refers to the old one: its release is
         * just returning in another thread, or escaped us. */
        struct hami_physical *before = (struct hami_physical *)(uintptr_t)old.extra;

        before->handles = 0;
        end_if_unused(before);
    }
    return physical;
}

void hami_physical_use(struct hami_physical *physical)
{
    physical->uses++;
    set_orphan(physical, false);
}

void hami_physical_unuse(struct hami_physical *physical)
{
    physical->uses--;
    end_if_unused(physical);
}

void hami_physical_release(struct hami_physical *physical)
{
    if (physical->handles != 0)
        physical->handles--;
    end_if_unused(physical);
}

void hami_physical_ended(struct hami_physical *physical)
{
    end_if_unused(physical);
}

/* What orphans hold is refunded when their descriptors are seen to be closed: nobody tells us. */
uint64_t hami_physical_settle(void)
{
    struct hami_physical *physical;
    uint64_t refunded = 0;

    if (atomic_load_explicit(&orphans, memory_order_relaxed) == 0)
        return 0;
    hami_lock(&lock);
    while ((physical = hami_exports_next_closed()) != NULL) {
        refunded += physical->bytes;
        end_if_unused(physical);
    }
    hami_unlock(&lock);
    return refunded;
}

void hami_physical_reset(void)
{
    atomic_store_explicit(&lock.word, HAMI_LOCK_FREE, memory_order_relaxed);
    atomic_store_explicit(&orphans, 0, memory_order_relaxed);
    slab.free = NULL;
}
