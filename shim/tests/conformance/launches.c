/* Modules, libraries, functions, and every way to launch one. */
#include "kernels.h"

/* ---- Modules and functions ---- */

static const char *garbage_is_no_module(void)
{
    CUmodule none;

    FAILS(cuModuleLoadData(&none, "this is no image of any kind\n"));
    FAILS(cuModuleLoadData(&none, NULL));
    IS(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&none, "/nonexistent/module"));
    return NULL;
}

static const char *names_are_found_in_a_module_or_not(void)
{
    CUdeviceptr address = 0;
    CUfunction function;
    size_t bytes = 0;

    WITH_MODULE();
    IS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "absent"));
    OK(cuModuleGetGlobal_v2(&address, &bytes, module, "cell"));
    SO(address != 0 && bytes == CELL_BYTES);
    IS(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal_v2(&address, &bytes, module, "absent"));
    return NULL;
}

static const char *a_global_variable_holds_what_is_copied_to_it(void)
{
    char in[CELL_BYTES], out[CELL_BYTES] = {0};
    CUdeviceptr address = 0;

    WITH_MODULE();
    memset(in, 7, sizeof(in));
    OK(cuModuleGetGlobal_v2(&address, NULL, module, "cell"));
    OK(cuMemcpyHtoD_v2(address, in, sizeof(in)));
    OK(cuMemcpyDtoH_v2(out, address, sizeof(out)));
    SO(memcmp(in, out, sizeof(in)) == 0);
    FAILS(cuMemFree_v2(address));
    return NULL;
}

static const char *a_function_knows_its_module_and_its_attributes(void)
{
    CUfunctionLoadingState state;
    CUmodule found = NULL;
    const char *name = NULL;
    int value = 0;

    WITH_MODULE();
    OK(cuFuncGetModule(&found, nothing));
    SO(found == module);
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, nothing));
    SO(value > 0 && value <= 1024);
    OK(cuFuncGetName(&name, nothing));
    SO(strcmp(name, "nothing") == 0);
    OK(cuFuncLoad(nothing));
    OK(cuFuncIsLoaded(&state, nothing));
    SO(state == CU_FUNCTION_LOADING_STATE_LOADED);
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, nothing, 128, 0));
    SO(value >= 1);
    return NULL;
}

static const char *a_library_becomes_a_module_of_the_current_context(void)
{
    CUfunction function;
    CUlibrary library;
    CUmodule of_library = NULL, again = NULL;
    CUkernel kernel;
    unsigned int count = 0;
    const char *name = NULL;

    OK(load_test_library(&library));
    OK(cuLibraryGetKernel(&kernel, library, "nothing"));
    IS(CUDA_ERROR_NOT_FOUND, cuLibraryGetKernel(&kernel, library, "absent"));
    OK(cuLibraryGetKernel(&kernel, library, "nothing"));
    OK(cuLibraryGetKernelCount(&count, library));
    SO(count == 2);
    OK(cuKernelGetName(&name, kernel));
    SO(strcmp(name, "nothing") == 0);
    OK(cuKernelGetFunction(&function, kernel));
    OK(cuFuncGetModule(&of_library, function));
    OK(cuLibraryGetModule(&again, library));
    SO(again == of_library);
    OK(run(function, NULL));
    OK(run((CUfunction)kernel, NULL));
    OK(cuCtxSynchronize());
    OK(cuLibraryUnload(library));
    return NULL;
}

/* ---- Launches ---- */

static const char *a_launch_returns_before_its_kernel_is_done(void)
{
    double before, launched;

    WITH_MODULE();
    OK(run(nothing, NULL));
    OK(cuCtxSynchronize());
    before = seconds();
    OK(run_for(100 * MS, NULL));
    launched = seconds();
    OK(cuCtxSynchronize());
    SO(launched - before < 0.09);
    SO(seconds() - before >= 0.099);
    return NULL;
}

