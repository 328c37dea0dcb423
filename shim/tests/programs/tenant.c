/* tenant [NAME=VALUE]...: a load for the first card, which says nothing of what it got; the
 * simulator's ledger does. It prints "ready", goes on when its standard input has a line for it, and
 * ends with that.
 *
 *     ns=100000   how long a kernel runs, in nanoseconds
 *     width=1000  how much of the card it occupies, in thousandths
 *     streams=1   launched on in turn
 *     graph=0     not 0: so many kernels at a time, as a graph
 *     ahead=100   milliseconds of work that are always queued in each stream, as far as a driver's
 *                 queue of 1024 has room; two launches at least
 *     waits=0     1: queue nothing, but wait for each launch
 *     on=0 off=0  not 0: work for so many milliseconds, then pause for so many
 *     launches=0  not 0: after so many it waits for them and ends
 *     forks=0     not 0: every so many milliseconds a child that does nothing for as long
 *     way=0       how a kernel is launched (enum way)
 *     fresh=0     not 0: each on a stream of its own that is destroyed after so many launches,
 *                 without a wait; with waits=1 they are waited for first, one by one
 *     events=0    1: an event of the program's own behind each */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "hami_cuda.h"

#define MUST(call)                                                                                 \
    do {                                                                                           \
        CUresult got_ = (call);                                                                    \
        if (got_ != CUDA_SUCCESS) {                                                                \
            fprintf(stderr, "tenant: %s: %d\n", #call, (int)got_);                                 \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

#define MOST_STREAMS 64
#define QUEUED 900 /* of the 1024 that a driver takes */
#define MILLISECOND 1000000L

static struct {
    const char *name;
    long value;
} options[] = {{"ns", 100000}, {"width", 1000}, {"streams", 1}, {"graph", 0}, {"ahead", 100},
               {"waits", 0},   {"on", 0},       {"off", 0},     {"forks", 0},
               {"launches", 0}, {"way", 0},    {"fresh", 0}, {"events", 0}};
enum { NS, WIDTH, STREAMS, GRAPH, AHEAD, WAITS, ON, OFF, FORKS, LAUNCHES, WAY, FRESH, EVENTS,
       OPTIONS };

enum way {
    PLAIN,
    COOPERATIVE,
    EXTENDED,    /* cuLaunchKernelEx, without attributes */
    DEPENDENT,   /* programmatic stream serialization: it may begin before the one before it ends */
    ANNOUNCED,   /* with a programmatic event */
    COMPLETION,  /* with a launch completion event */
    PER_THREAD,  /* on the thread's default stream */
    WAYS
};

static CUfunction kernel;
static CUevent untimed, own_event;
static struct {
    CUstream stream;
    CUgraphExec graph;
    CUevent ends[2]; /* of the two rounds of launches that may be under way */
} streams[MOST_STREAMS];

static bool take_option(const char *text)
{
    for (int i = 0; i < OPTIONS; i++) {
        size_t length = strlen(options[i].name);

        if (strncmp(text, options[i].name, length) == 0 && text[length] == '=') {
            options[i].value = atol(text + length + 1);
            return true;
        }
    }
    return false;
}

static long option(int which)
{
    return options[which].value;
}

static long now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void rest(long nanoseconds)
{
    struct timespec time = {.tv_sec = nanoseconds / 1000000000L,
                            .tv_nsec = nanoseconds % 1000000000L};

    nanosleep(&time, NULL);
}

/* ---- What is launched ---- */

static void launch_extended(CUstream stream)
{
    CUlaunchAttribute attribute = {0};
    CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
                             .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1,
                             .hStream = stream, .attrs = &attribute, .numAttrs = 1};

    switch ((enum way)option(WAY)) {
    case DEPENDENT:
        attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attribute.value.programmaticStreamSerializationAllowed = 1;
        break;
    case ANNOUNCED:
        attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
        attribute.value.programmaticEvent.event = untimed;
        break;
    case COMPLETION:
        attribute.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
        attribute.value.launchCompletionEvent.event = untimed;
        break;
    default:
        config.numAttrs = 0;
    }
    MUST(cuLaunchKernelEx(&config, kernel, NULL, NULL));
}

static void launch_kernel(CUstream stream)
{
    switch ((enum way)option(WAY)) {
    case COOPERATIVE:
        MUST(cuLaunchCooperativeKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL));
        break;
    case EXTENDED:
    case DEPENDENT:
    case ANNOUNCED:
    case COMPLETION:
        launch_extended(stream);
        break;
    case PER_THREAD:
        MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_PER_THREAD, NULL, NULL));
        break;
    default:
        MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    }
    if (option(EVENTS))
        MUST(cuEventRecord(own_event, stream));
}

