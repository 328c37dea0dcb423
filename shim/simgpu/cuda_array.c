/* CUDA arrays and mipmapped arrays: shapes, what they take, and their handles. */
#include <stdlib.h>
#include <string.h>

#include "execution.h"
#include "memory_array.h"
#include "memory_vmm.h"

#define FLAGS                                                                                      \
    (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP |                     \
     CUDA_ARRAY3D_TEXTURE_GATHER | SIM_ARRAY_EMPTY)

static CUarray arrays;
static CUmipmappedArray mipmaps;

CUarray sim_array_known(CUarray array)
{
    CUarray found = arrays;

    while (found && found != array)
        found = found->next;
    return found;
}

CUmipmappedArray sim_mipmap_known(CUmipmappedArray array)
{
    CUmipmappedArray found = mipmaps;

    while (found && found != array)
        found = found->next;
    return found;
}

/* ---- Shapes ---- */

static uint64_t element_bytes(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    }
    return 0;
}

static bool shape_valid(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    bool layered = shape->Flags & CUDA_ARRAY3D_LAYERED, cube = shape->Flags & CUDA_ARRAY3D_CUBEMAP;
    bool empty = shape->Flags & SIM_ARRAY_EMPTY;
    size_t widest = shape->Depth && !layered && !cube ? 16384 : 131072;

    if (!element_bytes(shape->Format) || (shape->Flags & ~(unsigned int)FLAGS) ||
        (shape->NumChannels != 1 && shape->NumChannels != 2 && shape->NumChannels != 4))
        return false;
    if (shape->Width == 0 || shape->Width > widest || shape->Height > 65536 ||
        (shape->Depth && !layered && !cube && (!shape->Height || shape->Height > 16384)) ||
        shape->Depth > (layered || cube ? 2048 : 16384))
        return false;
    if (layered && !shape->Depth)
        return false;
    if (cube && (shape->Width != shape->Height || !shape->Depth || shape->Depth % 6 ||
                 (!layered && shape->Depth != 6)))
        return false;
    if ((shape->Flags & CUDA_ARRAY3D_TEXTURE_GATHER) && (!shape->Height || shape->Depth))
        return false;
    return !empty || shape->Height; /* one dimension has no tiles */
}

static size_t at_least_one(size_t extent)
{
    return extent ? extent : 1;
}

/* As textures lie in memory: blocks of 64 bytes by 8 rows. */
static uint64_t shape_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    uint64_t element = element_bytes(shape->Format) * shape->NumChannels;
    uint64_t row = sim_round_up(shape->Width * element, 64);
    uint64_t rows = shape->Height ? sim_round_up(shape->Height, 8) : 1;

    return sim_round_up(row * rows * at_least_one(shape->Depth), 512);
}

