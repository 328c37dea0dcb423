/* Libraries: images that belong to no context, and turn into a module in each that uses them. */
#include <stdlib.h>

#include "modules.h"

static CUlibrary libraries; /* under the lock */
/* Two threads that first use a library in a context must make one module. */
static pthread_mutex_t instances = PTHREAD_MUTEX_INITIALIZER;

static void free_library(CUlibrary library)
{
    for (size_t i = 0; library->kernels != NULL && i < library->image.count; i++)
        sim_object_free(library->kernels[i], SIM_KERNEL);
    free(library->kernels);
    free(library->text);
    sim_image_free(&library->image);
    sim_object_free(library, SIM_LIBRARY);
}

static CUresult make_kernels(CUlibrary library)
{
    library->kernels = calloc(library->image.count + 1, sizeof *library->kernels);
    if (library->kernels == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < library->image.count; i++) {
        CUkernel kernel;
        if (library->image.symbols[i].global)
            continue;
        kernel = sim_object_new(SIM_KERNEL);
        if (kernel == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        kernel->library = library;
        kernel->symbol = &library->image.symbols[i];
        sim_born(kernel, SIM_KERNEL);
        library->kernels[i] = kernel;
    }
    return CUDA_SUCCESS;
}

CUresult sim_library_module(CUlibrary library, CUcontext context, CUmodule *module)
{
    CUmodule found;
    CUresult result = CUDA_SUCCESS;

    context = context->root;
    pthread_mutex_lock(&instances);
    sim_lock();
    for (found = context->modules; found != NULL && found->library != library; found = found->next)
        ;
    sim_unlock();
    if (found == NULL)
        result = sim_module_open(&found, context, library->text, library);
    pthread_mutex_unlock(&instances);
    if (result == CUDA_SUCCESS)
        *module = found;
    return result;
}

/* The n-th of a list that may grow at its head meanwhile: then some come twice. */
#define NTH(list, n)                                                                               \
    ({                                                                                             \
        __typeof__(list) nth;                                                                      \
        size_t left = (n);                                                                         \
        sim_lock();                                                                                \
        for (nth = (list); nth != NULL && left > 0; nth = nth->next)                               \
            left--;                                                                                \
        sim_unlock();                                                                              \
        nth;                                                                                       \
    })

CUresult sim_library_load_all(CUcontext context)
{
    CUresult result = CUDA_SUCCESS;
    CUlibrary library;
    CUmodule module;

    if (sim_lazy() || context->root != context)
        return CUDA_SUCCESS;
    for (size_t i = 0; result == CUDA_SUCCESS && (library = NTH(libraries, i)) != NULL; i++)
        result = sim_library_module(library, context, &module);
    return result;
}

/* EAGER: into every context that there is. */
static CUresult load_everywhere(CUlibrary library)
{
    CUresult result = CUDA_SUCCESS;
    CUcontext context;
    CUmodule module;

    for (size_t i = 0; result == CUDA_SUCCESS && (context = NTH(sim_contexts, i)) != NULL; i++)
        if (context->root == context && sim_alive(context, SIM_CONTEXT))
            result = sim_library_module(library, context, &module);
    return result;
}

static void unload_everywhere(CUlibrary library)
{
    for (;;) {
        CUmodule found = NULL;
        sim_lock();
        for (CUcontext each = sim_contexts; each != NULL && found == NULL; each = each->next)
            for (found = each->modules; found != NULL; found = found->next)
                if (found->library == library && sim_kill(found, SIM_MODULE))
                    break;
        sim_unlock();
        if (found == NULL)
            return;
        sim_module_close(found);
    }
}

static CUresult load(CUlibrary *library, const void *image)
{
    CUlibrary made;
    CUresult result;

    if (library == NULL || image == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    made = sim_object_new(SIM_LIBRARY);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = sim_image_text(image, &made->text);
    if (result == CUDA_SUCCESS)
        result = sim_image_parse(made->text, &made->image);
    if (result == CUDA_SUCCESS)
        result = make_kernels(made);
    if (result == CUDA_SUCCESS && !sim_lazy()) {
        result = load_everywhere(made);
        if (result != CUDA_SUCCESS)
            unload_everywhere(made);
    }
    if (result != CUDA_SUCCESS) {
        free_library(made);
        return result;
    }
    sim_lock();
    made->next = libraries;
    if (made->next != NULL)
        made->next->previous = made;
    libraries = made;
    sim_born(made, SIM_LIBRARY);
    sim_unlock();
    *library = made;
    return CUDA_SUCCESS;
}

static bool options_plausible(const void *options, const void *values, unsigned int count)
{
    return count <= 64 && (count == 0 || (sim_pointer(options) && sim_pointer(values)));
}

SIM_EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *options,
                                      void **values, unsigned int option_count,
                                      CUlibraryOption *library_options, void **library_values,
                                      unsigned int library_option_count)
{
    SIM_ENTER(cuLibraryLoadData);
    if (!options_plausible(options, values, option_count) || library_option_count > 64 ||
        (library_option_count > 0 && !sim_pointer(library_options)))
        return CUDA_ERROR_INVALID_VALUE;
    (void)library_values; /* NULL for options that take none */
    return load(library, image);
}

SIM_EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path,
                                          CUjit_option *options, void **values,
                                          unsigned int option_count,
                                          CUlibraryOption *library_options, void **library_values,
                                          unsigned int library_option_count)
{
    SIM_ENTER(cuLibraryLoadFromFile);
    char *text;
    CUresult result;

    if (!options_plausible(options, values, option_count) || library_option_count > 64 ||
        (library_option_count > 0 && !sim_pointer(library_options)))
        return CUDA_ERROR_INVALID_VALUE;
    (void)library_values;
    result = sim_image_read(path, &text);
    if (result != CUDA_SUCCESS)
        return result;
    result = load(library, text);
    free(text);
    return result;
}

