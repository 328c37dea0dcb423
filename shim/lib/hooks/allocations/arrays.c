/* Arrays and mipmapped arrays. What they take is not told: the driver answers
 * cuArrayGetMemoryRequirements only for arrays whose memory is mapped later. So what is charged is
 * worked out from the description (array_size.c), never less than the texels themselves.
 *
 * Sparse arrays and those of deferred mapping take nothing; what is mapped into them was counted
 * when it was created. */
#include "driver/real.h"
#include "hooks/allocations/allocates.h"
#include "hooks/allocations/array_size.h"
#include "hooks/allocations/tiles.h"
#include "slice/slice.h"

#define MAPPED_LATER (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)

/* Of a two-dimensional descriptor and of the older three-dimensional one, in either spelling. */
#define FLAT(of)                                                                                   \
    (&(CUDA_ARRAY3D_DESCRIPTOR){.Width = (of)->Width, .Height = (of)->Height,                      \
                                .Format = (of)->Format, .NumChannels = (of)->NumChannels})
#define DEEP(of)                                                                                   \
    (&(CUDA_ARRAY3D_DESCRIPTOR){.Width = (of)->Width, .Height = (of)->Height,                      \
                                .Depth = (of)->Depth, .Flags = (of)->Flags,                        \
                                .Format = (of)->Format, .NumChannels = (of)->NumChannels})

static CUresult destroy_array(uint64_t array)
{
    return hami_real()->cuArrayDestroy((CUarray)(uintptr_t)array);
}

static CUresult destroy_mipmap(uint64_t array)
{
    return hami_real()->cuMipmappedArrayDestroy((CUmipmappedArray)(uintptr_t)array);
}

#define ARRAY(name, descriptor_type, takes_nothing, bytes)                                         \
    HAMI_ALLOCATES(name, HAMI_KIND_ARRAY, CUarray, array, !descriptor || (takes_nothing), bytes,   \
                   destroy_array, (CUarray *array, const descriptor_type *descriptor), descriptor)

ARRAY(cuArrayCreate_v2, CUDA_ARRAY_DESCRIPTOR, false, hami_array_bytes(FLAT(descriptor)))
ARRAY(cuArrayCreate, CUDA_ARRAY_DESCRIPTOR_v1, false, hami_array_bytes(FLAT(descriptor)))
ARRAY(cuArray3DCreate_v2, CUDA_ARRAY3D_DESCRIPTOR, descriptor->Flags & MAPPED_LATER,
      hami_array_bytes(descriptor))
ARRAY(cuArray3DCreate, CUDA_ARRAY3D_DESCRIPTOR_v1, descriptor->Flags & MAPPED_LATER,
      hami_array_bytes(DEEP(descriptor)))

HAMI_ALLOCATES(cuMipmappedArrayCreate, HAMI_KIND_MIPMAP, CUmipmappedArray, array,
               !descriptor || (descriptor->Flags & MAPPED_LATER),
               hami_mipmap_bytes(descriptor, levels), destroy_mipmap,
               (CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                unsigned int levels),
               descriptor, levels)

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
