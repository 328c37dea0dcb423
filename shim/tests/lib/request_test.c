/* Requests that the driver granted and that then cannot be kept. links: lib/memory/request.c lib/hooks/allocations/linear.c lib/hooks/allocations/arrays.c lib/hooks/allocations/array_size.c lib/hooks/contexts/modules.c lib/code/module_size.c lib/code/module_source.c lib/code/module_text.c lib/code/unpack_lz4.c lib/code/unpack_zstd.c lib/code/unpack_bits.c lib/memory/account.c lib/memory/held.c lib/memory/blocks.c lib/memory/charge.c lib/base/reset.c lib/slice/slots.c lib/slice/slot_words.c lib/slice/alive.c */
#include <stdbool.h>
#include <sys/mman.h>

static bool no_memory; /* of the host, for the map */

static void *mmap_if_possible(void *at, size_t bytes, int access, int kind, int fd, off_t of)
{
    return no_memory ? MAP_FAILED : mmap(at, bytes, access, kind, fd, of);
}

#define mmap mmap_if_possible
#include "memory/map.c" /* for a map that may find no memory */
#undef mmap

#include "hooks/contexts/context.h"
#include "fake_slice.h"
#include "memory/graph_memory.h"
#include "compute/gate.h"
#include "driver/real.h"
#include "hooks/allocations/tiles.h"

/* ---- What the rest of the library would do ---- */

CUresult hami_current(CUcontext *context, int *row)
{
    *context = (CUcontext)0x1000;
    *row = 0;
    return CUDA_SUCCESS;
}

CUresult hami_current_row(int *row)
{
    *row = 0;
    return CUDA_SUCCESS;
}

CUdevice hami_ordinal_of_row(int row)
{
    return row;
}

bool hami_memory_reclaim(int row)
{
    (void)row;
    return false;
}

bool hami_memory_charge(int row, uint64_t bytes)
{
    return hami_charge(row, bytes);
}

void hami_pool_freed_waited(struct hami_pool *pool, uint64_t bytes)
{
    (void)pool;
    (void)bytes;
}

void hami_graph_left_freed(void)
{
}

void hami_gate_forget_module(void)
{
}

struct hami_tile *hami_tiles_take(uint64_t array)
{
    (void)array;
    return NULL;
}

void hami_tiles_taken(struct hami_tile *taken, bool destroyed)
{
    EXPECT(!taken || destroyed);
}

/* ---- A driver that says what was charged when it was given something back ---- */

static uint64_t next, pitch_of_driver, charged_then;
static int given_back;
static CUresult giving_back;

static CUresult take_back(void)
{
    charged_then = hami_charged(0);
    given_back++;
    return giving_back;
}

static CUresult allocate(CUdeviceptr *address, size_t bytes)
{
    *address = next;
    next += hami_whole_blocks(bytes);
    return CUDA_SUCCESS;
}

static CUresult allocate_low(CUdeviceptr_v1 *address, unsigned int bytes)
{
    *address = (CUdeviceptr_v1)next;
    next += hami_whole_blocks(bytes);
    return CUDA_SUCCESS;
}

static CUresult allocate_managed(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
    (void)flags;
    return allocate(address, bytes);
}

static CUresult allocate_rows(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                              unsigned int element)
{
    (void)width;
    (void)element;
    *pitch = pitch_of_driver;
    return allocate(address, pitch_of_driver * height);
}

static CUresult allocate_rows_low(CUdeviceptr_v1 *address, unsigned int *pitch, unsigned int width,
                                  unsigned int height, unsigned int element)
{
    (void)width;
    (void)element;
    *pitch = (unsigned int)pitch_of_driver;
    return allocate_low(address, *pitch * height);
}

static CUresult free_memory(CUdeviceptr address)
{
    (void)address;
    return take_back();
}

static CUresult free_low(CUdeviceptr_v1 address)
{
    (void)address;
    return take_back();
}

static CUresult make_array(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
    (void)descriptor;
    *array = (CUarray)0x2000;
    return CUDA_SUCCESS;
}

static CUresult destroy_array(CUarray array)
{
    (void)array;
    return take_back();
}

static CUresult make_mipmap(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                            unsigned int levels)
{
    (void)descriptor;
    (void)levels;
    *array = (CUmipmappedArray)0x3000;
    return CUDA_SUCCESS;
}

static CUresult destroy_mipmap(CUmipmappedArray array)
{
    (void)array;
    return take_back();
}

static CUresult load_module(CUmodule *module, const void *image)
{
    (void)image;
    *module = (CUmodule)0x4000;
    return CUDA_SUCCESS;
}

static CUresult unload_module(CUmodule module)
{
    (void)module;
    return take_back();
}

static CUresult load_library(CUlibrary *library, const void *image, CUjit_option *options,
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
    *library = (CUlibrary)0x5000;
    return CUDA_SUCCESS;
}

static CUresult unload_library(CUlibrary library)
{
    (void)library;
    return take_back();
}

static CUresult attribute(int *value, CUdevice_attribute which, CUdevice device)
{
    (void)which;
    (void)device;
    *value = 9;
    return CUDA_SUCCESS;
}

