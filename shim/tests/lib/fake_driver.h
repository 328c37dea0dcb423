/* A driver for tests of the library's memory files, with a ledger of its own: what it has given out
 * is what a test asserts by. It does what the CUDA documentation says of pools, and what a test
 * tells it to (`fake` below). Devices are rows.
 *
 * The account is a fake too: one word per row, one limit. */
#ifndef HAMI_TESTS_FAKE_DRIVER_H
#define HAMI_TESTS_FAKE_DRIVER_H

#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/reset.h"
#include "compute/gate.h"
#include "driver/real.h"
#include "expect.h"
#include "memory/account.h"
#include "memory/blocks.h"
#include "memory/charge.h"
#include "memory/graph_memory.h"
#include "memory/pool_table.h"
#include "memory/reclaim.h"
#include "program/capture.h"
#include "program/current.h"
#include "slice/devices.h"
#include "slice/slice.h"
#include "slice/slot_words.h"

#define MIB (UINT64_C(1) << 20)
#define FAKE_DEVICES 2
#define FAKE_POOLS 8
#define FAKE_ALLOCATIONS 4096

/* ---- The account ---- */

struct hami_process hami_process[1];
static _Atomic uint64_t fake_charged[FAKE_DEVICES];
static uint64_t fake_limit = UINT64_MAX;
static _Atomic uint32_t fake_flags;
static int fake_current;

enum hami_mode hami_attach_late(void)
{
    return HAMI_MODE_UNKNOWN;
}

bool hami_charge(int row, uint64_t bytes)
{
    uint64_t before;

    if (row < 0 || hami_mode() == HAMI_MODE_CLOSED || bytes > UINT64_MAX / 4)
        return false;
    before = atomic_fetch_add(&fake_charged[row], bytes);
    if (before + bytes <= fake_limit)
        return true;
    atomic_fetch_sub(&fake_charged[row], bytes);
    return false;
}

void hami_correct(void)
{
}

void hami_charge_taken(int row, uint64_t bytes)
{
    atomic_fetch_add(&fake_charged[row], bytes);
}

void hami_refund(int row, uint64_t bytes)
{
    if (bytes != 0)
        EXPECT(atomic_fetch_sub(&fake_charged[row], bytes) >= bytes);
}

uint64_t hami_whole_blocks(uint64_t bytes)
{
    return (bytes + HAMI_BLOCK - 1) / HAMI_BLOCK * HAMI_BLOCK;
}

bool hami_charge_block(int row, uint64_t bytes)
{
    return hami_charge(row, bytes);
}

bool hami_resize_block(int row, uint64_t *bytes, uint64_t really)
{
    EXPECT(row >= 0 && *bytes == really);
    return true;
}

void hami_block_placed(int row, uint64_t address, uint64_t bytes)
{
    (void)row;
    (void)address;
    (void)bytes;
}

void hami_refund_block(int row, uint64_t bytes)
{
    hami_refund(row, bytes);
}

void hami_block_left(int row, uint64_t address, uint64_t bytes)
{
    (void)address;
    hami_refund(row, bytes);
}

bool hami_within(int row)
{
    return fake_charged[row] <= fake_limit;
}

void hami_slot_flag(uint32_t flags)
{
    atomic_fetch_or(&fake_flags, flags);
}

void hami_slot_unflag(uint32_t flags)
{
    atomic_fetch_and(&fake_flags, ~flags);
}

int hami_row_of_ordinal(CUdevice ordinal)
{
    return ordinal >= 0 && ordinal < FAKE_DEVICES ? ordinal : HAMI_ROW_NONE;
}

CUdevice hami_ordinal_of_row(int row)
{
    return row;
}

int hami_row_count(void)
{
    return FAKE_DEVICES;
}

CUresult hami_current_row(int *row)
{
    *row = fake_current;
    return CUDA_SUCCESS;
}

CUresult hami_current(CUcontext *context, int *row)
{
    *context = (CUcontext)(uintptr_t)(0x1000 + fake_current);
    *row = fake_current;
    return CUDA_SUCCESS;
}

