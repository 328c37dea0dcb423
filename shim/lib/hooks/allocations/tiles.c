/* Memory mapped into sparse arrays, tile by tile. What is mapped stays allocated until the tile is
 * unmapped or given other memory, or the array goes.
 *
 * The driver maps and unmaps in stream order; we count from the call on, which is early for an
 * unmapping by what the stream still has to do. Of a region that is unmapped in part the memory
 * stays charged until the array goes. */
#include "hooks/allocations/tiles.h"

#include <stdatomic.h>

#include "base/reset.h"
#include "base/slab.h"
#include "driver/real.h"
#include "memory/physical.h"
#include "slice/slice.h"

struct region {
    uint64_t array;
    bool tail; /* of a mipmap: bytes from start[0] to end[0]; else a box */
    unsigned int level, layer;
    uint64_t start[3], end[3];
};

struct hami_tile {
    struct hami_tile *next;
    struct region region;
    struct hami_physical *memory;
};

static struct hami_tile *tiles;
static struct hami_slab slab = HAMI_SLAB(struct hami_tile);
static _Atomic bool any; /* was ever mapped */

void hami_tiles_reset(void)
{
    tiles = NULL;
    slab.free = NULL;
    atomic_store_explicit(&any, false, memory_order_relaxed);
}

static struct region region_of(const CUarrayMapInfo *map)
{
    struct region region = {
        .array = map->resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY
                     ? (uintptr_t)map->resource.mipmap
                     : (uintptr_t)map->resource.array,
        .tail = map->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL,
    };

    if (region.tail) {
        region.layer = map->subresource.miptail.layer;
        region.start[0] = map->subresource.miptail.offset;
        region.end[0] = region.start[0] + map->subresource.miptail.size;
        return region;
    }
    region.level = map->subresource.sparseLevel.level;
    region.layer = map->subresource.sparseLevel.layer;
    region.start[0] = map->subresource.sparseLevel.offsetX;
    region.start[1] = map->subresource.sparseLevel.offsetY;
    region.start[2] = map->subresource.sparseLevel.offsetZ;
    region.end[0] = region.start[0] + map->subresource.sparseLevel.extentWidth;
    region.end[1] = region.start[1] + map->subresource.sparseLevel.extentHeight;
    region.end[2] = region.start[2] + map->subresource.sparseLevel.extentDepth;
    return region;
}

static bool contains(const struct region *outer, const struct region *inner)
{
    if (outer->array != inner->array || outer->tail != inner->tail ||
        outer->level != inner->level || outer->layer != inner->layer)
        return false;
    for (int axis = 0; axis < 3; axis++)
        if (inner->start[axis] < outer->start[axis] || inner->end[axis] > outer->end[axis])
            return false;
    return true;
}

static void end(struct hami_tile *tile)
{
    hami_physical_unuse(tile->memory);
    hami_slab_give(&slab, tile);
}

static void end_in(const struct region *region)
{
    struct hami_tile **place = &tiles;

    while (*place) {
        struct hami_tile *tile = *place;

        if (contains(region, &tile->region)) {
            *place = tile->next;
            end(tile);
        } else {
            place = &tile->next;
        }
    }
}

struct hami_tile *hami_tiles_take(uint64_t array)
{
    struct hami_tile **place = &tiles, *taken = NULL;

    if (!atomic_load_explicit(&any, memory_order_acquire))
        return NULL;
    hami_physical_lock();
    while (*place) {
        struct hami_tile *tile = *place;

        if (tile->region.array == array) {
            *place = tile->next;
            tile->next = taken;
            taken = tile;
        } else {
            place = &tile->next;
        }
    }
    hami_physical_unlock();
    return taken;
}

void hami_tiles_taken(struct hami_tile *taken, bool destroyed)
{
    if (!taken)
        return;
    hami_physical_lock();
    for (struct hami_tile *next; taken; taken = next) {
        next = taken->next;
        if (destroyed) {
            end(taken);
        } else {
            taken->next = tiles;
            tiles = taken;
        }
    }
    hami_physical_unlock();
}

static void drop(struct hami_tile *made)
{
    for (struct hami_tile *next; made; made = next) {
        next = made->next;
        end(made);
    }
}

/* With the lock: a tile for each operation that maps, in reverse. False: no memory for them. */
static bool begin(const CUarrayMapInfo *maps, unsigned int count, struct hami_tile **made)
{
    *made = NULL;
    for (unsigned int i = 0; i < count; i++) {
        struct hami_physical *memory = NULL;
        struct hami_tile *tile;

        if (maps[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP)
            memory = hami_physical_of(maps[i].memHandle.memHandle);
        if (!memory)
            continue;
        tile = hami_slab_take(&slab);
        if (!tile)
            return false;
        hami_physical_use(memory);
        *tile = (struct hami_tile){.next = *made, .region = region_of(&maps[i]), .memory = memory};
        *made = tile;
    }
    return true;
}

/* With the lock. One call's operations take effect in their order: what a later one maps ends what
 * an earlier one mapped there. */
static void apply(const CUarrayMapInfo *maps, unsigned int count, struct hami_tile *made)
{
    struct hami_tile *ordered = NULL, *next;

    for (; made; made = next) {
        next = made->next;
        made->next = ordered;
        ordered = made;
    }
    for (unsigned int i = 0; i < count; i++) {
        struct region region = region_of(&maps[i]);
        struct hami_tile *tile = ordered;

        end_in(&region);
        if (maps[i].memOperationType != CU_MEM_OPERATION_TYPE_MAP || !tile ||
            tile->memory != hami_physical_of(maps[i].memHandle.memHandle) ||
            !contains(&tile->region, &region) || !contains(&region, &tile->region))
            continue;
        ordered = tile->next;
        tile->next = tiles;
        tiles = tile;
    }
    drop(ordered);
    atomic_store_explicit(&any, true, memory_order_release);
}

static CUresult map_array(CUarrayMapInfo *maps, unsigned int count, CUstream stream,
                          CUresult (*driver)(CUarrayMapInfo *maps, unsigned int count,
                                             CUstream stream))
{
    struct hami_tile *made;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    bool complete;

    if (!hami_counting() || !maps)
        return driver(maps, count, stream);
    hami_physical_lock();
    complete = begin(maps, count, &made);
    hami_physical_unlock();
    if (complete)
        result = driver(maps, count, stream);
    hami_physical_lock();
    if (result == CUDA_SUCCESS)
        apply(maps, count, made);
    else
        drop(made);
    hami_physical_unlock();
    return result;
}

HAMI_EXPORT CUresult cuMemMapArrayAsync(CUarrayMapInfo *maps, unsigned int count, CUstream stream)
{
    return map_array(maps, count, stream, hami_real()->cuMemMapArrayAsync);
}

HAMI_EXPORT CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *maps, unsigned int count,
                                             CUstream stream)
{
    return map_array(maps, count, stream, hami_real()->cuMemMapArrayAsync_ptsz);
}
