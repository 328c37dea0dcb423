/* Contexts, modules, streams, events and launches. Captures and graphs are in graphs.c. */
#include <pthread.h>
#include <time.h>

#include "check.h"
#include "module.h"

#define MS UINT64_C(1000000)

static CUmodule module;
static CUfunction nothing, spin;

static const char *with_module(void)
{
    if (module)
        return NULL;
    OK(load_test_module(&module));
    OK(cuModuleGetFunction(&nothing, module, "nothing"));
    OK(cuModuleGetFunction(&spin, module, "spin_dynamic"));
    return NULL;
}

#define WITH_MODULE()                                                                              \
    do {                                                                                           \
        const char *missing_ = with_module();                                                      \
        if (missing_)                                                                              \
            return missing_;                                                                       \
    } while (0)

static CUresult run(CUfunction function, CUstream stream)
{
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

static CUresult run_for(uint64_t ns, CUstream stream)
{
    void *parameters[] = {&ns};

    return cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- Errors and the driver ---- */

static const char *results_have_names_and_descriptions(void)
{
    const char *text = NULL;

    OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
    SO(strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
    OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    SO(strcmp(text, "out of memory") == 0);
    IS(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)12345, &text));
    SO(text == NULL);
    return NULL;
}

static const char *init_takes_no_flags_and_may_be_called_again(void)
{
    IS(CUDA_ERROR_INVALID_VALUE, cuInit(1));
    OK(cuInit(0));
    return NULL;
}

static const char *the_driver_has_a_version(void)
{
    int version = 0;

    OK(cuDriverGetVersion(&version));
    SO(version >= 11000 && version % 10 == 0);
    IS(CUDA_ERROR_INVALID_VALUE, cuDriverGetVersion(NULL));
    return NULL;
}

/* ---- cuGetProcAddress ---- */

static const char *an_address_depends_on_the_version_asked_for(void)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    void *old = NULL, *new = NULL, *stream = NULL;

    OK(cuGetProcAddress_v2("cuMemAlloc", &old, 2000, 0, &status));
    SO(status == CU_GET_PROC_ADDRESS_SUCCESS && old != NULL);
    OK(cuGetProcAddress_v2("cuMemAlloc", &new, 12000, 0, &status));
    SO(new != NULL && new != old);
    OK(cuGetProcAddress_v2("cuLaunchKernel", &old, 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                           &status));
    OK(cuGetProcAddress_v2("cuLaunchKernel", &stream, 12000,
                           CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
    SO(old != NULL && stream != NULL && old != stream);
    OK(cuGetProcAddress_v2("cuLaunchKernel", &stream, 12000, 0, NULL));
    SO(stream == old);
    return NULL;
}

static const char *a_name_without_per_thread_form_has_one_address(void)
{
    void *one = NULL, *other = NULL;

    OK(cuGetProcAddress_v2("cuMemAlloc", &one, 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, NULL));
    OK(cuGetProcAddress_v2("cuMemAlloc", &other, 12000,
                           CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
    SO(one == other && one != NULL);
    return NULL;
}

static const char *an_address_says_why_it_is_not_there(void)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    void *address = &status;

    (void)cuGetProcAddress_v2("cuNoSuchFunction", &address, 12000, 0, &status);
    SO(address == NULL && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    address = &status;
    (void)cuGetProcAddress_v2("cuMemCreate", &address, 10000, 0, &status);
    SO(address == NULL && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    IS(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2(NULL, &address, 12000, 0, NULL));
    IS(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2("cuInit", NULL, 12000, 0, NULL));
    return NULL;
}

/* ---- Devices ---- */

static const char *ordinals_go_from_zero_to_the_count(void)
{
    CUdevice found = -1;
    int count = 0;

    OK(cuDeviceGetCount(&count));
    SO(count >= 1);
    OK(cuDeviceGet(&found, count - 1));
    IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&found, count));
    IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&found, -1));
    IS(CUDA_ERROR_INVALID_VALUE, cuDeviceGet(NULL, 0));
    return NULL;
}

static const char *a_device_is_found_by_its_bus_id(void)
{
    char id[32], name[8];
    CUdevice found = -1;

    OK(cuDeviceGetPCIBusId(id, sizeof(id), device));
    SO(strlen(id) == 12);
    OK(cuDeviceGetByPCIBusId(&found, id));
    SO(found == device);
    OK(cuDeviceGetByPCIBusId(&found, id + 5));
    FAILS(cuDeviceGetByPCIBusId(&found, "ffff:ff:1f.0"));
    OK(cuDeviceGetName(name, sizeof(name), device));
    SO(strlen(name) <= 7);
    return NULL;
}

static const char *a_device_describes_itself(void)
{
    CUuuid one, two;
    int value = 0;

    OK(cuDeviceGetUuid_v2(&one, device));
    OK(cuDeviceGetUuid(&two, device));
    SO(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) > 0);
    SO(attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE) == 32);
    SO(attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK) == 1024);
    SO(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) >= 6);
    SO(attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING) == 1);
    IS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&value, (CUdevice_attribute)9999, device));
    IS(CUDA_ERROR_INVALID_DEVICE,
       cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 99));
    return NULL;
}

