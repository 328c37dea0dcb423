/* Snippets: modules, libraries, functions. */
#include "matrix.h"

static bool has_the_kernel(CUmodule module)
{
    CUfunction function = NULL;

    return cuModuleGetFunction(&function, module, "nothing") == CUDA_SUCCESS && function;
}

CALL(cuModuleLoad)
{
    CUresult result = s->api->cuModuleLoad(&s->loaded, s->image_path);

    return and_so(result, has_the_kernel(s->loaded));
}

CALL(cuModuleLoadData)
{
    CUresult result = s->api->cuModuleLoadData(&s->loaded, s->image);

    return and_so(result, has_the_kernel(s->loaded));
}

CALL(cuModuleLoadDataEx)
{
    CUjit_option option = CU_JIT_MAX_REGISTERS;
    void *value = (void *)(uintptr_t)32;
    CUresult result = s->api->cuModuleLoadDataEx(&s->loaded, s->image, 1, &option, &value);

    return and_so(result, has_the_kernel(s->loaded));
}

CALL(cuModuleLoadFatBinary)
{
    CUresult result = s->api->cuModuleLoadFatBinary(&s->loaded, s->image);

    return and_so(result, has_the_kernel(s->loaded));
}

CALL(cuModuleUnload)
{
    return (int)s->api->cuModuleUnload(s->loaded);
}

static bool has_its_kernel(CUlibrary library)
{
    CUkernel kernel = NULL;

    return cuLibraryGetKernel(&kernel, library, "nothing") == CUDA_SUCCESS && kernel;
}

CALL(cuLibraryLoadData)
{
    CUresult result = s->api->cuLibraryLoadData(&s->library, s->image, NULL, NULL, 0, NULL, NULL,
                                                0);

    return and_so(result, has_its_kernel(s->library));
}

CALL(cuLibraryLoadFromFile)
{
    CUresult result = s->api->cuLibraryLoadFromFile(&s->library, s->image_path, NULL, NULL, 0,
                                                    NULL, NULL, 0);

    return and_so(result, has_its_kernel(s->library));
}

CALL(cuLibraryUnload)
{
    return (int)s->api->cuLibraryUnload(s->library);
}

CALL(cuFuncLoad)
{
    CUfunctionLoadingState state = CU_FUNCTION_LOADING_STATE_UNLOADED;
    CUresult result = s->api->cuFuncLoad(s->function);

    return result ? (int)result : and_so(cuFuncIsLoaded(&state, s->function),
                                         state == CU_FUNCTION_LOADING_STATE_LOADED);
}

static const struct snippet all[] = {
    SNIPPET(cuFuncLoad, nothing, nothing),
    SNIPPET(cuLibraryLoadData, nothing, call_cuLibraryUnload),
    SNIPPET(cuLibraryLoadFromFile, nothing, call_cuLibraryUnload),
    SNIPPET(cuLibraryUnload, call_cuLibraryLoadData, nothing),
    SNIPPET(cuModuleLoad, nothing, call_cuModuleUnload),
    SNIPPET(cuModuleLoadData, nothing, call_cuModuleUnload),
    SNIPPET(cuModuleLoadDataEx, nothing, call_cuModuleUnload),
    SNIPPET(cuModuleLoadFatBinary, nothing, call_cuModuleUnload),
    SNIPPET(cuModuleUnload, call_cuModuleLoadData, nothing),
};
const struct snippets matrix_modules = SNIPPETS(all);
