/* cuMemAlloc and its like, cuMemFree, and what the program is told of its memory.
 *
 * The order is everything: charge, ask the driver, put it on record; and take off the record, ask
 * the driver to free, refund. Another thread may be given the same address as soon as the driver
 * has it back, and another process the same bytes as soon as they are refunded. Out-parameters are
 * written when all is done: where we refuse, the program finds them as they were. */
#include "memory/account.h"
#include "async.h"
#include "hooks/contexts/context.h"
#include "memory/graphs.h"
#include "driver/real.h"
#include "memory/request.h"
#include "slice/slice.h"

#define PITCH UINT64_C(512) /* what a row is rounded up to, as far as one knows before asking */

/* A driver's own answer to arguments that cannot be served. */
static bool is_plain(const void *out, uint64_t bytes)
{
    return !hami_counting() || !out || bytes == 0;
}

static CUresult free_wide(uint64_t address)
{
    return hami_real()->cuMemFree_v2(address);
}

static CUresult free_narrow(uint64_t address)
{
    return hami_real()->cuMemFree((CUdeviceptr_v1)address);
}

HAMI_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    struct hami_entry entry;
    CUdeviceptr made;
    CUresult result;

    if (is_plain(address, bytes))
        return hami_real()->cuMemAlloc_v2(address, bytes);
    result = hami_request(HAMI_KIND_LINEAR, bytes, &entry);
    if (result != CUDA_SUCCESS)
        return result;
    result = hami_real()->cuMemAlloc_v2(&made, bytes);
    if (result != CUDA_SUCCESS) {
        hami_request_failed(&entry);
        return result;
    }
    result = hami_request_done(&entry, made, bytes, free_wide);
    if (result == CUDA_SUCCESS)
        *address = made;
    return result;
}

/* Addresses of 32 bits are rare: nothing shares a block with them. */
HAMI_EXPORT CUresult cuMemAlloc(CUdeviceptr_v1 *address, unsigned int bytes)
{
    struct hami_entry entry;
    CUdeviceptr_v1 made;
    CUresult result;

    if (is_plain(address, bytes))
        return hami_real()->cuMemAlloc(address, bytes);
    result = hami_request(HAMI_KIND_LINEAR, hami_whole_blocks(bytes), &entry);
    if (result != CUDA_SUCCESS)
        return result;
    result = hami_real()->cuMemAlloc(&made, bytes);
    if (result != CUDA_SUCCESS) {
        hami_request_failed(&entry);
        return result;
    }
    result = hami_request_done(&entry, made, hami_whole_blocks(bytes), free_narrow);
    if (result == CUDA_SUCCESS)
        *address = made;
    return result;
}

/* In full, wherever its pages are just now: all of it can come to the device. */
HAMI_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
    struct hami_entry entry;
    CUdeviceptr made;
    CUresult result;

    if (is_plain(address, bytes))
        return hami_real()->cuMemAllocManaged(address, bytes, flags);
    result = hami_request(HAMI_KIND_LINEAR, bytes, &entry);
    if (result != CUDA_SUCCESS)
        return result;
    result = hami_real()->cuMemAllocManaged(&made, bytes, flags);
    if (result != CUDA_SUCCESS) {
        hami_request_failed(&entry);
        return result;
    }
    result = hami_request_done(&entry, made, bytes, free_wide);
    if (result == CUDA_SUCCESS)
        *address = made;
    return result;
}

static uint64_t times(uint64_t pitch, uint64_t height)
{
    uint64_t bytes;

    return __builtin_mul_overflow(pitch, height, &bytes) ? UINT64_MAX : bytes;
}

static uint64_t pitched(uint64_t width, uint64_t height)
{
    if (width > UINT64_MAX - PITCH)
        return UINT64_MAX;
    return times((width + PITCH - 1) / PITCH * PITCH, height);
}

HAMI_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width_bytes,
                                        size_t height, unsigned int element_bytes)
{
    struct hami_entry entry;
    CUdeviceptr made;
    size_t pitch_made;
    CUresult result;

    if (is_plain(address, width_bytes) || !pitch || height == 0)
        return hami_real()->cuMemAllocPitch_v2(address, pitch, width_bytes, height, element_bytes);
    result = hami_request(HAMI_KIND_LINEAR, pitched(width_bytes, height), &entry);
    if (result != CUDA_SUCCESS)
        return result;
    result = hami_real()->cuMemAllocPitch_v2(&made, &pitch_made, width_bytes, height,
                                             element_bytes);
    if (result != CUDA_SUCCESS) {
        hami_request_failed(&entry);
        return result;
    }
    result = hami_request_done(&entry, made, times(pitch_made, height), free_wide);
    if (result == CUDA_SUCCESS) {
        *address = made;
        *pitch = pitch_made;
    }
    return result;
}

HAMI_EXPORT CUresult cuMemAllocPitch(CUdeviceptr_v1 *address, unsigned int *pitch,
                                     unsigned int width_bytes, unsigned int height,
                                     unsigned int element_bytes)
{
    struct hami_entry entry;
    CUdeviceptr_v1 made;
    unsigned int pitch_made;
    CUresult result;

    if (is_plain(address, width_bytes) || !pitch || height == 0)
        return hami_real()->cuMemAllocPitch(address, pitch, width_bytes, height, element_bytes);
    result = hami_request(HAMI_KIND_LINEAR, hami_whole_blocks(pitched(width_bytes, height)),
                          &entry);
    if (result != CUDA_SUCCESS)
        return result;
    result = hami_real()->cuMemAllocPitch(&made, &pitch_made, width_bytes, height, element_bytes);
    if (result != CUDA_SUCCESS) {
        hami_request_failed(&entry);
        return result;
    }
    result = hami_request_done(&entry, made, hami_whole_blocks(times(pitch_made, height)),
                               free_narrow);
    if (result == CUDA_SUCCESS) {
        *address = made;
        *pitch = pitch_made;
    }
    return result;
}

/* An address that is not on record is the driver's to judge. If the entry cannot be put back, its
 * charge stays: the memory is still there. */
static CUresult end(CUdeviceptr address, CUresult (*free_real)(uint64_t address))
{
    struct hami_entry entry;
    CUresult result;

    if (!hami_counting())
        return free_real(address);
    if (!hami_memory_take(HAMI_KIND_LINEAR, address, &entry)) {
        hami_graph_left_freed();
        return free_real(address);
    }
    result = free_real(address);
    if (result != CUDA_SUCCESS)
        hami_map_put(&entry);
    else if (entry.kind == HAMI_KIND_ASYNC)
        hami_async_freed(&entry);
    else
        hami_entry_refund(&entry);
    return result;
}

HAMI_EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
    return end(address, free_wide);
}

HAMI_EXPORT CUresult cuMemFree(CUdeviceptr_v1 address)
{
    return end(address, free_narrow);
}