/* ---- Contexts ---- */

static const char *a_new_context_is_current_and_destroyed_with_its_handle(void)
{
    CUcontext context, current = NULL;
    CUdevice where = -1;

    OK(cuCtxCreate_v2(&context, 0, device));
    OK(cuCtxGetCurrent(&current));
    SO(current == context);
    OK(cuCtxGetDevice(&where));
    SO(where == device);
    OK(cuCtxDestroy_v2(context));
    OK(cuCtxGetCurrent(&current));
    SO(current == primary);
    return NULL;
}

static const char *contexts_are_a_stack(void)
{
    CUcontext one, two, popped = NULL, current = NULL;

    OK(cuCtxCreate_v2(&one, 0, device));
    OK(cuCtxCreate_v2(&two, 0, device));
    OK(cuCtxPushCurrent_v2(one));
    OK(cuCtxPopCurrent_v2(&popped));
    SO(popped == one);
    OK(cuCtxGetCurrent(&current));
    SO(current == two);
    OK(cuCtxDestroy_v2(two));
    OK(cuCtxGetCurrent(&current));
    SO(current == one);
    OK(cuCtxDestroy_v2(one));
    return NULL;
}

static const char *nothing_works_without_a_context(void)
{
    CUcontext current = primary;
    CUstream stream;
    CUevent event;
    CUdevice where;

    OK(cuCtxSetCurrent(NULL));
    OK(cuCtxGetCurrent(&current));
    SO(current == NULL);
    IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&where));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());
    IS(CUDA_ERROR_INVALID_CONTEXT, cuStreamCreate(&stream, 0));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuEventCreate(&event, 0));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(&current));
    return NULL;
}

static const char *contexts_have_a_version_an_id_and_flags(void)
{
    unsigned int version = 0, flags = 0;
    unsigned long long one = 0, two = 0;
    CUcontext context;

    OK(cuCtxCreate_v2(&context, CU_CTX_SCHED_BLOCKING_SYNC, device));
    OK(cuCtxGetApiVersion(context, &version));
    SO(version >= 3020);
    OK(cuCtxGetId(context, &one));
    OK(cuCtxGetId(primary, &two));
    SO(one != two);
    OK(cuCtxGetFlags(&flags));
    SO((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC);
    OK(cuCtxDestroy_v2(context));
    FAILS(cuCtxCreate_v2(&context, 0x10000, device));
    FAILS(cuCtxCreate_v2(&context, CU_CTX_SCHED_SPIN | CU_CTX_SCHED_YIELD, device));
    IS(CUDA_ERROR_INVALID_DEVICE, cuCtxCreate_v2(&context, 0, 99));
    return NULL;
}

static const char *attaching_keeps_a_context_until_it_is_detached(void)
{
    CUcontext context, attached = NULL, current = NULL;

    OK(cuCtxCreate_v2(&context, 0, device));
    OK(cuCtxAttach(&attached, 0));
    SO(attached == context);
    OK(cuCtxDetach(context));
    OK(cuCtxGetCurrent(&current));
    SO(current == context);
    OK(cuCtxDetach(context));
    OK(cuCtxGetCurrent(&current));
    SO(current != context);
    return NULL;
}

static const char *the_primary_context_is_counted(void)
{
    unsigned int flags = 0;
    CUcontext one = NULL;
    int active = 0;

    OK(cuDevicePrimaryCtxRetain(&one, device));
    SO(one == primary);
    OK(cuDevicePrimaryCtxRelease_v2(device));
    OK(cuDevicePrimaryCtxGetState(device, &flags, &active));
    SO(active == 1);
    IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(primary));
    return NULL;
}

