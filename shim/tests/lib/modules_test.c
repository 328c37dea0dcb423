/* Unloading code. links: lib/hooks/contexts/modules.c lib/code/module_size.c lib/code/module_source.c lib/code/module_text.c lib/code/unpack_lz4.c lib/code/unpack_zstd.c lib/code/unpack_bits.c lib/memory/reclaim.c lib/memory/late.c lib/memory/pools.c lib/memory/pool_request.c lib/memory/pool_table.c lib/memory/graph_memory.c lib/hooks/execution/graphs.c lib/memory/graph_need.c lib/memory/physical.c lib/memory/imports.c lib/memory/exports.c lib/hooks/allocations/vmm.c lib/hooks/allocations/multicast.c lib/hooks/allocations/tiles.c lib/hooks/allocations/intervals.c lib/base/slab.c lib/base/reset.c lib/memory/map.c */
#include "fake_driver.h"

static CUresult unloading;

static CUresult fake_cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *options,
                                       void **values, unsigned int option_count,
                                       CUlibraryOption *library_options, void **library_values,
                                       unsigned int library_option_count)
{
    (void)image;
    (void)options;
    (void)values;
    (void)option_count;
    (void)library_options;
    (void)library_values;
    (void)library_option_count;
    *library = (CUlibrary)0x40;
    return CUDA_SUCCESS;
}

static CUresult fake_cuLibraryUnload(CUlibrary library)
{
    (void)library;
    return unloading;
}

static CUresult fake_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)attribute;
    (void)device;
    *value = 9;
    return CUDA_SUCCESS;
}

static CUresult fake_cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

static CUlibrary load(void)
{
    CUlibrary library = NULL;

    EXPECT(cuLibraryLoadData(&library, ".version 8.0", NULL, NULL, 0, NULL, NULL, 0) ==
           CUDA_SUCCESS);
    return library;
}

static void a_library_is_charged_until_the_driver_has_unloaded_it(void)
{
    CUlibrary library;

    fake_start(MIB);
    library = load();
    EXPECT(fake_charged[0] == 4096);
    unloading = CUDA_ERROR_ILLEGAL_STATE;
    EXPECT(cuLibraryUnload(library) == CUDA_ERROR_ILLEGAL_STATE && fake_charged[0] == 4096);
    unloading = CUDA_SUCCESS;
    EXPECT(cuLibraryUnload(library) == CUDA_SUCCESS && fake_charged[0] == 0);
}

int main(void)
{
    fake_real.cuLibraryLoadData = fake_cuLibraryLoadData;
    fake_real.cuLibraryUnload = fake_cuLibraryUnload;
    fake_real.cuDeviceGetAttribute = fake_cuDeviceGetAttribute;
    fake_real.cuModuleGetLoadingMode = fake_cuModuleGetLoadingMode;
    a_library_is_charged_until_the_driver_has_unloaded_it();
    return report();
}
