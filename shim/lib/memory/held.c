/* Witnesses of what is held. The words of the usage region are any tenant's to write: a process
 * whose word was lowered knows better and puts it right (account.c), but not before it asks for
 * something again, and until then others would be given what it holds. So each process also keeps
 * open-file-description locks on the file, far behind its end, as many bytes of them as it holds
 * units of memory. The kernel keeps them: nobody else can take them away or shorten them, and they
 * go when the memory goes, with the last copy of the descriptor.
 *
 * They cost a system call each time, and so they follow in steps: the witness says at most one unit
 * more than what is on record, and less than one unit less. Whose record says less by more than
 * that was written over, and is counted with what its witness may mean at most.
 *
 * Others are asked when the own witness grows, and whenever all of them together have less on
 * record than they had at least when they were asked last. */
#include "memory/held.h"

#include <errno.h>
#include <fcntl.h>

#include "base/lock.h"
#include "base/reset.h"
#include "slice/slot_words.h"

#define MOST_UNITS UINT64_C(0xffffffff)

struct hami_held hami_held[HAMI_MAX_DEVICES];
struct hami_witness hami_witness[HAMI_MAX_DEVICES];
static struct hami_lock following;

void hami_held_reset(void)
{
    atomic_store_explicit(&following.word, HAMI_LOCK_FREE, memory_order_relaxed);
    for (int row = 0; row < HAMI_MAX_DEVICES; row++) {
        atomic_store_explicit(&hami_held[row].held, 0, memory_order_relaxed);
        atomic_store_explicit(&hami_held[row].low, 0, memory_order_relaxed);
        atomic_store_explicit(&hami_held[row].high, 0, memory_order_relaxed);
        atomic_store_explicit(&hami_witness[row].units, 0, memory_order_relaxed);
        /* No sum is that high: others are asked with the first request. */
        atomic_store_explicit(&hami_witness[row].floor, UINT64_MAX, memory_order_relaxed);
    }
}

/* Of `count` slots from `slot` on; of the first one from a unit on. */
static struct flock range(int row, uint32_t slot, uint32_t count, uint64_t unit)
{
    uint64_t first = (UINT64_C(1) + (uint64_t)row * HAMI_MAX_SLOTS + slot) << 32;

    return (struct flock){
        .l_type = F_WRLCK,
        .l_whence = SEEK_SET,
        .l_start = (off_t)(first + unit),
        .l_len = (off_t)(((uint64_t)count << 32) - unit),
    };
}

/* False: another one has a lock there. */
static bool say(int fd, int row, uint64_t old, uint64_t new)
{
    struct flock lock = range(row, hami_process->slot, 1, new < old ? new : old);

    lock.l_type = new < old ? F_UNLCK : F_WRLCK;
    lock.l_len = (off_t)(new < old ? old - new : new - old);
    return fcntl(fd, F_OFD_SETLK, &lock) == 0 || (errno != EAGAIN && errno != EACCES);
}

static uint64_t units_of(int row)
{
    uint64_t units = hami_held_here(row) / HAMI_WITNESS_BYTES;

    return units < MOST_UNITS ? units : MOST_UNITS;
}

/* Other threads charge and refund meanwhile: either they see the new figure or we see theirs. */
bool hami_witness_follow(int row)
{
    struct hami_witness *of = &hami_witness[row];
    int fd = hami_slots_file(), kept = errno;
    uint64_t held, said;
    bool good = true;

    hami_lock(&following);
    for (;;) {
        held = units_of(row);
        said = atomic_load_explicit(&of->units, memory_order_seq_cst);
        if (held == said || held + 1 == said)
            break;
        /* A program that closes all descriptors took ours: nothing can be said any more. */
        good = fd < 0 || say(fd, row, said, held);
        if (!good)
            break;
        atomic_store_explicit(&of->units, held, memory_order_seq_cst);
    }
    hami_unlock(&following);
    errno = kept;
    return good;
}

/* How many units others say of the first of these slots of which anybody says any; 0: nobody does. */
static uint64_t said(int fd, int row, uint32_t slot, uint32_t count)
{
    struct flock lock = range(row, slot, count, 0);
    uint64_t first = (uint64_t)lock.l_start;

    if (fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK)
        return 0;
    return lock.l_len == 0 ? MOST_UNITS : (uint64_t)(lock.l_start + lock.l_len) - first;
}

static uint64_t on_record(int row, uint32_t slot)
{
    return slot == hami_process->slot
               ? 0
               : atomic_load_explicit(&hami_process->usage->charged[row][slot],
                                      memory_order_relaxed);
}

/* How many slots from this one on have next to nothing on record: they are asked at once, since
 * most of them are nobody's. */
static uint32_t empty_from(int row, uint32_t slot)
{
    uint32_t end = slot;

    while (end < HAMI_MAX_SLOTS && on_record(row, end) < HAMI_WITNESS_BYTES)
        end++;
    return end - slot;
}

uint64_t hami_witness_hidden(int row)
{
    uint64_t hidden = 0, floor = 0;
    int fd = hami_slots_file(), kept = errno;
    uint32_t empty;

    for (uint32_t slot = 0; fd >= 0 && slot < HAMI_MAX_SLOTS; slot++) {
        uint64_t bytes = on_record(row, slot), units;

        empty = bytes < HAMI_WITNESS_BYTES ? empty_from(row, slot) : 0;
        if (empty > 1 && said(fd, row, slot, empty) == 0) {
            slot += empty - 1;
            continue;
        }
        units = said(fd, row, slot, 1);
        if (units > bytes / HAMI_WITNESS_BYTES + 1)
            hidden += (units + 1) * HAMI_WITNESS_BYTES - bytes;
        floor += units > 1 ? (units - 1) * HAMI_WITNESS_BYTES : 0;
    }
    atomic_store_explicit(&hami_witness[row].floor, floor, memory_order_relaxed);
    errno = kept;
    return hidden;
}
