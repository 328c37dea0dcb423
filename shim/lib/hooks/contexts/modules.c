/* Modules and libraries of code. What loading one takes cannot be known before: the driver
 * compiles, picks and places, and nowadays loads functions when they are first used. Nor can it be
 * measured: the free memory of the device changes by others' doing as well. So a module is charged
 * before it is loaded with what its image says will surely be there (module_size.h), its variables
 * above all, a page at least, so that nothing more is loaded when the limit is reached; whatever the
 * driver takes beyond it comes in by the monitor's figure for the process (observed.c).
 *
 * A module ends with its context. A library is no context's: the driver makes a module of it in each
 * that uses it, when it is first used there, which nobody is told. So it is charged at once on every
 * device that this process can use. */
#include <fcntl.h>
#include <unistd.h>

#include "code/module_size.h"
#include "compute/gate.h"
#include "driver/real.h"
#include "memory/account.h"
#include "memory/blocks.h"
#include "memory/map.h"
#include "memory/reclaim.h"
#include "program/current.h"
#include "slice/devices.h"
#include "slice/slice.h"

#define PAGE UINT64_C(4096)

static struct hami_module_target target_of(int row)
{
    const struct hami_real *real = hami_real();
    CUmoduleLoadingMode mode = CU_MODULE_LAZY_LOADING;
    CUdevice ordinal = hami_ordinal_of_row(row);
    int major = 0, minor = 0;

    real->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, ordinal);
    real->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, ordinal);
    /* Drivers before 11.7 do not say, and load everything. */
    if (real->cuModuleGetLoadingMode(&mode) == CUDA_ERROR_NOT_SUPPORTED)
        mode = CU_MODULE_EAGER_LOADING;
    return (struct hami_module_target){.capability = (unsigned int)(10 * major + minor),
                                       .lazy = mode == CU_MODULE_LAZY_LOADING};
}

static uint64_t size_of(const struct hami_module_source *source, int row)
{
    struct hami_module_target target = target_of(row);
    uint64_t bytes = hami_module_size(source, &target);

    /* With what is large the driver begins a block. */
    if (target.lazy && bytes > HAMI_BLOCK / 2)
        return hami_whole_blocks(bytes);
    return bytes > UINT64_MAX - PAGE ? UINT64_MAX : (bytes / PAGE + 1) * PAGE;
}

/* Without an image there is nothing to read, and the driver says what is wrong. */
static struct hami_module_source in_memory(const void *image)
{
    return (struct hami_module_source){.image = image, .file = -1};
}

static struct hami_module_source in_file(const char *path)
{
    return (struct hami_module_source){
        .file = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1};
}

static void close_source(const struct hami_module_source *source)
{
    if (source->file >= 0)
        close(source->file);
}

/* ---- Modules ---- */

