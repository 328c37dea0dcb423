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
#include "account.h"
#include "map.h"

#define SMALL (HAMI_BLOCK / 2)

bool hami_charge_block(int row, uint64_t bytes)
{
    return hami_charge(row, hami_whole_blocks(bytes));
}

void hami_refund_block(int row, uint64_t bytes)
{
    hami_refund(row, hami_whole_blocks(bytes));
}

void hami_block_placed(int row, uint64_t address, uint64_t bytes)
{
    if (bytes <= SMALL && hami_map_count(HAMI_KIND_BLOCK, address / HAMI_BLOCK, 1) > 1)
        hami_refund(row, HAMI_BLOCK);
}

/* One that was not counted, for want of memory, has kept what it was charged. */
void hami_block_left(int row, uint64_t address, uint64_t bytes)
{
    if (bytes > SMALL)
        hami_refund_block(row, bytes);
    else if (hami_map_count(HAMI_KIND_BLOCK, address / HAMI_BLOCK, -1) <= 0)
        hami_refund(row, HAMI_BLOCK);
}

bool hami_resize_block(int row, uint64_t *bytes, uint64_t really)
{
    uint64_t old = hami_whole_blocks(*bytes), new = hami_whole_blocks(really);

    if (new > old && !hami_charge(row, new - old))
        return false;
    if (new < old)
        hami_refund(row, old - new);
    *bytes = really;
    return true;
}
