/* Slots of the usage region. Slot i belongs to whoever holds the open-file-description lock on byte
 * i of the file: the kernel drops it with the last copy of the descriptor, so a forked child, which
 * keeps its parent's device memory alive, keeps its parent's slot charged as well.
 *
 * Of a lock that can be had the holder is dead, with two exceptions. Programs that close every
 * descriptor they do not know (daemons do) drop it and live on: so the process on record is looked
 * for as well (alive.c). And a process that is killed drops it while the driver has yet to take its
 * memory back: so a slot found dead stays charged for a moment more. */
#include "slice/slots.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/reset.h"
#include "slice/alive.h"
#include "slice/devices.h"
#include "slice/files.h"
#include "slice/slice.h"
#include "slice/slot_words.h"

/* How long after a process was found dead its memory is believed to be free. */
#define GRACE_NS UINT64_C(100000000)
/* How often one looks for the dead who has no need of their memory, only to say what is free. */
#define LOOK_NS UINT64_C(100000000)

/* The threads of a process share one open file description: the locks of one do not keep out
 * another. */
static struct hami_lock recovering;

static _Atomic uint64_t expected; /* when the first of the dead is due; 0: none is known */
static _Atomic uint64_t looked;   /* when hami_slots_look last did */

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static uint64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

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

/* Some programs close every descriptor they do not know, and the number of ours may be another file
 * by now. The region is opened anew then, for as long as a look takes: a descriptor that was closed
 * is not wanted there. Negative: it is not where it was. */