/* Charge for an image. The driver's error where no context is current. */
static CUresult begin(struct hami_entry *entry, struct hami_module_source source)
{
    CUcontext context;
    int row;
    CUresult result = hami_current(&context, &row);

    *entry = (struct hami_entry){.kind = HAMI_KIND_MODULE, .row = HAMI_ROW_NONE};
    if (result == CUDA_SUCCESS) {
        entry->context = context;
        entry->bytes = row == HAMI_ROW_NONE ? PAGE : size_of(&source, row);
        entry->row = (int16_t)row;
        if (!hami_memory_charge(row, entry->bytes))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    close_source(&source);
    return result;
}

/* False: there is no memory to remember it; to be unloaded, and then refunded. */
static bool remember(const struct hami_entry *entry)
{
    struct hami_entry old;

    if (!hami_map_exchange(entry, &old))
        return false;
    if (old.kind != HAMI_KIND_NONE) /* its end was not seen */
        hami_entry_refund(&old);
    return true;
}

static CUresult end_module(struct hami_entry *entry, CUresult result, CUmodule made,
                           CUmodule *module)
{
    if (result != CUDA_SUCCESS) {
        hami_entry_refund(entry);
        return result;
    }
    entry->key = (uintptr_t)made;
    if (!remember(entry)) {
        if (hami_real()->cuModuleUnload(made) == CUDA_SUCCESS)
            hami_entry_refund(entry);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *module = made;
    return CUDA_SUCCESS;
}

#define LOADS_MODULE(name, source, parameters, ...)                                                \
    HAMI_EXPORT CUresult name parameters                                                           \
    {                                                                                              \
        struct hami_entry entry;                                                                   \
        CUmodule made = NULL;                                                                      \
        CUresult result;                                                                           \
                                                                                                   \
        if (!hami_counting() || !module)                                                           \
            return hami_real()->name(module, __VA_ARGS__);                                         \
        result = begin(&entry, source);                                                            \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        result = hami_real()->name(&made, __VA_ARGS__);                                            \
        return end_module(&entry, result, made, module);                                           \
    }

LOADS_MODULE(cuModuleLoad, in_file(path), (CUmodule *module, const char *path), path)
LOADS_MODULE(cuModuleLoadData, in_memory(image), (CUmodule *module, const void *image), image)
LOADS_MODULE(cuModuleLoadDataEx, in_memory(image),
             (CUmodule *module, const void *image, unsigned int option_count,
              CUjit_option *options, void **values),
             image, option_count, options, values)
LOADS_MODULE(cuModuleLoadFatBinary, in_memory(image), (CUmodule *module, const void *image), image)

/* ---- Libraries ---- */

/* What one is charged, by row; 0: nothing. */
struct charges {
    uint64_t bytes[HAMI_MAX_DEVICES];
};

/* On record for each row by itself; handles are addresses of programs, below 2^56. */
static uint64_t library_key(CUlibrary library, int row)
{
    return (uintptr_t)library ^ (uint64_t)(row + 1) << 56;
}

static void refund_library(const struct charges *charges)
{
    for (int row = 0; row < HAMI_MAX_DEVICES; row++)
        hami_refund(row, charges->bytes[row]);
}

static CUresult begin_library(struct charges *charges, struct hami_module_source source)
{
    CUresult result = hami_mode() == HAMI_MODE_CLOSED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    int rows = result == CUDA_SUCCESS ? hami_row_count() : 0;

    *charges = (struct charges){{0}};
    for (int row = 0; row < rows && result == CUDA_SUCCESS; row++) {
        uint64_t bytes = hami_ordinal_of_row(row) < 0 ? 0 : size_of(&source, row);

        if (bytes != 0 && !hami_memory_charge(row, bytes))
            result = CUDA_ERROR_OUT_OF_MEMORY;
        else
            charges->bytes[row] = bytes;
    }
    if (result != CUDA_SUCCESS)
        refund_library(charges);
    close_source(&source);
    return result;
}

static void forget_library(CUlibrary library, struct charges *charges)
{
    struct hami_entry entry;

    for (int row = 0; row < HAMI_MAX_DEVICES; row++)
        charges->bytes[row] =
            hami_map_take(HAMI_KIND_LIBRARY, library_key(library, row), &entry) ? entry.bytes : 0;
}

static bool remember_library(CUlibrary library, const struct charges *charges)
{
    for (int row = 0; row < HAMI_MAX_DEVICES; row++)
        if (charges->bytes[row] != 0 &&
            !remember(&(struct hami_entry){.key = library_key(library, row),
                                           .kind = HAMI_KIND_LIBRARY,
                                           .row = (int16_t)row,
                                           .bytes = charges->bytes[row]}))
            return false;
    return true;
}

static CUresult end_library(struct charges *charges, CUresult result, CUlibrary made,
                            CUlibrary *library)
{
    struct charges remembered;

    if (result != CUDA_SUCCESS) {
        refund_library(charges);
        return result;
    }
    if (!remember_library(made, charges)) {
        forget_library(made, &remembered);
        if (hami_real()->cuLibraryUnload(made) == CUDA_SUCCESS)
            refund_library(charges);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *library = made;
    return CUDA_SUCCESS;
}

#define LOADS_LIBRARY(name, from_type, from, source)                                               \
    HAMI_EXPORT CUresult name(CUlibrary *library, const from_type *from, CUjit_option *options,    \
                              void **values, unsigned int option_count,                            \
                              CUlibraryOption *library_options, void **library_values,             \
                              unsigned int library_option_count)                                   \
    {                                                                                              \
        struct charges charges;                                                                    \
        CUlibrary made = NULL;                                                                     \
        CUresult result;                                                                           \
                                                                                                   \
        if (!hami_counting() || !library)                                                          \
            return hami_real()->name(library, from, options, values, option_count,                 \
                                     library_options, library_values, library_option_count);       \
        result = begin_library(&charges, source);                                                  \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        result = hami_real()->name(&made, from, options, values, option_count, library_options,    \
                                   library_values, library_option_count);                          \
        return end_library(&charges, result, made, library);                                       \
    }

LOADS_LIBRARY(cuLibraryLoadData, void, image, in_memory(image))
LOADS_LIBRARY(cuLibraryLoadFromFile, char, path, in_file(path))

HAMI_EXPORT CUresult cuModuleUnload(CUmodule module)
{
    struct hami_entry entry;
    CUresult result;
    bool known;

    if (!hami_counting())
        return hami_real()->cuModuleUnload(module);
    known = hami_map_take(HAMI_KIND_MODULE, (uintptr_t)module, &entry);
    hami_gate_forget_module();
    result = hami_real()->cuModuleUnload(module);
    if (known && result == CUDA_SUCCESS)
        hami_entry_refund(&entry);
    else if (known)
        hami_map_put(&entry);
    return result;
}

HAMI_EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
    struct charges charges;
    CUresult result;

    if (!hami_counting())
        return hami_real()->cuLibraryUnload(library);
    forget_library(library, &charges);
    hami_gate_forget_module();
    result = hami_real()->cuLibraryUnload(library);
    if (result == CUDA_SUCCESS)
        refund_library(&charges);
    else
        remember_library(library, &charges);
    return result;
}

/* The driver loads one function now, not at its first launch; nobody says how large it is. */
HAMI_EXPORT CUresult cuFuncLoad(CUfunction function)
{
    int row;

    if (hami_counting() && hami_current_row(&row) == CUDA_SUCCESS && !hami_memory_charge(row, 0))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return hami_real()->cuFuncLoad(function);
}
