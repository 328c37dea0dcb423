/* Open addressing with linear probing, in shards that have a lock each. Deleting moves later
 * entries of the same run back, so that no tombstones pile up however long a program allocates and
 * frees. */
#include "memory/map.h"

#include <string.h>
#include <sys/mman.h>

#include "base/lock.h"
#include "base/reset.h"
#include "memory/account.h"
#include "memory/blocks.h"

#define SHARD_BITS 5
#define SHARDS (1u << SHARD_BITS)
#define FIRST_BYTES 4096

/* One pointer, changed last: a process that forks at any moment leaves its child with a table that
 * is whole enough to be given back to the kernel. */
struct table {
    size_t bytes;    /* of this mapping */
    uint32_t mask;   /* places - 1 */
    uint32_t used;
    struct hami_entry places[];
};

static struct shard {
    struct hami_spin lock;
    struct table *table;
} __attribute__((aligned(64))) shards[SHARDS];

/* Addresses are multiples of 512 or more and handles of 8 or more: the multiplication carries every
 * bit upwards, so shard and place are taken from the top. */
static uint64_t hash_of(unsigned int kind, uint64_t key)
{
    uint64_t mixed = (key ^ ((uint64_t)kind << 56)) * UINT64_C(0x9e3779b97f4a7c15);

    return mixed ^ (mixed >> 29);
}

static struct shard *shard_of(uint64_t hash)
{
    return &shards[hash >> (64 - SHARD_BITS)];
}

static uint32_t place_of(const struct table *table, uint64_t hash)
{
    return (uint32_t)(hash >> (32 - SHARD_BITS)) & table->mask;
}

static struct table *table_new(size_t bytes)
{
    struct table *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                               -1, 0);
    uint32_t places = 1;

    if (table == MAP_FAILED)
        return NULL;
    while (sizeof(*table) + 2 * places * sizeof(struct hami_entry) <= bytes)
        places *= 2;
    table->bytes = bytes;
    table->mask = places - 1;
    return table;
}

/* Where the entry is, or the free place where it would be. */
static struct hami_entry *find(struct table *table, uint64_t hash, unsigned int kind, uint64_t key)
{
    uint32_t place = place_of(table, hash);

    while (table->places[place].kind != HAMI_KIND_NONE &&
           (table->places[place].key != key || table->places[place].kind != kind))
        place = (place + 1) & table->mask;
    return &table->places[place];
}

/* At most three quarters full, so that a run ends soon and there always is a free place. */
static bool make_room(struct shard *shard)
{
    struct table *old = shard->table, *new;

    if (old && old->used < old->mask / 4 * 3)
        return true;
    new = table_new(old ? old->bytes * 2 : FIRST_BYTES);
    if (!new)
        return old && old->used < old->mask;
    for (uint32_t i = 0; old && i <= old->mask; i++) {
        const struct hami_entry *entry = &old->places[i];

        if (entry->kind != HAMI_KIND_NONE) {
            *find(new, hash_of(entry->kind, entry->key), entry->kind, entry->key) = *entry;
            new->used++;
        }
    }
    shard->table = new;
    if (old)
        munmap(old, old->bytes);
    return true;
}

bool hami_map_exchange(const struct hami_entry *entry, struct hami_entry *old)
{
    uint64_t hash = hash_of(entry->kind, entry->key);
    struct shard *shard = shard_of(hash);
    struct hami_entry *at;
    bool room;

    *old = (struct hami_entry){.row = -1};
    hami_spin_lock(&shard->lock);
    room = make_room(shard);
    if (room) {
        at = find(shard->table, hash, entry->kind, entry->key);
        if (at->kind == HAMI_KIND_NONE)
            shard->table->used++;
        else
            *old = *at;
        *at = *entry;
    }
    hami_spin_unlock(&shard->lock);
    return room;
}

bool hami_map_put(const struct hami_entry *entry)
{
    struct hami_entry old;

    return hami_map_exchange(entry, &old);
}

/* Close the hole: each later entry of the run that may not be reached past it any more moves into
 * it and leaves the next hole. */
static void remove_at(struct table *table, struct hami_entry *at)
{
    uint32_t hole = (uint32_t)(at - table->places), next = hole;

    table->used--;
    for (;;) {
        const struct hami_entry *entry;
        uint32_t home;

        next = (next + 1) & table->mask;
        entry = &table->places[next];
        if (entry->kind == HAMI_KIND_NONE)
            break;
        home = place_of(table, hash_of(entry->kind, entry->key));
        if (((next - home) & table->mask) >= ((next - hole) & table->mask)) {
            table->places[hole] = *entry;
            hole = next;
        }
    }
    table->places[hole].kind = HAMI_KIND_NONE;
}

static bool look_up(enum hami_kind kind, uint64_t key, struct hami_entry *entry, bool take)
{
    uint64_t hash = hash_of(kind, key);
    struct shard *shard = shard_of(hash);
    bool found = false;

    hami_spin_lock(&shard->lock);
    if (shard->table) {
        struct hami_entry *at = find(shard->table, hash, kind, key);

        if (at->kind != HAMI_KIND_NONE) {
            *entry = *at;
            found = true;
            if (take)
                remove_at(shard->table, at);
        }
    }
    hami_spin_unlock(&shard->lock);
    return found;
}

bool hami_map_take(enum hami_kind kind, uint64_t key, struct hami_entry *entry)
{
    return look_up(kind, key, entry, true);
}

bool hami_map_get(enum hami_kind kind, uint64_t key, struct hami_entry *entry)
{
    return look_up(kind, key, entry, false);
}

bool hami_map_take_memory(enum hami_kind likely, uint64_t address, struct hami_entry *entry)
{
    return hami_map_take(likely, address, entry) ||
           hami_map_take(likely == HAMI_KIND_LINEAR ? HAMI_KIND_ASYNC : HAMI_KIND_LINEAR, address,
                         entry);
}

void hami_entry_refund(const struct hami_entry *entry)
{
    switch (entry->kind) {
    case HAMI_KIND_LINEAR:
        hami_block_left(entry->row, entry->key, entry->bytes);
        break;
    case HAMI_KIND_ARRAY:
    case HAMI_KIND_MIPMAP:
        hami_refund_block(entry->row, entry->bytes);
        break;
    default:
        hami_refund(entry->row, entry->bytes);
    }
}

/* An entry that moved back into the place of one that went is visited next; one that came round the
 * table's end may be visited twice. */
void hami_map_visit(CUcontext context, bool (*drop)(struct hami_entry *entry, void *argument),
                    void *argument)
{
    for (uint32_t s = 0; context && s < SHARDS; s++) {
        struct table *table;

        hami_spin_lock(&shards[s].lock);
        table = shards[s].table;
        for (uint32_t i = 0; table && i <= table->mask;) {
            struct hami_entry *at = &table->places[i];

            if (at->kind != HAMI_KIND_NONE && at->context == context && drop(at, argument))
                remove_at(table, at);
            else
                i++;
        }
        hami_spin_unlock(&shards[s].lock);
    }
}

static bool refund_and_drop(struct hami_entry *entry, void *argument)
{
    (void)argument;
    hami_entry_refund(entry);
    return true;
}

void hami_map_drop_context(CUcontext context)
{
    hami_map_visit(context, refund_and_drop, NULL);
}

void hami_map_reset(void)
{
    for (uint32_t s = 0; s < SHARDS; s++) {
        struct table *table = shards[s].table;

        atomic_store_explicit(&shards[s].lock.held, 0, memory_order_relaxed);
        shards[s].table = NULL;
        if (table)
            munmap(table, table->bytes);
    }
}
