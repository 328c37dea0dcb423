/* CUDA arrays, mipmapped arrays, and memory mapped into them. */
#include "check.h"

static CUDA_ARRAY3D_DESCRIPTOR shape(size_t width, size_t height, size_t depth, unsigned int flags)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){.Width = width, .Height = height, .Depth = depth,
                                     .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4,
                                     .Flags = flags};
}

/* ---- Plain ---- */

static const char *an_array_takes_its_elements_and_gives_them_back(void)
{
    CUDA_ARRAY_DESCRIPTOR wanted = {.Width = 8192, .Height = 4096, .Format = CU_AD_FORMAT_FLOAT,
                                    .NumChannels = 4};
    size_t bytes = (size_t)8192 * 4096 * 16, before = available();
    CUDA_ARRAY_DESCRIPTOR found;
    CUarray array;

    OK(cuArrayCreate_v2(&array, &wanted));
    SO(before - available() >= bytes && before - available() <= bytes + bytes / 4);
    OK(cuArrayGetDescriptor_v2(&found, array));
    SO(found.Width == 8192 && found.Height == 4096 && found.NumChannels == 4);
    SO(found.Format == CU_AD_FORMAT_FLOAT);
    OK(cuArrayDestroy(array));
    SO(available() == before);
    return NULL;
}

static const char *layers_and_depths_count_in_full(void)
{
    static const unsigned int flags[] = {0, CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_SURFACE_LDST};

    for (size_t i = 0; i < 3; i++) {
        CUDA_ARRAY3D_DESCRIPTOR wanted = shape(512, 512, 64, flags[i]), found;
        size_t bytes = (size_t)512 * 512 * 64 * 16, before = available();
        CUarray array;

        OK(cuArray3DCreate_v2(&array, &wanted));
        SO(before - available() >= bytes && before - available() <= bytes + bytes / 4);
        OK(cuArray3DGetDescriptor_v2(&found, array));
        SO(found.Depth == 64 && found.Flags == flags[i]);
        OK(cuArrayDestroy(array));
        SO(available() == before);
    }
    return NULL;
}

static const char *impossible_shapes_are_invalid(void)
{
    CUDA_ARRAY3D_DESCRIPTOR wanted = shape(0, 16, 0, 0);
    CUarray array;

    IS(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate_v2(&array, &wanted));
    wanted = shape(16, 16, 0, 0);
    wanted.NumChannels = 3;
    IS(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate_v2(&array, &wanted));
    wanted = shape(16, 8, 6, CUDA_ARRAY3D_CUBEMAP);
    IS(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate_v2(&array, &wanted));
    wanted = shape((size_t)1 << 20, 16, 0, 0);
    IS(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate_v2(&array, &wanted));
    FAILS(cuArray3DCreate_v2(&array, NULL));
    return NULL;
}

/* Under the library these are out of memory before the driver sees them (gpu/conformance.py). */
static const char *shapes_larger_than_any_card_are_invalid(void)
{
    CUDA_ARRAY3D_DESCRIPTOR wanted = shape((size_t)1 << 34, 1024, 0, 0);
    CUarray array;

    IS(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate_v2(&array, &wanted));
    wanted = shape((size_t)1 << 30, 1024, 0, 0);
    IS(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate_v2(&array, &wanted));
    return NULL;
}

static const char *an_array_goes_with_its_context(void)
{
    CUDA_ARRAY3D_DESCRIPTOR wanted = shape(8192, 4096, 0, 0);
    size_t before = available();
    CUcontext context;
    CUarray array;

    OK(cuCtxCreate_v2(&context, 0, device));
    OK(cuArray3DCreate_v2(&array, &wanted));
    OK(cuCtxDestroy_v2(context));
    OK(cuCtxSetCurrent(primary));
    SO(available() + 256 * MIB > before);
    return NULL;
}

/* ---- Mipmapped ---- */

static const char *a_mipmapped_array_takes_all_its_levels(void)
{
    CUDA_ARRAY3D_DESCRIPTOR wanted = shape(4096, 4096, 0, 0), found;
    size_t first = (size_t)4096 * 4096 * 16, before = available();
    CUmipmappedArray array;
    CUarray level;

    OK(cuMipmappedArrayCreate(&array, &wanted, 100));
    SO(before - available() >= first + first / 4 + first / 16);
    SO(before - available() <= 2 * first);
    OK(cuMipmappedArrayGetLevel(&level, array, 3));
    OK(cuArray3DGetDescriptor_v2(&found, level));
    SO(found.Width == 512 && found.Height == 512);
    OK(cuMipmappedArrayGetLevel(&level, array, 12));
    IS(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetLevel(&level, array, 13));
    OK(cuMipmappedArrayDestroy(array));
    SO(available() == before);
    return NULL;
}

