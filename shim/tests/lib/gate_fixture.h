/* What the tests of gate have in common. */
#ifndef HAMI_TESTS_GATE_FIXTURE_H
#define HAMI_TESTS_GATE_FIXTURE_H

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/reset.h"
#include "compute/gate.h"
#include "driver/real.h"
#include "expect.h"
#include "memory/graph_memory.h"
#include "program/capture.h"
#include "program/current.h"
#include "slice/devices.h"
#include "slice/follow.h"

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

static inline void event_call(_Atomic int *count)
{
    atomic_fetch_add(count, 1);
    if (mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        atomic_fetch_add(&driver.unsafe, 1);
}

static inline CUresult exchange(CUstreamCaptureMode *other)
{
    CUstreamCaptureMode before = mode;

    mode = *other;
    *other = before;
    return CUDA_SUCCESS;
}

static inline CUresult current_context(CUcontext *context)
{
    *context = CONTEXT;
    return CUDA_SUCCESS;
}

static inline CUresult stream_context(CUstream stream, CUcontext *context)
{
    (void)stream;
    return current_context(context);
}

static inline CUresult context_device(CUdevice *device)
{
    *device = 7;
    return CUDA_SUCCESS;
}

static inline CUresult push(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

static inline CUresult create(CUevent *event, unsigned int flags)
{
    EXPECT(flags == CU_EVENT_DEFAULT); /* which can be timed */
    event_call(&driver.created);
    *event = (CUevent)(uintptr_t)(0x9000 + 16 * driver.created);
    return CUDA_SUCCESS;
}

static inline CUresult destroy(CUevent event)
{
    (void)event;
    event_call(&driver.destroyed);
    return CUDA_SUCCESS;
}

static inline CUresult record(CUevent event, CUstream stream)
{
    (void)event;
    EXPECT(stream != driver.capturing || !stream);
    event_call(&driver.records);
    return CUDA_SUCCESS;
}

static inline CUresult record_per_thread(CUevent event, CUstream stream)
{
    (void)event;
    (void)stream;
    event_call(&driver.per_thread_records);
    return CUDA_SUCCESS;
}

static inline CUresult query(CUevent event)
{
    (void)event;
    event_call(&driver.queries);
    return driver.running ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static inline CUresult elapsed(float *milliseconds, CUevent start, CUevent end)
{
    (void)start;
    (void)end;
    event_call(&driver.elapsed);
    *milliseconds = driver.milliseconds;
    return CUDA_SUCCESS;
}

static inline CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    *status = driver.capturing && stream == driver.capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                             : CU_STREAM_CAPTURE_STATUS_NONE;
    return !stream && driver.implicit ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

static inline CUresult begin_capture(CUstream stream, CUstreamCaptureMode of)
{
    (void)of;
    if (driver.begin == CUDA_SUCCESS)
        driver.capturing = stream;
    return driver.begin;
}

static inline CUresult end_capture(CUstream stream, CUgraph *graph)
{
    (void)graph;
    if (driver.end == CUDA_SUCCESS && stream == driver.capturing)
        driver.capturing = NULL;
    return driver.end;
}

static inline CUresult destroy_stream(CUstream stream)
{
    if (stream == driver.capturing)
        driver.capturing = NULL;
    return CUDA_SUCCESS;
}

static inline CUresult launch(void)
{
    EXPECT(mode == CU_STREAM_CAPTURE_MODE_GLOBAL); /* the program's own */
    atomic_fetch_add(&driver.launches, 1);
    return driver.answer;
}

static inline CUresult launch_kernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
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

static inline CUresult launch_cooperative(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes,
                                   CUstream stream, void **parameters)
{
    return launch_kernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                         stream, parameters, (void **)9);
}

static inline CUresult launch_ex(const CUlaunchConfig *config, CUfunction function, void **parameters,
                          void **extra)
{
    (void)config;
    (void)function;
    (void)parameters;
    (void)extra;
    return launch();
}

static inline CUresult launch_one(CUfunction function)
{
    (void)function;
    return launch();
}

static inline CUresult launch_grid(CUfunction function, int x, int y)
{
    (void)x;
    (void)y;
    return launch_one(function);
}

static inline CUresult launch_grid_async(CUfunction function, int x, int y, CUstream stream)
{
    (void)stream;
    return launch_grid(function, x, y);
}

static inline CUresult launch_several(CUDA_LAUNCH_PARAMS *launches, unsigned int count, unsigned int flags)
{
    (void)launches;
    (void)count;
    (void)flags;
    return launch();
}

static inline CUresult launch_graph(CUgraphExec exec, CUstream stream)
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

static inline void change_limits(uint32_t cores, uint32_t policy, uint32_t priority)
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

static inline void begin(uint32_t cores)
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
    hami_reset_all();
}

static inline CUresult kernel(CUstream stream)
{
    return cuLaunchKernel(FUNCTION, 1, 2, 3, 4, 5, 6, 7, stream, (void **)8, (void **)9);
}

static inline int event_calls(void)
{
    return driver.records + driver.per_thread_records + driver.queries + driver.elapsed +
           driver.created + driver.destroyed;
}

static inline int64_t charged(int row)
{
    return (int64_t)usage.buckets[row].charged;
}

enum { WAYS = 12, ON_SEVERAL = 11 };

#endif
