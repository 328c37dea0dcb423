/* What the simulated driver's parts share inside one process: the connection to the daemon that
 * holds the truth, the process's memory in its ledger, and its streams on its clock.
 *
 * A process has one connection, made by the first cuInit (or nvmlInit); what the ledger holds for it
 * lives as long as that connection, which a forked child inherits. All calls are thread-safe. */
#ifndef SIM_CLIENT_H
#define SIM_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "board.h"
#include "hami_cuda.h"
#include "multiprocessor.h"

#define SIM_MAX_DEVICES 16

/* ---- The connection (client.c) ---- */

/* Connect once per process; CUDA_ERROR_NO_DEVICE where no daemon listens or no device is visible,
 * CUDA_ERROR_NOT_INITIALIZED in a forked child of a process that had connected. */
CUresult sim_connect(void);

/* What the parts know of this process. Lies on a page that a fork wipes, a raw clone included. */
struct sim_process {
    bool ready; /* sim_connect succeeded in this very process */
    bool local; /* HAMI_SIM_LEDGER=local */
    int socket;
    struct sim_shared *shared;
};
extern struct sim_process *sim_process; /* never NULL */

/* CUDA_SUCCESS in a process that called cuInit, else what the real driver says: not initialised, or
 * unusable in a forked child. Every entry point asks first. */