CUresult hami_device_refused(CUdevice device)
{
    return device >= 0 && device < FAKE_DEVICES ? CUDA_ERROR_OUT_OF_MEMORY
                                                : CUDA_ERROR_INVALID_DEVICE;
}

static bool fake_capturing;

bool hami_capturing(CUstream stream, bool per_thread)
{
    (void)stream;
    (void)per_thread;
    return fake_capturing;
}

void hami_gate_settle(void)
{
}

void hami_gate_forget_exec(CUgraphExec exec)
{
    (void)exec;
}

void hami_gate_forget_module(void)
{
}

/* ---- The ledger ---- */

static struct fake {
    pthread_mutex_t lock;
    uint64_t step;        /* by which pools grow */
    uint64_t fragmented;  /* the next allocation grows its pool by so much although it need not */
    bool stuck;           /* and trimming does not take it back before the allocation is freed */
    CUresult refuse;      /* the next call that allocates answers this */
    unsigned int asked;   /* for reserved figures */
    unsigned int trims;
    void (*_Atomic meanwhile)(void); /* what another thread does before the next question is answered */
    uint64_t peak[FAKE_DEVICES], given[FAKE_DEVICES]; /* of the device, by pools and graphs */
    uint64_t next_address;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .step = 32 * MIB, .next_address = UINT64_C(1) << 40};

/* With the lock. */
static void give(int device, int64_t bytes)
{
    fake.given[device] += (uint64_t)bytes;
    if (fake.given[device] > fake.peak[device])
        fake.peak[device] = fake.given[device];
}

static void let_others(void)
{
    void (*meanwhile)(void) = atomic_exchange(&fake.meanwhile, NULL);

    if (meanwhile)
        meanwhile();
}

static CUresult refused(void)
{
    CUresult result = fake.refuse;

    fake.refuse = CUDA_SUCCESS;
    return result;
}

/* ---- Pools ---- */

static struct fake_pool {
    bool exists, destroyed, host;
    int device;
    uint64_t reserved, used, pending, stuck, threshold;
} fake_pools[FAKE_POOLS]; /* the first of them are the devices' own */
static int fake_current_pool[FAKE_DEVICES];

static struct fake_allocation {
    CUdeviceptr address;
    uint64_t bytes, stuck;
    int pool;
} fake_allocations[FAKE_ALLOCATIONS];

static CUmemoryPool fake_handle(int pool)
{
    return (CUmemoryPool)(uintptr_t)(0x9000 + pool * 16);
}

static int fake_pool_of(CUmemoryPool handle)
{
    int pool = (int)((uintptr_t)handle - 0x9000) / 16;

    return (uintptr_t)handle >= 0x9000 && pool < FAKE_POOLS && fake_pools[pool].exists &&
                   !fake_pools[pool].destroyed
               ? pool
               : -1;
}

static void fake_shrink(struct fake_pool *pool, uint64_t keep)
{
    uint64_t least = (pool->used + pool->pending + fake.step - 1) / fake.step * fake.step;

    if (pool->destroyed)
        least = pool->used + pool->pending ? pool->reserved : 0;
    if (least < keep)
        least = keep;
    least += pool->stuck;
    if (pool->reserved > least) {
        if (!pool->host)
            give(pool->device, -(int64_t)(pool->reserved - least));
        pool->reserved = least;
    }
    if (pool->destroyed && pool->reserved == 0)
        pool->exists = false;
}

