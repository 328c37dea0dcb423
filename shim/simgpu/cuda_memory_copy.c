/* Copies and fills: work of a short time in a stream, and, where both sides have bytes, the bytes.
 * They move when the call is made, not when the stream comes to it: nothing simulated reads or
 * writes them in between. */
#include <string.h>

#include "execution.h"
#include "memory.h"

/* ---- Time ---- */

static uint64_t at_rate(uint64_t bytes, uint64_t megabytes_per_second)
{
    return megabytes_per_second ? bytes / megabytes_per_second * 1000 +
                                      bytes % megabytes_per_second * 1000 / megabytes_per_second
                                : 0;
}

static bool on_device(CUdeviceptr address)
{
    struct sim_range *range;
    CUdevice ordinal;
    uint64_t bytes;
    bool device, async;

    if (sim_local_find(address, &address, &bytes, &ordinal, &async))
        return true;
    sim_memory_lock();
    range = sim_range_find(address);
    device = range && range->kind != SIM_RANGE_HOST && range->kind != SIM_RANGE_REGISTERED;
    sim_memory_unlock();
    return device;
}

/* Copy engines use no SMs; one thousandth is the least there is. */
static struct sim_work copy_work(bool across, uint64_t bytes)
{
    uint64_t rate = across ? sim_knob("HOST_MBPS", 25000) : sim_knob("DEVICE_MBPS", 1500000);

    return (struct sim_work){.duration_ns = sim_knob("COPY_NS", 1000) + at_rate(bytes, rate),
                             .width = 1};
}

struct sim_work sim_copy_work(CUdeviceptr destination, CUdeviceptr source, uint64_t bytes)
{
    return copy_work(!on_device(destination) || !on_device(source), bytes);
}

struct sim_work sim_fill_work(uint64_t bytes)
{
    return copy_work(false, bytes);
}

/* ---- Bytes ---- */

/* A side of a copy: an address of ours, or memory of the program. */
struct side {
    CUdeviceptr address;
    bool host; /* the call says so: no address of ours can be meant */
};

struct copy {
    struct side to, from;
    bool to_device, from_device; /* must be, by the name of the call */
};

struct piece {
    uint8_t *data; /* NULL: no bytes are kept */
    uint64_t bytes;
    bool device;
};

static bool readable(const struct sim_range *range, CUdevice here, bool write)
{
    uint8_t wanted = write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;

    return range->kind != SIM_RANGE_MAPPED || (range->access[here] & wanted) == wanted;
}

/* The longest piece from an address on that lies in one range; false: nothing may be there. */
static bool piece_at(const struct side *side, uint64_t offset, uint64_t bytes, bool write,
                     CUdevice here, struct piece *piece)
{
    CUdeviceptr address = side->address + offset, base;
    struct sim_range *range;
    CUdevice ordinal;
    uint64_t whole;
    bool async;

    *piece = (struct piece){.bytes = bytes};
    if (sim_local_find(address, &base, &whole, &ordinal, &async)) {
        piece->device = true;
        if (bytes > base + whole - address)
            piece->bytes = base + whole - address;
        return !side->host;
    }
    range = sim_range_find(address);
    if (!range) {
        piece->data = (uint8_t *)(uintptr_t)address;
        return address < UINT64_C(1) << 47 && address >= 0x10000; /* no pointer otherwise */
    }
    piece->device = range->kind != SIM_RANGE_HOST && range->kind != SIM_RANGE_REGISTERED;
    if (piece->device && side->host && range->kind != SIM_RANGE_MANAGED)
        return false;
    if (!readable(range, here, write))
        return false;
    if (bytes > range->base + range->bytes - address)
        piece->bytes = range->base + range->bytes - address;
    /* A large allocation keeps nothing: reading it gives zeroes. */
    piece->data = sim_range_data(range, address, write);
    return true;
}

/* All of it is checked before any of it moves. */
static CUresult move(const struct copy *what, uint64_t bytes, bool moves, CUdevice here)
{
    struct piece target, source;
    CUresult result = CUDA_SUCCESS;

    sim_memory_lock();
    for (int moving = 0; moving <= moves && result == CUDA_SUCCESS; moving++)
        for (uint64_t done = 0; done < bytes; done += source.bytes) {
            if (!piece_at(&what->to, done, bytes - done, true, here, &target) ||
                !piece_at(&what->from, done, target.bytes, false, here, &source) ||
                (what->to_device && !target.device) || (what->from_device && !source.device)) {
                result = CUDA_ERROR_INVALID_VALUE;
                break;
            }
            if (!moving || !target.data)
                continue;
            if (source.data)
                memmove(target.data, source.data, source.bytes);
            else
                memset(target.data, 0, source.bytes);
        }
    sim_memory_unlock();
    return result;
}

