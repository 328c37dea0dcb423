/* Modules and libraries of code. What loading one takes cannot be known before: the driver
 * compiles, picks and places, and nowadays loads functions when they are first used. Nor can it be
 * measured: the free memory of the device changes by others' doing as well. So a module is charged
 * before it is loaded with what its image says will surely be there (module_size.h), a page at
 * least, so that nothing more is loaded when the limit is reached; whatever the driver takes beyond
 * it comes in by the monitor's figure for the process (observed.c).
 *
 * A module ends with its context; a library is no context's, and is charged where it was loaded. */
#include <fcntl.h>
#include <unistd.h>

#include "account.h"
#include "async.h"
#include "context.h"
#include "launch.h"
#include "map.h"
#include "module_size.h"
#include "real.h"
#include "slice.h"

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

    return bytes > UINT64_MAX - PAGE ? UINT64_MAX : (bytes / PAGE + 1) * PAGE;
}

/* Charge for an image. The driver's error where no context is current, of which a library is no
 * worse: `entry` has no row then. */
static CUresult begin(struct hami_entry *entry, enum hami_kind kind,
                      const struct hami_module_source *source)
{
    CUcontext context;
    CUresult result;
    int row;

    *entry = (struct hami_entry){.kind = (uint8_t)kind, .row = HAMI_ROW_NONE};
    result = hami_current(&context, &row);
    if (result != CUDA_SUCCESS)
        return kind == HAMI_KIND_LIBRARY ? CUDA_SUCCESS : result;
    entry->context = kind == HAMI_KIND_LIBRARY ? NULL : context;
    entry->bytes = row == HAMI_ROW_NONE ? PAGE : size_of(source, row);
    if (!hami_memory_charge(row, entry->bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    entry->row = (int16_t)row;
    return CUDA_SUCCESS;
}

static CUresult begin_file(struct hami_entry *entry, enum hami_kind kind, const char *path)
{
    struct hami_module_source source = {
        .file = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1};
    CUresult result = begin(entry, kind, &source);

    if (source.file >= 0)
        close(source.file);
    return result;
}

static CUresult begin_image(struct hami_entry *entry, enum hami_kind kind, const void *image)
{
    /* Without an image there is nothing to read, and the driver says what is wrong. */
    struct hami_module_source source = {.image = image, .file = -1};

    return begin(entry, kind, &source);
}

/* False: loaded, but there is no memory to remember it; to be unloaded, and then refunded. */
static bool end(struct hami_entry *entry, CUresult result, uint64_t handle)
{
    struct hami_entry old;

    if (result != CUDA_SUCCESS) {
        hami_entry_refund(entry);
        return true;
    }
    entry->key = handle;
    if (entry->row == HAMI_ROW_NONE)
        return true;
    if (hami_map_exchange(entry, &old)) {
        if (old.kind != HAMI_KIND_NONE) /* its end was not seen */
            hami_entry_refund(&old);
        return true;
    }
    return false;
}

static CUresult end_module(struct hami_entry *entry, CUresult result, CUmodule made,
                           CUmodule *module)
{
    if (!end(entry, result, (uintptr_t)made)) {
        if (hami_real()->cuModuleUnload(made) == CUDA_SUCCESS)
            hami_entry_refund(entry);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS)
        *module = made;
    return result;
}

static CUresult end_library(struct hami_entry *entry, CUresult result, CUlibrary made,
                            CUlibrary *library)
{
    if (!end(entry, result, (uintptr_t)made)) {
        if (hami_real()->cuLibraryUnload(made) == CUDA_SUCCESS)
            hami_entry_refund(entry);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS)
        *library = made;
    return result;
}

HAMI_EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    struct hami_entry entry;
    CUmodule made = NULL;
    CUresult result;

    if (!hami_counting() || !module)
        return hami_real()->cuModuleLoad(module, path);
    result = begin_file(&entry, HAMI_KIND_MODULE, path);
    if (result != CUDA_SUCCESS)
        return result;
    result = hami_real()->cuModuleLoad(&made, path);
    return end_module(&entry, result, made, module);
}

HAMI_EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    struct hami_entry entry;
    CUmodule made = NULL;
    CUresult result;

    if (!hami_counting() || !module)
        return hami_real()->cuModuleLoadData(module, image);
    result = begin_image(&entry, HAMI_KIND_MODULE, image);
    if (result != CUDA_SUCCESS)
        return result;
    result = hami_real()->cuModuleLoadData(&made, image);
    return end_module(&entry, result, made, module);
}

