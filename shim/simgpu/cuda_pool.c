/* Memory pools: the default one of each device, those that programs make, which one is current, and
 * their attributes. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "execution.h"
#include "memory_pools.h"

static CUmemoryPool pools;
static CUmemoryPool by_default[SIM_MAX_DEVICES], host_default;
static CUmemoryPool current[SIM_MAX_DEVICES], host_current;
static _Atomic uint32_t other_current; /* a bit for each device whose current pool is not its own */
_Atomic bool sim_settles;
static uint64_t serials;

CUmemoryPool sim_pool_known(CUmemoryPool pool)
{
    for (CUmemoryPool known = pools; known; known = known->next)
        if (known == pool && !known->destroyed)
            return known;
    return NULL;
}

CUmemoryPool sim_pool_new(const CUmemPoolProps *properties)
{
    CUmemoryPool pool = calloc(1, sizeof(*pool));
    bool device = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;

    if (!pool)
        return NULL;
    pool->properties = *properties;
    pool->reserve.ordinal = device ? properties->location.id : -1;
    pool->reserve.most = sim_round_up(properties->maxSize, SIM_GRANULE);
    pool->serial = ++serials;
    for (int i = 0; i < 3; i++)
        pool->reuse[i] = 1;
    if (device)
        pool->access[properties->location.id] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    else
        memset(pool->access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, sizeof(pool->access));
    pool->next = pools;
    pools = pool;
    atomic_store_explicit(&sim_settles, true, memory_order_release);
    return pool;
}

static void pool_gone(CUmemoryPool pool)
{
    CUmemoryPool *place = &pools;

    while (*place != pool)
        place = &(*place)->next;
    *place = pool->next;
    sim_reserve_trim(&pool->reserve, 0);
    free(pool);
}

CUmemoryPool sim_pool_by_default(CUdevice ordinal)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                              .id = ordinal}};
    CUmemoryPool *pool = ordinal >= 0 ? &by_default[ordinal] : &host_default;

    if (ordinal < 0)
        properties.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST};
    if (!*pool) {
        *pool = sim_pool_new(&properties);
        if (*pool)
            (*pool)->by_default = true;
    }
    return *pool;
}

CUmemoryPool sim_pool_current(CUdevice ordinal)
{
    CUmemoryPool pool = ordinal >= 0 ? current[ordinal] : host_current;

    return pool ? pool : sim_pool_by_default(ordinal);
}

bool sim_pool_is_default(CUdevice ordinal)
{
    return !(atomic_load_explicit(&other_current, memory_order_relaxed) >> ordinal & 1);
}

static void set_current(CUdevice ordinal, CUmemoryPool pool)
{
    if (pool && pool->by_default)
        pool = NULL;
    if (ordinal < 0) {
        host_current = pool;
        return;
    }
    current[ordinal] = pool;
    if (pool)
        atomic_fetch_or(&other_current, UINT32_C(1) << ordinal);
    else
        atomic_fetch_and(&other_current, ~(UINT32_C(1) << ordinal));
}

void sim_pool_count_local(CUmemoryPool pool)
{
    struct sim_reserve *reserve = &pool->reserve;
    uint64_t fast;

    if (!sim_process->local || !pool->by_default || reserve->ordinal < 0)
        return;
    /* Allocations that went the slow way are none here: the fast way knows all of this pool. */
    fast = sim_local_used(reserve->ordinal, true);
    reserve->used = 0;
    sim_reserve_use(reserve, fast);
}

/* ---- Their life ---- */

static bool supported(const CUmemPoolProps *properties, CUresult *refusal)
{
    *refusal = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < sizeof(properties->reserved); i++)
        if (properties->reserved[i])
            return false;
    if (properties->win32SecurityAttributes)
        return false;
    if (properties->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED) {
        *refusal = CUDA_ERROR_NOT_SUPPORTED; /* no page moves here */
        return false;
    }
    if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
        return false;
    if (properties->handleTypes & ~(unsigned int)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        *refusal = CUDA_ERROR_NOT_SUPPORTED;
        return false;
    }
    switch (properties->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        *refusal = CUDA_ERROR_INVALID_DEVICE;
        return sim_device(properties->location.id) != NULL;
    case CU_MEM_LOCATION_TYPE_HOST:
        return properties->handleTypes == CU_MEM_HANDLE_TYPE_NONE;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return properties->location.id == 0;
    default:
        return false;
    }
}

SIM_EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    CUmemoryPool made;
    CUresult refusal;

    SIM_ENTER(cuMemPoolCreate);
    if (!sim_pointer(pool) || !sim_pointer(properties))
        return CUDA_ERROR_INVALID_VALUE;
    if (!supported(properties, &refusal))
        return refusal;
    sim_memory_lock();
    made = sim_pool_new(properties);
    sim_memory_unlock();
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pool = made;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    SIM_ENTER(cuMemPoolDestroy);
    sim_memory_lock();
    if (sim_pool_known(pool) && !pool->by_default) {
        CUdevice ordinal = pool->reserve.ordinal;

        if (!pool->imported && sim_pool_current(ordinal) == pool)
            set_current(ordinal, NULL);
        pool->destroyed = true;
        if (pool->live == 0)
            pool_gone(pool);
        else
            sim_reserve_trim(&pool->reserve, 0);
        result = CUDA_SUCCESS;
    }
    sim_memory_unlock();
    return result;
}

