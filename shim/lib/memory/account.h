/* The device memory this container has, counted across its processes without a lock. */
#ifndef HAMI_ACCOUNT_H
#define HAMI_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "slice/slice.h"

/* Whether requests of this process are counted, or refused: what every hook asks first. False: the
 * hook is a plain call of the driver. */
static inline bool hami_counting(void)
{
    enum hami_mode mode = hami_mode_settled();

    return mode == HAMI_MODE_SLICE || mode == HAMI_MODE_CLOSED;
}

/* Reserve before asking the driver. False: over the limit, also after dead processes' slots were
 * recovered; nothing is charged then. True without counting in HAMI_MODE_FREE, false in
 * HAMI_MODE_CLOSED or for HAMI_ROW_NONE. */
bool hami_charge(int row, uint64_t bytes);
/* Count what the driver took without asking; the sum may exceed the limit. */
void hami_charge_taken(int row, uint64_t bytes);
/* Give back what this process charged. */
void hami_refund(int row, uint64_t bytes);
/* Of all processes of the container: UINT64_MAX where one's word is no figure. Of this one, as it
 * knows itself. */
uint64_t hami_charged(int row);
uint64_t hami_charged_here(int row);
/* Whether the sum is within the limit now. */
bool hami_within(int row);

#define HAMI_BLOCK (UINT64_C(2) << 20) /* what the driver takes from the device at a time */

static inline uint64_t hami_whole_blocks(uint64_t bytes)
{
    return bytes > UINT64_MAX - HAMI_BLOCK ? UINT64_MAX
                                           : (bytes + HAMI_BLOCK - 1) / HAMI_BLOCK * HAMI_BLOCK;
}

/* The same for one allocation that the driver carves out of its blocks (blocks.c): in whole blocks.
 * `bytes` is what the program asked for; both calls of a pair say the same. */
bool hami_charge_block(int row, uint64_t bytes);
void hami_refund_block(int row, uint64_t bytes);
/* Where the driver put one that was charged: a small one that shares a block with others is charged
 * no more, and the block until the last of them has left. */
void hami_block_placed(int row, uint64_t address, uint64_t bytes);
void hami_block_left(int row, uint64_t address, uint64_t bytes);
/* It turned out to be `really` bytes. *bytes is what to refund one day; false: over the limit, and
 * *bytes is as it was. */
bool hami_resize_block(int row, uint64_t *bytes, uint64_t really);

/* Bring the own charge up to what the monitor saw the driver take (observed.c): loads of a few
 * words unless the monitor wrote since the last call. Charging calls it; so may whatever else makes
 * the driver take memory, such as launches. */
void hami_correct(void);

/* Slots (slots.c). */
/* Start this process's own figures anew: once, before it takes a slot. */
void hami_figures_reset(void);
/* Recover what the dead left, then take a free slot. False: all 256 are held by the living; another
 * time there may be one. */
bool hami_slot_take(struct hami_process *process);
/* Zero what the dead left; tries locks, never waits for others. Some may have died so lately that
 * the driver is still at it: what of the row's bytes will come back for that reason, within 100
 * ms. */
uint64_t hami_slots_recover(int row);
/* The same, if some were found dead earlier and that moment is over. Otherwise one load. */
void hami_slots_expected(void);
/* The same, whether or not any were found dead, but only once in a while. True: it looked. */
bool hami_slots_look(void);
/* The region's descriptor; negative where the program closed it. */
int hami_slots_file(void);
/* Put right what the monitor knows this process by, where it was written over. */
void hami_slot_assert(void);
void hami_slot_flag(uint32_t flags); /* or `flags` (enum hami_slot_flags) into the own slot */
void hami_slot_unflag(uint32_t flags);

/* What hami_figures_reset starts anew, each where it is kept. */
void hami_account_reset(void);
void hami_blocks_reset(void);
void hami_observed_reset(void);
void hami_context_reset(void); /* current.c */

/* The range in which the own charge of a row was since the last call, for observed.c. */
struct hami_range {
    uint64_t low, high;
};
struct hami_range hami_charged_range(int row);

#endif