HAMI_EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image,
                                        unsigned int option_count, CUjit_option *options,
                                        void **values)
{
    struct hami_entry entry;
    CUmodule made = NULL;
    CUresult result;

    if (!hami_counting() || !module)
        return hami_real()->cuModuleLoadDataEx(module, image, option_count, options, values);
    result = begin_image(&entry, HAMI_KIND_MODULE, image);
    if (result != CUDA_SUCCESS)
        return result;
    result = hami_real()->cuModuleLoadDataEx(&made, image, option_count, options, values);
    return end_module(&entry, result, made, module);
}

HAMI_EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    struct hami_entry entry;
    CUmodule made = NULL;
    CUresult result;

    if (!hami_counting() || !module)
        return hami_real()->cuModuleLoadFatBinary(module, image);
    result = begin_image(&entry, HAMI_KIND_MODULE, image);
    if (result != CUDA_SUCCESS)
        return result;
    result = hami_real()->cuModuleLoadFatBinary(&made, image);
    return end_module(&entry, result, made, module);
}

HAMI_EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *options,
                                       void **values, unsigned int option_count,
                                       CUlibraryOption *library_options, void **library_values,
                                       unsigned int library_option_count)
{
    struct hami_entry entry;
    CUlibrary made = NULL;
    CUresult result;

    if (!hami_counting() || !library)
        return hami_real()->cuLibraryLoadData(library, image, options, values, option_count,
                                              library_options, library_values,
                                              library_option_count);
    result = begin_image(&entry, HAMI_KIND_LIBRARY, image);
    if (result != CUDA_SUCCESS)
        return result;
    result = hami_real()->cuLibraryLoadData(&made, image, options, values, option_count,
                                            library_options, library_values, library_option_count);
    return end_library(&entry, result, made, library);
}

HAMI_EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path,
                                           CUjit_option *options, void **values,
                                           unsigned int option_count,
                                           CUlibraryOption *library_options, void **library_values,
                                           unsigned int library_option_count)
{
    struct hami_entry entry;
    CUlibrary made = NULL;
    CUresult result;

    if (!hami_counting() || !library)
        return hami_real()->cuLibraryLoadFromFile(library, path, options, values, option_count,
                                                  library_options, library_values,
                                                  library_option_count);
    result = begin_file(&entry, HAMI_KIND_LIBRARY, path);
    if (result != CUDA_SUCCESS)
        return result;
    result = hami_real()->cuLibraryLoadFromFile(&made, path, options, values, option_count,
                                                library_options, library_values,
                                                library_option_count);
    return end_library(&entry, result, made, library);
}

HAMI_EXPORT CUresult cuModuleUnload(CUmodule module)
{
    struct hami_entry entry;
    CUresult result;
    bool known;

    if (!hami_counting())
        return hami_real()->cuModuleUnload(module);
    known = hami_map_take(HAMI_KIND_MODULE, (uintptr_t)module, &entry);
    hami_launch_forget_module();
    result = hami_real()->cuModuleUnload(module);
    if (known && result == CUDA_SUCCESS)
        hami_entry_refund(&entry);
    else if (known)
        hami_map_put(&entry);
    return result;
}

HAMI_EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
    struct hami_entry entry;
    CUresult result;
    bool known;

    if (!hami_counting())
        return hami_real()->cuLibraryUnload(library);
    known = hami_map_take(HAMI_KIND_LIBRARY, (uintptr_t)library, &entry);
    hami_launch_forget_module();
    result = hami_real()->cuLibraryUnload(library);
    if (known && result == CUDA_SUCCESS)
        hami_entry_refund(&entry);
    else if (known)
        hami_map_put(&entry);
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
