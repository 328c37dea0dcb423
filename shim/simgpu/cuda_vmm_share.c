/* Memory of cuMemCreate and multicast teams between processes. */
#include <stdlib.h>
#include <unistd.h>

#include "execution.h"
#include "memory_vmm.h"

/* The shares that this process sent, so that one which comes back is known for its own memory. */
static struct sent {
    uint64_t id, serial;
    struct sent *next;
} *sent;

static bool remember(uint64_t id, uint64_t serial)
{
    struct sent *one = malloc(sizeof(*one));

    if (one) {
        *one = (struct sent){id, serial, sent};
        sent = one;
    }
    return one != NULL;
}

static struct sim_physical *own_memory(uint64_t id)
{
    for (const struct sent *one = sent; one; one = one->next)
        if (one->id == id)
            return sim_physical_numbered(one->serial);
    return NULL;
}

/* ---- Exporting ---- */

static int export_fd(struct sim_physical *physical)
{
    struct sim_travelling what = {.kind = physical->team ? SIM_TRAVELS_TEAM : SIM_TRAVELS_MEMORY,
                                  .serial = physical->serial, .bytes = physical->bytes,
                                  .properties = physical->properties,
                                  .team = physical->team_properties};
    uint64_t id = physical->id;
    int fd;

    if (!id || sim_process->local)
        return sim_travel_send(&what);
    fd = sim_travel_share(&id);
    if (fd >= 0 && !remember(id, physical->serial)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

SIM_EXPORT CUresult cuMemExportToShareableHandle(void *shareable,
                                                 CUmemGenericAllocationHandle handle,
                                                 CUmemAllocationHandleType type,
                                                 unsigned long long flags)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct sim_handle *found;
    unsigned long long allowed;

    SIM_ENTER(cuMemExportToShareableHandle);
    if (!sim_pointer(shareable) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return type == CU_MEM_HANDLE_TYPE_NONE ? CUDA_ERROR_INVALID_VALUE
                                               : CUDA_ERROR_NOT_SUPPORTED;
    sim_memory_lock();
    found = sim_handle_held(handle);
    if (found) {
        struct sim_physical *physical = found->physical;

        allowed = physical->team ? physical->team_properties.handleTypes
                                 : (unsigned long long)physical->properties.requestedHandleTypes;
        if (allowed & type) {
            int fd = export_fd(physical);

            result = fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
            physical->travels = true;
            if (fd >= 0)
                *(int *)shareable = fd;
        }
    }
    sim_memory_unlock();
    return result;
}

/* ---- Importing ---- */

/* Of another process: a share of our own, with what its exporter must have asked for. */
static CUresult import_shared(uint64_t id, struct sim_physical **imported)
{
    struct sim_physical *physical = sim_physical_new();
    CUresult result;

    if (!physical)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = sim_share(id, &physical->id, &physical->ordinal, &physical->bytes);
    if (result != CUDA_SUCCESS) {
        sim_physical_drop(physical);
        return result == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE : result;
    }
    physical->data.size = physical->bytes;
    physical->properties = (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = physical->ordinal}};
    *imported = physical;
    return CUDA_SUCCESS;
}

/* Host memory, or a team: each process has its own idea of what is bound to it. */
static CUresult import_described(const struct sim_travelling *what, struct sim_physical **imported)
{
    struct sim_physical *physical;

    if (what->kind != SIM_TRAVELS_MEMORY && what->kind != SIM_TRAVELS_TEAM)
        return CUDA_ERROR_INVALID_VALUE;
    physical = what->pid == getpid() ? sim_physical_numbered(what->serial) : NULL;
    if (!physical) {
        physical = sim_physical_new();
        if (!physical)
            return CUDA_ERROR_OUT_OF_MEMORY;
        physical->bytes = physical->data.size = what->bytes;
        physical->properties = what->properties;
        physical->team = what->kind == SIM_TRAVELS_TEAM;
        physical->team_properties = what->team;
    }
    *imported = physical;
    return CUDA_SUCCESS;
}

static CUresult import_fd(int fd, CUmemGenericAllocationHandle *handle)
{
    struct sim_physical *physical = NULL;
    struct sim_travelling what;
    struct sim_handle *made;
    CUresult result = CUDA_SUCCESS;
    uint64_t id;

    if (sim_travel_shared(fd, &id)) {
        physical = own_memory(id);
        if (!physical)
            result = import_shared(id, &physical);
    } else if (sim_travel_receive(fd, &what)) {
        result = import_described(&what, &physical);
    } else {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result != CUDA_SUCCESS)
        return result;
    physical->travels = true;
    made = sim_handle_new(physical);
    if (!made) {
        if (physical->handles == 0)
            sim_physical_drop(physical);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = made->value;
    return CUDA_SUCCESS;
}

/* The descriptor stays the program's. */
SIM_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                                   void *shareable,
                                                   CUmemAllocationHandleType type)
{
    CUresult result;

    SIM_ENTER(cuMemImportFromShareableHandle);
    if (!sim_pointer(handle))
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return type == CU_MEM_HANDLE_TYPE_NONE ? CUDA_ERROR_INVALID_VALUE
                                               : CUDA_ERROR_NOT_SUPPORTED;
    sim_memory_lock();
    result = import_fd((int)(intptr_t)shareable, handle);
    sim_memory_unlock();
    return result;
}
