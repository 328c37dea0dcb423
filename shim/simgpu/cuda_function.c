/* Functions: loading their code, their attributes, how many blocks fit. */
#include "modules.h"

#define MAX_THREADS 1024
#define RESIDENT_BLOCKS 32
#define SHARED_MOST 232448
#define SHARED_OF_SM 233472
#define REGISTERS 32

/* A kernel of a library becomes the function of its module in the context. */
CUresult sim_function_resolve(CUfunction handle, CUcontext context, CUfunction *function)
{
    CUkernel kernel = (CUkernel)handle;
    CUmodule module;
    CUresult result;

    if (SIM_LIKELY(sim_alive(handle, SIM_FUNCTION))) {
        *function = handle;
        return CUDA_SUCCESS;
    }
    if (!sim_alive(kernel, SIM_KERNEL))
        return CUDA_ERROR_INVALID_HANDLE;
    result = sim_library_module(kernel->library, context, &module);
    if (result != CUDA_SUCCESS)
        return result;
    for (size_t i = 0; i < module->image.count; i++) {
        if (module->functions[i] != NULL && module->functions[i]->kernel == kernel) {
            *function = module->functions[i];
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult sim_function_load(CUfunction function)
{
    static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
    CUresult result = CUDA_SUCCESS;

    if (atomic_load_explicit(&function->loaded, memory_order_acquire))
        return CUDA_SUCCESS;
    pthread_mutex_lock(&loading);
    if (!atomic_load_explicit(&function->loaded, memory_order_relaxed)) {
        result = sim_module_grow(function->module, function->symbol->bytes);
        if (result == CUDA_SUCCESS)
            atomic_store_explicit(&function->loaded, true, memory_order_release);
    }
    pthread_mutex_unlock(&loading);
    return result;
}

/* What a handle means to the calls below. */
static CUresult resolve(CUfunction handle, CUfunction *function)
{
    CUcontext context;
    CUresult result;

    if (sim_alive(handle, SIM_FUNCTION)) {
        *function = handle;
        return CUDA_SUCCESS;
    }
    result = sim_context_current(&context);
    return result == CUDA_SUCCESS ? sim_function_resolve(handle, context, function) : result;
}

SIM_EXPORT CUresult cuFuncLoad(CUfunction function)
{
    SIM_ENTER(cuFuncLoad);
    CUresult result = resolve(function, &function);
    return result == CUDA_SUCCESS ? sim_function_load(function) : result;
}

SIM_EXPORT CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    SIM_ENTER(cuFuncIsLoaded);
    CUresult result;

    if (state == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = resolve(function, &function);
    if (result == CUDA_SUCCESS)
        *state = atomic_load(&function->loaded) ? CU_FUNCTION_LOADING_STATE_LOADED
                                                : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return result;
}

SIM_EXPORT CUresult cuFuncGetModule(CUmodule *module, CUfunction function)
{
    SIM_ENTER(cuFuncGetModule);
    CUresult result;

    if (module == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = resolve(function, &function);
    if (result == CUDA_SUCCESS)
        *module = function->module;
    return result;
}

SIM_EXPORT CUresult cuFuncGetName(const char **name, CUfunction function)
{
    SIM_ENTER(cuFuncGetName);
    CUresult result;

    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = resolve(function, &function);
    if (result == CUDA_SUCCESS)
        *name = function->symbol->name;
    return result;
}

SIM_EXPORT CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute,
                                       CUfunction function)
{
    SIM_ENTER(cuFuncGetAttribute);
    CUresult result;

    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = resolve(function, &function);
    if (result != CUDA_SUCCESS)
        return result;
    switch ((int)attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = MAX_THREADS; break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = 0; break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: *value = 0; break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = (int)function->symbol->local; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = REGISTERS; break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: {
        const struct sim_device *device = sim_device(function->context->ordinal);
        *value = 10 * device->major + device->minor;
        break;
    }
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = (int)atomic_load(&function->shared_limit);
        break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute,
                                       int value)
{
    SIM_ENTER(cuFuncSetAttribute);
    CUresult result = resolve(function, &function);

    if (result != CUDA_SUCCESS)
        return result;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
        value > SHARED_MOST)
        return CUDA_ERROR_INVALID_VALUE;
    atomic_store(&function->shared_limit, (unsigned int)value);
    return CUDA_SUCCESS;
}

static CUresult occupancy(int *blocks, CUfunction function, int block_size, size_t shared)
{
    CUresult result;
    int resident;

    if (blocks == NULL || block_size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    result = resolve(function, &function);
    if (result != CUDA_SUCCESS)
        return result;
    *blocks = 0;
    if (block_size > MAX_THREADS || shared > SHARED_MOST)
        return CUDA_SUCCESS;
    resident = (int)sim_device_resident(sim_device(function->context->ordinal));
    *blocks = resident / ((block_size + 31) / 32 * 32);
    if (*blocks > RESIDENT_BLOCKS)
        *blocks = RESIDENT_BLOCKS;
    if (shared > 0 && (size_t)*blocks > SHARED_OF_SM / shared)
        *blocks = (int)(SHARED_OF_SM / shared);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function,
                                                                int block_size,
                                                                size_t dynamic_shared_bytes)
{
    SIM_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    return occupancy(blocks, function, block_size, dynamic_shared_bytes);
}

SIM_EXPORT CUresult cuFuncSetBlockShape(CUfunction function, int x, int y, int z)
{
    SIM_ENTER(cuFuncSetBlockShape);
    CUresult result = resolve(function, &function);

    if (result != CUDA_SUCCESS)
        return result;
    if (x <= 0 || y <= 0 || z <= 0 || x > MAX_THREADS || y > MAX_THREADS || z > 64 ||
        (int64_t)x * y * z > MAX_THREADS)
        return CUDA_ERROR_INVALID_VALUE;
    function->block[0] = (unsigned int)x;
    function->block[1] = (unsigned int)y;
    function->block[2] = (unsigned int)z;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuParamSetSize(CUfunction function, unsigned int bytes)
{
    SIM_ENTER(cuParamSetSize);
    CUresult result = resolve(function, &function);

    if (result != CUDA_SUCCESS)
        return result;
    if (bytes > 4096)
        return CUDA_ERROR_INVALID_VALUE;
    function->parameter_bytes = bytes;
    return CUDA_SUCCESS;
}

/* Only the first parameter means anything to a simulated kernel. */
SIM_EXPORT CUresult cuParamSetv(CUfunction function, int offset, void *value, unsigned int bytes)
{
    SIM_ENTER(cuParamSetv);
    CUresult result = resolve(function, &function);

    if (result != CUDA_SUCCESS)
        return result;
    if (offset < 0 || value == NULL || bytes == 0 || (unsigned int)offset + bytes > 4096)
        return CUDA_ERROR_INVALID_VALUE;
    if (offset == 0) {
        function->parameter = 0;
        memcpy(&function->parameter, value, bytes < 8 ? bytes : 8);
    }
    return CUDA_SUCCESS;
}
