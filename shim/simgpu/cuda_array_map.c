/* cuMemMapArrayAsync: memory of cuMemCreate as tiles of sparse arrays, or as all of an array whose
 * memory is mapped later. A tile keeps the memory as a mapping does. */
#include <stdlib.h>

#include "execution.h"
#include "memory_array.h"
#include "memory_vmm.h"

/* [from, +extent) in up to three dimensions, of a level and layer; or of a miptail in its first. */
struct box {
    bool miptail;
    unsigned int level, layer;
    uint64_t from[3], extent[3];
};

struct sim_tile {
    struct box box;
    struct sim_handle *memory;
    struct sim_tile *next;
};

static void tile_end(struct sim_tile **place)
{
    struct sim_tile *tile = *place;

    *place = tile->next;
    tile->memory->uses--;
    sim_handle_check(tile->memory);
    free(tile);
}

void sim_tiles_end(struct sim_texture *texture)
{
    while (texture->tiles)
        tile_end(&texture->tiles);
}

static bool inside(const struct box *inner, const struct box *outer)
{
    if (inner->miptail != outer->miptail || inner->level != outer->level ||
        inner->layer != outer->layer)
        return false;
    for (int i = 0; i < 3; i++)
        if (inner->from[i] < outer->from[i] ||
            inner->from[i] + inner->extent[i] > outer->from[i] + outer->extent[i])
            return false;
    return true;
}

/* The subresource that an operation names; for memory that is mapped later it is all. */
static bool box_of(const CUarrayMapInfo *info, const struct sim_texture *texture, struct box *box)
{
    const CUDA_ARRAY3D_DESCRIPTOR *shape = &texture->shape;
    bool layered = shape->Flags & CUDA_ARRAY3D_LAYERED;

    *box = (struct box){.extent = {1, 1, 1}};
    if (shape->Flags & CUDA_ARRAY3D_DEFERRED_MAPPING)
        return true;
    if (info->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
        box->miptail = true;
        box->layer = info->subresource.miptail.layer;
        box->from[0] = info->subresource.miptail.offset;
        box->extent[0] = info->subresource.miptail.size;
        return texture->levels && box->extent[0] && !((box->from[0] | box->extent[0]) % SIM_TILE);
    }
    if (info->subresourceType != CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL)
        return false;
    *box = (struct box){
        .level = info->subresource.sparseLevel.level,
        .layer = info->subresource.sparseLevel.layer,
        .from = {info->subresource.sparseLevel.offsetX, info->subresource.sparseLevel.offsetY,
                 info->subresource.sparseLevel.offsetZ},
        .extent = {info->subresource.sparseLevel.extentWidth,
                   info->subresource.sparseLevel.extentHeight,
                   info->subresource.sparseLevel.extentDepth}};
    return box->extent[0] && box->extent[1] && box->extent[2] &&
           box->level < (texture->levels ? texture->levels : 1) &&
           box->layer < (layered ? shape->Depth : 1) && box->from[0] < shape->Width &&
           box->from[1] < shape->Height &&
           box->from[2] < (shape->Depth && !layered ? shape->Depth : 1);
}

static struct sim_texture *texture_of(const CUarrayMapInfo *info)
{
    if (info->resourceType == CU_RESOURCE_TYPE_ARRAY) {
        CUarray array = sim_array_known(info->resource.array);

        return array && !array->whole ? &array->texture : NULL;
    }
    if (info->resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
        CUmipmappedArray array = sim_mipmap_known(info->resource.mipmap);

        return array ? &array->texture : NULL;
    }
    return NULL;
}

/* An operation, taken apart and checked. */
struct operation {
    struct sim_texture *texture;
    struct sim_handle *memory; /* NULL: unmaps */
    struct box box;
};

static bool understand(const CUarrayMapInfo *info, CUdevice ordinal, struct operation *operation)
{
    operation->texture = texture_of(info);
    operation->memory = NULL;
    if (!operation->texture || !(operation->texture->shape.Flags & SIM_ARRAY_EMPTY) ||
        info->flags || info->reserved[0] || info->reserved[1] ||
        info->memHandleType != CU_MEM_HANDLE_TYPE_GENERIC ||
        info->deviceBitMask != UINT32_C(1) << ordinal ||
        !box_of(info, operation->texture, &operation->box))
        return false;
    if (info->memOperationType == CU_MEM_OPERATION_TYPE_UNMAP)
        return info->memHandle.memHandle == 0;
    if (info->memOperationType != CU_MEM_OPERATION_TYPE_MAP)
        return false;
    operation->memory = sim_handle_held(info->memHandle.memHandle);
    return operation->memory && !operation->memory->physical->team &&
           operation->memory->physical->ordinal == ordinal &&
           (operation->memory->physical->properties.allocFlags.usage &
            CU_MEM_CREATE_USAGE_TILE_POOL) &&
           info->offset % SIM_TILE == 0 && info->offset < operation->memory->physical->bytes;
}

static bool perform(const struct operation *operation)
{
    struct sim_tile **place = &operation->texture->tiles, *tile = NULL;

    if (operation->memory) {
        tile = malloc(sizeof(*tile));
        if (!tile)
            return false;
        operation->memory->uses++; /* before what lies there goes: it may be the same memory */
    }
    while (*place)
        if (inside(&(*place)->box, &operation->box))
            tile_end(place);
        else
            place = &(*place)->next;
    if (tile) {
        *tile = (struct sim_tile){operation->box, operation->memory, operation->texture->tiles};
        operation->texture->tiles = tile;
    }
    return true;
}

static CUresult map_all(const CUarrayMapInfo *maps, unsigned int count, CUdevice ordinal)
{
    CUresult result = CUDA_SUCCESS;
    struct operation operation;

    sim_memory_lock();
    for (unsigned int i = 0; i < count && result == CUDA_SUCCESS; i++)
        if (!understand(&maps[i], ordinal, &operation))
            result = CUDA_ERROR_INVALID_VALUE;
    for (unsigned int i = 0; i < count && result == CUDA_SUCCESS; i++)
        if (!understand(&maps[i], ordinal, &operation) || !perform(&operation))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    sim_memory_unlock();
    return result;
}

static CUresult map_arrays(const CUarrayMapInfo *maps, unsigned int count, CUstream handle,
                           bool per_thread)
{
    struct sim_work work = sim_fill_work(0);
    bool capturing = false;
    CUstream stream;
    CUgraph graph;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);

    if (result == CUDA_SUCCESS)
        result = sim_stream_capturing(handle, per_thread, &capturing, &graph);
    if (result != CUDA_SUCCESS)
        return result;
    if (capturing)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (!sim_pointer(maps) || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    result = map_all(maps, count, stream->context->ordinal);
    return result == CUDA_SUCCESS ? sim_run(stream, &work) : result;
}

SIM_EXPORT CUresult cuMemMapArrayAsync(CUarrayMapInfo *maps, unsigned int count, CUstream stream)
{
    SIM_ENTER(cuMemMapArrayAsync);
    return map_arrays(maps, count, stream, false);
}

SIM_EXPORT CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *maps, unsigned int count,
                                            CUstream stream)
{
    SIM_ENTER(cuMemMapArrayAsync_ptsz);
    return map_arrays(maps, count, stream, true);
}
