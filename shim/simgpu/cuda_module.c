/* Modules in a context: their functions, global variables, and the memory that their code takes,
 * which lazy loading puts off until a function is first used. */
#include <stdlib.h>

#include "modules.h"

#define GRANULE (UINT64_C(2) << 20)

/* As the real driver reads CUDA_MODULE_LOADING: lazy unless the program says otherwise. */
bool sim_lazy(void)
{
    static _Atomic int known; /* 1: eager, 2: lazy */
    int mode = atomic_load_explicit(&known, memory_order_relaxed);

    if (mode == 0) {
        const char *said = getenv("CUDA_MODULE_LOADING");
        mode = said != NULL && strcmp(said, "EAGER") == 0 ? 1 : 2;
        atomic_store_explicit(&known, mode, memory_order_relaxed);
    }
    return mode == 2;
}

/* Under a lock of its own, for two threads may load functions of one module at once. */
CUresult sim_module_grow(CUmodule module, uint64_t bytes)
{
    static pthread_mutex_t growing = PTHREAD_MUTEX_INITIALIZER;
    CUresult result = CUDA_SUCCESS;

    pthread_mutex_lock(&growing);
    if (module->code_used + bytes > module->code_taken) {
        uint64_t more = module->code_used + bytes - module->code_taken, id;
        uint64_t *memory = realloc(module->memory, (module->memory_count + 1) * sizeof *memory);
        more = (more + GRANULE - 1) / GRANULE * GRANULE;
        result = CUDA_ERROR_OUT_OF_MEMORY;
        if (memory != NULL) {
            module->memory = memory;
            result = sim_take(module->context->ordinal, more, SIM_MEMORY_CODE, &id);
        }
        if (result == CUDA_SUCCESS) {
            memory[module->memory_count++] = id;
            module->code_taken += more;
        }
    }
    if (result == CUDA_SUCCESS)
        module->code_used += bytes;
    pthread_mutex_unlock(&growing);
    return result;
}

static CUfunction new_function(CUmodule module, const struct sim_symbol *symbol, CUkernel kernel)
{
    CUfunction function = sim_object_new(SIM_FUNCTION);

    if (function == NULL)
        return NULL;
    function->dynamic = symbol->dynamic;
    function->work.width = symbol->width;
    function->work.duration_ns = symbol->ns;
    atomic_store_explicit(&function->shared_limit, SIM_SHARED_DEFAULT, memory_order_relaxed);
    function->per_block_ns = symbol->per_block_ns;
    function->context = module->context;
    function->module = module;
    function->kernel = kernel;
    function->symbol = symbol;
    function->block[0] = function->block[1] = function->block[2] = 1;
    sim_born(function, SIM_FUNCTION);
    return function;
}

static CUresult new_global(CUmodule module, const struct sim_symbol *symbol)
{
    struct sim_global *global = &module->globals[module->global_count];
    CUresult result = sim_module_grow(module, symbol->bytes);

    if (result != CUDA_SUCCESS)
        return result;
    global->symbol = symbol;
    global->address = sim_address(symbol->bytes, 256);
    result = sim_memory_adopt(module->context, global->address, symbol->bytes);
    if (result == CUDA_SUCCESS)
        module->global_count++;
    return result;
}

static CUresult fill(CUmodule module)
{
    const struct sim_image *image = &module->image;
    CUlibrary library = module->library;
    CUresult result = CUDA_SUCCESS;

    module->functions = calloc(image->count + 1, sizeof *module->functions);
    module->globals = calloc(image->count + 1, sizeof *module->globals);
    if (module->functions == NULL || module->globals == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < image->count && result == CUDA_SUCCESS; i++) {
        const struct sim_symbol *symbol = &image->symbols[i];
        if (symbol->global) {
            result = new_global(module, symbol);
            continue;
        }
        module->functions[i] =
            new_function(module, symbol, library != NULL ? library->kernels[i] : NULL);
        if (module->functions[i] == NULL)
            result = CUDA_ERROR_OUT_OF_MEMORY;
        else if (!sim_lazy())
            result = sim_function_load(module->functions[i]);
    }
    return result;
}

static void empty(CUmodule module)
{
    for (size_t i = 0; i < module->global_count; i++)
        sim_memory_forget(module->globals[i].address);
    for (size_t i = 0; module->functions != NULL && i < module->image.count; i++)
        sim_object_free(module->functions[i], SIM_FUNCTION);
    for (size_t i = 0; i < module->memory_count; i++)
        sim_give(module->memory[i]);
    free(module->functions);
    free(module->globals);
    free(module->memory);
    sim_image_free(&module->image);
}