/* ---- Enqueueing ---- */

enum waiting { WAITS, RETURNS };

/* Which stream, and whether it captures: a node is added then, and nothing moves now. */
static CUresult admit(CUstream handle, bool per_thread, enum waiting waiting, CUstream *stream,
                      bool *capturing)
{
    CUgraph graph;
    CUresult result = waiting == WAITS ? sim_capture_unsafe() : CUDA_SUCCESS;

    *capturing = false;
    if (result == CUDA_SUCCESS)
        result = sim_stream_resolve(handle, per_thread, stream);
    if (result == CUDA_SUCCESS)
        result = sim_stream_capturing(handle, per_thread, capturing, &graph);
    return result;
}

/* A synchronous call goes into the default stream and waits for it. */
static CUresult copy(const struct copy *what, uint64_t bytes, CUstream handle, bool per_thread,
                     enum waiting waiting)
{
    struct sim_captured operation = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    bool capturing, across;
    CUstream stream;
    CUresult result = admit(handle, per_thread, waiting, &stream, &capturing);

    if (result != CUDA_SUCCESS || bytes == 0)
        return result;
    operation.ordinal = stream->context->ordinal;
    across = !(what->to_device && what->from_device) &&
             !(on_device(what->to.address) && on_device(what->from.address));
    operation.work = copy_work(across, bytes);
    result = move(what, bytes, !capturing, operation.ordinal);
    if (result != CUDA_SUCCESS)
        return result;
    if (capturing)
        return sim_capture_add(handle, per_thread, &operation);
    result = sim_run(stream, &operation.work);
    if (result == CUDA_SUCCESS && waiting == WAITS)
        result = sim_synchronised(sim_stream_finish(stream), operation.ordinal);
    return result;
}

static CUdeviceptr host(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

#define HTOD(destination, source)                                                                  \
    (&(struct copy){.to = {destination, false}, .from = {host(source), true}, .to_device = true})
#define DTOH(destination, source)                                                                  \
    (&(struct copy){.to = {host(destination), true}, .from = {source, false}, .from_device = true})
#define DTOD(destination, source)                                                                  \
    (&(struct copy){.to = {destination, false}, .from = {source, false}, .to_device = true,        \
                    .from_device = true})
#define ANY(destination, source)                                                                   \
    (&(struct copy){.to = {destination, false}, .from = {source, false}})

SIM_EXPORT CUresult cuMemcpy(CUdeviceptr destination, CUdeviceptr source, size_t bytes)
{
    SIM_ENTER(cuMemcpy);
    return copy(ANY(destination, source), bytes, NULL, false, WAITS);
}

SIM_EXPORT CUresult cuMemcpy_ptds(CUdeviceptr destination, CUdeviceptr source, size_t bytes)
{
    SIM_ENTER(cuMemcpy_ptds);
    return copy(ANY(destination, source), bytes, NULL, true, WAITS);
}

SIM_EXPORT CUresult cuMemcpyAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes,
                                  CUstream stream)
{
    SIM_ENTER(cuMemcpyAsync);
    return copy(ANY(destination, source), bytes, stream, false, RETURNS);
}

SIM_EXPORT CUresult cuMemcpyAsync_ptsz(CUdeviceptr destination, CUdeviceptr source, size_t bytes,
                                       CUstream stream)
{
    SIM_ENTER(cuMemcpyAsync_ptsz);
    return copy(ANY(destination, source), bytes, stream, true, RETURNS);
}

SIM_EXPORT CUresult cuMemcpyHtoD(CUdeviceptr_v1 destination, const void *source, unsigned int bytes)
{
    SIM_ENTER(cuMemcpyHtoD);
    return copy(HTOD(destination, source), bytes, NULL, false, WAITS);
}

SIM_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr destination, const void *source, size_t bytes)
{
    SIM_ENTER(cuMemcpyHtoD_v2);
    return copy(HTOD(destination, source), bytes, NULL, false, WAITS);
}

SIM_EXPORT CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr destination, const void *source, size_t bytes)
{
    SIM_ENTER(cuMemcpyHtoD_v2_ptds);
    return copy(HTOD(destination, source), bytes, NULL, true, WAITS);
}