/* ---- Memory from elsewhere ---- */

static const char *only_arrays_mapped_later_tell_what_they_need(void)
{
    CUDA_ARRAY3D_DESCRIPTOR wanted = shape(1024, 1024, 0, 0);
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
    size_t before = available();
    CUarray array;

    OK(cuArray3DCreate_v2(&array, &wanted));
    IS(CUDA_ERROR_INVALID_VALUE, cuArrayGetMemoryRequirements(&needs, array, device));
    OK(cuArrayDestroy(array));
    if (!attribute(CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED))
        return SKIP("no arrays mapped later");
    before = available();
    wanted = shape(8192, 4096, 0, CUDA_ARRAY3D_DEFERRED_MAPPING);
    OK(cuArray3DCreate_v2(&array, &wanted));
    SO(before - available() < 64 * MIB);
    OK(cuArrayGetMemoryRequirements(&needs, array, device));
    SO(needs.size >= (size_t)8192 * 4096 * 16 && needs.alignment > 0);
    OK(cuArrayDestroy(array));
    return NULL;
}

static CUresult a_tile_pool(CUmemGenericAllocationHandle *memory, size_t bytes)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                      .allocFlags = {.usage = CU_MEM_CREATE_USAGE_TILE_POOL}};

    properties.location.id = device;
    return cuMemCreate(memory, bytes, &properties, 0);
}

/* One tile of 64 by 64 elements of 16 bytes. */
static CUarrayMapInfo a_tile(CUarray array, CUmemGenericAllocationHandle memory)
{
    CUarrayMapInfo info;

    memset(&info, 0, sizeof(info));
    info.resourceType = CU_RESOURCE_TYPE_ARRAY;
    info.resource.array = array;
    info.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
    info.subresource.sparseLevel.offsetX = 64;
    info.subresource.sparseLevel.extentWidth = 64;
    info.subresource.sparseLevel.extentHeight = 64;
    info.subresource.sparseLevel.extentDepth = 1;
    info.memOperationType = memory ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP;
    info.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
    info.memHandle.memHandle = memory;
    info.deviceBitMask = 1u << device;
    return info;
}

static const char *tiles_keep_the_memory_mapped_into_them(void)
{
    CUDA_ARRAY3D_DESCRIPTOR wanted = shape(8192, 4096, 0, CUDA_ARRAY3D_SPARSE);
    CUmemGenericAllocationHandle memory, plain;
    size_t before = available(), with;
    CUarrayMapInfo info;
    CUstream stream;
    CUarray array;

    if (!attribute(CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED))
        return SKIP("no sparse arrays");
    OK(cuArray3DCreate_v2(&array, &wanted));
    SO(before - available() < 64 * MIB);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    with = available();
    OK(a_tile_pool(&memory, 32 * GRANULE));
    info = a_tile(array, memory);
    OK(cuMemMapArrayAsync(&info, 1, stream));
    OK(cuMemRelease(memory));
    OK(cuStreamSynchronize(stream));
    SO(with - available() >= 32 * GRANULE);
    info = a_tile(array, 0);
    OK(cuMemMapArrayAsync(&info, 1, stream));
    OK(cuStreamSynchronize(stream));
    SO(with - available() < 32 * GRANULE);
    info = a_tile(array, 0);
    info.flags = 1;
    FAILS(cuMemMapArrayAsync(&info, 1, stream));
    OK(a_tile_pool(&plain, GRANULE));
    OK(cuMemRelease(plain));
    OK(a_tile_pool(&memory, 32 * GRANULE));
    info = a_tile(array, memory);
    OK(cuMemMapArrayAsync(&info, 1, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemRelease(memory));
    OK(cuArrayDestroy(array));
    OK(cuStreamDestroy_v2(stream));
    OK(cuCtxSynchronize());
    SO(available() + 64 * MIB > before);
    return NULL;
}

static const struct check checks[] = {
    CHECK(an_array_takes_its_elements_and_gives_them_back),
    CHECK(layers_and_depths_count_in_full),
    CHECK(impossible_shapes_are_invalid),
    CHECK(shapes_larger_than_any_card_are_invalid),
    CHECK(an_array_goes_with_its_context),
    CHECK(a_mipmapped_array_takes_all_its_levels),
    CHECK(only_arrays_mapped_later_tell_what_they_need),
    CHECK(tiles_keep_the_memory_mapped_into_them),
};

CONFORMANCE(checks)