static inline CUresult sim_ready(void)
{
    return __builtin_expect(sim_process->ready, 1) ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

/* For NVML, which works in a forked child and sees cards that CUDA_VISIBLE_DEVICES hides: the board
 * and sim_request, nothing else. CUDA_ERROR_NO_DEVICE where no daemon listens. */
CUresult sim_watch(void);
/* NULL before sim_connect or sim_watch; read-only. */
const struct sim_board *sim_board(void);
/* The units this container has (HAMI_SIM_VISIBLE: uuids or board indices; unset: all that exist),
 * in board order: cards, then MIG instances. A card brings its instances, an instance its card. */
int sim_container_units(int units[SIM_MAX_UNITS]);
/* A consistent copy of a unit; false where none is there (any more). */
bool sim_board_read(int unit, struct sim_board_unit *copy);
/* Ask the daemon `op` (SIM_OP_NVML and above) and take its answer, at most `*size` bytes of it.
 * CUDA_ERROR_DEVICE_UNAVAILABLE: the daemon is gone. `*status` is nvml_request's, or SIM_UNKNOWN. */
CUresult sim_request(uint32_t op, const void *body, size_t length, uint32_t *status, void *answer,
                     size_t *size);

struct sim_device {          /* as this process sees it: CUDA_VISIBLE_DEVICES is applied */
    int board;               /* its index on the board */
    char name[96];
    uint8_t uuid[16];
    char pci[32];            /* 00000000:3B:00.0 */
    uint64_t memory_bytes;   /* in all */
    int sms, major, minor;
    bool mig;                /* a MIG instance: uuid is the instance's, memory its share */
};

/* How many threads can be resident: in one multiprocessor, in all of them. */
static inline unsigned int sim_device_resident(const struct sim_device *of)
{
    return sim_resident_threads(of->major, of->minor);
}

static inline uint64_t sim_device_threads(const struct sim_device *of)
{
    return (uint64_t)of->sms * sim_device_resident(of);
}

int sim_device_count(void);
const struct sim_device *sim_device(CUdevice ordinal); /* NULL: no such ordinal */

/* Nanoseconds of the simulated clock (CLOCK_MONOTONIC of the machine). */
uint64_t sim_now(void);

/* ---- Memory in the daemon's ledger (client.c) ---- */

enum sim_memory {
    SIM_MEMORY_DATA,     /* asked for by the program */
    SIM_MEMORY_CONTEXT,  /* taken with a context */
    SIM_MEMORY_CODE,     /* modules, loaded lazily */
    SIM_MEMORY_POOL,     /* reserved by a pool or for graphs, used or not */
    SIM_MEMORY_INTERNAL, /* local memory, printf heap */
    SIM_MEMORY_KINDS
};

/* Take `bytes` (rounded up to 2 MiB by the daemon) on a device: CUDA_ERROR_OUT_OF_MEMORY where the
 * card is full. `id` names it for sim_give. With HAMI_SIM_LEDGER=local (benchmarks only) nothing is
 * asked of the daemon. */
CUresult sim_take(CUdevice ordinal, uint64_t bytes, enum sim_memory kind, uint64_t *id);
void sim_give(uint64_t id);
/* Another process's allocation, by the id it exported; it stays in the ledger of whoever took it
 * until the last reference of any process is given back. */
CUresult sim_share(uint64_t id, uint64_t *own_id, CUdevice *ordinal, uint64_t *bytes);
/* Really free on the card, of all. */
uint64_t sim_memory_free(CUdevice ordinal);

/* Device addresses: unique in the process, never reused at once, no real memory behind them. */
CUdeviceptr sim_address(uint64_t bytes, uint64_t alignment);

/* ---- Time (queue.c): streams of this process on the daemon's clock ---- */

struct sim_queue;  /* an in-order queue of work on one device: what a stream is */
struct sim_marker; /* what an event is */

struct sim_work {
    uint64_t duration_ns; /* device time when alone */
    uint32_t width;       /* share of the card's SMs, 1..1000 thousandths */
};

CUresult sim_queue_create(CUdevice ordinal, struct sim_queue **queue);
void sim_queue_destroy(struct sim_queue *queue); /* its work still runs to the end */
/* Enqueue; waits while 1024 pieces of work of this process are outstanding, as a driver does. */
CUresult sim_queue_run(struct sim_queue *queue, const struct sim_work *work);
CUresult sim_queue_mark(struct sim_queue *queue, struct sim_marker *marker);
CUresult sim_queue_wait_marker(struct sim_queue *queue, struct sim_marker *marker);
bool sim_queue_idle(struct sim_queue *queue);
/* Everything enqueued later waits until sim_queue_release (a host function: mark, hold, wait for
 * the mark on a thread, call, release). `hold` names it. */
CUresult sim_queue_hold(struct sim_queue *queue, uint64_t *hold);
CUresult sim_queue_release(struct sim_queue *queue, uint64_t hold);
CUresult sim_queue_finish(struct sim_queue *queue); /* waits for everything enqueued before */
/* As above for all queues of this process on a device. */
CUresult sim_device_finish(CUdevice ordinal);
bool sim_device_idle(CUdevice ordinal);

struct sim_marker *sim_marker_create(void); /* NULL: there are 65536 already */
void sim_marker_destroy(struct sim_marker *marker);
/* CUDA_SUCCESS when done (or never recorded), CUDA_ERROR_NOT_READY. `at_ns` may be NULL. */
CUresult sim_marker_query(struct sim_marker *marker, uint64_t *at_ns);
CUresult sim_marker_finish(struct sim_marker *marker);

/* ---- Knobs (client.c): read from the environment once, HAMI_SIM_<NAME>, see simgpu/README.md ---- */

uint64_t sim_knob(const char *name, uint64_t otherwise);
/* Spend CPU time as the real driver would: SIM_COST_LAUNCH, SIM_COST_EVENT. Zero unless set. */
enum sim_cost { SIM_COST_LAUNCH, SIM_COST_EVENT, SIM_COSTS };
void sim_spend(enum sim_cost what);

/* ---- Entry points (cuda_*.c) ---- */

#define SIM_EXPORT __attribute__((visibility("default")))

/* The exported spellings that this thread called last, so that a test can tell which of a name's
 * ABIs it reached, directly or by way of a library. Initial-exec: what is measured against this
 * driver must not pay for a TLS lookup. */
#define SIM_REMEMBERED 32ul
struct sim_calls {
    unsigned long count; /* in all */
    const char *last[SIM_REMEMBERED];
};
extern _Thread_local struct sim_calls sim_calls __attribute__((tls_model("initial-exec")));
#define SIM_REMEMBER(name) ((void)(sim_calls.last[sim_calls.count++ % SIM_REMEMBERED] = #name))
SIM_EXPORT const char *hami_sim_last_call(void);
/* How many calls there were of this thread, and the latest `room` of them, the last one first; NULL
 * where so many are not remembered. */
SIM_EXPORT unsigned long hami_sim_calls(const char **names, unsigned long room);

/* The first line of every entry point but cuInit and those that work without it. The entry points
 * never call each other: what two spellings share is a static function. */
#define SIM_ENTER(name)                                                                            \
    do {                                                                                           \
        SIM_REMEMBER(name);                                                                        \
        CUresult sim_entered = sim_ready();                                                        \
        if (__builtin_expect(sim_entered != CUDA_SUCCESS, 0))                                      \
            return sim_entered;                                                                    \
    } while (0)

/* ---- Objects (cuda_*.c): what the API's files share; memory.h has the memory half ---- */

struct sim_context;
struct sim_stream;

/* The current context's device, or CUDA_ERROR_INVALID_CONTEXT. */
CUresult sim_current(CUcontext *context, CUdevice *ordinal);
/* The queue behind a stream handle (NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, or a created one;
 * `per_thread`: what NULL means). */
CUresult sim_stream_queue(CUstream stream, bool per_thread, struct sim_queue **queue, CUdevice *ordinal);
/* Whether the stream captures; then `graph` receives the node instead. CUDA_ERROR_STREAM_CAPTURE_*
 * where the operation is not allowed now. */
CUresult sim_stream_capturing(CUstream stream, bool per_thread, bool *capturing, CUgraph *graph);
/* An entry point that is unsafe while a global-mode capture runs (cuMemAlloc, cuEventQuery...) calls
 * this first: it invalidates and refuses as the documentation says. */
CUresult sim_capture_unsafe(void);
/* What a captured operation becomes: a node of `graph` behind everything the stream captured so far,
 * and the stream goes on behind it. The memory half fills in what its calls need, and calls this
 * instead of enqueueing when sim_stream_capturing says so (cuda_capture.c). For MEM_ALLOC `address`
 * is what the program got (sim_address); for MEM_FREE what it gave back. */
struct sim_captured {
    CUgraphNodeType type; /* MEMCPY, MEMSET, MEM_ALLOC, MEM_FREE */
    CUdevice ordinal;
    struct sim_work work; /* MEMCPY, MEMSET: what a launch runs */
    CUdeviceptr address;
    uint64_t bytes;
};
CUresult sim_capture_add(CUstream stream, bool per_thread, const struct sim_captured *operation);
/* cuMemFree and cuMemFreeAsync of an address that is not theirs: true when it was memory that the
 * launch of a graph left allocated, which is now free (cuda_graph_memory.c). */
bool sim_graph_memory_free(CUdeviceptr address);

/* What the execution half tells the memory half (cuda_memory.c). Addresses that a module's global
 * variable or a graph's allocation occupies: known to copies and to cuPointerGetAttribute, not to
 * cuMemFree; the ledger is not asked. */
CUresult sim_memory_adopt(CUcontext context, CUdeviceptr address, uint64_t bytes);
void sim_memory_forget(CUdeviceptr address);
/* A stream, event or context of this device was synchronised with: pools may shrink. */
void sim_memory_synchronised(CUdevice ordinal);
/* Graph memory nodes: what instantiating and launching reserve (cuda_pool.c). Reserve makes sure
 * that `bytes` more than what is in use are reserved; use counts what is. */
CUresult sim_graph_reserve(CUdevice ordinal, uint64_t bytes);
void sim_graph_use(CUdevice ordinal, int64_t bytes);
/* When a context goes: give back what the driver frees with it (cuda_memory.c). */
void sim_memory_context_gone(CUcontext context);

#endif
