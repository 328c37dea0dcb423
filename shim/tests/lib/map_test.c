/* The map against a model that is too simple to be wrong. links: lib/memory/map.c lib/base/reset.c */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/reset.h"
#include "expect.h"
#include "hami_slice.h"
#include "memory/account.h"
#include "memory/blocks.h"
#include "memory/map.h"

/* What was refunded, by row; as blocks from the upper half. */
static _Atomic uint64_t refunded[2 * HAMI_MAX_DEVICES];

void hami_refund(int row, uint64_t bytes)
{
    atomic_fetch_add(&refunded[row], bytes);
}

void hami_refund_block(int row, uint64_t bytes)
{
    atomic_fetch_add(&refunded[HAMI_MAX_DEVICES + row], bytes);
}

void hami_block_left(int row, uint64_t address, uint64_t bytes)
{
    (void)address;
    hami_refund_block(row, bytes);
}

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static CUcontext context_numbered(uint64_t number)
{
    return number ? (CUcontext)(uintptr_t)(0x1000 * number) : NULL;
}

static struct hami_entry entry_of(enum hami_kind kind, uint64_t key, uint64_t bytes)
{
    return (struct hami_entry){
        .key = key, .kind = (uint8_t)kind, .bytes = bytes, .extra = ~bytes,
        .row = (int16_t)(bytes % 16), .context = context_numbered(bytes % 4),
    };
}

static bool same(const struct hami_entry *a, const struct hami_entry *b)
{
    return a->key == b->key && a->kind == b->kind && a->bytes == b->bytes && a->extra == b->extra &&
           a->row == b->row && a->context == b->context;
}

#define KEYS 3000
#define KINDS 3

static struct hami_entry model[KINDS][KEYS]; /* kind HAMI_KIND_NONE: not there */

static uint64_t key_numbered(uint64_t number)
{
    /* Addresses of neighbouring allocations, of which many hashes are poor. */
    return UINT64_C(0x7f4200000000) + number * (number % 3 == 0 ? 512 : 0x200000);
}

static void any_sequence_is_as_in_the_model(void)
{
    uint64_t seed = 42;

    hami_reset_all();
    memset(model, 0, sizeof(model));
    for (int i = 0; i < 600000; i++) {
        uint64_t kind = next(&seed) % KINDS, number = next(&seed) % KEYS;
        enum hami_kind named = (enum hami_kind)(HAMI_KIND_LINEAR + kind);
        struct hami_entry *known = &model[kind][number], entry, old;
        bool there = known->kind != HAMI_KIND_NONE;

        /* Phases in which it grows, and in which it shrinks. */
        switch (next(&seed) % 8 + (uint64_t)(i / 100000 % 2)) {
        case 0:
        case 1:
        case 2:
        case 3:
            entry = entry_of(named, key_numbered(number), next(&seed));
            EXPECT(hami_map_exchange(&entry, &old));
            EXPECT(there ? same(&old, known) : old.kind == HAMI_KIND_NONE);
            *known = entry;
            break;
        case 4:
            EXPECT(hami_map_get(named, key_numbered(number), &entry) == there);
            EXPECT(!there || same(&entry, known));
            break;
        default:
            EXPECT(hami_map_take(named, key_numbered(number), &entry) == there);
            EXPECT(!there || same(&entry, known));
            known->kind = HAMI_KIND_NONE;
        }
        if (failures > 10)
            return;
    }
    for (uint64_t kind = 0; kind < KINDS; kind++)
        for (uint64_t number = 0; number < KEYS; number++) {
            struct hami_entry entry;
            bool there = model[kind][number].kind != HAMI_KIND_NONE;

            EXPECT(hami_map_take((enum hami_kind)(HAMI_KIND_LINEAR + kind), key_numbered(number),
                                 &entry) == there);
            EXPECT(!there || same(&entry, &model[kind][number]));
        }
}