static int open_anew(const struct hami_process *process)
{
    int fd = hami_files_open(process->usage_path);

    if (fd >= 0 && !hami_slots_is_file(fd)) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool has_charges(struct hami_usage *usage, uint32_t slot)
{
    for (int row = 0; row < HAMI_MAX_DEVICES; row++)
        if (atomic_load_explicit(&usage->charged[row][slot], memory_order_relaxed) != 0)
            return true;
    return false;
}

/* What one look at all slots knows. `fd`: the region, to try locks on. `own`: process->slot is held
 * by this process, and left alone. `imported`: whether somebody imports, once that was needed;
 * negative before. */
struct look {
    const struct hami_process *process;
    int fd;
    bool own;
    int imported;
    uint64_t now;
    uint64_t due;    /* when the first of those found dead can be recovered; 0: none */
    int row;         /* of which `coming` is what they are still charged */
    uint64_t coming;
};

/* Whether anybody may still read memory that a dead process exported. */
static bool somebody_imports(const struct look *look)
{
    const struct hami_process *process = look->process;
    struct hami_slot *slots = process->usage->slots;

    if (look->own && (hami_slot_flags(&slots[process->slot]) & HAMI_SLOT_IMPORTS))
        return true;
    for (uint32_t i = 0; i < HAMI_MAX_SLOTS; i++) {
        struct hami_identity who;

        if (!(hami_slot_flags(&slots[i]) & HAMI_SLOT_IMPORTS) || (look->own && i == process->slot))
            continue;
        who = hami_slot_recorded(&slots[i]);
        if (is_locked_by_another(look->fd, i) || hami_is_alive(&who, process->usage))
            return true;
    }
    return false;
}

/* A moment that is not over yet is nobody's: of a former boot, or written by a tenant. */
static uint64_t found_dead_at(const struct look *look, uint32_t slot)
{
    uint64_t at = atomic_load_explicit(&look->process->usage->slots[slot].found_dead_at,
                                       memory_order_relaxed);

    return at <= look->now ? at : 0;
}

static void expect(struct look *look, uint32_t slot, uint64_t dead_at)
{
    uint64_t due = dead_at + GRACE_NS, bytes;

    if (look->due == 0 || due < look->due)
        look->due = due;
    if (look->row < 0)
        return;
    bytes = atomic_load_explicit(&look->process->usage->charged[look->row][slot],
                                 memory_order_relaxed);
    look->coming = bytes > UINT64_MAX - look->coming ? UINT64_MAX : look->coming + bytes;
}

/* Whether the driver has had its time to take back what the dead process had. The moment begins
 * when any process of the container notices: the memory comes back to all of them at once. */
static bool is_cold(struct look *look, uint32_t slot)
{
    uint64_t dead_at = found_dead_at(look, slot);

    if (dead_at == 0) {
        dead_at = look->now;
        atomic_store_explicit(&look->process->usage->slots[slot].found_dead_at, dead_at,
                              memory_order_relaxed);
    }
    if (look->now - dead_at >= GRACE_NS)
        return true;
    expect(look, slot, dead_at);
    return false;
}

/* With the slot's lock held: zero it if the process on record is gone. */
static void recover(struct look *look, uint32_t slot)
{
    struct hami_usage *usage = look->process->usage;
    struct hami_slot *of = &usage->slots[slot];
    struct hami_identity who = hami_slot_recorded(of);

    if (who.pid != 0 && hami_is_alive(&who, usage)) {
        /* Who looked from another pid namespace may have thought otherwise. */
        atomic_store_explicit(&of->found_dead_at, 0, memory_order_relaxed);
        return;
    }
    if (hami_slot_flags(of) & HAMI_SLOT_EXPORTS) {
        if (look->imported < 0)
            look->imported = somebody_imports(look);
        if (look->imported)
            return;
    }
    /* One that had nothing is free at once: processes that live for less than that moment, one after
     * the other, would each find those before it newly dead, until no slot was left. */
    if (has_charges(usage, slot) && !is_cold(look, slot))
        return;
    hami_slot_zero(usage, slot);
    atomic_store_explicit(&of->flags, 0, memory_order_relaxed);
    atomic_store_explicit(&of->found_dead_at, 0, memory_order_relaxed);
    /* Last, so that a slot recovered by half is one that still needs it. */
    atomic_store_explicit(&of->pid, 0, memory_order_release);
    hami_log(HAMI_INFO, "slot %u of process %u is free again", slot, who.pid);
}

static void look_at_all(struct look *look)
{
    struct hami_usage *usage = look->process->usage;

    for (uint32_t slot = 0; slot < HAMI_MAX_SLOTS; slot++) {
        struct hami_slot *of = &usage->slots[slot];
        uint64_t dead_at;

        if ((look->own && slot == look->process->slot) ||
            (atomic_load_explicit(&of->pid, memory_order_relaxed) == 0 &&
             !has_charges(usage, slot)))
            continue;
        if (lock_slot(look->fd, slot)) {
            recover(look, slot);
            unlock_slot(look->fd, slot);
        } else if ((dead_at = found_dead_at(look, slot)) != 0) {
            expect(look, slot, dead_at); /* another process is looking at it right now */
        }
    }
}

/* Where the region cannot be opened any more nothing is recovered, and nothing known to come. */
static uint64_t recover_all(const struct hami_process *process, bool own, int row)
{
    struct look look = {
        .process = process, .own = own, .imported = -1, .now = now_ns(), .row = row,
    };
    bool is_open = hami_slots_is_file(process->usage_fd);

    look.fd = is_open ? process->usage_fd : open_anew(process);
    if (look.fd >= 0)
        look_at_all(&look);
    if (!is_open && look.fd >= 0)
        close(look.fd);
    atomic_store_explicit(&expected, look.due, memory_order_relaxed);
    return look.coming;
}

uint64_t hami_slots_recover(int row)
{
    uint64_t coming;
    int kept = errno;

    if (hami_mode() != HAMI_MODE_SLICE)
        return 0;
    hami_lock(&recovering);
    coming = recover_all(hami_process, true, row);
    hami_unlock(&recovering);
    errno = kept;
    return coming;
}

void hami_slots_expected(void)
{
    uint64_t due = atomic_load_explicit(&expected, memory_order_relaxed);

    if (__builtin_expect(due != 0, 0) && now_ns() >= due)
        hami_slots_recover(HAMI_ROW_NONE);
}

/* The coarse clock: programs ask in a loop. */
bool hami_slots_look(void)
{
    uint64_t now = clock_ns(CLOCK_MONOTONIC_COARSE);
    uint64_t last = atomic_load_explicit(&looked, memory_order_relaxed);

    if (last != 0 && now < last + LOOK_NS)
        return false;
    if (!atomic_compare_exchange_strong_explicit(&looked, &last, now, memory_order_relaxed,
                                                 memory_order_relaxed))
        return false;
    hami_slots_recover(HAMI_ROW_NONE);
    return true;
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
        hami_slot_own(process, slot);
        return true;
    }
    return false;
}

void hami_slots_reset(void)
{
    atomic_store_explicit(&recovering.word, HAMI_LOCK_FREE, memory_order_relaxed);
    atomic_store_explicit(&expected, 0, memory_order_relaxed);
    atomic_store_explicit(&looked, 0, memory_order_relaxed);
}

bool hami_slot_take(struct hami_process *process)
{
    struct timespec pause = {.tv_nsec = 2000000};
    bool taken;
    int kept = errno;

    if (!hami_slots_learn_file(process->usage_fd))
        return false;
    recover_all(process, false, HAMI_ROW_NONE);
    taken = take_free(process);
    /* All of them held, but some by the dead. */
    for (int i = 0; i < 100; i++) {
        if (taken || atomic_load_explicit(&expected, memory_order_relaxed) == 0)
            break;
        nanosleep(&pause, NULL);
        recover_all(process, false, HAMI_ROW_NONE);
        taken = take_free(process);
    }
    errno = kept;
    return taken;
}
