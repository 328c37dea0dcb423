/* cuMemset: a short time in a stream, and the bytes of what is small enough to have any. */
#include <string.h>

#include "execution.h"
#include "memory.h"

static void fill_bytes(uint8_t *data, uint64_t bytes, unsigned int value, unsigned int size)
{
    if (size == 1) {
        memset(data, (int)(value & 0xff), bytes);
        return;
    }
    for (uint64_t done = 0; done < bytes; done += size)
        memcpy(data + done, &value, size);
}

/* Everything up to the end must be the device's (or host memory that the device reaches). */
static CUresult fill_range(CUdeviceptr address, uint64_t bytes, unsigned int value,
                           unsigned int size, bool moves, CUdevice here)
{
    CUresult result = CUDA_SUCCESS;
    CUdeviceptr base;
    CUdevice ordinal;
    uint64_t whole;
    bool async;

    if (sim_local_find(address, &base, &whole, &ordinal, &async))
        return bytes <= base + whole - address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    sim_memory_lock();
    for (int moving = 0; moving <= moves && result == CUDA_SUCCESS; moving++)
        for (uint64_t done = 0, piece; done < bytes; done += piece) {
            struct sim_range *range = sim_range_find(address + done);
            uint8_t *data;

            if (!range || (range->kind == SIM_RANGE_MAPPED &&
                           range->access[here] != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) {
                result = CUDA_ERROR_INVALID_VALUE;
                break;
            }
            piece = range->base + range->bytes - (address + done);
            if (piece > bytes - done)
                piece = bytes - done;
            data = moving ? sim_range_data(range, address + done, true) : NULL;
            if (data)
                fill_bytes(data, piece, value, size);
        }
    sim_memory_unlock();
    return result;
}

/* Fills of device memory return before they are done, in either spelling. */
static CUresult fill(CUdeviceptr address, unsigned int value, unsigned int size, uint64_t count,
                     CUstream handle, bool per_thread, bool waits)
{
    struct sim_captured operation = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    bool capturing = false;
    CUstream stream;
    CUgraph graph;
    CUresult result = waits ? sim_capture_unsafe() : CUDA_SUCCESS;

    if (result == CUDA_SUCCESS)
        result = sim_stream_resolve(handle, per_thread, &stream);
    if (result == CUDA_SUCCESS)
        result = sim_stream_capturing(handle, per_thread, &capturing, &graph);
    if (result != CUDA_SUCCESS || count == 0)
        return result;
    if (address % size || count > UINT64_MAX / size)
        return CUDA_ERROR_INVALID_VALUE;
    operation.ordinal = stream->context->ordinal;
    operation.work = sim_fill_work(count * size);
    result = fill_range(address, count * size, value, size, !capturing, operation.ordinal);
    if (result != CUDA_SUCCESS)
        return result;
    return capturing ? sim_capture_add(handle, per_thread, &operation)
                     : sim_run(stream, &operation.work);
}

SIM_EXPORT CUresult cuMemsetD8(CUdeviceptr_v1 destination, unsigned char value, unsigned int count)
{
    SIM_ENTER(cuMemsetD8);
    return fill(destination, value, 1, count, NULL, false, true);
}

SIM_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr destination, unsigned char value, size_t count)
{
    SIM_ENTER(cuMemsetD8_v2);
    return fill(destination, value, 1, count, NULL, false, true);
}

SIM_EXPORT CUresult cuMemsetD8_v2_ptds(CUdeviceptr destination, unsigned char value, size_t count)
{
    SIM_ENTER(cuMemsetD8_v2_ptds);
    return fill(destination, value, 1, count, NULL, true, true);
}

SIM_EXPORT CUresult cuMemsetD32(CUdeviceptr_v1 destination, unsigned int value, unsigned int count)
{
    SIM_ENTER(cuMemsetD32);
    return fill(destination, value, 4, count, NULL, false, true);
}

SIM_EXPORT CUresult cuMemsetD32_v2(CUdeviceptr destination, unsigned int value, size_t count)
{
    SIM_ENTER(cuMemsetD32_v2);
    return fill(destination, value, 4, count, NULL, false, true);
}

SIM_EXPORT CUresult cuMemsetD32_v2_ptds(CUdeviceptr destination, unsigned int value, size_t count)
{
    SIM_ENTER(cuMemsetD32_v2_ptds);
    return fill(destination, value, 4, count, NULL, true, true);
}

SIM_EXPORT CUresult cuMemsetD8Async(CUdeviceptr destination, unsigned char value, size_t count,
                                    CUstream stream)
{
    SIM_ENTER(cuMemsetD8Async);
    return fill(destination, value, 1, count, stream, false, false);
}

SIM_EXPORT CUresult cuMemsetD8Async_ptsz(CUdeviceptr destination, unsigned char value, size_t count,
                                         CUstream stream)
{
    SIM_ENTER(cuMemsetD8Async_ptsz);
    return fill(destination, value, 1, count, stream, true, false);
}

SIM_EXPORT CUresult cuMemsetD32Async(CUdeviceptr destination, unsigned int value, size_t count,
                                     CUstream stream)
{
    SIM_ENTER(cuMemsetD32Async);
    return fill(destination, value, 4, count, stream, false, false);
}

SIM_EXPORT CUresult cuMemsetD32Async_ptsz(CUdeviceptr destination, unsigned int value, size_t count,
                                          CUstream stream)
{
    SIM_ENTER(cuMemsetD32Async_ptsz);
    return fill(destination, value, 4, count, stream, true, false);
}
