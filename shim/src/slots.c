/* Slots of the usage region. Slot i belongs to whoever holds the open-file-description lock on byte
 * i of the file: the kernel drops it with the last copy of the descriptor, so a forked child, which
 * keeps its parent's device memory alive, keeps its parent's slot charged as well.
 *
 * Of a lock that can be had the holder is dead, with one exception: programs that close every
 * descriptor they do not know (daemons do) drop it and live on. So the process on record is looked
 * for as well (alive.c). */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "account.h"
#include "alive.h"
#include "lock.h"
#include "log.h"
#include "slice.h"

/* The threads of a process share one open file description: the locks of one do not keep out
 * another. And the number may have become another file if the program closed ours. */
static struct hami_lock recovering;
static struct {
    dev_t device;
    ino_t inode;
} region;

static int ask_for(int fd, int command, short type, uint32_t slot)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};

    if (fcntl(fd, command, &lock) != 0)
        return -1;
    return lock.l_type;
}

static bool lock_slot(int fd, uint32_t slot)
{
    return ask_for(fd, F_OFD_SETLK, F_WRLCK, slot) >= 0;
}

static void unlock_slot(int fd, uint32_t slot)
{
    ask_for(fd, F_OFD_SETLK, F_UNLCK, slot);
}

static bool is_locked_by_another(int fd, uint32_t slot)
{
    return ask_for(fd, F_OFD_GETLK, F_WRLCK, slot) != F_UNLCK;
}

static bool is_region(int fd)
{
    struct stat found;

    return fstat(fd, &found) == 0 && found.st_dev == region.device && found.st_ino == region.inode;
}

/* Relaxed: whoever reads these words meanwhile reads the dead one's or nothing, either is right. */
static void zero_charges(struct hami_usage *usage, uint32_t slot)
{
    for (int row = 0; row < HAMI_MAX_DEVICES; row++)
        atomic_store_explicit(&usage->charged[row][slot], 0, memory_order_seq_cst);
}

static bool has_charges(struct hami_usage *usage, uint32_t slot)
{
    for (int row = 0; row < HAMI_MAX_DEVICES; row++)
        if (atomic_load_explicit(&usage->charged[row][slot], memory_order_relaxed) != 0)
            return true;
    return false;
}

static struct hami_identity recorded(struct hami_slot *slot)
{
    return (struct hami_identity){
        .pid = atomic_load_explicit(&slot->pid, memory_order_relaxed),
        .start_time = atomic_load_explicit(&slot->start_time, memory_order_relaxed),
        .pid_namespace = atomic_load_explicit(&slot->pid_namespace, memory_order_relaxed),
    };
}

static uint32_t flags_of(struct hami_slot *slot)
{
    return atomic_load_explicit(&slot->flags, memory_order_relaxed);
}

/* Whether anybody may still read memory that a dead process exported. */
static bool somebody_imports(const struct hami_process *process, bool own)
{
    struct hami_slot *slots = process->usage->slots;

    if (own && (flags_of(&slots[process->slot]) & HAMI_SLOT_IMPORTS))
        return true;
    for (uint32_t i = 0; i < HAMI_MAX_SLOTS; i++) {
        struct hami_identity who;

        if (!(flags_of(&slots[i]) & HAMI_SLOT_IMPORTS) || (own && i == process->slot))
            continue;
        who = recorded(&slots[i]);
        if (is_locked_by_another(process->usage_fd, i) ||
            hami_is_alive(&who, process->usage))
            return true;
    }
    return false;
}

/* With the slot's lock held: zero it if the process on record is gone. *imported: whether somebody
 * imports, once it was needed; negative before. */
