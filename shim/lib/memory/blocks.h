/* What an allocation really takes. The driver takes memory from the device in blocks of 2 MiB: an
 * allocation larger than half a block has whole blocks of its own, smaller ones share blocks. If we
 * charged what the program asked for, ten thousand allocations of 2.1 MiB would have nearly twice
 * their limit; and a program that fills blocks with small ones and frees all but one in each would
 * have its limit many times over.
 *
 * Which of them share a block is the driver's secret, until it gives out an address: blocks are
 * aligned, so it is told by that. So a small allocation is charged a whole block before it is made,
 * and gives that back when it turns out to lie in one that others are charged for already. At the
 * limit it is refused though a hole might have held it: what cannot be known cannot be granted.
 * Arrays have no address, and are charged whole blocks each. */
#ifndef HAMI_BLOCKS_H
#define HAMI_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#define HAMI_BLOCK (UINT64_C(2) << 20) /* what the driver takes from the device at a time */

uint64_t hami_whole_blocks(uint64_t bytes);

/* hami_charge and hami_refund for one allocation that the driver carves out of its blocks: in whole
 * blocks. `bytes` is what the program asked for; both calls of a pair say the same. */
bool hami_charge_block(int row, uint64_t bytes);
void hami_refund_block(int row, uint64_t bytes);
/* Where the driver put one that was charged: a small one that shares a block with others is charged
 * no more, and the block until the last of them has left. */
void hami_block_placed(int row, uint64_t address, uint64_t bytes);
void hami_block_left(int row, uint64_t address, uint64_t bytes);
/* It turned out to be `really` bytes. *bytes is what to refund one day; false: over the limit, and
 * *bytes is as it was. */
bool hami_resize_block(int row, uint64_t *bytes, uint64_t really);

#endif
