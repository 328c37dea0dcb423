/* What this process holds, said by what nobody else can write, and what others say so: see
 * witness.c. */
#ifndef HAMI_WITNESS_H
#define HAMI_WITNESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "hami_slice.h"

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
void hami_witness_reset(void);

#endif
