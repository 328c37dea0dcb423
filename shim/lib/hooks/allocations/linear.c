/* cuMemAlloc and its like, cuMemFree, and what the program is told of its memory.
 *
 * The order is everything: charge, ask the driver, put it on record; and take off the record, ask
 * the driver to free, refund. Another thread may be given the same address as soon as the driver
 * has it back, and another process the same bytes as soon as they are refunded. Out-parameters are
 * written when all is done: where we refuse, the program finds them as they were. */
#include "driver/real.h"
#include "hooks/allocations/allocates.h"
#include "memory/blocks.h"
#include "memory/graph_memory.h"
#include "memory/pools.h"
#include "slice/slice.h"

#define PITCH UINT64_C(512) /* what a row is rounded up to, as far as one knows before asking */

static CUresult free_wide(uint64_t address)
{
    return hami_real()->cuMemFree_v2(address);
}

static CUresult free_narrow(uint64_t address)
{
    return hami_real()->cuMemFree((CUdeviceptr_v1)address);
}

#define LINEAR(name, type, bytes_charged, give_back, parameters, ...)                               \
    HAMI_ALLOCATES(name, HAMI_KIND_LINEAR, type, address, bytes == 0, bytes_charged, give_back,    \
                   parameters, __VA_ARGS__)

LINEAR(cuMemAlloc_v2, CUdeviceptr, bytes, free_wide, (CUdeviceptr *address, size_t bytes), bytes)
/* Addresses of 32 bits are rare: nothing shares a block with them. */
LINEAR(cuMemAlloc, CUdeviceptr_v1, hami_whole_blocks(bytes), free_narrow,
       (CUdeviceptr_v1 *address, unsigned int bytes), bytes)
/* In full, wherever its pages are just now: all of it can come to the device. */
LINEAR(cuMemAllocManaged, CUdeviceptr, bytes, free_wide,
       (CUdeviceptr *address, size_t bytes, unsigned int flags), bytes, flags)

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

/* The driver says what a row really takes: what was charged for is put right by that. */
#define PITCHED(name, address_type, size_type, charged, give_back)                                 \
    HAMI_EXPORT CUresult name(address_type *address, size_type *pitch, size_type width_bytes,      \
                              size_type height, unsigned int element_bytes)                        \
    {                                                                                              \
        struct hami_entry entry;                                                                   \
        address_type made;                                                                         \
        size_type pitch_made;                                                                      \
        CUresult result;                                                                           \
                                                                                                   \
        if (!hami_counting() || !address || !pitch || width_bytes == 0 || height == 0)             \
            return hami_real()->name(address, pitch, width_bytes, height, element_bytes);          \
        result = hami_request(HAMI_KIND_LINEAR, charged(pitched(width_bytes, height)), &entry);    \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        result = hami_real()->name(&made, &pitch_made, width_bytes, height, element_bytes);        \
        if (result != CUDA_SUCCESS) {                                                              \
            hami_request_failed(&entry);                                                           \
            return result;                                                                         \
        }                                                                                          \
        result = hami_request_done(&entry, made, charged(times(pitch_made, height)), give_back);   \
        if (result == CUDA_SUCCESS) {                                                              \
            *address = made;                                                                       \
            *pitch = pitch_made;                                                                   \
        }                                                                                          \
        return result;                                                                             \
    }

PITCHED(cuMemAllocPitch_v2, CUdeviceptr, size_t, /* as it is */, free_wide)
PITCHED(cuMemAllocPitch, CUdeviceptr_v1, unsigned int, hami_whole_blocks, free_narrow)

/* An address that is not on record is the driver's to judge. If the entry cannot be put back, its
 * charge stays: the memory is still there. */
static CUresult end(CUdeviceptr address, CUresult (*free_real)(uint64_t address))
{
    struct hami_entry entry;
    CUresult result;

    if (!hami_counting())
        return free_real(address);
    if (!hami_map_take_memory(HAMI_KIND_LINEAR, address, &entry)) {
        hami_graph_left_freed();
        return free_real(address);
    }
    result = free_real(address);
    if (result != CUDA_SUCCESS)
        hami_map_put(&entry);
    else if (entry.kind == HAMI_KIND_ASYNC)
        hami_pool_freed_waited((struct hami_pool *)(uintptr_t)entry.extra, entry.bytes);
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