static const char *a_reset_primary_context_is_dead_until_it_is_retained_again(void)
{
    unsigned int flags = 0;
    CUdeviceptr address;
    CUcontext again = NULL;
    int active = 1;

    OK(cuMemAlloc_v2(&address, 4096));
    OK(cuDevicePrimaryCtxReset_v2(device));
    module = NULL;
    OK(cuDevicePrimaryCtxGetState(device, &flags, &active));
    SO(active == 0);
    FAILS(cuMemAlloc_v2(&address, 4096));
    OK(cuDevicePrimaryCtxRetain(&again, device));
    SO(again == primary);
    OK(cuDevicePrimaryCtxRelease_v2(device));
    OK(cuCtxSetCurrent(again));
    OK(cuMemAlloc_v2(&address, 4096));
    OK(cuMemFree_v2(address));
    return NULL;
}

static const char *limits_can_be_read_and_set(void)
{
    size_t before = 0, after = 0;

    OK(cuCtxGetLimit(&before, CU_LIMIT_MALLOC_HEAP_SIZE));
    SO(before > 0);
    OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, before));
    OK(cuCtxGetLimit(&after, CU_LIMIT_MALLOC_HEAP_SIZE));
    SO(after == before);
    FAILS(cuCtxGetLimit(&after, (CUlimit)99));
    return NULL;
}

static void *in_another_thread(void *answer)
{
    CUcontext current = primary;

    *(CUresult *)answer = cuCtxGetCurrent(&current);
    return current;
}

static const char *each_thread_has_its_own_current_context(void)
{
    CUresult answer = CUDA_ERROR_UNKNOWN;
    pthread_t thread;
    void *current;

    SO(pthread_create(&thread, NULL, in_another_thread, &answer) == 0);
    SO(pthread_join(thread, &current) == 0);
    OK(answer);
    SO(current == NULL);
    return NULL;
}

static const char *a_green_context_gives_a_context_and_streams(void)
{
    CUdevResource all, part[1];
    CUdevResourceDesc descriptor;
    unsigned int groups = 1;
    CUgreenCtx green, of_stream = NULL;
    CUcontext context = NULL, of_stream_too = primary;
    CUstream stream;
    CUdevice where = -1;

    WITH_MODULE();
    if (cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS ||
        all.sm.smCount < 16)
        return SKIP("no multiprocessors to divide");
    OK(cuDevSmResourceSplitByCount(part, &groups, &all, NULL, 0, 8));
    SO(groups == 1 && part[0].sm.smCount >= 8 && part[0].sm.smCount < all.sm.smCount);
    OK(cuDevResourceGenerateDesc(&descriptor, part, 1));
    OK(cuGreenCtxCreate(&green, descriptor, device, CU_GREEN_CTX_DEFAULT_STREAM));
    OK(cuCtxFromGreenCtx(&context, green));
    OK(cuCtxSetCurrent(context));
    OK(cuCtxGetDevice(&where));
    SO(where == device);
    OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    OK(cuStreamGetCtx_v2(stream, &of_stream_too, &of_stream));
    SO(of_stream == green);
    OK(run(nothing, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy_v2(stream));
    OK(cuCtxSetCurrent(primary));
    OK(cuGreenCtxDestroy(green));
    return NULL;
}

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

/* ---- Streams ---- */

static const char *a_stream_tells_what_it_is(void)
{
    int least = 1, greatest = 1, priority = 99;
    unsigned int flags = 99;
    unsigned long long one = 0, two = 0;
    CUcontext context = NULL;
    CUstream stream;

    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    SO(greatest <= least);
    OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest - 1));
    OK(cuStreamGetPriority(stream, &priority));
    SO(priority == greatest);
    OK(cuStreamGetFlags(stream, &flags));
    SO(flags == CU_STREAM_NON_BLOCKING);
    OK(cuStreamGetCtx(stream, &context));
    SO(context == primary);
    OK(cuStreamGetId(stream, &one));
    OK(cuStreamGetId(NULL, &two));
    SO(one != two);
    OK(cuStreamDestroy_v2(stream));
    FAILS(cuStreamCreate(&stream, 0x80));
    return NULL;
}