static CUgraphExec make_graph(CUstream stream)
{
    CUgraphExec made;
    CUgraph graph;

    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (long i = 0; i < option(GRAPH); i++)
        launch_kernel(stream);
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphInstantiateWithFlags(&made, graph, 0));
    MUST(cuGraphDestroy(graph));
    return made;
}

static void launch(long which)
{
    if (streams[which].graph)
        MUST(cuGraphLaunch(streams[which].graph, streams[which].stream));
    else
        launch_kernel(streams[which].stream);
}

static void prepare(void)
{
    CUcontext context;
    CUmodule module;
    char image[128];

    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    snprintf(image, sizeof(image), "hami-sim 1\nkernel work ns=%ld width=%ld\n", option(NS),
             option(WIDTH));
    MUST(cuModuleLoadData(&module, image));
    MUST(cuModuleGetFunction(&kernel, module, "work"));
    MUST(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventCreate(&own_event, CU_EVENT_DEFAULT));
    for (long i = 0; i < option(STREAMS); i++) {
        MUST(cuStreamCreate(&streams[i].stream, CU_STREAM_NON_BLOCKING));
        for (int end = 0; end < 2; end++)
            MUST(cuEventCreate(&streams[i].ends[end], CU_EVENT_DISABLE_TIMING));
        if (option(GRAPH) > 0)
            streams[i].graph = make_graph(streams[i].stream);
    }
}

/* ---- When ---- */

static void pause_if_due(long since)
{
    long cycle = (option(ON) + option(OFF)) * MILLISECOND;
    long within = cycle > 0 ? (now() - since) % cycle : 0;

    if (within > option(ON) * MILLISECOND)
        rest(cycle - within);
}

static void fork_if_due(void)
{
    static long last;
    long period = option(FORKS) * MILLISECOND;

    if (period == 0 || now() - last < period)
        return;
    last = now();
    if (fork() == 0) {
        rest(period);
        _exit(0);
    }
}

static void end_if_done(void)
{
    static long launched;

    if (option(LAUNCHES) == 0 || ++launched < option(LAUNCHES))
        return;
    MUST(cuCtxSynchronize());
    _exit(0);
}

/* How many launches of a stream make a round, two of which are always queued. */
static long round_of(void)
{
    long kernels = option(GRAPH) > 0 ? option(GRAPH) : 1;
    long wanted = option(AHEAD) * MILLISECOND / (option(NS) > 0 ? option(NS) : 1) / kernels;
    long room = QUEUED / option(STREAMS) / kernels;
    long most = (wanted < room ? wanted : room) / 2;

    return most > 1 ? most : 1;
}

/* Streams that come and go: whoever destroys one need not know whether it has work. */
static void work_on_fresh_streams(void)
{
    CUstream fresh[MOST_STREAMS];
    long since = now();

    for (;;) {
        pause_if_due(since);
        for (long i = 0; i < option(FRESH); i++) {
            MUST(cuStreamCreate(&fresh[i], CU_STREAM_NON_BLOCKING));
            launch_kernel(fresh[i]);
            end_if_done();
        }
        for (long i = 0; i < option(FRESH); i++) {
            if (option(WAITS))
                MUST(cuStreamSynchronize(fresh[i]));
            MUST(cuStreamDestroy(fresh[i]));
        }
    }
}

static void work(void)
{
    long each = round_of();
    long since = now();

    for (int turn = 0;; turn ^= 1) {
        for (long i = 0; i < option(STREAMS); i++) /* one that was never recorded is done */
            MUST(cuEventSynchronize(streams[i].ends[turn]));
        for (long n = 0; n < each * option(STREAMS); n++) {
            pause_if_due(since);
            fork_if_due();
            launch(n % option(STREAMS));
            end_if_done();
            if (option(WAITS))
                MUST(cuStreamSynchronize(streams[n % option(STREAMS)].stream));
        }
        for (long i = 0; i < option(STREAMS); i++)
            MUST(cuEventRecord(streams[i].ends[turn], streams[i].stream));
    }
}

/* ---- Beginning and end ---- */

static void wait_for_line(void)
{
    int got;

    do {
        got = getchar();
        if (got == EOF)
            _exit(0);
    } while (got != '\n');
}

static void *end_with_input(void *unused)
{
    for (;;)
        wait_for_line();
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t watcher;

    for (int i = 1; i < argc; i++)
        if (!take_option(argv[i]))
            return 2;
    if (option(STREAMS) < 1 || option(STREAMS) > MOST_STREAMS || option(FRESH) > MOST_STREAMS ||
        option(WAY) >= WAYS)
        return 2;
    signal(SIGCHLD, SIG_IGN);
    prepare();
    puts("ready");
    fflush(stdout);
    wait_for_line();
    if (pthread_create(&watcher, NULL, end_with_input, NULL) != 0)
        return 3;
    if (option(FRESH))
        work_on_fresh_streams();
    work();
    return 0;
}
