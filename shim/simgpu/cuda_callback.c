/* Host functions: called on a thread of ours when a stream comes to them. The stream's queue is
 * held from there on until the function has returned. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "execution.h"

#define SHORTEST_WAIT_NS 20000
#define LONGEST_WAIT_NS 500000

struct job {
    struct sim_marker *reached; /* the queue has come here */
    struct sim_lane *lane;
    uint64_t hold;
    sim_host_call call;
    void *function, *data;
    CUstream stream;
    struct job *next;
};

static pthread_mutex_t jobs_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t jobs_changed;
static struct job *jobs, **jobs_end = &jobs;
static bool running;

/* The first job whose time has come, off the list. Jobs of one stream come in order: a later one's
 * mark lies behind the earlier one's hold. */
static struct job *due(void)
{
    for (struct job **place = &jobs; *place != NULL; place = &(*place)->next) {
        struct job *job = *place;
        if (sim_marker_query(job->reached, NULL) == CUDA_ERROR_NOT_READY)
            continue;
        *place = job->next;
        if (job->next == NULL)
            jobs_end = place;
        return job;
    }
    return NULL;
}

static void wait_a_little(long *wait_ns)
{
    struct timespec until;

    if (jobs == NULL) {
        pthread_cond_wait(&jobs_changed, &jobs_lock);
        *wait_ns = SHORTEST_WAIT_NS;
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += *wait_ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_cond_timedwait(&jobs_changed, &jobs_lock, &until) == ETIMEDOUT)
        *wait_ns = *wait_ns * 2 < LONGEST_WAIT_NS ? *wait_ns * 2 : LONGEST_WAIT_NS;
    else
        *wait_ns = SHORTEST_WAIT_NS;
}

static void *work(void *unused)
{
    long wait_ns = SHORTEST_WAIT_NS;

    pthread_mutex_lock(&jobs_lock);
    for (;;) {
        struct job *job = due();
        if (job == NULL) {
            wait_a_little(&wait_ns);
            continue;
        }
        wait_ns = SHORTEST_WAIT_NS;
        pthread_mutex_unlock(&jobs_lock);
        job->call(job->function, job->stream, job->data);
        sim_queue_release(job->lane->queue, job->hold);
        sim_marker_destroy(job->reached);
        sim_lane_drop(job->lane);
        free(job);
        pthread_mutex_lock(&jobs_lock);
    }
    return unused;
}

static CUresult start(void)
{
    pthread_condattr_t attributes;
    pthread_t thread;

    if (running)
        return CUDA_SUCCESS;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&jobs_changed, &attributes);
    pthread_condattr_destroy(&attributes);
    if (pthread_create(&thread, NULL, work, NULL) != 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    pthread_detach(thread);
    running = true;
    return CUDA_SUCCESS;
}

static CUresult hand_over(struct job *job)
{
    CUresult result;

    pthread_mutex_lock(&jobs_lock);
    result = start();
    if (result == CUDA_SUCCESS) {
        *jobs_end = job;
        jobs_end = &job->next;
        pthread_cond_signal(&jobs_changed);
    } else {
        sim_queue_release(job->lane->queue, job->hold);
    }
    pthread_mutex_unlock(&jobs_lock);
    return result;
}

CUresult sim_host(CUstream stream, sim_host_call call, void *function, void *data)
{
    struct job *job = calloc(1, sizeof *job);
    CUresult result = job != NULL ? sim_order(stream) : CUDA_ERROR_OUT_OF_MEMORY;

    if (result == CUDA_SUCCESS && (job->reached = sim_marker_create()) == NULL)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(job);
        return result;
    }
    job->call = call;
    job->function = function;
    job->data = data;
    job->stream = stream;
    job->lane = stream->lane;
    atomic_fetch_add_explicit(&job->lane->references, 1, memory_order_relaxed);
    /* Without our lock: they wait while too much is outstanding, and what they wait for may be a
     * function that our thread has yet to call. */
    result = sim_queue_mark(stream->queue, job->reached);
    if (result == CUDA_SUCCESS)
        result = sim_queue_hold(stream->queue, &job->hold);
    if (result == CUDA_SUCCESS)
        result = hand_over(job);
    if (result != CUDA_SUCCESS) {
        sim_lane_drop(job->lane);
        sim_marker_destroy(job->reached);
        free(job);
    }
    return result;
}
