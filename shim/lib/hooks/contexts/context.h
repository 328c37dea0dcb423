/* Contexts: what one is charged, and what ends with it. */
#ifndef HAMI_CONTEXT_H
#define HAMI_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "hami_cuda.h"
#include "memory/map.h"

/* What HAMI_KIND_CONTEXT entries are: `bytes` the reserve and the limits, `context` the primary one
 * of a green context and else NULL, `extra` the rest. */
struct hami_context_extra {
    uint64_t uses : 7;                           /* cuCtxAttach, cuCtxDetach */
    uint64_t heap : 19, printf : 19, stack : 19; /* charged for cuCtxSetLimit, in blocks */
};

/* What a context on a device is charged before it is made. */
uint64_t hami_context_reserve(int row);
/* Charge that, on a row of the slice; false: over the limit, and where it can never be within, the
 * log says so. */
bool hami_context_charge(int row, uint64_t reserve);
/* The driver destroyed a context, and what was in it: take everything off the record. `charged`:
 * where its memory is recorded, the context itself or a stand-in. */
void hami_context_gone(CUcontext context, CUcontext charged);
/* What is recorded for `context` is from now on recorded for `to`. */
void hami_context_move(CUcontext context, CUcontext to);

/* Held by whoever changes a HAMI_KIND_CONTEXT entry that is on record. */
extern struct hami_lock hami_context_entries;

#endif
