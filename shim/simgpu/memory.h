/* The memory half of the simulated libcuda.so.1, between its own files. What the execution half
 * calls is in client.h, but for the two times below. */
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client.h"

#define SIM_GRANULE (UINT64_C(2) << 20) /* of the ledger, of cuMemCreate, of small chunks */
#define SIM_PITCH_ALIGNMENT UINT64_C(512)

static inline uint64_t sim_round_up(uint64_t bytes, uint64_t to)
{
    return bytes > UINT64_MAX - to ? UINT64_MAX - UINT64_MAX % to : (bytes + to - 1) / to * to;
}

/* How long a copy or a fill takes; nodes of graphs run the same. */
struct sim_work sim_copy_work(CUdeviceptr destination, CUdeviceptr source, uint64_t bytes);
struct sim_work sim_fill_work(uint64_t bytes);

/* One lock over all of the memory half's bookkeeping: this driver is measured on the paths of
 * cuda_memory_local.c, which take none. Nothing waits for a stream while holding it. */
void sim_memory_lock(void);
void sim_memory_unlock(void);

/* ---- Ledger memory of one allocation (cuda_memory_chunks.c); the lock is held ---- */

struct sim_chunk;

/* All of what one sim_take gave, or some 512-byte units of a 2 MiB chunk shared with others. */
struct sim_part {
    uint64_t id;             /* in the ledger; the chunk's own for a share of it */
    struct sim_chunk *chunk; /* NULL: all of it */
    uint32_t first, units;
    CUdeviceptr address;
};

/* Up to 1 MiB comes out of a chunk of this context and device; `low`: below 4 GiB, for the
 * spellings whose addresses have 32 bits. */
CUresult sim_part_take(CUcontext context, CUdevice ordinal, uint64_t bytes, bool low,
                       struct sim_part *part);
void sim_part_give(struct sim_part *part);
/* An address for so many bytes, rather one that was given back lately than a new one. */
CUdeviceptr sim_address_again(uint64_t bytes, bool async);
void sim_address_keep(CUdeviceptr address, uint64_t bytes, bool async);

/* ---- What lies at which address (cuda_memory_ranges.c); the lock is held ---- */

enum sim_range_kind {
    SIM_RANGE_LINEAR,     /* cuMemAlloc and cuMemAllocPitch; goes with its context */
    SIM_RANGE_MANAGED,    /* goes with its context; the address is real host memory */
    SIM_RANGE_ASYNC,      /* of a pool (`owner`) */
    SIM_RANGE_MAPPED,     /* by cuMemMap; `owner` is the handle */
    SIM_RANGE_ADOPTED,    /* a graph's or a module's, not cuMemFree's */
    SIM_RANGE_IPC,        /* opened from another process */
    SIM_RANGE_EXTERNAL,   /* a buffer of imported memory (`owner`) */
    SIM_RANGE_HOST,       /* cuMemAllocHost: real */
    SIM_RANGE_REGISTERED, /* the program's own memory */
};

/* The bytes behind a small allocation, so that what is copied in comes out. */
struct sim_bytes {
    uint8_t *data; /* NULL until something is written */
    uint64_t size; /* of the whole */
    bool real;     /* `data` is memory that the program can see; not ours to free */
};
#define SIM_BYTES_KEPT SIM_GRANULE /* larger allocations keep none */

struct sim_range {
    CUdeviceptr base;
    uint64_t bytes;
    enum sim_range_kind kind;
    CUdevice ordinal;
    CUcontext context;
    struct sim_part part;
    struct sim_bytes own;
    struct sim_bytes *data; /* `own`, or the handle's where several mappings show the same memory */
    void *owner;
    uint64_t data_offset; /* of `base` in `data` */
    uint64_t buffer;    /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
    uint64_t shared;    /* MAPPED, IPC: which memory, in its process; EXTERNAL: 0 */
    int32_t shared_pid; /* IPC: of which process */
    uint32_t count;     /* IPC: how often it was opened */
    uint32_t flags;     /* HOST, REGISTERED: as the program gave them */
    uint8_t access[SIM_MAX_DEVICES]; /* MAPPED: CUmemAccess_flags per device */
    struct sim_range *next, *previous;
};

/* The range that an address lies in; one that starts there; any that [base, +bytes) touches. */
struct sim_range *sim_range_find(CUdeviceptr address);
struct sim_range *sim_range_at(CUdeviceptr base);
struct sim_range *sim_range_touching(CUdeviceptr base, uint64_t bytes);
/* A copy of *like, entered. NULL: no memory for it, or something lies there. */
struct sim_range *sim_range_add(const struct sim_range *like);
/* Take it out; its `part` is the caller's to give back, its kept bytes are freed. */
void sim_range_remove(struct sim_range *range);
struct sim_range *sim_range_first(void); /* of a list over `next` */
/* `bytes` of kept memory at an address inside the range, or NULL when none is kept. */
uint8_t *sim_range_data(struct sim_range *range, CUdeviceptr address, bool write);
void sim_bytes_free(struct sim_bytes *bytes);

/* A new number for CU_POINTER_ATTRIBUTE_BUFFER_ID. */
uint64_t sim_buffer_number(void);

/* ---- Freeing by kind (cuda_memory.c); the lock is held ---- */

/* What cuMemFree does to what lies there, whatever its kind. */
CUresult sim_range_free(struct sim_range *range);
/* As cuMemFreeAsync may free what cuMemAlloc gave: the address is gone, the memory goes when
 * something of the device is synchronised with. */
void sim_range_free_later(struct sim_range *range);
void sim_ranges_reap(CUdevice ordinal);
/* There is something that a synchronisation ends: pools, or memory freed by cuMemFreeAsync. */
extern _Atomic bool sim_settles;

/* ---- Without a ledger (memory_local.h): sim_process->local ---- */

/* What an address inside one of these belongs to. */
bool sim_local_find(CUdeviceptr address, CUdeviceptr *base, uint64_t *bytes, CUdevice *ordinal,
                    bool *async);
/* Bytes in use by all threads. */
uint64_t sim_local_used(CUdevice ordinal, bool async);

#endif
