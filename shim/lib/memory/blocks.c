#include "memory/blocks.h"

#include <sys/mman.h>

#include "base/lock.h"
#include "base/reset.h"
#include "memory/account.h"
#include "memory/charge.h"
#include "slice/process.h"

#define SMALL (HAMI_BLOCK / 2)
#define SHARDS 16u
#define FIRST_BYTES 4096

/* How many small allocations lie in which block. Open addressing with linear probing, as in map.c,
 * whose locks may be held when we are called. */
struct count {
    uint64_t block; /* its address / HAMI_BLOCK, and the row it is charged to */
    uint64_t pieces; /* 0: free */
};

struct table {
    size_t bytes;  /* of this mapping */
    uint32_t mask; /* places - 1 */
    uint32_t used;
    struct count places[];
};

static struct shard {
    struct hami_spin lock;
    struct table *table;
} __attribute__((aligned(64))) shards[SHARDS];

void hami_blocks_reset(void)
{
    for (uint32_t s = 0; s < SHARDS; s++) {
        struct table *table = shards[s].table;

        atomic_store_explicit(&shards[s].lock.held, 0, memory_order_relaxed);
        shards[s].table = NULL;
        if (table)
            munmap(table, table->bytes);
    }
}

static uint64_t mixed(uint64_t block)
{
    return block * UINT64_C(0x9e3779b97f4a7c15);
}

static struct shard *shard_of(uint64_t block)
{
    return &shards[mixed(block) >> 60 & (SHARDS - 1)];
}

static uint32_t home_of(const struct table *table, uint64_t block)
{
    return (uint32_t)(mixed(block) >> 28) & table->mask;
}

static struct count *find(struct table *table, uint64_t block)
{
    uint32_t place = home_of(table, block);

    while (table->places[place].pieces != 0 && table->places[place].block != block)
        place = (place + 1) & table->mask;
    return &table->places[place];
}

static bool make_room(struct shard *shard)
{
    struct table *old = shard->table, *new;
    size_t bytes = old ? old->bytes * 2 : FIRST_BYTES;
    uint32_t places = 1;

    if (old && old->used < old->mask / 4 * 3)
        return true;
    new = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (new == MAP_FAILED)
        return old && old->used < old->mask;
    while (sizeof(*new) + 2 * places * sizeof(struct count) <= bytes)
        places *= 2;
    new->bytes = bytes;
    new->mask = places - 1;
    for (uint32_t i = 0; old && i <= old->mask; i++) {
        if (old->places[i].pieces != 0) {
            *find(new, old->places[i].block) = old->places[i];
            new->used++;
        }
    }
    shard->table = new;
    if (old)
        munmap(old, old->bytes);
    return true;
}

/* Later entries of the run move back, as in map.c. */
static void remove_at(struct table *table, struct count *at)
{
    uint32_t hole = (uint32_t)(at - table->places), next = hole;

    table->used--;
    for (;;) {
        uint32_t home;

        next = (next + 1) & table->mask;
        if (table->places[next].pieces == 0)
            break;
        home = home_of(table, table->places[next].block);
        if (((next - home) & table->mask) >= ((next - hole) & table->mask)) {
            table->places[hole] = table->places[next];
            hole = next;
        }
    }
    table->places[hole].pieces = 0;
}

/* Whether it is the first in its block, or is not counted for want of memory. */
static bool is_first(uint64_t block)
{
    struct shard *shard = shard_of(block);
    bool first = true;

    hami_spin_lock(&shard->lock);
    if (make_room(shard)) {
        struct count *at = find(shard->table, block);

        first = at->pieces++ == 0;
        if (first) {
            at->block = block;
            shard->table->used++;
        }
    }
    hami_spin_unlock(&shard->lock);
    return first;
}

/* Whether it was the last in its block, or was not counted. */
static bool was_last(uint64_t block)
{
    struct shard *shard = shard_of(block);
    bool last = true;

    hami_spin_lock(&shard->lock);
    if (shard->table) {
        struct count *at = find(shard->table, block);

        if (at->pieces > 0) {
            last = --at->pieces == 0;
            if (last)
                remove_at(shard->table, at);
        }
    }
    hami_spin_unlock(&shard->lock);
    return last;
}

uint64_t hami_whole_blocks(uint64_t bytes)
{
    return bytes > UINT64_MAX - HAMI_BLOCK ? UINT64_MAX
                                           : (bytes + HAMI_BLOCK - 1) / HAMI_BLOCK * HAMI_BLOCK;
}

bool hami_charge_block(int row, uint64_t bytes)
{
    return hami_charge(row, hami_whole_blocks(bytes));
}

void hami_refund_block(int row, uint64_t bytes)
{
    hami_refund(row, hami_whole_blocks(bytes));
}

/* The row too: what a context had is refunded after the driver has taken it back, and the address
 * may be another device's by then. */
static uint64_t block_at(int row, uint64_t address)
{
    return address / HAMI_BLOCK * HAMI_MAX_DEVICES + (uint64_t)(row & (HAMI_MAX_DEVICES - 1));
}

void hami_block_placed(int row, uint64_t address, uint64_t bytes)
{
    if (bytes <= SMALL && !is_first(block_at(row, address)))
        hami_refund(row, HAMI_BLOCK);
}

void hami_block_left(int row, uint64_t address, uint64_t bytes)
{
    if (bytes > SMALL)
        hami_refund_block(row, bytes);
    else if (was_last(block_at(row, address)))
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
