/* What the driver takes on its own (contexts beyond the reserve, code loaded at a first launch,
 * local memory) cannot be known here; the monitor sees it from outside and writes, for each slot,
 * what the driver accounts to the process. The difference is charged, so that it counts against the
 * limit.
 *
 * The figure is some moment of the last period, and the own charge has moved since. Comparing it
 * with the charge of now would turn memory that was just freed into memory that the driver took. So
 * it is compared with everything that the charge was since well before that moment: what exceeds
 * even the highest is the driver's; only when it is below even the lowest is some of it given back,
 * and never more than was added here. */
#include "memory/charge.h"

#include "base/lock.h"
#include "base/reset.h"
#include "memory/account.h"
#include "slice/devices.h"
#include "slice/follow.h"
#include "slice/slice.h"
#include "slice/slot_words.h"

/* The figure that comes with a heartbeat was read after the heartbeat before it; one more, because
 * what the monitor reads may be a little old itself. */
#define PERIODS 3

static struct {
    struct hami_lock lock;
    _Atomic uint64_t heartbeat; /* the last one that was used */
    struct row {
        struct hami_range was[PERIODS];
        uint64_t added;
    } rows[HAMI_MAX_DEVICES];
} seen;

void hami_charge_reset(void)
{
    atomic_store_explicit(&seen.lock.word, HAMI_LOCK_FREE, memory_order_relaxed);
    atomic_store_explicit(&seen.heartbeat, 0, memory_order_relaxed);
    for (int row = 0; row < HAMI_MAX_DEVICES; row++)
        seen.rows[row] = (struct row){0};
}

static struct hami_range widest(struct row *of, struct hami_range latest)
{
    struct hami_range all = latest;

    for (int i = PERIODS - 1; i > 0; i--)
        of->was[i] = of->was[i - 1];
    of->was[0] = latest;
    for (int i = 1; i < PERIODS; i++) {
        if (all.low > of->was[i].low)
            all.low = of->was[i].low;
        if (all.high < of->was[i].high)
            all.high = of->was[i].high;
    }
    return all;
}

static void correct_row(int row, uint64_t bytes)
{
    struct row *of = &seen.rows[row];
    struct hami_range charged = widest(of, hami_charged_range(row));

    /* Nothing at all: the monitor cannot tell (MIG, MPS), or the process has no memory yet. */
    if (bytes == 0)
        return;
    if (bytes > charged.high) {
        of->added += bytes - charged.high;
        hami_charge_taken(row, bytes - charged.high);
    } else if (bytes < charged.low && of->added > 0) {
        uint64_t less = charged.low - bytes;

        if (less > of->added)
            less = of->added;
        of->added -= less;
        hami_refund(row, less);
    }
}

static void correct(const struct hami_observed *observed, uint64_t heartbeat)
{
    uint32_t slot = hami_process->slot;
    int rows = hami_row_count();

    hami_slot_assert();
    /* Acquire: the bytes were written before the generation that they were seen for. */
    if (atomic_load_explicit(&observed->slot_generation[slot], memory_order_acquire) ==
        hami_process->generation)
        for (int row = 0; row < rows; row++)
            correct_row(row, atomic_load_explicit(&observed->bytes[row][slot],
                                                  memory_order_relaxed));
    atomic_store_explicit(&seen.heartbeat, heartbeat, memory_order_relaxed);
}

void hami_correct(void)
{
    const struct hami_observed *observed;
    uint64_t heartbeat;

    /* First, because whether the monitor still writes takes a clock to tell. */
    if (hami_mode() != HAMI_MODE_SLICE ||
        hami_heartbeat() == atomic_load_explicit(&seen.heartbeat, memory_order_relaxed))
        return;
    observed = hami_observed();
    if (!observed)
        return;
    heartbeat = atomic_load_explicit(&observed->heartbeat, memory_order_acquire);
    if (heartbeat == atomic_load_explicit(&seen.heartbeat, memory_order_relaxed) ||
        !hami_lock_try(&seen.lock))
        return;
    if (heartbeat != atomic_load_explicit(&seen.heartbeat, memory_order_relaxed))
        correct(observed, heartbeat);
    hami_unlock(&seen.lock);
}

bool hami_charge(int row, uint64_t bytes)
{
    hami_correct();
    return hami_reserve(row, bytes);
}