static CUresult fake_allocate(CUdeviceptr *address, size_t bytes, int index)
{
    struct fake_pool *pool = &fake_pools[index];
    struct fake_allocation *made = NULL;
    CUresult result = CUDA_SUCCESS;
    uint64_t growth = 0, stuck;

    pthread_mutex_lock(&fake.lock);
    result = refused();
    for (int i = 0; i < FAKE_ALLOCATIONS && !made; i++)
        if (fake_allocations[i].address == 0)
            made = &fake_allocations[i];
    if (result == CUDA_SUCCESS) {
        EXPECT(made);
        if (pool->used + pool->pending + bytes > pool->reserved)
            growth = pool->used + pool->pending + bytes - pool->reserved;
        growth = (growth + fake.step - 1) / fake.step * fake.step + fake.fragmented;
        stuck = fake.stuck ? fake.fragmented : 0;
        fake.fragmented = 0;
        pool->stuck += stuck;
        pool->reserved += growth;
        pool->used += bytes;
        if (!pool->host)
            give(pool->device, (int64_t)growth);
        *made = (struct fake_allocation){fake.next_address, bytes, stuck, index};
        *address = fake.next_address;
        fake.next_address += (bytes + 511) / 512 * 512;
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

/* The streams of a context have its device's number in them. */
static int fake_device_of(CUstream stream)
{
    return (uintptr_t)stream >> 16 ? (int)((uintptr_t)stream >> 16) : fake_current;
}

static CUresult fake_cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    return fake_allocate(address, bytes, fake_current_pool[fake_device_of(stream)]);
}

static CUresult fake_cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                             CUstream stream)
{
    (void)stream;
    if (fake_pool_of(pool) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    return fake_allocate(address, bytes, fake_pool_of(pool));
}

static CUresult fake_free(CUdeviceptr address, bool pending)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    pthread_mutex_lock(&fake.lock);
    for (int i = 0; i < FAKE_ALLOCATIONS && result != CUDA_SUCCESS; i++) {
        struct fake_allocation *found = &fake_allocations[i];

        if (found->address != address || address == 0)
            continue;
        fake_pools[found->pool].used -= found->bytes;
        fake_pools[found->pool].stuck -= found->stuck;
        if (pending)
            fake_pools[found->pool].pending += found->bytes;
        if (fake_pools[found->pool].destroyed)
            fake_shrink(&fake_pools[found->pool], 0);
        found->address = 0;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

static CUresult fake_cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    return fake_free(address, stream == (CUstream)0x5109); /* a stream that is slow */
}

/* The device came to the end of every stream. */
static inline void fake_synchronise(void)
{
    pthread_mutex_lock(&fake.lock);
    for (int i = 0; i < FAKE_POOLS; i++) {
        fake_pools[i].pending = 0;
        if (fake_pools[i].exists)
            fake_shrink(&fake_pools[i], fake_pools[i].threshold);
    }
    pthread_mutex_unlock(&fake.lock);
}

static CUresult fake_cuStreamSynchronize(CUstream stream)
{
    (void)stream;
    fake_synchronise();
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    for (int i = FAKE_DEVICES; i < FAKE_POOLS; i++) {
        if (fake_pools[i].exists)
            continue;
        fake_pools[i] = (struct fake_pool){
            .exists = true,
            .host = properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE,
            .device = properties->location.id,
        };
        *pool = fake_handle(i);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult fake_cuMemPoolDestroy(CUmemoryPool handle)
{
    int pool = fake_pool_of(handle);

    if (pool < FAKE_DEVICES)
        return CUDA_ERROR_INVALID_VALUE;
    fake_pools[pool].destroyed = true;
    for (int device = 0; device < FAKE_DEVICES; device++)
        if (fake_current_pool[device] == pool)
            fake_current_pool[device] = device;
    pthread_mutex_lock(&fake.lock);
    fake_shrink(&fake_pools[pool], 0);
    pthread_mutex_unlock(&fake.lock);
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
    int pool = fake_pool_of(handle);

    EXPECT(pool >= 0);
    pthread_mutex_lock(&fake.lock);
    fake.trims++;
    fake_shrink(&fake_pools[pool], keep);
    pthread_mutex_unlock(&fake.lock);
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                           void *value)
{
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        fake_pools[fake_pool_of(handle)].threshold = *(cuuint64_t *)value;
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                           void *value)
{
    int pool = fake_pool_of(handle);

    EXPECT(pool >= 0);
    if (attribute != CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
        return CUDA_ERROR_INVALID_VALUE; /* a driver before CUDA 13 */
    pthread_mutex_lock(&fake.lock);
    fake.asked++;
    *(cuuint64_t *)value = fake_pools[pool].reserved;
    pthread_mutex_unlock(&fake.lock);
    let_others();
    return CUDA_SUCCESS;
}

static CUresult fake_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    *pool = fake_handle(fake_current_pool[device]);
    let_others();
    return CUDA_SUCCESS;
}

static CUresult fake_cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    *pool = fake_handle(device);
    return CUDA_SUCCESS;
}

static CUresult fake_cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    fake_current_pool[device] = fake_pool_of(pool);
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location,
                                            CUmemAllocationType type)
{
    (void)pool;
    (void)location;
    (void)type;
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult fake_cuDeviceGetCount(int *count)
{
    *count = FAKE_DEVICES;
    return CUDA_SUCCESS;
}

static CUresult fake_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    (void)mode;
    return CUDA_SUCCESS;
}

static CUresult fake_cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    *context = (CUcontext)(uintptr_t)(0x1000 + fake_device_of(stream));
    return CUDA_SUCCESS;
}

