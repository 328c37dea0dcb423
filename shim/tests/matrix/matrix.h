/* A snippet for every function of hooks.def: called in a situation in which it succeeds, by every
 * way that a program comes to a function of the driver, wherever a program may call one.
 *
 * A snippet is three steps. `prepare` makes what the call needs, `call` is the one call and a look
 * at what it did, `undo` takes everything back. Their results are CUresults (or nvmlReturn_ts), or
 * NOT_SO where the driver said that all is well and it is not. */
#ifndef HAMI_MATRIX_H
#define HAMI_MATRIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hami_cuda.h"
#include "hami_nvml.h"

#define NOT_SO (-1)
#define MIB ((size_t)1 << 20)
#define GRANULE (2 * MIB)
#define BYTES (64 * (size_t)1024)

/* ---- The functions, as they were come by (ways.c) ---- */

struct api {
#define HAMI_HOOK(name, base, from, stream, kind) __typeof__(name) *name;
#define HAMI_NVML_HOOK(name) __typeof__(name) *name;
#include "../../lib/hooks.def"
};

struct way {
    const char *name;
    /* NULL: the way does not lead there. */
    void *(*find)(const char *name, const char *base, int from, int per_thread);
};
extern const struct way matrix_ways[];
extern const size_t matrix_way_count;

/* By that way; by linking where it does not lead to a function. */
void matrix_fill(struct api *api, const struct way *way);
bool matrix_leads(const struct way *way, const char *name);
/* What `api` has for a hooked name. */
void *matrix_pointer(const struct api *api, const char *name);
const char *matrix_base(const char *name); /* NULL: it is one of NVML's */
/* "libcuda.so.1 cuMemAlloc_v2": whose function it is. */
void matrix_owner(void *function, char *text, size_t size);
/* What cuGetProcAddress says to every name, version and flag, printed. */
int matrix_print_abi(void);

/* ---- Another process, which has something to share (peer.c) ---- */

struct gifts {
    CUipcMemHandle memory;
    CUmemPoolPtrExportData in_pool;
    int pool, physical; /* descriptors */
};

/* Before any CUDA of this process. The peer lives until matrix_peer_end. */
bool matrix_peer_start(void);
bool matrix_peer_gifts(struct gifts *gifts);
void matrix_peer_end(void);

/* ---- Where snippets run: a thread's own (stage.c) ---- */

struct stage {
    const struct api *api;
    const struct gifts *gifts;
    const char *image, *image_path; /* of a module with a kernel named "nothing" */
    CUdevice device;
    CUcontext context; /* the primary one of `device`, current */
    CUstream stream;
    CUmodule module;
    CUfunction function;
    nvmlDevice_t card;

    /* What the steps of one snippet leave for the next. */
    CUdeviceptr address, reserved;
    CUdeviceptr_v1 low;
    CUcontext made;
    CUgreenCtx green;
    CUmemoryPool pool;
    CUmemGenericAllocationHandle handle, team;
    CUlogicalEndpointId endpoint;
    CUexternalMemory external;
    CUarray array;
    CUmipmappedArray mipmap;
    CUmodule loaded;
    CUlibrary library;
    CUgraph graph, other_graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUstream other;
    CUevent event;
    size_t number;
    int fd;
};

int matrix_stage_open(struct stage *stage);
int matrix_stage_close(struct stage *stage);

/* ---- Snippets ---- */

typedef int step(struct stage *s);

struct snippet {
    const char *name;
    step *prepare, *call, *undo;
    int expected; /* of `call` */
    bool alone;   /* no other thread may use CUDA meanwhile */
};

struct snippets {
    const struct snippet *first;
    size_t count;
};
#define SNIPPETS(array) {array, sizeof(array) / sizeof(*(array))}
extern const struct snippets matrix_memory, matrix_pools, matrix_physical, matrix_contexts,
    matrix_modules, matrix_graphs, matrix_streams, matrix_nvml;

/* For tables: SNIPPET(cuX, prepare, undo) calls call_cuX. */
#define SNIPPET(name, before, after) {#name, before, call_##name, after, 0, false}
#define SNIPPET_ALONE(name, before, after) {#name, before, call_##name, after, 0, true}
#define SNIPPET_REFUSED(name, before, after, result)                                               \
    {#name, before, call_##name, after, result, false}
#define CALL(name) static int call_##name(struct stage *s)

/* What the call answers, or NOT_SO where that is success without the effect. */
#define and_so(call, effect)                                                                       \
    ({                                                                                             \
        int answer_ = (int)(call);                                                                 \
        answer_ == 0 && !(effect) ? NOT_SO : answer_;                                              \
    })

static inline int nothing(struct stage *s)
{
    (void)s;
    return 0;
}

/* ---- Running them (run.c) ---- */

/* All of them, in the place named: "here", "threads", "forked" (in a child of a process that has
 * not used CUDA, and in that process afterwards), "stale" (in a child of a process that has, and in
 * that process). The answer is the exit status; what happened is printed, a line for each. */
int matrix_run(const char *place);

#endif
