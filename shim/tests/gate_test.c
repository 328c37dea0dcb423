/* links: lib/compute/gate.c lib/program/capture.c lib/hooks/work/launch.c lib/hooks/work/launch_old.c lib/hooks/work/streams.c lib/compute/samples.c lib/compute/bucket.c lib/compute/estimate.c lib/compute/correction.c lib/compute/compute.c lib/compute/horizon.c lib/compute/settle.c lib/base/clock.c */
/* Launches on their way to the driver: what is asked of it around them, and when they wait. */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/account.h"
#include "base/clock.h"
#include "expect.h"
#include "compute/gate.h"
#include "memory/graphs.h"
#include "hooks/work/launch.h"
#include "base/log.h"
#include "driver/real.h"

#define MS HAMI_MILLISECOND
#define FUNCTION ((CUfunction)0x1110)
#define EXEC ((CUgraphExec)0x2220)
#define STREAM ((CUstream)0x5550)
#define CONTEXT ((CUcontext)0x7770)

/* ---- A process with a slice of two devices --------------------------------------------------- */

struct hami_process hami_process[1];
static struct hami_limits_page page; /* of which the gate reads the revision and the observations */
static struct hami_limits revisions[256]; /* each is left alone once it is in force */
static struct hami_limits *_Atomic limits = revisions;
static struct hami_usage usage;
static _Atomic bool monitored;
static int current_row, ordinal_row = 1;
static enum hami_mode late_mode;

const struct hami_limits *hami_limits(void)
{
    return atomic_load(&limits);
}

const struct hami_observed *hami_observed(void)
{
    return atomic_load(&monitored) ? &page.observed : NULL;
}

enum hami_mode hami_attach_late(void)
{
    return late_mode;
}