SIM_EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
    SIM_ENTER(cuLibraryUnload);
    CUresult result;

    if (!sim_alive(library, SIM_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_kill(library, SIM_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    sim_lock();
    if (library->previous != NULL)
        library->previous->next = library->next;
    else
        libraries = library->next;
    if (library->next != NULL)
        library->next->previous = library->previous;
    sim_unlock();
    unload_everywhere(library);
    free_library(library);
    return CUDA_SUCCESS;
}

static CUresult find_kernel(CUlibrary library, const char *name, CUkernel *kernel)
{
    if (!sim_alive(library, SIM_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    for (size_t i = 0; i < library->image.count; i++) {
        *kernel = library->kernels[i];
        if (*kernel != NULL && strcmp((*kernel)->symbol->name, name) == 0)
            return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

SIM_EXPORT CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    SIM_ENTER(cuLibraryGetKernel);
    CUkernel found;
    CUresult result;

    if (kernel == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = find_kernel(library, name, &found);
    if (result == CUDA_SUCCESS)
        *kernel = found;
    return result;
}

SIM_EXPORT CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary library)
{
    SIM_ENTER(cuLibraryGetKernelCount);
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_alive(library, SIM_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    *count = 0;
    for (size_t i = 0; i < library->image.count; i++)
        *count += library->kernels[i] != NULL;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    SIM_ENTER(cuLibraryGetModule);
    CUcontext context;
    CUresult result;

    if (module == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_alive(library, SIM_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    result = sim_context_current(&context);
    return result == CUDA_SUCCESS ? sim_library_module(library, context, module) : result;
}

/* No simulated device has unified function pointers (the attribute says so). */
SIM_EXPORT CUresult cuLibraryGetUnifiedFunction(void **function, CUlibrary library,
                                                const char *symbol)
{
    SIM_ENTER(cuLibraryGetUnifiedFunction);
    if (function == NULL || symbol == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_alive(library, SIM_LIBRARY) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

SIM_EXPORT CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    SIM_ENTER(cuKernelGetFunction);
    CUcontext context;
    CUresult result;

    if (function == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_alive(kernel, SIM_KERNEL))
        return CUDA_ERROR_INVALID_HANDLE;
    result = sim_context_current(&context);
    return result == CUDA_SUCCESS ? sim_function_resolve((CUfunction)kernel, context, function)
                                  : result;
}

SIM_EXPORT CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
    SIM_ENTER(cuKernelGetName);
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_alive(kernel, SIM_KERNEL))
        return CUDA_ERROR_INVALID_HANDLE;
    *name = kernel->symbol->name;
    return CUDA_SUCCESS;
}
