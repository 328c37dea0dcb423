/* gate_fixture.h links: lib/compute/gate.c lib/compute/terms.c lib/program/capture.c lib/hooks/execution/captures.c lib/hooks/execution/launch.c lib/hooks/execution/launch_old.c lib/hooks/execution/streams.c lib/compute/samples.c lib/compute/bucket.c lib/compute/estimate.c lib/compute/correction.c lib/compute/compute.c lib/compute/horizon.c lib/compute/settle.c lib/base/clock.c lib/base/reset.c */
#include "gate_fixture.h"

/* ---- Without a limit ------------------------------------------------------------------------- */

static void nothing_is_done_without_a_limit(void)
{
    static const enum hami_mode modes[] = {HAMI_MODE_FREE, HAMI_MODE_UNKNOWN};

    for (size_t i = 0; i < 2; i++) {
        begin(50);
        late_mode = HAMI_MODE_UNKNOWN;
        atomic_store(&hami_process->mode, modes[i]);
        EXPECT(kernel(STREAM) == CUDA_SUCCESS && cuGraphLaunch(EXEC, STREAM) == CUDA_SUCCESS);
        EXPECT(driver.launches == 2 && graphs_before == 0);
        EXPECT(event_calls() == 0 && charged(0) == 0);
    }
    for (int with = 0; with < 5; with++) {
        begin(with == 0 ? 0 : with == 1 ? 100 : 50);
        if (with == 2)
            change_limits(50, HAMI_POLICY_DISABLE, 1);
        if (with == 3)
            strcpy(atomic_load(&limits)->devices[0].uuid, "MIG-0");
        if (with == 4)
            current_row = HAMI_ROW_NONE;
        EXPECT(kernel(STREAM) == CUDA_SUCCESS && cuGraphLaunch(EXEC, STREAM) == CUDA_SUCCESS);
        EXPECT(driver.launches == 2 && graphs_before == 1 && graphs_after == 1);
        EXPECT(event_calls() == 0 && charged(0) == 0);
    }
}

