#include "compute/gate.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/reset.h"
#include "compute/horizon.h"
#include "compute/settle.h"
#include "driver/real.h"
#include "program/capture.h"
#include "program/current.h"
#include "slice/devices.h"
#include "slice/follow.h"
#include "slice/slice.h"

/* A thread that waits looks again after so long: whether limits changed, and, while a
 * measurement is under way that may well give back what was charged, whether that came in. */
#define LOOK_AGAIN (10 * HAMI_MILLISECOND)
#define LOOK_AGAIN_SOON HAMI_MILLISECOND
/* How long a thread goes by the terms it found. */
#define TERMS_HOLD HAMI_MILLISECOND

/* Made at the first launch under a limit. */
struct process {
    struct hami_compute compute;
    struct hami_samples samples;
};
static struct process *_Atomic own;

static _Thread_local struct hami_launcher launcher __attribute__((tls_model("initial-exec")));

/* What this thread found to hold, when, and for which row + 1. */
static _Thread_local struct {
    unsigned int row;
    int64_t looked;
    struct hami_terms terms;
} here __attribute__((tls_model("initial-exec")));

/* ---- Which devices have a gate --------------------------------------------------------------- */

#define UNJUDGED UINT64_MAX
_Static_assert(HAMI_MAX_DEVICES <= 16, "a bit for each row");

_Atomic uint64_t hami_gates = UNJUDGED;
/* How often launches found a device without a compute limit: none was charged then. */
static _Atomic uint64_t uncharged[HAMI_MAX_DEVICES];

static uint64_t gates(void)
{
    const struct hami_limits *limits = hami_limits();
    uint64_t found = atomic_load_explicit(&hami_gates, memory_order_relaxed);

    if (__builtin_expect(found >> 32 == (limits->revision & UINT32_MAX), 1))
        return found & UINT32_MAX;
    found = limits->revision << 32;
    for (unsigned int row = 0; row < limits->device_count; row++) {
        found |= (uint64_t)hami_is_limited(limits, row) << row |
                 (uint64_t)hami_may_be_held(limits, row) << (row + HAMI_GATE_HELD);
        if (!hami_is_limited(limits, row))
            atomic_fetch_add_explicit(&uncharged[row], 1, memory_order_relaxed);
    }
    atomic_store_explicit(&hami_gates, found, memory_order_relaxed);
    return found & UINT32_MAX;
}

/* Whether the monitor may hold this slice on one of these rows; who comes by here without a limit
 * must not pay for asking how fresh that is. */
static bool is_held(uint64_t rows)
{
    const struct hami_limits_page *page = hami_process->page;

    for (; page && rows; rows &= rows - 1)
        if (hami_gate_holds(page, (unsigned int)__builtin_ctzll(rows)))
            return true;
    return false;
}

bool hami_gate_absent_now(uint64_t *rows)
{
    enum hami_mode mode = hami_mode();

    *rows = 0;
    if (mode != HAMI_MODE_SLICE)
        return mode == HAMI_MODE_FREE;
    *rows = gates();
    return (*rows & HAMI_GATE_ROWS) == 0 && !is_held(*rows >> HAMI_GATE_HELD);
}

/* ---- What holds now -------------------------------------------------------------------------- */

/* Who has a gate only while the monitor holds it may have launched uncharged while it was not here: for
 * longer than from one heartbeat to the next. */
static void note_absence(const struct hami_limits *limits, const struct hami_share *share,
                         unsigned int row, uint64_t heartbeat)
{
    uint64_t next = atomic_load_explicit(&share->seen, memory_order_relaxed);

    if (next != 0 && heartbeat > next + 1 && !hami_is_limited(limits, row))
        atomic_fetch_add_explicit(&uncharged[row], 1, memory_order_relaxed);
}

/* What holds for a device now, at most a moment old; the monitor's figures are used on the way. */
static void look(struct hami_gate *gate, struct process *process, struct hami_terms *now_holds,
                 int64_t now)
{
    const struct hami_limits *limits = hami_limits();
    const struct hami_observed *observed = hami_observed();
    struct hami_sight sight = {0};

    if (observed) {
        sight.heartbeat = atomic_load_explicit(&observed->heartbeat, memory_order_acquire);
        sight.utilisation = atomic_load_explicit(&observed->devices[gate->row].utilisation,
                                                 memory_order_relaxed);
        note_absence(limits, gate->work.share, gate->row, sight.heartbeat);
    }
    sight.uncharged = atomic_load_explicit(&uncharged[gate->row], memory_order_relaxed);
    *now_holds = hami_terms_of(limits, observed, gate->row);
    sight.rate = now_holds->limited ? now_holds->rate : HAMI_WHOLE;
    hami_share_observe(&process->compute, gate->work.share, gate->work.bucket, now, &sight);
}

/* ---- Going through it ------------------------------------------------------------------------ */