SIM_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t bytes_to_keep)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    SIM_ENTER(cuMemPoolTrimTo);
    sim_memory_lock();
    if (sim_pool_known(pool) && !pool->imported) {
        sim_pool_count_local(pool);
        sim_reserve_trim(&pool->reserve, bytes_to_keep);
        result = CUDA_SUCCESS;
    }
    sim_memory_unlock();
    return result;
}

void sim_memory_synchronised(CUdevice ordinal)
{
    if (!atomic_load_explicit(&sim_settles, memory_order_acquire))
        return;
    sim_memory_lock();
    sim_ranges_reap(ordinal);
    for (CUmemoryPool pool = pools; pool; pool = pool->next)
        if (pool->reserve.ordinal == ordinal && !pool->imported) {
            sim_pool_count_local(pool);
            if (pool->reserve.reserved > pool->threshold)
                sim_reserve_trim(&pool->reserve, pool->threshold);
        }
    sim_memory_unlock();
}

/* ---- Their memory ---- */

CUresult sim_pool_allocate(CUmemoryPool pool, CUcontext context, uint64_t bytes,
                           CUdeviceptr *address)
{
    uint64_t taken = sim_round_up(bytes, 512);
    struct sim_range like = {.bytes = bytes, .kind = SIM_RANGE_ASYNC, .context = context,
                             .ordinal = pool->reserve.ordinal, .owner = pool};
    CUresult result;

    if (pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_reserve_use(&pool->reserve, taken);
    if (result != CUDA_SUCCESS)
        return result;
    like.base = sim_address_again(taken, true);
    if (!sim_range_add(&like)) {
        sim_reserve_unuse(&pool->reserve, taken);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pool->live++;
    *address = like.base;
    return CUDA_SUCCESS;
}

void sim_pool_freed(struct sim_range *range)
{
    CUmemoryPool pool = range->owner;

    if (pool->imported) {
        sim_give(range->part.id);
    } else {
        sim_reserve_unuse(&pool->reserve, sim_round_up(range->bytes, 512));
        sim_address_keep(range->base, sim_round_up(range->bytes, 512), true);
    }
    sim_range_remove(range);
    pool->live--;
    if (pool->destroyed && pool->live == 0)
        pool_gone(pool);
    else if (pool->destroyed)
        sim_reserve_trim(&pool->reserve, 0);
}

/* ---- Which is current ---- */

static CUresult give_pool(CUmemoryPool *pool, CUdevice ordinal,
                          CUmemoryPool (*which)(CUdevice ordinal))
{
    CUmemoryPool found;

    if (!sim_pointer(pool))
        return CUDA_ERROR_INVALID_VALUE;
    if (ordinal >= 0 && !sim_device(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_memory_lock();
    found = which(ordinal);
    sim_memory_unlock();
    if (!found)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pool = found;
    return CUDA_SUCCESS;
}

static CUresult make_current(CUdevice ordinal, CUmemoryPool pool)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    if (ordinal >= 0 && !sim_device(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_memory_lock();
    if (sim_pool_known(pool) && !pool->imported && pool->reserve.ordinal == ordinal) {
        set_current(ordinal, pool);
        result = CUDA_SUCCESS;
    }
    sim_memory_unlock();
    return result;
}

/* The device, or -1 for the host; what is neither is refused. */
static CUresult place_of(const CUmemLocation *location, CUmemAllocationType type, CUdevice *ordinal)
{
    if (!sim_pointer(location))
        return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_MEM_ALLOCATION_TYPE_MANAGED)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        *ordinal = location->id;
        return sim_device(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        *ordinal = -1;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

SIM_EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    SIM_ENTER(cuDeviceGetDefaultMemPool);
    return device < 0 ? CUDA_ERROR_INVALID_DEVICE : give_pool(pool, device, sim_pool_by_default);
}

SIM_EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    SIM_ENTER(cuDeviceGetMemPool);
    return device < 0 ? CUDA_ERROR_INVALID_DEVICE : give_pool(pool, device, sim_pool_current);
}

SIM_EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    SIM_ENTER(cuDeviceSetMemPool);
    return device < 0 ? CUDA_ERROR_INVALID_DEVICE : make_current(device, pool);
}

SIM_EXPORT CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location,
                                           CUmemAllocationType type)
{
    CUdevice ordinal;
    CUresult result;

    SIM_ENTER(cuMemGetDefaultMemPool);
    result = place_of(location, type, &ordinal);
    return result == CUDA_SUCCESS ? give_pool(pool, ordinal, sim_pool_by_default) : result;
}

SIM_EXPORT CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location,
                                    CUmemAllocationType type)
{
    CUdevice ordinal;
    CUresult result;

    SIM_ENTER(cuMemGetMemPool);
    result = place_of(location, type, &ordinal);
    return result == CUDA_SUCCESS ? give_pool(pool, ordinal, sim_pool_current) : result;
}

SIM_EXPORT CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type,
                                    CUmemoryPool pool)
{
    CUdevice ordinal;
    CUresult result;

    SIM_ENTER(cuMemSetMemPool);
    result = place_of(location, type, &ordinal);
    return result == CUDA_SUCCESS ? make_current(ordinal, pool) : result;
}