static const char *a_launch_has_a_shape_the_device_can_run(void)
{
    WITH_MODULE();
    IS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(nothing, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    IS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(nothing, 1, 1, 1, 0, 1, 1, 0, NULL, NULL, NULL));
    FAILS(cuLaunchKernel(nothing, 1, 1, 1, 2048, 1, 1, 0, NULL, NULL, NULL));
    FAILS(cuLaunchKernel(nothing, 1, 70000, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    FAILS(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 1 << 20, NULL, NULL, NULL));
    OK(cuLaunchKernel(nothing, 65536, 16, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(cuCtxSynchronize());
    return NULL;
}

static const char *parameters_come_as_a_list_or_as_a_buffer(void)
{
    uint64_t ns = 20 * MS;
    size_t size = sizeof(ns);
    void *parameters[] = {&ns};
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &ns, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    double before;

    WITH_MODULE();
    OK(run(nothing, NULL));
    OK(cuCtxSynchronize());
    before = seconds();
    OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    OK(cuCtxSynchronize());
    SO(seconds() - before >= 0.019);
    IS(CUDA_ERROR_INVALID_VALUE,
       cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, extra));
    return NULL;
}

static const char *an_extended_launch_takes_attributes(void)
{
    CUlaunchAttribute attributes[2] = {{.id = CU_LAUNCH_ATTRIBUTE_PRIORITY},
                                       {.id = CU_LAUNCH_ATTRIBUTE_IGNORE}};
    CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
                             .blockDimY = 1, .blockDimZ = 1, .attrs = attributes, .numAttrs = 2};

    WITH_MODULE();
    OK(cuLaunchKernelEx(&config, nothing, NULL, NULL));
    config.numAttrs = 0;
    config.attrs = NULL;
    OK(cuLaunchKernelEx(&config, nothing, NULL, NULL));
    OK(cuLaunchKernelEx_ptsz(&config, nothing, NULL, NULL));
    FAILS(cuLaunchKernelEx(NULL, nothing, NULL, NULL));
    attributes[0].id = (CUlaunchAttributeID)9999;
    config.attrs = attributes;
    config.numAttrs = 1;
    FAILS(cuLaunchKernelEx(&config, nothing, NULL, NULL));
    OK(cuCtxSynchronize());
    return NULL;
}

static const char *a_cooperative_launch_fits_on_the_device_at_once(void)
{
    unsigned int sms = (unsigned int)attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);

    WITH_MODULE();
    if (!attribute(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH))
        return SKIP("no cooperative launches");
    OK(cuLaunchCooperativeKernel(nothing, sms, 1, 1, 32, 1, 1, 0, NULL, NULL));
    OK(cuLaunchCooperativeKernel_ptsz(nothing, sms, 1, 1, 32, 1, 1, 0, NULL, NULL));
    IS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
       cuLaunchCooperativeKernel(nothing, sms * 64, 1, 1, 1024, 1, 1, 0, NULL, NULL));
    OK(cuCtxSynchronize());
    return NULL;
}

static const char *the_launches_of_old_still_work(void)
{
    CUstream stream;

    WITH_MODULE();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuFuncSetBlockShape(nothing, 32, 1, 1));
    OK(cuParamSetSize(nothing, 0));
    OK(cuLaunch(nothing));
    OK(cuLaunchGrid(nothing, 2, 2));
    OK(cuLaunchGridAsync(nothing, 2, 2, stream));
    OK(cuCtxSynchronize());
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

struct note {
    CUstream stream;
    CUresult status, query;
    double at;
    _Atomic int calls;
};

static void take_note(void *data)
{
    struct note *note = data;

    note->at = seconds();
    note->calls++;
}

static void take_note_back(CUstream stream, CUresult status, void *data)
{
    struct note *note = data;

    note->stream = stream;
    note->status = status;
    note->calls++;
}

static const char *a_host_function_runs_between_what_is_before_and_behind_it(void)
{
    struct note note = {0};
    double before;
    CUstream stream;

    WITH_MODULE();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(run(nothing, stream));
    OK(cuStreamSynchronize(stream));
    before = seconds();
    OK(run_for(20 * MS, stream));
    OK(cuLaunchHostFunc(stream, take_note, &note));
    OK(run_for(20 * MS, stream));
    OK(cuStreamSynchronize(stream));
    SO(note.calls == 1);
    SO(note.at - before >= 0.019);
    SO(seconds() - note.at >= 0.019);
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static const char *a_callback_gets_its_stream_and_status(void)
{
    struct note note = {.status = CUDA_ERROR_UNKNOWN};
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamAddCallback(stream, take_note_back, &note, 0));
    OK(cuStreamSynchronize(stream));
    SO(note.calls == 1 && note.status == CUDA_SUCCESS && note.stream == stream);
    FAILS(cuStreamAddCallback(stream, take_note_back, &note, 1));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static const struct check checks[] = {
    CHECK(garbage_is_no_module),
    CHECK(names_are_found_in_a_module_or_not),
    CHECK(a_global_variable_holds_what_is_copied_to_it),
    CHECK(a_function_knows_its_module_and_its_attributes),
    CHECK(a_library_becomes_a_module_of_the_current_context),
    CHECK(a_launch_returns_before_its_kernel_is_done),
    CHECK(a_launch_has_a_shape_the_device_can_run),
    CHECK(parameters_come_as_a_list_or_as_a_buffer),
    CHECK(an_extended_launch_takes_attributes),
    CHECK(a_cooperative_launch_fits_on_the_device_at_once),
    CHECK(the_launches_of_old_still_work),
    CHECK(a_host_function_runs_between_what_is_before_and_behind_it),
    CHECK(a_callback_gets_its_stream_and_status),
};

CONFORMANCE(checks)