static const char *a_stream_is_busy_until_its_kernel_is_done(void)
{
    CUstream stream;

    WITH_MODULE();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamQuery(stream));
    OK(run_for(30 * MS, stream));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    OK(cuStreamSynchronize(stream));
    OK(cuStreamQuery(stream));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static const char *a_destroyed_stream_finishes_its_work(void)
{
    double before = seconds();
    CUstream stream;

    WITH_MODULE();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(run_for(30 * MS, stream));
    OK(cuStreamDestroy_v2(stream));
    OK(cuCtxSynchronize());
    SO(seconds() - before >= 0.029);
    return NULL;
}

static const char *the_legacy_stream_waits_for_blocking_streams_and_they_for_it(void)
{
    CUstream blocking, other;

    WITH_MODULE();
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&other, CU_STREAM_DEFAULT));
    OK(run_for(30 * MS, blocking));
    OK(run(nothing, NULL));
    OK(run(nothing, other));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(other));
    OK(cuStreamSynchronize(other));
    OK(cuStreamQuery(blocking));
    OK(cuStreamDestroy_v2(blocking));
    OK(cuStreamDestroy_v2(other));
    return NULL;
}

static const char *non_blocking_streams_do_not_wait_for_the_legacy_stream(void)
{
    CUstream stream;

    WITH_MODULE();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(run_for(50 * MS, NULL));
    OK(run(nothing, stream));
    OK(cuStreamSynchronize(stream));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    OK(cuStreamSynchronize(NULL));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static const char *the_per_thread_stream_is_a_stream_of_its_own(void)
{
    unsigned long long legacy = 0, own = 0, by_handle = 0;

    WITH_MODULE();
    OK(cuStreamGetId(NULL, &legacy));
    OK(cuStreamGetId_ptsz(NULL, &own));
    OK(cuStreamGetId(CU_STREAM_PER_THREAD, &by_handle));
    SO(own == by_handle && own != legacy);
    OK(cuStreamGetId_ptsz(CU_STREAM_LEGACY, &by_handle));
    SO(by_handle == legacy);
    OK(cuLaunchKernel_ptsz(nothing, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(cuStreamSynchronize_ptsz(NULL));
    return NULL;
}

static const char *streams_run_beside_each_other(void)
{
    CUstream stream[4];
    double before;

    WITH_MODULE();
    for (int i = 0; i < 4; i++)
        OK(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
    OK(run(nothing, stream[0]));
    OK(cuCtxSynchronize());
    before = seconds();
    for (int i = 0; i < 4; i++)
        OK(run_for(50 * MS, stream[i]));
    OK(cuCtxSynchronize());
    SO(seconds() - before >= 0.05 && seconds() - before < 0.15);
    for (int i = 0; i < 4; i++)
        OK(cuStreamDestroy_v2(stream[i]));
    return NULL;
}

/* ---- Events ---- */

static const char *an_event_never_recorded_is_done(void)
{
    CUevent event;

    OK(cuEventCreate(&event, 0));
    OK(cuEventQuery(event));
    OK(cuEventSynchronize(event));
    OK(cuEventDestroy_v2(event));
    FAILS(cuEventCreate(&event, 0x100));
    return NULL;
}

static const char *events_measure_the_time_between_them(void)
{
    CUevent start, end;
    CUstream stream;
    float ms = 0;

    WITH_MODULE();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuEventRecord(start, stream));
    OK(run_for(20 * MS, stream));
    OK(cuEventRecord(end, stream));
    IS(CUDA_ERROR_NOT_READY, cuEventQuery(end));
    IS(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&ms, start, end));
    OK(cuEventSynchronize(end));
    OK(cuEventQuery(end));
    OK(cuEventElapsedTime(&ms, start, end));
    SO(ms >= 19.9f && ms < 30.0f);
    OK(cuEventElapsedTime(&ms, end, start));
    SO(ms <= -19.9f);
    OK(cuEventDestroy_v2(start));
    OK(cuEventDestroy_v2(end));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static const char *events_without_timing_measure_nothing(void)
{
    CUevent timed, untimed, fresh;
    float ms;

    OK(cuEventCreate(&timed, 0));
    OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&fresh, 0));
    OK(cuEventRecord(timed, NULL));
    OK(cuEventRecord(untimed, NULL));
    OK(cuCtxSynchronize());
    IS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, timed, untimed));
    IS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, timed, fresh));
    OK(cuEventDestroy_v2(timed));
    OK(cuEventDestroy_v2(untimed));
    OK(cuEventDestroy_v2(fresh));
    return NULL;
}

