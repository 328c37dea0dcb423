/* Memory of graphs: one reserve per device, kept until cuDeviceGraphMemTrim. */
#include "execution.h"
#include "memory_pools.h"

static struct sim_reserve reserves[SIM_MAX_DEVICES];

/* With the lock held. */
static struct sim_reserve *reserve_of(CUdevice ordinal)
{
    reserves[ordinal].ordinal = ordinal;
    return &reserves[ordinal];
}

CUresult sim_graph_reserve(CUdevice ordinal, uint64_t bytes)
{
    CUresult result;

    sim_memory_lock();
    result = sim_reserve_grow(reserve_of(ordinal), bytes);
    sim_memory_unlock();
    return result;
}

/* Whoever uses has reserved; a growth that failed in between shows as use beyond the reserve. */
void sim_graph_use(CUdevice ordinal, int64_t bytes)
{
    sim_memory_lock();
    if (bytes < 0) {
        sim_reserve_unuse(reserve_of(ordinal), (uint64_t)-bytes);
    } else {
        struct sim_reserve *reserve = reserve_of(ordinal);

        reserve->used += (uint64_t)bytes;
        if (reserve->used > reserve->used_high)
            reserve->used_high = reserve->used;
    }
    sim_memory_unlock();
}

SIM_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    SIM_ENTER(cuDeviceGraphMemTrim);
    if (!sim_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_memory_lock();
    sim_reserve_trim(reserve_of(device), 0);
    sim_memory_unlock();
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute,
                                                 void *value)
{
    CUresult result = CUDA_SUCCESS;
    struct sim_reserve *reserve;
    cuuint64_t found = 0;

    SIM_ENTER(cuDeviceGetGraphMemAttribute);
    if (!sim_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!sim_pointer(value))
        return CUDA_ERROR_INVALID_VALUE;
    sim_memory_lock();
    reserve = reserve_of(device);
    switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        found = reserve->used;
        break;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        found = reserve->used_high;
        break;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        found = reserve->reserved;
        break;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        found = reserve->reserved_high;
        break;
    default:
        result = CUDA_ERROR_INVALID_VALUE;
    }
    sim_memory_unlock();
    if (result == CUDA_SUCCESS)
        *(cuuint64_t *)value = found;
    return result;
}

SIM_EXPORT CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute,
                                                 void *value)
{
    CUresult result = CUDA_SUCCESS;
    struct sim_reserve *reserve;

    SIM_ENTER(cuDeviceSetGraphMemAttribute);
    if (!sim_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!sim_pointer(value) || *(const cuuint64_t *)value != 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_memory_lock();
    reserve = reserve_of(device);
    if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        reserve->used_high = reserve->used;
    else if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        reserve->reserved_high = reserve->reserved;
    else
        result = CUDA_ERROR_INVALID_VALUE;
    sim_memory_unlock();
    return result;
}