CUresult sim_module_open(CUmodule *module, CUcontext context, const char *text, CUlibrary library)
{
    CUmodule made = sim_object_new(SIM_MODULE);
    CUresult result;

    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->context = context->root;
    made->library = library;
    result = sim_image_parse(text, &made->image);
    if (result == CUDA_SUCCESS)
        result = fill(made);
    if (result != CUDA_SUCCESS) {
        empty(made);
        sim_object_free(made, SIM_MODULE);
        return result;
    }
    sim_lock();
    made->next = made->context->modules;
    if (made->next != NULL)
        made->next->previous = made;
    made->context->modules = made;
    sim_born(made, SIM_MODULE);
    sim_unlock();
    *module = made;
    return CUDA_SUCCESS;
}

/* Of a module that is dead already. */
void sim_module_close(CUmodule module)
{
    sim_lock();
    if (module->previous != NULL)
        module->previous->next = module->next;
    else
        module->context->modules = module->next;
    if (module->next != NULL)
        module->next->previous = module->previous;
    sim_unlock();
    empty(module);
    sim_object_free(module, SIM_MODULE);
}

static CUresult load(CUmodule *module, const void *image)
{
    CUcontext context;
    CUresult result;
    char *text;

    if (module == NULL || image == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_context_current(&context);
    if (result == CUDA_SUCCESS)
        result = sim_capture_unsafe();
    if (result == CUDA_SUCCESS)
        result = sim_image_text(image, &text);
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_module_open(module, context, text, NULL);
    free(text);
    return result;
}

SIM_EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    SIM_ENTER(cuModuleLoad);
    char *text;
    CUresult result = sim_image_read(path, &text);

    if (result != CUDA_SUCCESS)
        return result;
    result = load(module, text);
    free(text);
    return result;
}

SIM_EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    SIM_ENTER(cuModuleLoadData);
    return load(module, image);
}

SIM_EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image,
                                       unsigned int option_count, CUjit_option *options,
                                       void **values)
{
    SIM_ENTER(cuModuleLoadDataEx);
    if (option_count > 64 || (option_count > 0 && (!sim_pointer(options) || !sim_pointer(values))))
        return CUDA_ERROR_INVALID_VALUE;
    return load(module, image);
}

SIM_EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    SIM_ENTER(cuModuleLoadFatBinary);
    return load(module, image);
}

SIM_EXPORT CUresult cuModuleUnload(CUmodule module)
{
    SIM_ENTER(cuModuleUnload);
    CUresult result;

    if (!sim_alive(module, SIM_MODULE) || module->library != NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_kill(module, SIM_MODULE))
        return CUDA_ERROR_INVALID_HANDLE;
    sim_module_close(module);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    SIM_ENTER(cuModuleGetFunction);
    if (function == NULL || name == NULL || *name == '\0')
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_alive(module, SIM_MODULE))
        return CUDA_ERROR_INVALID_HANDLE;
    for (size_t i = 0; i < module->image.count; i++) {
        if (module->functions[i] != NULL && strcmp(module->image.symbols[i].name, name) == 0) {
            *function = module->functions[i];
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

static CUresult get_global(CUmodule module, const char *name, const struct sim_global **global)
{
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_alive(module, SIM_MODULE))
        return CUDA_ERROR_INVALID_HANDLE;
    for (size_t i = 0; i < module->global_count; i++) {
        *global = &module->globals[i];
        if (strcmp((*global)->symbol->name, name) == 0)
            return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

/* Addresses of this spelling have 32 bits, which ours do not. */
SIM_EXPORT CUresult cuModuleGetGlobal(CUdeviceptr_v1 *address, unsigned int *bytes, CUmodule module,
                                      const char *name)
{
    SIM_ENTER(cuModuleGetGlobal);
    const struct sim_global *global;
    CUresult result = get_global(module, name, &global);

    if (result != CUDA_SUCCESS)
        return result;
    if (global->address > UINT32_MAX || global->symbol->bytes > UINT32_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (address != NULL)
        *address = (CUdeviceptr_v1)global->address;
    if (bytes != NULL)
        *bytes = (unsigned int)global->symbol->bytes;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module,
                                         const char *name)
{
    SIM_ENTER(cuModuleGetGlobal_v2);
    const struct sim_global *global;
    CUresult result = get_global(module, name, &global);

    if (result != CUDA_SUCCESS)
        return result;
    if (address != NULL)
        *address = global->address;
    if (bytes != NULL)
        *bytes = global->symbol->bytes;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    SIM_ENTER(cuModuleGetLoadingMode);
    if (mode == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = sim_lazy() ? CU_MODULE_LAZY_LOADING : CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}