static const char *a_stream_waits_for_an_event_of_another(void)
{
    CUstream first, second;
    CUevent event;

    WITH_MODULE();
    OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(run_for(30 * MS, first));
    OK(cuEventRecord(event, first));
    OK(cuStreamWaitEvent(second, event, 0));
    OK(run(nothing, second));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(second));
    OK(cuStreamSynchronize(second));
    OK(cuStreamQuery(first));
    FAILS(cuStreamWaitEvent(second, event, 77));
    OK(cuEventDestroy_v2(event));
    OK(cuStreamDestroy_v2(first));
    OK(cuStreamDestroy_v2(second));
    return NULL;
}

static const char *an_event_may_be_destroyed_before_it_is_done(void)
{
    CUevent event;

    WITH_MODULE();
    OK(cuEventCreate(&event, 0));
    OK(run_for(20 * MS, NULL));
    OK(cuEventRecord(event, NULL));
    OK(cuEventDestroy_v2(event));
    OK(cuCtxSynchronize());
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

#define LAUNCHES 200

static void *launch_many(void *answer)
{
    CUstream stream;
    CUevent event;
    CUresult result = cuCtxSetCurrent(primary);

    if (result == CUDA_SUCCESS)
        result = cuStreamCreate(&stream, CU_STREAM_DEFAULT);
    if (result == CUDA_SUCCESS)
        result = cuEventCreate(&event, 0);
    for (int i = 0; i < LAUNCHES && result == CUDA_SUCCESS; i++) {
        result = run(nothing, i % 3 == 0 ? NULL : i % 3 == 1 ? stream : CU_STREAM_PER_THREAD);
        if (result == CUDA_SUCCESS)
            result = cuEventRecord(event, stream);
        if (result == CUDA_SUCCESS && cuEventQuery(event) == CUDA_ERROR_UNKNOWN)
            result = CUDA_ERROR_UNKNOWN;
    }
    if (result == CUDA_SUCCESS)
        result = cuEventSynchronize(event);
    if (result == CUDA_SUCCESS)
        result = cuEventDestroy_v2(event);
    if (result == CUDA_SUCCESS)
        result = cuStreamDestroy_v2(stream);
    *(CUresult *)answer = result;
    return NULL;
}

static const char *many_threads_launch_at_once(void)
{
    CUresult answers[8];
    pthread_t threads[8];

    WITH_MODULE();
    for (int i = 0; i < 8; i++)
        SO(pthread_create(&threads[i], NULL, launch_many, &answers[i]) == 0);
    for (int i = 0; i < 8; i++)
        SO(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < 8; i++)
        OK(answers[i]);
    OK(cuCtxSynchronize());
    return NULL;
}

/* Everything that a thread can make, made and destroyed while others do the same. */
static void *come_and_go(void *answer)
{
    CUresult result = CUDA_SUCCESS;

    for (int i = 0; i < 10 && result == CUDA_SUCCESS; i++) {
        struct note note = {0};
        CUcontext context;
        CUfunction function;
        CUlibrary library;
        CUkernel kernel;
        CUstream stream;
        CUevent event;

        result = i == 5 ? cuCtxCreate_v2(&context, 0, device) : cuCtxSetCurrent(primary);
        if (result == CUDA_SUCCESS)
            result = load_test_library(&library);
        if (result == CUDA_SUCCESS)
            result = cuLibraryGetKernel(&kernel, library, "nothing");
        if (result == CUDA_SUCCESS)
            result = cuKernelGetFunction(&function, kernel);
        if (result == CUDA_SUCCESS)
            result = cuStreamCreate(&stream, i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
        if (result == CUDA_SUCCESS)
            result = cuEventCreate(&event, 0);
        if (result == CUDA_SUCCESS)
            result = run(function, stream);
        if (result == CUDA_SUCCESS)
            result = cuLaunchHostFunc(stream, take_note, &note);
        if (result == CUDA_SUCCESS)
            result = run((CUfunction)kernel, CU_STREAM_PER_THREAD);
        if (result == CUDA_SUCCESS)
            result = cuEventRecord(event, stream);
        if (result == CUDA_SUCCESS)
            result = cuStreamWaitEvent(NULL, event, 0);
        if (result == CUDA_SUCCESS)
            result = cuEventSynchronize(event);
        if (result == CUDA_SUCCESS)
            result = note.calls == 1 ? cuEventDestroy_v2(event) : CUDA_ERROR_UNKNOWN;
        if (result == CUDA_SUCCESS)
            result = cuStreamDestroy_v2(stream);
        if (result == CUDA_SUCCESS)
            result = cuStreamSynchronize(CU_STREAM_PER_THREAD);
        if (result == CUDA_SUCCESS)
            result = cuLibraryUnload(library);
        if (result == CUDA_SUCCESS && i == 5)
            result = cuCtxDestroy_v2(context);
    }
    *(CUresult *)answer = result;
    return NULL;
}

static const char *many_threads_make_and_destroy_at_once(void)
{
    CUresult answers[4];
    pthread_t threads[4];

    for (int i = 0; i < 4; i++)
        SO(pthread_create(&threads[i], NULL, come_and_go, &answers[i]) == 0);
    for (int i = 0; i < 4; i++)
        SO(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < 4; i++)
        OK(answers[i]);
    OK(cuCtxSynchronize());
    return NULL;
}

static const struct check checks[] = {
    CHECK(results_have_names_and_descriptions),
    CHECK(init_takes_no_flags_and_may_be_called_again),
    CHECK(the_driver_has_a_version),
    CHECK(an_address_depends_on_the_version_asked_for),
    CHECK(a_name_without_per_thread_form_has_one_address),
    CHECK(an_address_says_why_it_is_not_there),
    CHECK(ordinals_go_from_zero_to_the_count),
    CHECK(a_device_is_found_by_its_bus_id),
    CHECK(a_device_describes_itself),
    CHECK(a_new_context_is_current_and_destroyed_with_its_handle),
    CHECK(contexts_are_a_stack),
    CHECK(nothing_works_without_a_context),
    CHECK(contexts_have_a_version_an_id_and_flags),
    CHECK(attaching_keeps_a_context_until_it_is_detached),
    CHECK(the_primary_context_is_counted),
    CHECK(limits_can_be_read_and_set),
    CHECK(each_thread_has_its_own_current_context),
    CHECK(a_green_context_gives_a_context_and_streams),
    CHECK(garbage_is_no_module),
    CHECK(names_are_found_in_a_module_or_not),
    CHECK(a_global_variable_holds_what_is_copied_to_it),
    CHECK(a_function_knows_its_module_and_its_attributes),
    CHECK(a_library_becomes_a_module_of_the_current_context),
    CHECK(a_stream_tells_what_it_is),
    CHECK(a_stream_is_busy_until_its_kernel_is_done),
    CHECK(a_destroyed_stream_finishes_its_work),
    CHECK(the_legacy_stream_waits_for_blocking_streams_and_they_for_it),
    CHECK(non_blocking_streams_do_not_wait_for_the_legacy_stream),
    CHECK(the_per_thread_stream_is_a_stream_of_its_own),
    CHECK(streams_run_beside_each_other),
    CHECK(an_event_never_recorded_is_done),
    CHECK(events_measure_the_time_between_them),
    CHECK(events_without_timing_measure_nothing),
    CHECK(a_stream_waits_for_an_event_of_another),
    CHECK(an_event_may_be_destroyed_before_it_is_done),
    CHECK(a_launch_returns_before_its_kernel_is_done),
    CHECK(a_launch_has_a_shape_the_device_can_run),
    CHECK(parameters_come_as_a_list_or_as_a_buffer),
    CHECK(an_extended_launch_takes_attributes),
    CHECK(a_cooperative_launch_fits_on_the_device_at_once),
    CHECK(the_launches_of_old_still_work),
    CHECK(a_host_function_runs_between_what_is_before_and_behind_it),
    CHECK(a_callback_gets_its_stream_and_status),
    CHECK(many_threads_launch_at_once),
    CHECK(many_threads_make_and_destroy_at_once),
    CHECK(a_reset_primary_context_is_dead_until_it_is_retained_again),
};

CONFORMANCE(checks)
