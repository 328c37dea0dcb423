/* What an allocation really takes. The driver takes memory from the device in blocks of 2 MiB: an
 * allocation larger than half a block has whole blocks of its own, smaller ones share blocks. If we
 * charged what the program asked for, ten thousand allocations of 2.1 MiB would have nearly twice
 * their limit.
 *
 * Small ones are counted together, per device: each as the part of a block that is left for it when
 * a block is filled with its like (of 700 KiB there are two in a block, so each is half a block),
 * and whole blocks for the sum. Different sizes may be packed a little better or worse than that,
 * and freed ones leave holes; the monitor's figure brings in what is missing (observed.c). */
#include "account.h"
#include "lock.h"
#include "slice.h"

#define BLOCK HAMI_BLOCK
#define SMALL (BLOCK / 2)
#define SMALLEST UINT64_C(512)

static struct small {
    struct hami_spin lock;
    uint64_t live;    /* the shares of small allocations */
    uint64_t charged; /* for them: whole blocks, never less than live */
} __attribute__((aligned(64))) small[HAMI_MAX_DEVICES];

void hami_blocks_reset(void)
{
    for (int row = 0; row < HAMI_MAX_DEVICES; row++)
        small[row] = (struct small){0};
}

static uint64_t rounded(uint64_t bytes, uint64_t unit)
{
    return bytes > UINT64_MAX - unit ? UINT64_MAX : (bytes + unit - 1) / unit * unit;
}

/* The part of a block that goes to one small allocation. Rounded down, so that a full block is
 * never counted as more. */
static uint64_t share_of(uint64_t bytes)
{
    return bytes == 0 ? 0 : BLOCK / (BLOCK / rounded(bytes, SMALLEST));
}

/* With the lock held: what is charged beyond need is the caller's to give back. */
static uint64_t take_surplus(struct small *of)
{
    uint64_t surplus = of->charged - rounded(of->live, BLOCK);

    of->charged -= surplus;
    return surplus;
}

static bool charge_small(int row, uint64_t bytes)
{
    struct small *of = &small[row];
    uint64_t surplus;

    hami_spin_lock(&of->lock);
    while (of->charged - of->live < bytes) {
        uint64_t missing = rounded(of->live + bytes - of->charged, BLOCK);
        bool granted;

        /* Charging may wait for other processes. Another thread may use up what we found, so what
         * was granted joins the rest and we look again. */
        hami_spin_unlock(&of->lock);
        granted = hami_charge(row, missing);
        hami_spin_lock(&of->lock);
        if (!granted) {
            surplus = take_surplus(of);
            hami_spin_unlock(&of->lock);
            hami_refund(row, surplus);
            return false;
        }
        of->charged += missing;
    }
    of->live += bytes;
    surplus = take_surplus(of);
    hami_spin_unlock(&of->lock);
    hami_refund(row, surplus);
    return true;
}

bool hami_charge_block(int row, uint64_t bytes)
{
    if (!hami_counting())
        return true;
    if (bytes > SMALL || row < 0 || row >= HAMI_MAX_DEVICES || hami_mode() != HAMI_MODE_SLICE)
        return hami_charge(row, rounded(bytes, BLOCK));
    return charge_small(row, share_of(bytes));
}

void hami_refund_block(int row, uint64_t bytes)
{
    struct small *of;
    uint64_t surplus;

    if (row < 0 || row >= HAMI_MAX_DEVICES || hami_mode() != HAMI_MODE_SLICE)
        return;
    if (bytes > SMALL) {
        hami_refund(row, rounded(bytes, BLOCK));
        return;
    }
    of = &small[row];
    hami_spin_lock(&of->lock);
    of->live -= share_of(bytes);
    surplus = take_surplus(of);
    hami_spin_unlock(&of->lock);
    hami_refund(row, surplus);
}

bool hami_resize_block(int row, uint64_t *bytes, uint64_t really)
{
    uint64_t old = rounded(*bytes, BLOCK), new = rounded(really, BLOCK);

    if (*bytes > SMALL && really > SMALL) {
        if (new > old && !hami_charge(row, new - old))
            return false;
        if (new < old)
            hami_refund(row, old - new);
    } else if (really > *bytes) {
        if (!hami_charge_block(row, really))
            return false;
        hami_refund_block(row, *bytes);
    } else {
        return true; /* as good as right, and shrinking must not fail */
    }
    *bytes = really;
    return true;
}
