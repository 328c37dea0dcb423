/* The gate that a launch goes through on its way to the driver: the process's own compute share
 * (compute.h), its terms, and the waiting. */
#ifndef HAMI_GATE_H
#define HAMI_GATE_H

#include <stdbool.h>

#include "compute.h"
#include "hami_cuda.h"
#include "samples.h"

enum hami_gate_state {
    HAMI_GATE_UNCOUNTED, /* nothing to do with us */
    HAMI_GATE_QUICK,     /* charged `estimate` and nothing else */
    HAMI_GATE_COUNTED,   /* `work` says what was charged */
    HAMI_GATE_MEASURED,  /* and it is being measured */
};

/* One launch, on the hook's stack; not to be filled in by hand. */
struct hami_gate {
    enum hami_gate_state state;
    bool per_thread;
    bool measurable;
    unsigned int row;
    CUstream stream;
    int64_t estimate;
    struct hami_what what;
    struct hami_work work;
    struct hami_measuring measuring;
};

/* Whether launches of this process are none of our business: a few loads. */
bool hami_gate_absent(void);

/* Before a launch of `handle` on the current device, or on a device of the slice. Waits for its
 * turn. CUDA_ERROR_OUT_OF_MEMORY in HAMI_MODE_CLOSED, where nothing is started; otherwise
 * hami_gate_leave follows the driver's answer. `measurable`: events around it leave it as it is. */
CUresult hami_gate_enter(struct hami_gate *gate, const void *handle, uint32_t size, CUstream stream,
                         bool per_thread, bool measurable);
CUresult hami_gate_enter_row(struct hami_gate *gate, unsigned int row, const void *handle,
                             uint32_t size, CUstream stream, bool per_thread, bool measurable);

void hami_gate_left(struct hami_gate *gate, CUresult result);
static inline void hami_gate_leave(struct hami_gate *gate, CUresult result)
{
    if (__builtin_expect(gate->state == HAMI_GATE_MEASURED || result != CUDA_SUCCESS, 0))
        hami_gate_left(gate, result);
}

/* Captures (capture.c): forget those that a forked child inherited; a stream goes. */
void hami_captures_reset(void);
void hami_captures_forget(CUstream stream);

#endif