static void a_context_takes_its_own_with_it(void)
{
    uint64_t expected[2 * HAMI_MAX_DEVICES] = {0}, seed = 7;
    struct hami_entry entry;

    hami_reset_all();
    memset(model, 0, sizeof(model));
    memset(refunded, 0, sizeof(refunded));
    for (uint64_t number = 0; number < KEYS; number++)
        for (uint64_t kind = 0; kind < KINDS; kind++) {
            model[kind][number] = entry = entry_of((enum hami_kind)(HAMI_KIND_LINEAR + kind),
                                                   key_numbered(number), next(&seed));
            EXPECT(hami_map_put(&entry));
            if (entry.context == context_numbered(2))
                expected[entry.row + (entry.kind == HAMI_KIND_ASYNC ? 0 : HAMI_MAX_DEVICES)] +=
                    entry.bytes;
        }
    hami_map_drop_context(context_numbered(2));
    hami_map_drop_context(NULL); /* nobody's: these stay */
    for (int i = 0; i < 2 * HAMI_MAX_DEVICES; i++)
        EXPECT(atomic_load(&refunded[i]) == expected[i]);
    for (uint64_t number = 0; number < KEYS; number++)
        for (uint64_t kind = 0; kind < KINDS; kind++) {
            bool stays = model[kind][number].context != context_numbered(2);

            EXPECT(hami_map_get((enum hami_kind)(HAMI_KIND_LINEAR + kind), key_numbered(number),
                                &entry) == stays);
            EXPECT(!stays || same(&entry, &model[kind][number]));
        }
}

static bool move(struct hami_entry *entry, void *to)
{
    entry->context = to;
    return false;
}

static void what_belonged_to_one_context_can_be_anothers(void)
{
    struct hami_entry entry;

    hami_reset_all();
    for (uint64_t number = 0; number < 100; number++) {
        entry = entry_of(HAMI_KIND_LINEAR, key_numbered(number), 1); /* context 1 */
        EXPECT(hami_map_put(&entry));
    }
    hami_map_visit(context_numbered(1), move, context_numbered(9));
    memset(refunded, 0, sizeof(refunded));
    hami_map_drop_context(context_numbered(1));
    EXPECT(atomic_load(&refunded[HAMI_MAX_DEVICES + 1]) == 0);
    hami_map_drop_context(context_numbered(9));
    EXPECT(atomic_load(&refunded[HAMI_MAX_DEVICES + 1]) == 100);
}

static void a_reset_map_is_empty(void)
{
    struct hami_entry entry = entry_of(HAMI_KIND_LINEAR, 512, 77);

    EXPECT(hami_map_put(&entry));
    hami_reset_all();
    EXPECT(!hami_map_get(HAMI_KIND_LINEAR, 512, &entry));
    EXPECT(hami_map_put(&entry) && hami_map_take(HAMI_KIND_LINEAR, 512, &entry));
    EXPECT(!hami_map_take(HAMI_KIND_LINEAR, 512, &entry));
}

#define THREADS 8
#define OWN 2000

/* Each thread has keys of its own, spread over all shards, and all of them one context. */
static void *hammer(void *argument)
{
    uint64_t self = (uintptr_t)argument, seed = self + 1, wrong = 0;
    bool there[OWN] = {false};

    for (int i = 0; i < 40000; i++) {
        uint64_t number = next(&seed) % OWN, key = key_numbered(self * OWN + number) | self << 56;
        struct hami_entry entry = entry_of(HAMI_KIND_LINEAR, key, self * 4 + 1), found;

        if (there[number]) {
            wrong += !hami_map_take(HAMI_KIND_LINEAR, key, &found) || !same(&found, &entry);
        } else {
            wrong += hami_map_get(HAMI_KIND_LINEAR, key, &found);
            wrong += !hami_map_put(&entry);
        }
        there[number] = !there[number];
        if (i % 10000 == 0)
            hami_map_visit(context_numbered(3), move, context_numbered(3));
    }
    return (void *)(uintptr_t)wrong;
}

static void threads_do_not_disturb_each_other(void)
{
    pthread_t threads[THREADS];

    hami_reset_all();
    for (uintptr_t i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&threads[i], NULL, hammer, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++) {
        void *wrong;

        pthread_join(threads[i], &wrong);
        EXPECT(wrong == NULL);
    }
}

int main(void)
{
    any_sequence_is_as_in_the_model();
    a_context_takes_its_own_with_it();
    what_belonged_to_one_context_can_be_anothers();
    a_reset_map_is_empty();
    threads_do_not_disturb_each_other();
    if (failures)
        fprintf(stderr, "%d expectations failed\n", failures);
    return failures != 0;
}
