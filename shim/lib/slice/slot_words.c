/* What the own slot says. It is any tenant's to write, so that this process keeps to itself what it
 * should say: the monitor would look at another process, or at none, for who wrote another number
 * there. */
#include "slice/slot_words.h"

#include <sys/stat.h>

#include "slice/slice.h"

static struct hami_identity self;
static _Atomic uint32_t flagged;
static struct {
    dev_t device;
    ino_t inode;
} region;

bool hami_slots_learn_file(int fd)
{
    struct stat found;

    if (fstat(fd, &found) != 0)
        return false;
    region.device = found.st_dev;
    region.inode = found.st_ino;
    return true;
}

bool hami_slots_is_file(int fd)
{
    struct stat found;

    return fstat(fd, &found) == 0 && found.st_dev == region.device && found.st_ino == region.inode;
}

int hami_slots_file(void)
{
    return hami_slots_is_file(hami_process->usage_fd) ? hami_process->usage_fd : -1;
}

/* Relaxed: whoever reads these words meanwhile reads the dead one's or nothing, either is right. */
void hami_slot_zero(struct hami_usage *usage, uint32_t slot)
{
    for (int row = 0; row < HAMI_MAX_DEVICES; row++)
        atomic_store_explicit(&usage->charged[row][slot], 0, memory_order_seq_cst);
}

static void name_holder(struct hami_slot *of, uint64_t generation)
{
    atomic_store_explicit(&of->start_time, self.start_time, memory_order_relaxed);
    atomic_store_explicit(&of->pid_namespace, self.pid_namespace, memory_order_relaxed);
    atomic_store_explicit(&of->pid, self.pid, memory_order_relaxed);
    atomic_store_explicit(&of->generation, generation, memory_order_release);
}

void hami_slot_own(struct hami_process *process, uint32_t slot)
{
    struct hami_slot *of = &process->usage->slots[slot];
    uint64_t generation = atomic_load_explicit(&of->generation, memory_order_relaxed) + 1;

    self = hami_identity();
    hami_slot_zero(process->usage, slot);
    atomic_store_explicit(&flagged, 0, memory_order_relaxed);
    atomic_store_explicit(&of->flags, 0, memory_order_relaxed);
    atomic_store_explicit(&of->found_dead_at, 0, memory_order_relaxed);
    name_holder(of, generation);
    process->slot = slot;
    process->generation = generation;
}

/* Without the lock on it the slot may be another's by now. */
void hami_slot_assert(void)
{
    struct hami_slot *of = &hami_process->usage->slots[hami_process->slot];
    struct hami_identity who = hami_slot_recorded(of);
    uint64_t generation = atomic_load_explicit(&of->generation, memory_order_relaxed);
    uint32_t flags = atomic_load_explicit(&flagged, memory_order_relaxed);

    if (who.pid == self.pid && who.start_time == self.start_time &&
        who.pid_namespace == self.pid_namespace && generation == hami_process->generation &&
        (hami_slot_flags(of) & flags) == flags)
        return;
    if (hami_slots_file() < 0)
        return;
    name_holder(of, hami_process->generation);
    atomic_fetch_or_explicit(&of->flags, flags, memory_order_relaxed);
}

void hami_slot_flag(uint32_t flags)
{
    struct hami_slot *of;

    if (hami_mode() != HAMI_MODE_SLICE)
        return;
    of = &hami_process->usage->slots[hami_process->slot];
    atomic_fetch_or_explicit(&flagged, flags, memory_order_relaxed);
    if ((hami_slot_flags(of) & flags) != flags)
        atomic_fetch_or_explicit(&of->flags, flags, memory_order_relaxed);
}

/* Release: what these flags protected is no longer touched. */
void hami_slot_unflag(uint32_t flags)
{
    if (hami_mode() != HAMI_MODE_SLICE)
        return;
    atomic_fetch_and_explicit(&flagged, ~flags, memory_order_relaxed);
    atomic_fetch_and_explicit(&hami_process->usage->slots[hami_process->slot].flags, ~flags,
                              memory_order_release);
}