static CUresult loading_mode(CUmoduleLoadingMode *mode)
{
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

static const struct hami_real driver = {
    .cuMemAlloc_v2 = allocate,
    .cuMemAlloc = allocate_low,
    .cuMemAllocManaged = allocate_managed,
    .cuMemAllocPitch_v2 = allocate_rows,
    .cuMemAllocPitch = allocate_rows_low,
    .cuMemFree_v2 = free_memory,
    .cuMemFree = free_low,
    .cuArrayCreate_v2 = make_array,
    .cuArrayDestroy = destroy_array,
    .cuMipmappedArrayCreate = make_mipmap,
    .cuMipmappedArrayDestroy = destroy_mipmap,
    .cuModuleLoadData = load_module,
    .cuModuleUnload = unload_module,
    .cuLibraryLoadData = load_library,
    .cuLibraryUnload = unload_library,
    .cuDeviceGetAttribute = attribute,
    .cuModuleGetLoadingMode = loading_mode,
};
const struct hami_real *_Atomic hami_real_found = &driver;

const struct hami_real *hami_real_load(void)
{
    return &driver;
}

static void start(void)
{
    fake_container(1, 4 * HAMI_BLOCK);
    need(fake_attach(), "a slot");
    hami_map_reset();
    next = UINT64_C(1) << 30;
    pitch_of_driver = 512;
    given_back = 0;
    giving_back = CUDA_SUCCESS;
    no_memory = false;
}

/* ---- The ways to ask: each for one block or less ---- */

static CUdeviceptr address;
static CUdeviceptr_v1 low;
static size_t pitch;
static unsigned int pitch_low;
static CUarray array;
static CUmipmappedArray mipmap;
static CUmodule module;
static CUlibrary library;

static CUresult by_alloc(void)
{
    return cuMemAlloc_v2(&address, 1000);
}

static CUresult by_old_alloc(void)
{
    return cuMemAlloc(&low, 1000);
}

static CUresult by_managed(void)
{
    return cuMemAllocManaged(&address, HAMI_BLOCK, CU_MEM_ATTACH_GLOBAL);
}

static CUresult by_pitch(void)
{
    return cuMemAllocPitch_v2(&address, &pitch, 512, 4096, 4);
}

static CUresult by_old_pitch(void)
{
    return cuMemAllocPitch(&low, &pitch_low, 512, 4096, 4);
}

static CUresult by_array(void)
{
    return cuArrayCreate_v2(&array, &(CUDA_ARRAY_DESCRIPTOR){64, 64, CU_AD_FORMAT_FLOAT, 4});
}

static CUresult by_mipmap(void)
{
    CUDA_ARRAY3D_DESCRIPTOR texels = {
        .Width = 64, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};

    return cuMipmappedArrayCreate(&mipmap, &texels, 2);
}

static CUresult by_module(void)
{
    return cuModuleLoadData(&module, ".version 8.0");
}

static CUresult by_library(void)
{
    return cuLibraryLoadData(&library, ".version 8.0", NULL, NULL, 0, NULL, NULL, 0);
}

static CUresult (*const every_way[])(void) = {
    by_alloc, by_old_alloc, by_managed, by_pitch, by_old_pitch, by_array, by_mipmap, by_module,
    by_library,
};
#define WAYS (sizeof(every_way) / sizeof(*every_way))

static bool told_nothing(void)
{
    return !address && !low && !pitch && !pitch_low && !array && !mipmap && !module && !library;
}

/* ---- Tests ---- */

static void what_cannot_be_recorded_is_charged_until_the_driver_has_it_back(void)
{
    for (size_t way = 0; way < WAYS; way++) {
        start();
        no_memory = true;
        EXPECT(every_way[way]() == CUDA_ERROR_OUT_OF_MEMORY && told_nothing());
        EXPECT(given_back == 1 && charged_then != 0);
        EXPECT(hami_charged(0) == 0);
    }
}

/* It is there, and nobody may have it in its place. */
static void what_the_driver_does_not_take_back_stays_charged(void)
{
    for (size_t way = 0; way < WAYS; way++) {
        start();
        no_memory = true;
        giving_back = CUDA_ERROR_ILLEGAL_STATE;
        EXPECT(every_way[way]() == CUDA_ERROR_OUT_OF_MEMORY && told_nothing());
        EXPECT(given_back == 1 && hami_charged(0) == charged_then && charged_then != 0);
    }
}

static void rows_wider_than_fits_are_charged_as_asked_for_until_they_are_gone(void)
{
    start();
    pitch_of_driver = 8192;
    EXPECT(by_pitch() == CUDA_ERROR_OUT_OF_MEMORY && told_nothing());
    EXPECT(given_back == 1 && charged_then == HAMI_BLOCK && hami_charged(0) == 0);
    EXPECT(by_old_pitch() == CUDA_ERROR_OUT_OF_MEMORY && told_nothing());
    EXPECT(given_back == 2 && charged_then == HAMI_BLOCK && hami_charged(0) == 0);
}

/* Others are in its block, and keep it. */
static void a_small_one_that_cannot_be_kept_leaves_the_block_to_its_neighbours(void)
{
    CUdeviceptr first;

    start();
    EXPECT(by_alloc() == CUDA_SUCCESS && hami_charged(0) == HAMI_BLOCK);
    first = address;
    address = 0;
    next = first + 512;
    no_memory = true;
    while (by_alloc() == CUDA_SUCCESS) { /* where there is room in the map */
        next = address + 512;
        address = 0;
    }
    EXPECT(given_back == 1 && charged_then == HAMI_BLOCK && hami_charged(0) == HAMI_BLOCK);
    for (CUdeviceptr at = first; at < next; at += 512)
        EXPECT(cuMemFree_v2(at) == CUDA_SUCCESS);
    EXPECT(hami_charged(0) == 0);
}

int main(void)
{
    what_cannot_be_recorded_is_charged_until_the_driver_has_it_back();
    what_the_driver_does_not_take_back_stays_charged();
    rows_wider_than_fits_are_charged_as_asked_for_until_they_are_gone();
    a_small_one_that_cannot_be_kept_leaves_the_block_to_its_neighbours();
    return report();
}
