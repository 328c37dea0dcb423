/* Arrays and mipmapped arrays. What they take is not told: the driver answers
 * cuArrayGetMemoryRequirements only for arrays whose memory is mapped later. So what is charged is
 * worked out from the description (array_size.c), never less than the texels themselves.
 *
 * Sparse arrays and those of deferred mapping take nothing; what is mapped into them was counted
 * when it was created. */
#include "memory/account.h"
#include "array_size.h"
#include "driver/real.h"
#include "memory/request.h"
#include "tiles.h"

#define MAPPED_LATER (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)

/* NULL arguments and what takes nothing are plain calls of the driver. */
static bool is_plain(const void *handle, const void *descriptor)
{
    return !hami_counting() || !handle || !descriptor;
}

static uint64_t flat_bytes(size_t width, size_t height, CUarray_format format,
                           unsigned int channels)
{
    return hami_array_bytes(&(CUDA_ARRAY3D_DESCRIPTOR){
        .Width = width, .Height = height, .Format = format, .NumChannels = channels,
    });
}

static CUresult destroy_array(uint64_t array)
{
    return hami_real()->cuArrayDestroy((CUarray)(uintptr_t)array);
}

static CUresult destroy_mipmap(uint64_t array)
{
    return hami_real()->cuMipmappedArrayDestroy((CUmipmappedArray)(uintptr_t)array);
}

/* The driver made an array: on record, or undone. */
static CUresult array_made(CUresult result, struct hami_entry *entry, CUarray made, CUarray *array)
{
    if (result != CUDA_SUCCESS) {
        hami_request_failed(entry);
        return result;
    }
    result = hami_request_done(entry, (uintptr_t)made, entry->bytes, destroy_array);
    if (result == CUDA_SUCCESS)
        *array = made;
    return result;
}

HAMI_EXPORT CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
    struct hami_entry entry;
    CUarray made;
    CUresult result;

    if (is_plain(array, descriptor))
        return hami_real()->cuArrayCreate_v2(array, descriptor);
    result = hami_request(HAMI_KIND_ARRAY,
                          flat_bytes(descriptor->Width, descriptor->Height, descriptor->Format,
                                     descriptor->NumChannels),
                          &entry);
    if (result != CUDA_SUCCESS)
        return result;
    result = hami_real()->cuArrayCreate_v2(&made, descriptor);
    return array_made(result, &entry, made, array);
}

HAMI_EXPORT CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *descriptor)
{
    struct hami_entry entry;
    CUarray made;
    CUresult result;

    if (is_plain(array, descriptor))
        return hami_real()->cuArrayCreate(array, descriptor);
    result = hami_request(HAMI_KIND_ARRAY,
                          flat_bytes(descriptor->Width, descriptor->Height, descriptor->Format,
                                     descriptor->NumChannels),
                          &entry);
    if (result != CUDA_SUCCESS)
        return result;
    result = hami_real()->cuArrayCreate(&made, descriptor);
    return array_made(result, &entry, made, array);
}

HAMI_EXPORT CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    struct hami_entry entry;
    CUarray made;
    CUresult result;

    if (is_plain(array, descriptor) || (descriptor->Flags & MAPPED_LATER))
        return hami_real()->cuArray3DCreate_v2(array, descriptor);
    result = hami_request(HAMI_KIND_ARRAY, hami_array_bytes(descriptor), &entry);
    if (result != CUDA_SUCCESS)
        return result;
    result = hami_real()->cuArray3DCreate_v2(&made, descriptor);
    return array_made(result, &entry, made, array);
}

HAMI_EXPORT CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor)
{
    struct hami_entry entry;
    CUarray made;
    CUresult result;

    if (is_plain(array, descriptor) || (descriptor->Flags & MAPPED_LATER))
        return hami_real()->cuArray3DCreate(array, descriptor);
    result = hami_request(HAMI_KIND_ARRAY,
                          hami_array_bytes(&(CUDA_ARRAY3D_DESCRIPTOR){
                              .Width = descriptor->Width, .Height = descriptor->Height,
                              .Depth = descriptor->Depth, .Flags = descriptor->Flags,
                              .Format = descriptor->Format, .NumChannels = descriptor->NumChannels,
                          }),
                          &entry);
    if (result != CUDA_SUCCESS)
        return result;
    result = hami_real()->cuArray3DCreate(&made, descriptor);
    return array_made(result, &entry, made, array);
}

HAMI_EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *array,
                                            const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                                            unsigned int levels)
{
    struct hami_entry entry;
    CUmipmappedArray made;
    CUresult result;

    if (is_plain(array, descriptor) || (descriptor->Flags & MAPPED_LATER))
        return hami_real()->cuMipmappedArrayCreate(array, descriptor, levels);
    result = hami_request(HAMI_KIND_MIPMAP, hami_mipmap_bytes(descriptor, levels), &entry);
    if (result != CUDA_SUCCESS)
        return result;
    result = hami_real()->cuMipmappedArrayCreate(&made, descriptor, levels);
    if (result != CUDA_SUCCESS) {
        hami_request_failed(&entry);
        return result;
    }
    result = hami_request_done(&entry, (uintptr_t)made, entry.bytes, destroy_mipmap);
    if (result == CUDA_SUCCESS)
        *array = made;
    return result;
}

/* Taken off the record before the driver is asked, like all memory. */
static bool take(enum hami_kind kind, uint64_t handle, struct hami_entry *entry,
                 struct hami_tile **tiles)
{
    *tiles = hami_tiles_take(handle);
    return hami_map_take(kind, handle, entry);
}

static CUresult ended(CUresult result, bool known, const struct hami_entry *entry,
                      struct hami_tile *tiles)
{
    hami_tiles_taken(tiles, result == CUDA_SUCCESS);
    if (known && result == CUDA_SUCCESS)
        hami_entry_refund(entry);
    else if (known)
        hami_map_put(entry);
    return result;
}

HAMI_EXPORT CUresult cuArrayDestroy(CUarray array)
{
    struct hami_entry entry;
    struct hami_tile *tiles;
    bool known;

    if (!hami_counting())
        return hami_real()->cuArrayDestroy(array);
    known = take(HAMI_KIND_ARRAY, (uintptr_t)array, &entry, &tiles);
    return ended(hami_real()->cuArrayDestroy(array), known, &entry, tiles);
}

HAMI_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    struct hami_entry entry;
    struct hami_tile *tiles;
    bool known;

    if (!hami_counting())
        return hami_real()->cuMipmappedArrayDestroy(array);
    known = take(HAMI_KIND_MIPMAP, (uintptr_t)array, &entry, &tiles);
    return ended(hami_real()->cuMipmappedArrayDestroy(array), known, &entry, tiles);
}