static CUDA_ARRAY3D_DESCRIPTOR level_shape(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int level)
{
    CUDA_ARRAY3D_DESCRIPTOR found = *shape;

    found.Width = at_least_one(shape->Width >> level);
    found.Height = shape->Height ? at_least_one(shape->Height >> level) : 0;
    if (shape->Depth && !(shape->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
        found.Depth = at_least_one(shape->Depth >> level);
    return found;
}

/* ---- Their life ---- */

static CUresult texture_begin(struct sim_texture *texture, CUcontext context,
                              const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels)
{
    texture->shape = *shape;
    texture->context = context;
    texture->ordinal = context->ordinal;
    texture->levels = levels;
    texture->bytes = 0;
    for (unsigned int level = 0; level < (levels ? levels : 1); level++) {
        CUDA_ARRAY3D_DESCRIPTOR part = level_shape(shape, level);

        texture->bytes += shape_bytes(&part);
    }
    if (shape->Flags & SIM_ARRAY_EMPTY)
        return CUDA_SUCCESS;
    return sim_part_take(context, context->ordinal, texture->bytes, false, &texture->part);
}

static void texture_end(struct sim_texture *texture)
{
    sim_tiles_end(texture);
    if (!(texture->shape.Flags & SIM_ARRAY_EMPTY))
        sim_part_give(&texture->part);
}

static void array_enter(CUarray array)
{
    array->next = arrays;
    array->place = &arrays;
    if (arrays)
        arrays->place = &array->next;
    arrays = array;
}

static void array_leave(CUarray array)
{
    *array->place = array->next;
    if (array->next)
        array->next->place = array->place;
    free(array);
}

static void array_end(CUarray array)
{
    texture_end(&array->texture);
    array_leave(array);
}

static void mipmap_end(CUmipmappedArray array)
{
    for (unsigned int level = 0; level < array->texture.levels; level++)
        if (array->level[level])
            array_leave(array->level[level]);
    texture_end(&array->texture);
    *array->place = array->next;
    if (array->next)
        array->next->place = array->place;
    free(array);
}

void sim_arrays_context_gone(CUcontext context)
{
    CUmipmappedArray mipmap, next_mipmap;
    CUarray array, next;

    for (mipmap = mipmaps; mipmap; mipmap = next_mipmap) {
        next_mipmap = mipmap->next;
        if (mipmap->texture.context == context)
            mipmap_end(mipmap);
    }
    for (array = arrays; array; array = next) {
        next = array->next;
        if (array->texture.context == context)
            array_end(array);
    }
}

static CUresult allowed(CUcontext *context)
{
    CUresult result = sim_context_current(context);

    return result == CUDA_SUCCESS ? sim_capture_unsafe() : result;
}

static CUresult create(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    CUcontext context;
    CUarray array;
    CUresult result = allowed(&context);

    if (result != CUDA_SUCCESS)
        return result;
    if (!shape_valid(shape))
        return CUDA_ERROR_INVALID_VALUE;
    array = calloc(1, sizeof(*array));
    if (!array)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_memory_lock();
    result = texture_begin(&array->texture, context, shape, 0);
    if (result == CUDA_SUCCESS)
        array_enter(array);
    sim_memory_unlock();
    if (result == CUDA_SUCCESS)
        *handle = array;
    else
        free(array);
    return result;
}

SIM_EXPORT CUresult cuArrayCreate_v2(CUarray *handle, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
    SIM_ENTER(cuArrayCreate_v2);
    if (!sim_pointer(handle) || !sim_pointer(descriptor))
        return CUDA_ERROR_INVALID_VALUE;
    return create(handle, &(CUDA_ARRAY3D_DESCRIPTOR){.Width = descriptor->Width,
                                                     .Height = descriptor->Height,
                                                     .Format = descriptor->Format,
                                                     .NumChannels = descriptor->NumChannels});
}

SIM_EXPORT CUresult cuArrayCreate(CUarray *handle, const CUDA_ARRAY_DESCRIPTOR_v1 *descriptor)
{
    SIM_ENTER(cuArrayCreate);
    if (!sim_pointer(handle) || !sim_pointer(descriptor))
        return CUDA_ERROR_INVALID_VALUE;
    return create(handle, &(CUDA_ARRAY3D_DESCRIPTOR){.Width = descriptor->Width,
                                                     .Height = descriptor->Height,
                                                     .Format = descriptor->Format,
                                                     .NumChannels = descriptor->NumChannels});
}

SIM_EXPORT CUresult cuArray3DCreate_v2(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    SIM_ENTER(cuArray3DCreate_v2);
    if (!sim_pointer(handle) || !sim_pointer(descriptor))
        return CUDA_ERROR_INVALID_VALUE;
    return create(handle, descriptor);
}

SIM_EXPORT CUresult cuArray3DCreate(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor)
{
    SIM_ENTER(cuArray3DCreate);
    if (!sim_pointer(handle) || !sim_pointer(descriptor))
        return CUDA_ERROR_INVALID_VALUE;
    return create(handle, &(CUDA_ARRAY3D_DESCRIPTOR){.Width = descriptor->Width,
                                                     .Height = descriptor->Height,
                                                     .Depth = descriptor->Depth,
                                                     .Format = descriptor->Format,
                                                     .NumChannels = descriptor->NumChannels,
                                                     .Flags = descriptor->Flags});
}

SIM_EXPORT CUresult cuArrayDestroy(CUarray array)
{
    CUcontext context;
    CUresult result;

    SIM_ENTER(cuArrayDestroy);
    result = allowed(&context);
    if (result != CUDA_SUCCESS)
        return result;
    result = CUDA_ERROR_INVALID_HANDLE;
    sim_memory_lock();
    if (sim_array_known(array) && !array->whole) {
        array_end(array);
        result = CUDA_SUCCESS;
    }
    sim_memory_unlock();
    return result;
}

/* ---- Mipmapped arrays ---- */

static unsigned int most_levels(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    size_t longest = shape->Width > shape->Height ? shape->Width : shape->Height;
    unsigned int levels = 1;

    if (!(shape->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) && shape->Depth > longest)
        longest = shape->Depth;
    while (longest >>= 1)
        levels++;
    return levels;
}

static bool levels_begin(CUmipmappedArray array)
{
    for (unsigned int level = 0; level < array->texture.levels; level++) {
        CUarray made = calloc(1, sizeof(*made));

        if (!made)
            return false;
        made->whole = array;
        made->texture.shape = level_shape(&array->texture.shape, level);
        made->texture.ordinal = array->texture.ordinal;
        array->level[level] = made;
        array_enter(made);
    }
    return true;
}

SIM_EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *handle,
                                           const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                                           unsigned int levels)
{
    CUmipmappedArray array;
    CUcontext context;
    CUresult result;

    SIM_ENTER(cuMipmappedArrayCreate);
    if (!sim_pointer(handle) || !sim_pointer(descriptor))
        return CUDA_ERROR_INVALID_VALUE;
    result = allowed(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!shape_valid(descriptor))
        return CUDA_ERROR_INVALID_VALUE;
    array = calloc(1, sizeof(*array));
    if (!array)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (levels > most_levels(descriptor))
        levels = most_levels(descriptor);
    sim_memory_lock();
    result = texture_begin(&array->texture, context, descriptor, levels ? levels : 1);
    if (result == CUDA_SUCCESS) {
        array->next = mipmaps;
        array->place = &mipmaps;
        if (mipmaps)
            mipmaps->place = &array->next;
        mipmaps = array;
        if (levels_begin(array)) {
            *handle = array;
        } else {
            mipmap_end(array);
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    } else {
        free(array);
    }
    sim_memory_unlock();
    return result;
}

SIM_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    CUcontext context;
    CUresult result;

    SIM_ENTER(cuMipmappedArrayDestroy);
    result = allowed(&context);
    if (result != CUDA_SUCCESS)
        return result;
    result = CUDA_ERROR_INVALID_HANDLE;
    sim_memory_lock();
    if (sim_mipmap_known(array)) {
        mipmap_end(array);
        result = CUDA_SUCCESS;
    }
    sim_memory_unlock();
    return result;
}
