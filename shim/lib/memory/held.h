/* What the processes of the container hold of a device: this one as it knows itself, all others as
 * their words in the usage region say, and as their witnesses do (held.c). */
#ifndef HAMI_HELD_H
#define HAMI_HELD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "hami_slice.h"
#include "slice/process.h"

/* ---- This process ---- */

/* What this process holds. `held`: the bytes, and in the highest bits how often they changed, so
 * that who reads it twice sees whether anything happened between. `low` and `high`: the range that
 * it was in since charge.c last asked. */
extern struct hami_held {
    _Atomic uint64_t held;
    _Atomic uint64_t low, high;
} hami_held[HAMI_MAX_DEVICES];

#define HAMI_HELD_CHANGE 56 /* the first of the highest bits */

/* Signed: more given back than was taken is no large figure. */
static inline int64_t hami_held_bytes(uint64_t held)
{
    return (int64_t)(held << (64 - HAMI_HELD_CHANGE)) >> (64 - HAMI_HELD_CHANGE);
}

static inline uint64_t hami_held_here(int row)
{
    int64_t held = hami_held_bytes(atomic_load_explicit(&hami_held[row].held,
                                                        memory_order_seq_cst));

    return held < 0 ? 0 : (uint64_t)held;
}

/* ---- The others' words ---- */

/* No device has so much. Words below it cannot overflow a sum, and one above it is not a figure. */
#define HAMI_IMPOSSIBLE_BYTES (UINT64_C(1) << 55)

/* Words are written by other processes of the container, which may write anything: if one is no
 * figure, neither is the sum. It is what a charge spends most of its time on, hence several chains
 * of additions, and, where two words come with one load, that: 29 ns instead of 52. */
#ifdef __x86_64__
typedef uint64_t hami_lane __attribute__((vector_size(16)));

/* A processor with 64 bits loads each half of an aligned pair at once, which the compiler does not
 * know; loads stay behind the locked addition before them, and in their order. */
static inline hami_lane hami_load_lane(const _Atomic uint64_t *words)
{
    hami_lane both;

    __asm__ volatile("movdqa %1, %0" : "=x"(both) : "m"(*(const hami_lane *)(const void *)words));
    return both;
}

static inline uint64_t hami_lane_sum(hami_lane lane)
{
    return lane[0] + lane[1];
}

static inline uint64_t hami_lane_any(hami_lane lane)
{
    return lane[0] | lane[1];
}
#else
typedef uint64_t hami_lane;

static inline hami_lane hami_load_lane(const _Atomic uint64_t *words)
{
    return atomic_load_explicit(words, memory_order_seq_cst);
}

static inline uint64_t hami_lane_sum(hami_lane lane)
{
    return lane;
}

static inline uint64_t hami_lane_any(hami_lane lane)
{
    return lane;
}
#endif

#define HAMI_LANE_WORDS (sizeof(hami_lane) / sizeof(uint64_t))
#define HAMI_GROUP (4 * HAMI_LANE_WORDS)
_Static_assert(HAMI_MAX_SLOTS % HAMI_GROUP == 0, "summed in groups");

/* Which of a group count where the n-th does not. */
#define HAMI_BUT(n)                                                                                \
    {-(uint64_t)(n != 0), -(uint64_t)(n != 1), -(uint64_t)(n != 2), -(uint64_t)(n != 3),           \
     -(uint64_t)(n != 4), -(uint64_t)(n != 5), -(uint64_t)(n != 6), -(uint64_t)(n != 7)}
static const _Alignas(64) uint64_t hami_but[8][8] = {
    HAMI_BUT(0), HAMI_BUT(1), HAMI_BUT(2), HAMI_BUT(3),
    HAMI_BUT(4), HAMI_BUT(5), HAMI_BUT(6), HAMI_BUT(7),
};
#undef HAMI_BUT

struct hami_totals {
    hami_lane a, b, c, d, any, other;
};

static inline __attribute__((always_inline)) void
hami_add_group(struct hami_totals *totals, hami_lane one, hami_lane two, hami_lane three,
               hami_lane four)
{
    totals->a += one;
    totals->b += two;
    totals->c += three;
    totals->d += four;
    totals->any |= one | two;
    totals->other |= three | four;
}

static inline __attribute__((always_inline)) void
hami_add_groups(struct hami_totals *totals, const _Atomic uint64_t *at,
                const _Atomic uint64_t *end)
{
    for (; at != end; at += HAMI_GROUP)
        hami_add_group(totals, hami_load_lane(at), hami_load_lane(at + HAMI_LANE_WORDS),
                       hami_load_lane(at + 2 * HAMI_LANE_WORDS),
                       hami_load_lane(at + 3 * HAMI_LANE_WORDS));
}

/* What all other processes have on record; UINT64_MAX: one's word is no figure. What is read of the
 * own word counts for nothing: by the time that it could be taken off the sum again it might be
 * another one. */
static inline uint64_t hami_others(int row)
{
    const _Atomic uint64_t *words = hami_process->usage->charged[row];
    uint32_t place = hami_process->slot % HAMI_GROUP;
    const _Atomic uint64_t *group = words + (hami_process->slot - place);
    const hami_lane *but = (const void *)hami_but[place];
    struct hami_totals totals = {0};

    atomic_signal_fence(memory_order_seq_cst);
    hami_add_group(&totals, hami_load_lane(group) & but[0],
                   hami_load_lane(group + HAMI_LANE_WORDS) & but[1],
                   hami_load_lane(group + 2 * HAMI_LANE_WORDS) & but[2],
                   hami_load_lane(group + 3 * HAMI_LANE_WORDS) & but[3]);
    hami_add_groups(&totals, words, group);
    hami_add_groups(&totals, group + HAMI_GROUP, words + HAMI_MAX_SLOTS);
    atomic_signal_fence(memory_order_seq_cst);
    if (hami_lane_any(totals.any | totals.other) >= HAMI_IMPOSSIBLE_BYTES)
        return UINT64_MAX;
    return hami_lane_sum(totals.a + totals.b + totals.c + totals.d);
}

/* ---- Witnesses ---- */

#define HAMI_WITNESS_BYTES (UINT64_C(8) << 20) /* of one unit */

extern struct hami_witness {
    _Atomic uint64_t units; /* that are witnessed of this process */
    _Atomic uint64_t floor; /* what others had at least when they were last asked */
} hami_witness[HAMI_MAX_DEVICES];

/* With `held` bytes of our own and `others` on record of everybody else: whether it is time to ask. */
static inline bool hami_witness_due(int row, uint64_t held, uint64_t others)
{
    struct hami_witness *of = &hami_witness[row];

    return held / HAMI_WITNESS_BYTES > atomic_load_explicit(&of->units, memory_order_relaxed) ||
           others < atomic_load_explicit(&of->floor, memory_order_relaxed);
}

/* The same of what is given back, which is to be said before others are told. */
static inline bool hami_witness_behind(int row, uint64_t held)
{
    return held / HAMI_WITNESS_BYTES + 1 <
           atomic_load_explicit(&hami_witness[row].units, memory_order_seq_cst);
}

/* Bring the own witness in line with what is held now. False: somebody keeps it from us. */
bool hami_witness_follow(int row);
/* What others hold beyond what is on record of them. */
uint64_t hami_witness_hidden(int row);

#endif
