/* cuMemCreate: memory by handle. It stays while a handle, a mapping, an array's tile or a multicast
 * team needs it, here or in another process. */
#include <stdlib.h>

#include "execution.h"
#include "memory_vmm.h"

/* A handle's value is its place in a table. Places are not used again: a stale value is known. */
#define FIRST_VALUE UINT64_C(0x10000)
#define VALUE_STEP UINT64_C(0x10)

static struct sim_handle **table;
static size_t table_used, table_room;
static struct sim_physical *physicals;
static uint64_t serials;

/* ---- Objects ---- */

struct sim_physical *sim_physical_new(void)
{
    struct sim_physical *physical = calloc(1, sizeof(*physical));

    if (!physical)
        return NULL;
    physical->serial = ++serials;
    physical->ordinal = -1;
    physical->next = physicals;
    if (physicals)
        physicals->previous = physical;
    physicals = physical;
    return physical;
}

void sim_physical_drop(struct sim_physical *physical)
{
    if (physical->previous)
        physical->previous->next = physical->next;
    else
        physicals = physical->next;
    if (physical->next)
        physical->next->previous = physical->previous;
    sim_team_unbind_all(physical);
    sim_bytes_free(&physical->data);
    sim_give(physical->id);
    free(physical);
}

struct sim_physical *sim_physical_numbered(uint64_t serial)
{
    struct sim_physical *physical = physicals;

    while (physical && physical->serial != serial)
        physical = physical->next;
    return physical;
}

struct sim_handle *sim_handle_new(struct sim_physical *physical)
{
    struct sim_handle *handle;

    if (table_used == table_room) {
        size_t room = table_room ? 2 * table_room : 64;
        struct sim_handle **larger = realloc(table, room * sizeof(struct sim_handle *));

        if (!larger)
            return NULL;
        table = larger;
        table_room = room;
    }
    handle = calloc(1, sizeof(*handle));
    if (!handle)
        return NULL;
    handle->value = FIRST_VALUE + table_used * VALUE_STEP;
    handle->held = 1;
    handle->physical = physical;
    physical->handles++;
    table[table_used++] = handle;
    return handle;
}

struct sim_handle *sim_handle_held(CUmemGenericAllocationHandle value)
{
    uint64_t place = (value - FIRST_VALUE) / VALUE_STEP;
    struct sim_handle *handle;

    if (value < FIRST_VALUE || value % VALUE_STEP || place >= table_used)
        return NULL;
    handle = table[place];
    return handle && handle->held ? handle : NULL;
}

void sim_handle_check(struct sim_handle *handle)
{
    if (handle->held || handle->uses)
        return;
    table[(handle->value - FIRST_VALUE) / VALUE_STEP] = NULL;
    if (--handle->physical->handles == 0)
        sim_physical_drop(handle->physical);
    free(handle);
}

/* ---- Creating ---- */

/* What cuMemCreate and the granularity of it accept; `*ordinal`: -1 for the host. */
static CUresult check_properties(const CUmemAllocationProp *properties, CUdevice *ordinal)
{
    unsigned int types = properties->requestedHandleTypes;

    if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED || properties->win32HandleMetaData)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < sizeof(properties->allocFlags.reserved); i++)
        if (properties->allocFlags.reserved[i])
            return CUDA_ERROR_INVALID_VALUE;
    if (types & ~(unsigned int)(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR |
                                CU_MEM_HANDLE_TYPE_FABRIC))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (types & CU_MEM_HANDLE_TYPE_FABRIC) /* no fabric here, as on a machine of its own */
        return CUDA_ERROR_NOT_PERMITTED;
    *ordinal = -1;
    switch (properties->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        *ordinal = properties->location.id;
        return sim_device(*ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
        return types ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return properties->location.id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

SIM_EXPORT CUresult cuMemGetAllocationGranularity(size_t *granularity,
                                                  const CUmemAllocationProp *properties,
                                                  CUmemAllocationGranularity_flags option)
{
    CUdevice ordinal;
    CUresult result;

    SIM_ENTER(cuMemGetAllocationGranularity);
    if (!sim_pointer(granularity) || !sim_pointer(properties) ||
        (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
         option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return CUDA_ERROR_INVALID_VALUE;
    result = check_properties(properties, &ordinal);
    if (result == CUDA_SUCCESS)
        *granularity = SIM_GRANULE;
    return result;
}

static CUresult create(CUmemGenericAllocationHandle *handle, uint64_t bytes, CUdevice ordinal,
                       const CUmemAllocationProp *properties)
{
    struct sim_physical *physical = sim_physical_new();
    struct sim_handle *made = NULL;
    CUresult result = CUDA_SUCCESS;

    if (!physical)
        return CUDA_ERROR_OUT_OF_MEMORY;
    physical->bytes = physical->data.size = bytes;
    physical->ordinal = ordinal;
    physical->properties = *properties;
    if (ordinal >= 0)
        result = sim_take(ordinal, bytes, SIM_MEMORY_DATA, &physical->id);
    if (result == CUDA_SUCCESS) {
        made = sim_handle_new(physical);
        result = made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        sim_physical_drop(physical);
        return result;
    }
    *handle = made->value;
    return CUDA_SUCCESS;
}

/* No context is needed: the location says where. */
SIM_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                                const CUmemAllocationProp *properties, unsigned long long flags)
{
    CUdevice ordinal;
    CUresult result;

    SIM_ENTER(cuMemCreate);
    if (!sim_pointer(handle) || !sim_pointer(properties) || flags || size == 0 ||
        size % SIM_GRANULE)
        return CUDA_ERROR_INVALID_VALUE;
    result = check_properties(properties, &ordinal);
    if (result != CUDA_SUCCESS)
        return result;
    sim_memory_lock();
    result = create(handle, size, ordinal, properties);
    sim_memory_unlock();
    return result;
}

SIM_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct sim_handle *found;

    SIM_ENTER(cuMemRelease);
    sim_memory_lock();
    found = sim_handle_held(handle);
    if (found) {
        found->held--;
        sim_handle_check(found);
    }
    sim_memory_unlock();
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                                           CUmemGenericAllocationHandle handle)
{
    struct sim_handle *found;

    SIM_ENTER(cuMemGetAllocationPropertiesFromHandle);
    if (!sim_pointer(properties))
        return CUDA_ERROR_INVALID_VALUE;
    sim_memory_lock();
    found = sim_handle_held(handle);
    if (found && !found->physical->team)
        *properties = found->physical->properties;
    else
        found = NULL;
    sim_memory_unlock();
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