CUresult hami_current_row(int *row)
{
    *row = current_row;
    return current_row < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

int hami_row_of_ordinal(CUdevice ordinal)
{
    return ordinal == 7 ? ordinal_row : HAMI_ROW_NONE;
}

int hami_row_count(void)
{
    return 2;
}

void hami_log(enum hami_level level, const char *format, ...)
{
    (void)level;
    (void)format;
}

static _Atomic int graphs_before, graphs_after;
static CUresult graph_memory;

CUresult hami_graph_before_launch(struct hami_graph_launch *launch, CUgraphExec exec,
                                  CUstream stream, bool per_thread)
{
    (void)launch;
    (void)exec;
    (void)stream;
    (void)per_thread;
    graphs_before++;
    return graph_memory;
}

void hami_graph_after_launch(struct hami_graph_launch *launch, CUresult result)
{
    (void)launch;
    (void)result;
    graphs_after++;
}

/* ---- A driver that writes down what it is asked ---------------------------------------------- */

static struct {
    _Atomic int launches, records, per_thread_records, queries, elapsed, created, destroyed;
    _Atomic int unsafe; /* event calls outside of relaxed mode */
    CUresult answer;    /* of launches */
    float milliseconds; /* that they take */
    bool running;       /* and do not end */
    CUstream capturing;
    bool implicit; /* the legacy stream must not be asked while it captures */
    CUresult begin, end;
} driver;
static _Thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static void event_call(_Atomic int *count)
{
    atomic_fetch_add(count, 1);
    if (mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        atomic_fetch_add(&driver.unsafe, 1);
}

static CUresult exchange(CUstreamCaptureMode *other)
{
    CUstreamCaptureMode before = mode;

    mode = *other;
    *other = before;
    return CUDA_SUCCESS;
}

static CUresult current_context(CUcontext *context)
{
    *context = CONTEXT;
    return CUDA_SUCCESS;
}

static CUresult stream_context(CUstream stream, CUcontext *context)
{
    (void)stream;
    return current_context(context);
}

static CUresult context_device(CUdevice *device)
{
    *device = 7;
    return CUDA_SUCCESS;
}

static CUresult push(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

static CUresult create(CUevent *event, unsigned int flags)
{
    EXPECT(flags == CU_EVENT_DEFAULT); /* which can be timed */
    event_call(&driver.created);
    *event = (CUevent)(uintptr_t)(0x9000 + 16 * driver.created);
    return CUDA_SUCCESS;
}

static CUresult destroy(CUevent event)
{
    (void)event;
    event_call(&driver.destroyed);
    return CUDA_SUCCESS;
}

static CUresult record(CUevent event, CUstream stream)
{
    (void)event;
    EXPECT(stream != driver.capturing || !stream);
    event_call(&driver.records);
    return CUDA_SUCCESS;
}

static CUresult record_per_thread(CUevent event, CUstream stream)
{
    (void)event;
    (void)stream;
    event_call(&driver.per_thread_records);
    return CUDA_SUCCESS;
}

static CUresult query(CUevent event)
{
    (void)event;
    event_call(&driver.queries);
    return driver.running ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult elapsed(float *milliseconds, CUevent start, CUevent end)
{
    (void)start;
    (void)end;
    event_call(&driver.elapsed);
    *milliseconds = driver.milliseconds;
    return CUDA_SUCCESS;
}

static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    *status = driver.capturing && stream == driver.capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                             : CU_STREAM_CAPTURE_STATUS_NONE;
    return !stream && driver.implicit ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

static CUresult begin_capture(CUstream stream, CUstreamCaptureMode of)
{
    (void)of;
    if (driver.begin == CUDA_SUCCESS)
        driver.capturing = stream;
    return driver.begin;
}

static CUresult end_capture(CUstream stream, CUgraph *graph)
{
    (void)graph;
    if (driver.end == CUDA_SUCCESS && stream == driver.capturing)
        driver.capturing = NULL;
    return driver.end;
}

static CUresult destroy_stream(CUstream stream)
{
    if (stream == driver.capturing)
        driver.capturing = NULL;
    return CUDA_SUCCESS;
}

static CUresult launch(void)
{
    EXPECT(mode == CU_STREAM_CAPTURE_MODE_GLOBAL); /* the program's own */
    atomic_fetch_add(&driver.launches, 1);
    return driver.answer;
}

static CUresult launch_kernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                              unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                              unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                              void **parameters, void **extra)
{
    EXPECT(function == FUNCTION && grid_x == 1 && grid_y == 2 && grid_z == 3 && block_x == 4 &&
           block_y == 5 && block_z == 6 && shared_bytes == 7 && parameters == (void **)8 &&
           extra == (void **)9);
    (void)stream;
    return launch();
}

static CUresult launch_cooperative(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes,
                                   CUstream stream, void **parameters)
{
    return launch_kernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                         stream, parameters, (void **)9);
}

static CUresult launch_ex(const CUlaunchConfig *config, CUfunction function, void **parameters,
                          void **extra)
{
    (void)config;
    (void)function;
    (void)parameters;
    (void)extra;
    return launch();
}

static CUresult launch_one(CUfunction function)
{
    (void)function;
    return launch();
}

static CUresult launch_grid(CUfunction function, int x, int y)
{
    (void)x;
    (void)y;
    return launch_one(function);
}

static CUresult launch_grid_async(CUfunction function, int x, int y, CUstream stream)
{
    (void)stream;
    return launch_grid(function, x, y);
}

static CUresult launch_several(CUDA_LAUNCH_PARAMS *launches, unsigned int count, unsigned int flags)
{
    (void)launches;
    (void)count;
    (void)flags;
    return launch();
}

static CUresult launch_graph(CUgraphExec exec, CUstream stream)
{
    EXPECT(exec == EXEC);
    (void)stream;
    return launch();
}

static const struct hami_real real = {
    .cuThreadExchangeStreamCaptureMode = exchange,
    .cuCtxGetCurrent = current_context,
    .cuCtxGetDevice = context_device,
    .cuCtxPushCurrent_v2 = push,
    .cuCtxPopCurrent_v2 = current_context,
    .cuStreamGetCtx = stream_context,
    .cuEventCreate = create,
    .cuEventDestroy_v2 = destroy,
    .cuEventRecord = record,
    .cuEventRecord_ptsz = record_per_thread,
    .cuEventQuery = query,
    .cuEventElapsedTime = elapsed,
    .cuStreamIsCapturing = is_capturing,
    .cuStreamIsCapturing_ptsz = is_capturing,
    .cuStreamBeginCapture_v2 = begin_capture,
    .cuStreamEndCapture = end_capture,
    .cuStreamDestroy_v2 = destroy_stream,
    .cuLaunchKernel = launch_kernel,
    .cuLaunchKernel_ptsz = launch_kernel,
    .cuLaunchKernelEx = launch_ex,
    .cuLaunchKernelEx_ptsz = launch_ex,
    .cuLaunchCooperativeKernel = launch_cooperative,
    .cuLaunchCooperativeKernel_ptsz = launch_cooperative,
    .cuLaunchCooperativeKernelMultiDevice = launch_several,
    .cuLaunch = launch_one,
    .cuLaunchGrid = launch_grid,
    .cuLaunchGridAsync = launch_grid_async,
    .cuGraphLaunch = launch_graph,
    .cuGraphLaunch_ptsz = launch_graph,
};
const struct hami_real *_Atomic hami_real_found = &real;

const struct hami_real *hami_real_load(void)
{
    return &real;
}

/* ---- Beginning anew -------------------------------------------------------------------------- */

static void change_limits(uint32_t cores, uint32_t policy, uint32_t priority)
{
    struct hami_limits *before = atomic_load(&limits);
    struct hami_limits *next = before + 1;

    next->revision = before->revision + 1;
    next->device_count = 2;
    next->policy = policy;
    next->priority = priority;
    next->devices[0].cores = cores;
    next->devices[1].cores = cores;
    strcpy(next->devices[0].uuid, "GPU-0");
    strcpy(next->devices[1].uuid, "GPU-1");
    atomic_store(&limits, next);
    __atomic_store_n(&page.copies[0].words[0], next->revision, __ATOMIC_RELAXED);
}

static void begin(uint32_t cores)
{
    memset((void *)&driver, 0, sizeof(driver));
    memset((void *)&usage, 0, sizeof(usage));
    memset((void *)&page.observed, 0, sizeof(page.observed));
    driver.milliseconds = 0.01f;
    atomic_store(&monitored, false);
    current_row = 0;
    graphs_before = graphs_after = 0;
    graph_memory = CUDA_SUCCESS;
    hami_process->page = &page;
    hami_process->usage = &usage;
    atomic_store(&hami_process->mode, HAMI_MODE_SLICE);
    change_limits(cores, HAMI_POLICY_FORCE, 0);
    hami_launch_reset();
}

static CUresult kernel(CUstream stream)
{
    return cuLaunchKernel(FUNCTION, 1, 2, 3, 4, 5, 6, 7, stream, (void **)8, (void **)9);
}

static int event_calls(void)
{
    return driver.records + driver.per_thread_records + driver.queries + driver.elapsed +
           driver.created + driver.destroyed;
}

static int64_t charged(int row)
{
    return (int64_t)usage.buckets[row].charged;
}

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

enum { WAYS = 12, ON_SEVERAL = 11 };

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

/* ---- Captures -------------------------------------------------------------------------------- */

static void a_capture_is_left_alone(void)
{
    CUgraph graph;

    begin(50);
    EXPECT(cuStreamBeginCapture_v2(STREAM, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    for (int i = 0; i < 100; i++)
        EXPECT(kernel(STREAM) == CUDA_SUCCESS);
    EXPECT(cuGraphLaunch(EXEC, STREAM) == CUDA_SUCCESS);
    EXPECT(event_calls() == 0 && charged(0) == 0);
    driver.implicit = true;
    EXPECT(kernel(NULL) == CUDA_SUCCESS);
    EXPECT(event_calls() == 0 && charged(0) == 0);
    /* Beside it, life goes on. */
    EXPECT(kernel((CUstream)0x6660) == CUDA_SUCCESS);
    EXPECT(driver.records == 2 && charged(0) > 0);
    /* An end that fails and ends nothing. */
    driver.end = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    EXPECT(cuStreamEndCapture(STREAM, &graph) == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    EXPECT(hami_capturing(STREAM, false) && hami_captures_open == 1);
    driver.end = CUDA_SUCCESS;
    EXPECT(cuStreamEndCapture(STREAM, &graph) == CUDA_SUCCESS);
    EXPECT(!hami_capturing(STREAM, false) && hami_captures_open == 0);
    EXPECT(driver.unsafe == 0);
}

static void captures_are_counted_right(void)
{
    CUgraph graph;

    begin(50);
    driver.begin = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    EXPECT(cuStreamBeginCapture_v2(NULL, 0) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT(hami_captures_open == 0);
    driver.begin = CUDA_SUCCESS;
    EXPECT(cuStreamBeginCapture_v2(STREAM, 0) == CUDA_SUCCESS && hami_captures_open == 1);
    /* The end of nothing does not end what is open. */
    driver.end = CUDA_ERROR_ILLEGAL_STATE;
    EXPECT(cuStreamEndCapture((CUstream)0x6660, &graph) == CUDA_ERROR_ILLEGAL_STATE);
    EXPECT(hami_captures_open == 1);
    /* An end that fails and ends it all the same. */
    driver.end = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    driver.capturing = NULL;
    EXPECT(cuStreamEndCapture(STREAM, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT(hami_captures_open == 0);
    driver.end = CUDA_SUCCESS;
    EXPECT(cuStreamBeginCapture_v2(STREAM, 0) == CUDA_SUCCESS && hami_captures_open == 1);
    EXPECT(cuStreamDestroy_v2(STREAM) == CUDA_SUCCESS && hami_captures_open == 0);
    for (int i = 0; i < 200; i++)
        EXPECT(cuStreamBeginCapture_v2((CUstream)(uintptr_t)(0x10000 + 16 * i), 0) == CUDA_SUCCESS);
    for (int i = 0; i < 200; i++)
        EXPECT(cuStreamEndCapture((CUstream)(uintptr_t)(0x10000 + 16 * i), &graph) == CUDA_SUCCESS);
    EXPECT(hami_captures_open > 0); /* more at once than anyone has: asked for ever after */
}

/* ---- Waiting --------------------------------------------------------------------------------- */

static _Atomic bool returned;

static void *launch_waiting(void *argument)
{
    (void)argument;
    EXPECT(kernel(STREAM) == CUDA_SUCCESS);
    atomic_store(&returned, true);
    return NULL;
}

static int64_t until_returned(int64_t longest)
{
    int64_t from = hami_now();

    while (!atomic_load(&returned) && hami_now() - from < longest)
        hami_sleep(MS / 2);
    return hami_now() - from;
}

/* A thread that waits for its turn; `change` lets it go. */
static void a_wait_ends_by(void (*change)(void))
{
    pthread_t thread;

    atomic_store(&returned, false);
    pthread_create(&thread, NULL, launch_waiting, NULL);
    EXPECT(until_returned(60 * MS) >= 60 * MS); /* it does wait */
    change();
    EXPECT(until_returned(2 * HAMI_SECOND) < HAMI_SECOND); /* else it would be many seconds */
    pthread_join(thread, NULL);
}

static void lift(void)
{
    change_limits(0, HAMI_POLICY_FORCE, 0);
}

static void disable(void)
{
    change_limits(1, HAMI_POLICY_DISABLE, 1);
}

static void leave_the_device_alone(void)
{
    page.observed.devices[0].contention = 0;
}

static void lose_the_monitor(void)
{
    atomic_store(&monitored, false);
}

static void waits_end_when_their_reason_does(void)
{
    begin(1);
    usage.buckets[0].refilled_at = (uint64_t)hami_now();
    usage.buckets[0].level = -HAMI_BUCKET_DEBT;
    a_wait_ends_by(lift);

    begin(1);
    usage.buckets[0].refilled_at = (uint64_t)hami_now();
    usage.buckets[0].level = -HAMI_BUCKET_DEBT;
    a_wait_ends_by(disable);

    /* By the default policy the device must be shared; alone on it, a slice waits for nobody. */
    begin(1);
    change_limits(1, HAMI_POLICY_DEFAULT, 0);
    atomic_store(&monitored, true);
    page.observed.devices[0].contention = HAMI_CONTENTION_OTHERS;
    usage.buckets[0].refilled_at = (uint64_t)hami_now();
    usage.buckets[0].level = -HAMI_BUCKET_DEBT;
    a_wait_ends_by(leave_the_device_alone);

    /* Priority, with a compute limit and without one. */
    for (uint32_t cores = 0; cores < 100; cores += 50) {
        begin(cores);
        change_limits(cores, HAMI_POLICY_DEFAULT, 1);
        atomic_store(&monitored, true);
        page.observed.devices[0].contention = HAMI_CONTENTION_OTHERS | HAMI_CONTENTION_HIGHER;
        a_wait_ends_by(leave_the_device_alone);
        page.observed.devices[0].contention = HAMI_CONTENTION_OTHERS | HAMI_CONTENTION_HIGHER;
        a_wait_ends_by(lose_the_monitor);
    }
    begin(0);
    atomic_store(&monitored, true);
    page.observed.devices[0].contention = HAMI_CONTENTION_HIGHER;
    EXPECT(kernel(STREAM) == CUDA_SUCCESS); /* of priority 0 itself */
}

/* A kernel that runs for ever, because it waits for one that comes after it, must not be waited
 * for. */
static void nobody_waits_for_the_end_of_work(void)
{
    int64_t from;

    begin(20);
    driver.running = true;
    from = hami_now();
    for (int i = 0; i < 6; i++)
        EXPECT(kernel((CUstream)(uintptr_t)(0x6000 + 16 * i)) == CUDA_SUCCESS);
    EXPECT(hami_now() - from < 5 * HAMI_SECOND && driver.launches == 6);
}

/* ---- What goes ------------------------------------------------------------------------------- */

static void events_go_with_their_context(void)
{
    int created, destroyed;

    begin(50);
    driver.running = true;
    EXPECT(kernel(STREAM) == CUDA_SUCCESS && kernel(STREAM) == CUDA_SUCCESS);
    created = driver.created;
    destroyed = driver.destroyed;
    EXPECT(created == 4 && destroyed == 0);
    hami_launch_forget_context(CONTEXT);
    EXPECT(driver.destroyed == 0); /* the driver did */
    driver.running = false;
    driver.queries = driver.elapsed = 0;
    EXPECT(kernel(STREAM) == CUDA_SUCCESS);
    EXPECT(driver.created == created + 2);
    EXPECT(driver.elapsed == 1); /* of the new one */
}

static void a_forked_child_begins_anew(void)
{
    pid_t child;
    int status;

    begin(50);
    for (int i = 0; i < 10; i++)
        EXPECT(kernel(STREAM) == CUDA_SUCCESS);
    EXPECT(cuStreamBeginCapture_v2(STREAM, 0) == CUDA_SUCCESS);
    child = fork();
    if (child == 0) {
        driver.capturing = NULL;
        hami_launch_reset();
        driver.created = 0;
        if (kernel(STREAM) != CUDA_SUCCESS || driver.created != 2 || hami_captures_open != 0)
            _exit(1);
        _exit(failures != 0);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    EXPECT(hami_captures_open == 1);
}

/* ---- Threads --------------------------------------------------------------------------------- */

static void *launch_many(void *argument)
{
    CUgraph graph;
    CUstream own = (CUstream)(uintptr_t)(0x6000 + 16 * (uintptr_t)argument);

    for (int i = 0; i < 5000; i++) {
        EXPECT(kernel(i % 3 ? own : STREAM) == CUDA_SUCCESS);
        if (i % 500 == 0)
            cuStreamDestroy_v2(own);
        if (i % 700 == 0)
            hami_launch_forget_module();
        if (i % 900 == 0)
            hami_launch_forget_context(CONTEXT);
        if (i % 100 == 0) {
            hami_launch_forget_exec(EXEC);
            EXPECT(cuGraphLaunch(EXEC, own) == CUDA_SUCCESS);
        }
        if (i % 400 == 0)
            EXPECT(cuStreamEndCapture((CUstream)0x8880, &graph) == CUDA_SUCCESS);
    }
    return NULL;
}

static void threads_launch_side_by_side(void)
{
    pthread_t threads[4];

    begin(90);
    driver.milliseconds = 0.001f;
    for (uintptr_t i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, launch_many, (void *)i);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    EXPECT(driver.unsafe == 0 && driver.launches == 4 * 5050);
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
    a_capture_is_left_alone();
    captures_are_counted_right();
    waits_end_when_their_reason_does();
    nobody_waits_for_the_end_of_work();
    events_go_with_their_context();
    a_forked_child_begins_anew();
    threads_launch_side_by_side();
    return failures != 0;
}
