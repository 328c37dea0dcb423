/* What programs ask of a pool and set in it. */
#include "execution.h"
#include "memory_pools.h"

/* The high-water marks may be set to zero only: they fall to what is now. */
static CUresult reset_high(const void *value, uint64_t *high, uint64_t now)
{
    if (*(const cuuint64_t *)value != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *high = now;
    return CUDA_SUCCESS;
}

static CUresult set(CUmemoryPool pool, CUmemPool_attribute attribute, const void *value)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        pool->reuse[attribute - 1] = *(const int *)value != 0;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->threshold = *(const cuuint64_t *)value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return reset_high(value, &pool->reserve.reserved_high, pool->reserve.reserved);
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return reset_high(value, &pool->reserve.used_high, pool->reserve.used);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

SIM_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                                          void *value)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    SIM_ENTER(cuMemPoolSetAttribute);
    if (!sim_pointer(value))
        return CUDA_ERROR_INVALID_VALUE;
    sim_memory_lock();
    if (sim_pool_known(pool) && !pool->imported) {
        sim_pool_count_local(pool);
        result = set(pool, attribute, value);
    }
    sim_memory_unlock();
    return result;
}

/* What an imported pool can be asked too. */
static CUresult get_property(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    const CUmemPoolProps *properties = &pool->properties;

    switch (attribute) {
    case CU_MEMPOOL_ATTR_ALLOCATION_TYPE:
        *(CUmemAllocationType *)value = properties->allocType;
        break;
    case CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES:
        *(CUmemAllocationHandleType *)value =
            pool->imported ? CU_MEM_HANDLE_TYPE_NONE : properties->handleTypes;
        break;
    case CU_MEMPOOL_ATTR_LOCATION_ID:
        *(int *)value = properties->location.id;
        break;
    case CU_MEMPOOL_ATTR_LOCATION_TYPE:
        *(CUmemLocationType *)value = properties->location.type;
        break;
    case CU_MEMPOOL_ATTR_MAX_POOL_SIZE:
        *(cuuint64_t *)value = pool->reserve.most;
        break;
    case CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED:
        *(int *)value = 0;
        break;
    case CU_MEMPOOL_ATTR_LOCALITY_DOMAIN_ID:
        *(int *)value = -1;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static CUresult get(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *(int *)value = pool->reuse[attribute - 1];
        break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *(cuuint64_t *)value = pool->threshold;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value = pool->reserve.reserved;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *(cuuint64_t *)value = pool->reserve.reserved_high;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = pool->reserve.used;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = pool->reserve.used_high;
        break;
    default:
        return get_property(pool, attribute, value);
    }
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                                          void *value)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    SIM_ENTER(cuMemPoolGetAttribute);
    if (!sim_pointer(value))
        return CUDA_ERROR_INVALID_VALUE;
    sim_memory_lock();
    if (sim_pool_known(pool)) {
        sim_pool_count_local(pool);
        result = pool->imported ? get_property(pool, attribute, value)
                                : get(pool, attribute, value);
    }
    sim_memory_unlock();
    return result;
}

/* A pool's own device cannot be shut out. */
static bool access_allowed(CUmemoryPool pool, const CUmemAccessDesc *wanted)
{
    return wanted->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
           sim_device(wanted->location.id) != NULL &&
           (wanted->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
            (wanted->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE &&
             wanted->location.id != pool->reserve.ordinal));
}

SIM_EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *accesses,
                                       size_t count)
{
    CUresult result = CUDA_SUCCESS;

    SIM_ENTER(cuMemPoolSetAccess);
    if (!sim_pointer(accesses) || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_memory_lock();
    if (!sim_pool_known(pool))
        result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
        if (!access_allowed(pool, &accesses[i]))
            result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
        pool->access[accesses[i].location.id] = (uint8_t)accesses[i].flags;
    sim_memory_unlock();
    return result;
}

SIM_EXPORT CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool,
                                       CUmemLocation *location)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    SIM_ENTER(cuMemPoolGetAccess);
    if (!sim_pointer(flags) || !sim_pointer(location) ||
        location->type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device(location->id))
        return CUDA_ERROR_INVALID_VALUE;
    sim_memory_lock();
    if (sim_pool_known(pool)) {
        *flags = (CUmemAccess_flags)pool->access[location->id];
        result = CUDA_SUCCESS;
    }
    sim_memory_unlock();
    return result;
}
