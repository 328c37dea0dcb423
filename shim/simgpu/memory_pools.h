/* Memory pools: what cuda_pool*.c and cuda_async.c share. The memory lock is held in all of it. */
#ifndef SIM_MEMORY_POOLS_H
#define SIM_MEMORY_POOLS_H

#include "memory.h"

/* What a pool, or a device's graph memory, holds of the ledger: pieces taken in steps, of which
 * some part is in use. Which piece a use lies in does not matter: physical memory is mapped where
 * it is needed. */
struct sim_reserve {
    CUdevice ordinal; /* -1: host memory, no ledger */
    uint64_t reserved, reserved_high, used, used_high;
    uint64_t most; /* 0: the card */
    struct sim_piece {
        uint64_t id, bytes;
    } *pieces;
    size_t count, room;
};

/* `bytes` more in use, growing as needed; CUDA_ERROR_OUT_OF_MEMORY. */
CUresult sim_reserve_use(struct sim_reserve *reserve, uint64_t bytes);
/* Room for `bytes` more, without using it. */
CUresult sim_reserve_grow(struct sim_reserve *reserve, uint64_t bytes);
void sim_reserve_unuse(struct sim_reserve *reserve, uint64_t bytes);
/* Give back what is not in use, as long as `keep` stay reserved. */
void sim_reserve_trim(struct sim_reserve *reserve, uint64_t keep);

struct CUmemPoolHandle_st {
    struct sim_reserve reserve;
    CUmemPoolProps properties;
    bool by_default, imported, destroyed;
    uint64_t threshold;
    int reuse[3];
    uint64_t live;               /* allocations */
    uint64_t serial;             /* what exports name it by */
    int32_t exporter;            /* imported: the process it belongs to */
    uint8_t access[SIM_MAX_DEVICES];
    CUmemoryPool next;
};

/* NULL where the handle is none. */
CUmemoryPool sim_pool_known(CUmemoryPool pool);
CUmemoryPool sim_pool_by_default(CUdevice ordinal);
CUmemoryPool sim_pool_current(CUdevice ordinal);
/* Whether the device's default pool is its current one: one load, without the lock. */
bool sim_pool_is_default(CUdevice ordinal);
/* What a pool that was imported, or made, starts as; NULL: no memory. */
CUmemoryPool sim_pool_new(const CUmemPoolProps *properties);
/* Fast allocations of a local ledger come from the default pool: bring its figures up to date. */
void sim_pool_count_local(CUmemoryPool pool);

CUresult sim_pool_allocate(CUmemoryPool pool, CUcontext context, uint64_t bytes,
                           CUdeviceptr *address);
/* Its range goes: the memory is the pool's again, and a destroyed pool goes with its last. */
void sim_pool_freed(struct sim_range *range);

#endif
