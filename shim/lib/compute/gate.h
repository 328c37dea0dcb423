/* The gate that a launch goes through on its way to the driver: the process's own compute share
 * (compute.h), its terms, and the waiting. */
#ifndef HAMI_GATE_H
#define HAMI_GATE_H

#include <stdbool.h>

#include "compute/compute.h"
#include "compute/samples.h"
#include "hami_cuda.h"
#include "slice/slice.h"

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
    unsigned int row;
    CUstream stream;
    int64_t estimate;
    struct hami_what what;
    struct hami_work work;
    struct hami_measuring measuring;
};

/* Which devices have a gate: a revision of the limits << 32, a bit << HAMI_GATE_HELD for each row
 * on which the monitor may hold this slice by it, and a bit for each row with a compute limit. */
#define HAMI_GATE_ROWS UINT64_C(0xffff)
#define HAMI_GATE_HELD 16
extern _Atomic uint64_t hami_gates;

/* Whether the monitor holds this slice on a device by what it wrote last, however long ago. */
static inline bool hami_gate_holds(const struct hami_limits_page *page, unsigned int row)
{
    return ((atomic_load_explicit(&page->observed.devices[row].contention, memory_order_relaxed) &
             HAMI_CONTENTION_HIGHER) |
            atomic_load_explicit(&page->observed.share[row], memory_order_relaxed)) != 0;
}

/* Whether launches of this process are none of our business now: a few loads. If they are, `rows`
 * are those of hami_gates, or 0 where that is not known yet. */
bool hami_gate_absent_now(uint64_t *rows);
static inline bool hami_gate_absent(uint64_t *rows)
{
    const struct hami_limits_page *page = hami_process->page;
    uint64_t gates = atomic_load_explicit(&hami_gates, memory_order_relaxed);

    *rows = gates & UINT32_MAX;
    if (__builtin_expect(hami_mode() != HAMI_MODE_SLICE || !page ||
                         gates >> 32 != (hami_page_revision(page) & UINT32_MAX), 0))
        return hami_gate_absent_now(rows);
    if (*rows == UINT64_C(1) << HAMI_GATE_HELD)
        return !hami_gate_holds(page, 0);
    return *rows == 0 || ((*rows & HAMI_GATE_ROWS) == 0 && hami_gate_absent_now(rows));
}

/* Before a launch of `handle` on the current device, with what hami_gate_absent said, or on a
 * device of the slice. Waits for its turn. CUDA_ERROR_OUT_OF_MEMORY in HAMI_MODE_CLOSED, where
 * nothing is started; otherwise hami_gate_leave follows the driver's answer. */
CUresult hami_gate_enter(struct hami_gate *gate, uint64_t rows, const void *handle, uint32_t size,
                         CUstream stream, bool per_thread);
CUresult hami_gate_enter_row(struct hami_gate *gate, unsigned int row, const void *handle,
                             uint32_t size, CUstream stream, bool per_thread);

void hami_gate_left(struct hami_gate *gate, CUresult result);
static inline void hami_gate_leave(struct hami_gate *gate, CUresult result)
{
    if (__builtin_expect(gate->state == HAMI_GATE_MEASURED || result != CUDA_SUCCESS, 0))
        hami_gate_left(gate, result);
}

/* The program has waited for the device. What was measured is charged now: no launch may follow. */
void hami_gate_settle(void);

/* A module or library (which one makes no difference), a graph exec, a stream, a context goes:
 * forget what was measured. */
void hami_gate_forget_module(void);
void hami_gate_forget_exec(CUgraphExec exec);
void hami_gate_forget_stream(CUstream stream);
void hami_gate_forget_context(CUcontext context);

#endif
