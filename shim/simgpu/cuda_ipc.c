/* cuIpcGetMemHandle, and opening it in another process: 64 bytes that name memory in the ledger. */
#include <string.h>
#include <unistd.h>

#include "execution.h"
#include "memory.h"

#define MAGIC UINT64_C(0x656c646e6168706d)

struct ipc_data {
    uint64_t magic, id, buffer, bytes;
    int32_t pid, unused;
};
_Static_assert(sizeof(struct ipc_data) <= sizeof(CUipcMemHandle), "room for it");

/* Any address inside names the whole allocation. */
SIM_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    struct sim_range *range;
    struct ipc_data data;
    CUcontext context;
    CUresult result;

    SIM_ENTER(cuIpcGetMemHandle);
    if (!sim_pointer(handle))
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    sim_memory_lock();
    range = sim_range_find(address);
    if (range && range->kind == SIM_RANGE_LINEAR) {
        data = (struct ipc_data){.magic = MAGIC, .id = range->part.id, .buffer = range->buffer,
                                 .bytes = range->bytes, .pid = (int32_t)getpid()};
        memset(handle, 0, sizeof(*handle));
        memcpy(handle, &data, sizeof(data));
    } else {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    sim_memory_unlock();
    return result;
}

static struct sim_range *opened(CUcontext context, const struct ipc_data *data)
{
    struct sim_range *range = sim_range_first();

    while (range && !(range->kind == SIM_RANGE_IPC && range->context == context &&
                      range->shared == data->buffer && range->shared_pid == data->pid))
        range = range->next;
    return range;
}

static CUresult open_handle(CUcontext context, const struct ipc_data *data, CUdeviceptr *address)
{
    struct sim_range *range = opened(context, data);
    struct sim_range like = {.bytes = data->bytes, .kind = SIM_RANGE_IPC, .context = context,
                             .shared = data->buffer, .shared_pid = data->pid, .count = 1};
    uint64_t whole;
    CUresult result;

    if (range) { /* a second opening: the same address, closed as often */
        range->count++;
        *address = range->base;
        return CUDA_SUCCESS;
    }
    result = sim_share(data->id, &like.part.id, &like.ordinal, &whole);
    if (result != CUDA_SUCCESS)
        return result == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_MAP_FAILED : result;
    like.base = sim_address(data->bytes, SIM_GRANULE);
    if (data->bytes > whole || !sim_range_add(&like)) {
        sim_give(like.part.id);
        return CUDA_ERROR_MAP_FAILED;
    }
    *address = like.base;
    return CUDA_SUCCESS;
}

static CUresult open_memory(CUdeviceptr *address, const CUipcMemHandle *handle, unsigned int flags)
{
    struct ipc_data data;
    CUcontext context;
    CUresult result = sim_context_current(&context);

    if (result == CUDA_SUCCESS)
        result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_pointer(address) || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&data, handle, sizeof(data));
    if (data.magic != MAGIC || data.bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (data.pid == getpid())
        return CUDA_ERROR_INVALID_CONTEXT; /* what real drivers say of a process's own handle */
    sim_memory_lock();
    result = open_handle(context, &data, address);
    sim_memory_unlock();
    return result;
}

SIM_EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle,
                                       unsigned int flags)
{
    SIM_ENTER(cuIpcOpenMemHandle);
    return open_memory(address, &handle, flags);
}

SIM_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle,
                                          unsigned int flags)
{
    SIM_ENTER(cuIpcOpenMemHandle_v2);
    return open_memory(address, &handle, flags);
}

SIM_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    struct sim_range *range;
    CUcontext context;
    CUresult result;

    SIM_ENTER(cuIpcCloseMemHandle);
    result = sim_context_current(&context);
    if (result == CUDA_SUCCESS)
        result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    sim_memory_lock();
    range = sim_range_at(address);
    if (!range || range->kind != SIM_RANGE_IPC)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (--range->count == 0)
        sim_range_free(range);
    sim_memory_unlock();
    return result;
}