SIM_EXPORT CUresult cuMemcpyDtoH(void *destination, CUdeviceptr_v1 source, unsigned int bytes)
{
    SIM_ENTER(cuMemcpyDtoH);
    return copy(DTOH(destination, source), bytes, NULL, false, WAITS);
}

SIM_EXPORT CUresult cuMemcpyDtoH_v2(void *destination, CUdeviceptr source, size_t bytes)
{
    SIM_ENTER(cuMemcpyDtoH_v2);
    return copy(DTOH(destination, source), bytes, NULL, false, WAITS);
}

SIM_EXPORT CUresult cuMemcpyDtoH_v2_ptds(void *destination, CUdeviceptr source, size_t bytes)
{
    SIM_ENTER(cuMemcpyDtoH_v2_ptds);
    return copy(DTOH(destination, source), bytes, NULL, true, WAITS);
}

SIM_EXPORT CUresult cuMemcpyDtoD(CUdeviceptr_v1 destination, CUdeviceptr_v1 source,
                                 unsigned int bytes)
{
    SIM_ENTER(cuMemcpyDtoD);
    return copy(DTOD(destination, source), bytes, NULL, false, WAITS);
}

SIM_EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr destination, CUdeviceptr source, size_t bytes)
{
    SIM_ENTER(cuMemcpyDtoD_v2);
    return copy(DTOD(destination, source), bytes, NULL, false, WAITS);
}

SIM_EXPORT CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr destination, CUdeviceptr source, size_t bytes)
{
    SIM_ENTER(cuMemcpyDtoD_v2_ptds);
    return copy(DTOD(destination, source), bytes, NULL, true, WAITS);
}

SIM_EXPORT CUresult cuMemcpyHtoDAsync(CUdeviceptr_v1 destination, const void *source,
                                      unsigned int bytes, CUstream stream)
{
    SIM_ENTER(cuMemcpyHtoDAsync);
    return copy(HTOD(destination, source), bytes, stream, false, RETURNS);
}

SIM_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr destination, const void *source, size_t bytes,
                                         CUstream stream)
{
    SIM_ENTER(cuMemcpyHtoDAsync_v2);
    return copy(HTOD(destination, source), bytes, stream, false, RETURNS);
}

SIM_EXPORT CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr destination, const void *source,
                                              size_t bytes, CUstream stream)
{
    SIM_ENTER(cuMemcpyHtoDAsync_v2_ptsz);
    return copy(HTOD(destination, source), bytes, stream, true, RETURNS);
}

SIM_EXPORT CUresult cuMemcpyDtoHAsync(void *destination, CUdeviceptr_v1 source, unsigned int bytes,
                                      CUstream stream)
{
    SIM_ENTER(cuMemcpyDtoHAsync);
    return copy(DTOH(destination, source), bytes, stream, false, RETURNS);
}

SIM_EXPORT CUresult cuMemcpyDtoHAsync_v2(void *destination, CUdeviceptr source, size_t bytes,
                                         CUstream stream)
{
    SIM_ENTER(cuMemcpyDtoHAsync_v2);
    return copy(DTOH(destination, source), bytes, stream, false, RETURNS);
}

SIM_EXPORT CUresult cuMemcpyDtoHAsync_v2_ptsz(void *destination, CUdeviceptr source, size_t bytes,
                                              CUstream stream)
{
    SIM_ENTER(cuMemcpyDtoHAsync_v2_ptsz);
    return copy(DTOH(destination, source), bytes, stream, true, RETURNS);
}

SIM_EXPORT CUresult cuMemcpyDtoDAsync(CUdeviceptr_v1 destination, CUdeviceptr_v1 source,
                                      unsigned int bytes, CUstream stream)
{
    SIM_ENTER(cuMemcpyDtoDAsync);
    return copy(DTOD(destination, source), bytes, stream, false, RETURNS);
}

SIM_EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr destination, CUdeviceptr source, size_t bytes,
                                         CUstream stream)
{
    SIM_ENTER(cuMemcpyDtoDAsync_v2);
    return copy(DTOD(destination, source), bytes, stream, false, RETURNS);
}

SIM_EXPORT CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr destination, CUdeviceptr source,
                                              size_t bytes, CUstream stream)
{
    SIM_ENTER(cuMemcpyDtoDAsync_v2_ptsz);
    return copy(DTOD(destination, source), bytes, stream, true, RETURNS);
}