static void recover(const struct hami_process *process, bool own, uint32_t slot, int *imported)
{
    struct hami_slot *of = &process->usage->slots[slot];
    struct hami_identity who = recorded(of);

    if (who.pid != 0 && hami_is_alive(&who, process->usage))
        return;
    if (flags_of(of) & HAMI_SLOT_EXPORTS) {
        if (*imported < 0)
            *imported = somebody_imports(process, own);
        if (*imported)
            return;
    }
    zero_charges(process->usage, slot);
    atomic_store_explicit(&of->flags, 0, memory_order_relaxed);
    /* Last, so that a slot recovered by half is one that still needs it. */
    atomic_store_explicit(&of->pid, 0, memory_order_release);
    hami_log(HAMI_INFO, "slot %u of process %u is free again", slot, who.pid);
}

/* `own`: process->slot is held by this process, and left alone. */
static void recover_all(const struct hami_process *process, bool own)
{
    int imported = -1;

    for (uint32_t slot = 0; slot < HAMI_MAX_SLOTS; slot++) {
        struct hami_slot *of = &process->usage->slots[slot];

        if ((own && slot == process->slot) ||
            (atomic_load_explicit(&of->pid, memory_order_relaxed) == 0 &&
             !has_charges(process->usage, slot)))
            continue;
        if (!lock_slot(process->usage_fd, slot))
            continue;
        recover(process, own, slot, &imported);
        unlock_slot(process->usage_fd, slot);
    }
}

void hami_slots_recover(void)
{
    int kept = errno;

    if (hami_mode() != HAMI_MODE_SLICE || !hami_lock_try(&recovering))
        return;
    if (is_region(hami_process->usage_fd))
        recover_all(hami_process, true);
    hami_unlock(&recovering);
    errno = kept;
}

static void own(struct hami_process *process, uint32_t slot)
{
    struct hami_slot *of = &process->usage->slots[slot];
    struct hami_identity self = hami_identity();
    uint64_t generation = atomic_load_explicit(&of->generation, memory_order_relaxed) + 1;

    zero_charges(process->usage, slot);
    atomic_store_explicit(&of->flags, 0, memory_order_relaxed);
    atomic_store_explicit(&of->start_time, self.start_time, memory_order_relaxed);
    atomic_store_explicit(&of->pid_namespace, self.pid_namespace, memory_order_relaxed);
    atomic_store_explicit(&of->pid, self.pid, memory_order_relaxed);
    atomic_store_explicit(&of->generation, generation, memory_order_release);
    process->slot = slot;
    process->generation = generation;
}

/* A slot whose lock is free but that was not recovered belongs to somebody still. */
static bool take_free(struct hami_process *process)
{
    for (uint32_t slot = 0; slot < HAMI_MAX_SLOTS; slot++) {
        struct hami_slot *of = &process->usage->slots[slot];

        if (atomic_load_explicit(&of->pid, memory_order_relaxed) != 0 ||
            !lock_slot(process->usage_fd, slot))
            continue;
        /* Whoever held the lock an instant ago may have left its name since. */
        if (atomic_load_explicit(&of->pid, memory_order_acquire) != 0) {
            unlock_slot(process->usage_fd, slot);
            continue;
        }
        own(process, slot);
        return true;
    }
    return false;
}

bool hami_slot_take(struct hami_process *process)
{
    struct stat file;
    bool taken;
    int kept = errno;

    hami_account_reset();
    hami_blocks_reset();
    hami_observed_reset();
    hami_context_reset();
    atomic_store_explicit(&recovering.word, HAMI_LOCK_FREE, memory_order_relaxed);
    if (fstat(process->usage_fd, &file) != 0)
        return false;
    region.device = file.st_dev;
    region.inode = file.st_ino;
    recover_all(process, false);
    taken = take_free(process);
    errno = kept;
    return taken;
}

void hami_slot_flag(uint32_t flags)
{
    struct hami_slot *of;

    if (hami_mode() != HAMI_MODE_SLICE)
        return;
    of = &hami_process->usage->slots[hami_process->slot];
    if ((flags_of(of) & flags) != flags)
        atomic_fetch_or_explicit(&of->flags, flags, memory_order_relaxed);
}