static void nothing_starts_where_limits_cannot_be_read(void)
{
    CUlaunchConfig config = {.gridDimX = 1};
    CUDA_LAUNCH_PARAMS several[HAMI_MAX_DEVICES + 1] = {{.function = FUNCTION}};

    begin(50);
    atomic_store(&hami_process->mode, HAMI_MODE_CLOSED);
    EXPECT(kernel(STREAM) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuLaunchKernelEx(&config, FUNCTION, NULL, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
    for (unsigned int count = 1; count <= HAMI_MAX_DEVICES + 1; count++)
        EXPECT(cuLaunchCooperativeKernelMultiDevice(several, count, 0) ==
               CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuLaunch(FUNCTION) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuGraphLaunch(EXEC, STREAM) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(driver.launches == 0);
}

/* ---- What is charged and measured ------------------------------------------------------------ */

#define KERNEL_OF(stream) FUNCTION, 1, 2, 3, 4, 5, 6, 7, (stream), (void **)8

static void launch_by(int way)
{
    CUlaunchConfig config = {.gridDimX = 1, .hStream = STREAM};
    CUDA_LAUNCH_PARAMS several[2] = {{.function = FUNCTION, .hStream = STREAM},
                                     {.function = FUNCTION, .hStream = STREAM}};

    switch (way) {
    case 0: cuLaunchKernel(KERNEL_OF(STREAM), (void **)9); break;
    case 1: cuLaunchKernel_ptsz(KERNEL_OF(NULL), (void **)9); break;
    case 2: cuLaunchKernelEx(&config, FUNCTION, NULL, NULL); break;
    case 3: cuLaunchKernelEx_ptsz(&config, FUNCTION, NULL, NULL); break;
    case 4: cuLaunchCooperativeKernel(KERNEL_OF(STREAM)); break;
    case 5: cuLaunchCooperativeKernel_ptsz(KERNEL_OF(STREAM)); break;
    case 6: cuLaunch(FUNCTION); break;
    case 7: cuLaunchGrid(FUNCTION, 3, 4); break;
    case 8: cuLaunchGridAsync(FUNCTION, 3, 4, STREAM); break;
    case 9: cuGraphLaunch(EXEC, STREAM); break;
    case 10: cuGraphLaunch_ptsz(EXEC, STREAM); break;
    default: cuLaunchCooperativeKernelMultiDevice(several, 2, 0); break;
    }
}

static void every_way_to_launch_is_charged(void)
{
    for (int way = 0; way < WAYS; way++) {
        bool per_thread = way == 1 || way == 3 || way == 5 || way == 10;

        begin(50);
        driver.running = true;
        launch_by(way);
        EXPECT(driver.launches == 1);
        EXPECT(charged(way == ON_SEVERAL ? ordinal_row : 0) > 0);
        EXPECT(driver.per_thread_records == (per_thread ? 2 : 0));
        EXPECT(driver.records == (per_thread ? 0 : way == ON_SEVERAL ? 4 : 2));
        EXPECT(driver.unsafe == 0 && mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
    }
}

static void a_refused_launch_is_given_back(void)
{
    begin(50);
    driver.answer = CUDA_ERROR_INVALID_VALUE;
    EXPECT(kernel(STREAM) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(charged(0) <= HAMI_LEASE);
    EXPECT(driver.records == 1); /* the start alone */
    driver.answer = CUDA_SUCCESS;
    for (int i = 0; i < 100; i++)
        EXPECT(kernel(STREAM) == CUDA_SUCCESS);
    driver.answer = CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < 1000; i++)
        EXPECT(kernel(STREAM) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(charged(0) < 100 * 20000 + HAMI_LEASE);
    graph_memory = CUDA_ERROR_OUT_OF_MEMORY;
    EXPECT(cuGraphLaunch(EXEC, STREAM) == CUDA_ERROR_OUT_OF_MEMORY && graphs_after == 0);
}

static void measurements_are_few(void)
{
    begin(50);
    for (int i = 0; i < 20000; i++)
        EXPECT(kernel(STREAM) == CUDA_SUCCESS);
    EXPECT(driver.elapsed >= 2 && driver.records <= 2 * 20000 / 40);
    EXPECT(driver.unsafe == 0);
    EXPECT(charged(0) > 20000 * 5000 && charged(0) < 20000 * 15000);
}

/* Whatever else a launch asks for: what is not measured is not known. */
static void kernels_with_attributes_are_measured(void)
{
    static const CUlaunchAttributeID ids[] = {CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                              CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT,
                                              CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
                                              CU_LAUNCH_ATTRIBUTE_PRIORITY};

    for (size_t i = 0; i < 4; i++) {
        CUlaunchAttribute attributes[2] = {{.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE}, {.id = ids[i]}};
        CUlaunchConfig config = {
            .gridDimX = 1, .hStream = STREAM, .attrs = attributes, .numAttrs = 2};

        begin(50);
        driver.milliseconds = 3;
        for (int n = 0; n < 10; n++)
            EXPECT(cuLaunchKernelEx(&config, FUNCTION, NULL, NULL) == CUDA_SUCCESS);
        EXPECT(driver.records >= 4 && charged(0) > 20 * MS);
    }
    EXPECT(cuLaunchKernelEx(NULL, FUNCTION, NULL, NULL) == CUDA_SUCCESS);
}

static void errno_is_the_programs_own(void)
{
    begin(10);
    driver.milliseconds = 3;
    for (int i = 0; i < 30; i++) {
        errno = 4711;
        EXPECT(kernel(STREAM) == CUDA_SUCCESS && errno == 4711);
    }
}

int main(void)
{
    nothing_is_done_without_a_limit();
    nothing_starts_where_limits_cannot_be_read();
    every_way_to_launch_is_charged();
    a_refused_launch_is_given_back();
    measurements_are_few();
    kernels_with_attributes_are_measured();
    errno_is_the_programs_own();
    return failures != 0;
}