static CUresult fake_cuCtxGetCurrent(CUcontext *context)
{
    *context = (CUcontext)(uintptr_t)(0x1000 + fake_current);
    return CUDA_SUCCESS;
}

static CUresult fake_cuCtxGetDevice_v2(CUdevice *device, CUcontext context)
{
    *device = (CUdevice)((uintptr_t)context - 0x1000);
    return CUDA_SUCCESS;
}

static struct hami_real fake_real = {
    .cuMemAllocAsync = fake_cuMemAllocAsync,
    .cuMemAllocAsync_ptsz = fake_cuMemAllocAsync,
    .cuMemAllocFromPoolAsync = fake_cuMemAllocFromPoolAsync,
    .cuMemAllocFromPoolAsync_ptsz = fake_cuMemAllocFromPoolAsync,
    .cuMemFreeAsync = fake_cuMemFreeAsync,
    .cuMemFreeAsync_ptsz = fake_cuMemFreeAsync,
    .cuStreamSynchronize = fake_cuStreamSynchronize,
    .cuMemPoolCreate = fake_cuMemPoolCreate,
    .cuMemPoolDestroy = fake_cuMemPoolDestroy,
    .cuMemPoolTrimTo = fake_cuMemPoolTrimTo,
    .cuMemPoolSetAttribute = fake_cuMemPoolSetAttribute,
    .cuMemPoolGetAttribute = fake_cuMemPoolGetAttribute,
    .cuDeviceGetMemPool = fake_cuDeviceGetMemPool,
    .cuDeviceGetDefaultMemPool = fake_cuDeviceGetDefaultMemPool,
    .cuDeviceSetMemPool = fake_cuDeviceSetMemPool,
    .cuMemGetDefaultMemPool = fake_cuMemGetDefaultMemPool,
    .cuDeviceGetCount = fake_cuDeviceGetCount,
    .cuThreadExchangeStreamCaptureMode = fake_cuThreadExchangeStreamCaptureMode,
    .cuStreamGetCtx = fake_cuStreamGetCtx,
    .cuStreamGetCtx_ptsz = fake_cuStreamGetCtx,
    .cuCtxGetCurrent = fake_cuCtxGetCurrent,
    .cuCtxGetDevice_v2 = fake_cuCtxGetDevice_v2,
};
const struct hami_real *_Atomic hami_real_found = &fake_real;

const struct hami_real *hami_real_load(void)
{
    return &fake_real;
}

/* A new process with a limit; the driver begins anew. */
static inline void fake_start(uint64_t limit)
{
    hami_reset_all();
    memset(fake_pools, 0, sizeof(fake_pools));
    memset(fake_allocations, 0, sizeof(fake_allocations));
    for (int device = 0; device < FAKE_DEVICES; device++) {
        fake_pools[device] = (struct fake_pool){.exists = true, .device = device};
        fake_current_pool[device] = device;
        fake.given[device] = fake.peak[device] = 0;
        fake_charged[device] = 0;
    }
    fake.step = 32 * MIB;
    fake.fragmented = 0;
    fake.stuck = false;
    fake.asked = fake.trims = 0;
    fake_current = 0;
    fake_capturing = false;
    fake_flags = 0;
    fake_limit = limit;
    atomic_store(&hami_process->mode, HAMI_MODE_SLICE);
}

static inline int report(void)
{
    if (failures)
        fprintf(stderr, "%d expectations failed\n", failures);
    return failures != 0;
}

#endif