static struct process *make_own(void)
{
    struct process *made = mmap(NULL, sizeof(*made), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct process *found = NULL;

    if (made == MAP_FAILED)
        return atomic_load_explicit(&own, memory_order_acquire);
    if (atomic_compare_exchange_strong_explicit(&own, &found, made, memory_order_acq_rel,
                                                memory_order_acquire))
        return made;
    munmap(made, sizeof(*made));
    return found;
}

static bool is_measuring(const struct hami_share *share)
{
    return atomic_load_explicit(&share->measuring, memory_order_relaxed) > 0;
}

/* Once around: how long to wait before the next time, or 0 when the launch may go. */
static int64_t ask(struct hami_gate *gate, struct process *process)
{
    int64_t now = hami_now();

    if (here.row != gate->row + 1 || now - here.looked > TERMS_HOLD || now < here.looked) {
        look(gate, process, &here.terms, now);
        here.row = gate->row + 1;
        here.looked = now;
    }
    gate->state = HAMI_GATE_UNCOUNTED;
    if (here.terms.yields)
        return LOOK_AGAIN;
    if (!here.terms.counted)
        return 0;
    gate->state = HAMI_GATE_COUNTED;
    return hami_admit(&process->compute, &launcher, &gate->work, &here.terms, now);
}

static void wait_for_turn(struct hami_gate *gate, struct process *process)
{
    int64_t wait;

    while ((wait = ask(gate, process)) > 0) {
        bool measuring = hami_samples_poll(&process->samples, &process->compute, hami_now());
        int64_t longest = measuring ? LOOK_AGAIN_SOON : LOOK_AGAIN;
        int64_t from = hami_now();

        hami_sleep(wait < longest ? wait : longest);
        atomic_fetch_add_explicit(&gate->work.bucket->waited, (uint64_t)(hami_now() - from),
                                  memory_order_relaxed);
    }
}

static void report_debt(unsigned int row)
{
    static _Atomic int64_t reported;
    int64_t last = atomic_load_explicit(&reported, memory_order_relaxed);
    int64_t now = hami_now();

    if (now - last > 10 * HAMI_SECOND &&
        atomic_compare_exchange_strong_explicit(&reported, &last, now, memory_order_relaxed,
                                                memory_order_relaxed))
        hami_log(HAMI_INFO,
                 "device %u: more than %d s of work was launched ahead of the compute share, which "
                 "may be exceeded",
                 row, (int)(HAMI_BUCKET_DEBT / HAMI_SECOND));
}

static __attribute__((noinline)) CUresult enter_slowly(struct hami_gate *gate, uint64_t stream_key,
                                                       bool known)
{
    struct process *process = atomic_load_explicit(&own, memory_order_acquire);
    int saved = errno;

    if (!process && !(process = make_own()))
        return CUDA_ERROR_OUT_OF_MEMORY;
    gate->work = (struct hami_work){
        .what = gate->what,
        .stream_key = stream_key,
        .bucket = &hami_process->usage->buckets[gate->row],
        .share = &process->compute.shares[gate->row],
    };
    /* A launch that nothing is known of is charged a guess, which may be far too little: what could
     * be known by now comes first. */
    if (!known && is_measuring(gate->work.share))
        hami_samples_poll(&process->samples, &process->compute, hami_now());
    wait_for_turn(gate, process);
    if (gate->state == HAMI_GATE_COUNTED) {
        if (gate->work.forgiven)
            report_debt(gate->row);
        if (gate->work.sample &&
            hami_sample_begin(&process->samples, &process->compute, &gate->measuring, &gate->work,
                              gate->stream, gate->per_thread))
            gate->state = HAMI_GATE_MEASURED;
        else
            hami_admit_unmeasured(&gate->work);
    }
    errno = saved;
    return CUDA_SUCCESS;
}

/* Inline: after the driver's own long work, each call and copy of arguments shows. */
static inline __attribute__((always_inline)) CUresult
enter_row(struct hami_gate *gate, unsigned int row, const void *handle, uint32_t size,
          CUstream stream, bool per_thread)
{
    struct process *process = atomic_load_explicit(&own, memory_order_acquire);
    bool own_stream = stream == CU_STREAM_PER_THREAD || (per_thread && stream == NULL);
    uint64_t stream_key = hami_stream_key(stream == CU_STREAM_LEGACY ? 0 : (uintptr_t)stream, row,
                                          own_stream ? &launcher : NULL);
    struct hami_estimate *entry;
    bool known;

    gate->row = row;
    gate->per_thread = per_thread;
    gate->stream = stream;
    /* A function belongs to one context; a kernel of a library is the same code in all contexts
     * of a device; a graph is known by its handle alone, see hami_gate_forget_exec. */
    gate->what.handle = (uintptr_t)handle;
    gate->what.context = size == HAMI_ESTIMATE_GRAPH ? 0 : row + 1;
    gate->what.size = size;
    if (!process)
        return enter_slowly(gate, stream_key, false);
    entry = hami_estimate_find(&process->compute.estimates, hami_what_key(&gate->what));
    known = entry && hami_estimate_known(&process->compute.estimates, entry);
    if (known) {
        gate->estimate = atomic_load_explicit(&entry->mean, memory_order_relaxed);
        if (hami_admit_quickly(&launcher, stream_key, gate->estimate) ||
            hami_admit_beside(&process->compute, &launcher, row, stream_key, gate->estimate)) {
            gate->state = HAMI_GATE_QUICK;
            return CUDA_SUCCESS;
        }
    }
    return enter_slowly(gate, stream_key, known);
}

CUresult hami_gate_enter_row(struct hami_gate *gate, unsigned int row, const void *handle,
                             uint32_t size, CUstream stream, bool per_thread)
{
    return enter_row(gate, row, handle, size, stream, per_thread);
}

CUresult hami_gate_enter(struct hami_gate *gate, uint64_t rows, const void *handle, uint32_t size,
                         CUstream stream, bool per_thread)
{
    int row;

    gate->state = HAMI_GATE_UNCOUNTED;
    if (__builtin_expect(rows == 0, 0)) {
        enum hami_mode mode = hami_mode_settled();

        if (mode != HAMI_MODE_SLICE)
            return mode == HAMI_MODE_CLOSED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
        rows = gates();
    }
    if (atomic_load_explicit(&hami_captures_open, memory_order_acquire) != 0 &&
        hami_capturing(stream, per_thread))
        return CUDA_SUCCESS;
    if (hami_current_row(&row) != CUDA_SUCCESS || row < 0 ||
        !(rows >> row & (1 | 1 << HAMI_GATE_HELD)))
        return CUDA_SUCCESS;
    return enter_row(gate, (unsigned int)row, handle, size, stream, per_thread);
}

void hami_gate_left(struct hami_gate *gate, CUresult result)
{
    struct process *process = atomic_load_explicit(&own, memory_order_acquire);
    int saved = errno;

    if (gate->state == HAMI_GATE_MEASURED)
        hami_sample_end(&process->samples, &process->compute, &gate->measuring, gate->stream,
                        gate->per_thread, result);
    if (result != CUDA_SUCCESS && gate->state != HAMI_GATE_UNCOUNTED) {
        if (gate->state == HAMI_GATE_QUICK)
            gate->work = (struct hami_work){.estimate = gate->estimate};
        hami_admit_undo(&launcher, &gate->work);
    }
    errno = saved;
}

/* ---- What goes ------------------------------------------------------------------------------- */

void hami_gate_settle(void)
{
    struct process *process = atomic_load_explicit(&own, memory_order_acquire);
    int saved = errno;

    for (unsigned int row = 0; process && row < HAMI_MAX_DEVICES; row++)
        if (is_measuring(&process->compute.shares[row])) {
            hami_samples_poll(&process->samples, &process->compute, hami_now());
            break;
        }
    errno = saved;
}

void hami_gate_forget_module(void)
{
    struct process *process = atomic_load_explicit(&own, memory_order_acquire);

    /* Programs unload at their end, after they waited in some way that we do not see. */
    hami_gate_settle();
    /* Which functions were its own is not known: the driver need not have been asked for them here.
     * All are measured anew at their next launch, and until then what is known is a good guess. */
    if (process)
        hami_estimate_suspect_all(&process->compute.estimates);
}

void hami_gate_forget_exec(CUgraphExec exec)
{
    struct process *process = atomic_load_explicit(&own, memory_order_acquire);
    struct hami_what what = {.handle = (uintptr_t)exec, .size = HAMI_ESTIMATE_GRAPH};

    if (process)
        hami_estimate_forget(&process->compute.estimates, &what);
}

void hami_gate_forget_stream(CUstream stream)
{
    struct process *process = atomic_load_explicit(&own, memory_order_acquire);
    int rows = process ? hami_row_count() : 0;

    for (int row = 0; row < rows; row++) {
        uint64_t key = hami_stream_key((uintptr_t)stream, (unsigned int)row, NULL);

        hami_compute_forget_stream(&process->compute, key);
        hami_samples_forget_stream(&process->samples, key);
    }
}

void hami_gate_forget_context(CUcontext context)
{
    struct process *process = atomic_load_explicit(&own, memory_order_acquire);

    if (!process)
        return;
    hami_samples_forget_context(&process->samples, context);
    hami_estimate_suspect_all(&process->compute.estimates);
}

void hami_gate_reset(void)
{
    struct process *inherited = atomic_exchange_explicit(&own, NULL, memory_order_acq_rel);

    /* No thread of this process has launched anything: its mode was unknown until now. */
    if (inherited)
        munmap(inherited, sizeof(*inherited));
    atomic_store_explicit(&hami_gates, UNJUDGED, memory_order_relaxed);
    launcher = (struct hami_launcher){0};
    here.row = 0;
}
