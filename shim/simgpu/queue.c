/* Streams and events of this process on the daemon's clock. Work is a store into a ring in memory
 * shared with the daemon; what is done is a word there. */
#include "connection.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NEAR_NS 100000  /* the daemon looks so soon that submitting need not wake it */
#define AWAIT_NS 20000  /* the same for who waits */
#define PATIENCE_NS 100000000
#define PLACE_BITS 12
_Static_assert(SIM_QUEUES == 1 << PLACE_BITS, "a marker's state names a queue");

struct sim_queue {
    struct sim_channel *channel;
    _Atomic uint64_t submitted; /* items ever, of all queues that had this place */
    int unit;                   /* the place is bound to it; -1: to none yet */
    bool open;
};

/* `state`: 0 when never recorded or noted here, else number << PLACE_BITS | place. */
struct sim_marker {
    _Atomic uint64_t state, here_ns;
    uint32_t place;
    struct sim_marker *next; /* of those destroyed */
};

static struct sim_queue queues[SIM_QUEUES];
static int queues_used; /* places that were ever in use */
static struct sim_marker *idle_markers;
static uint32_t markers_used;
static pthread_mutex_t places = PTHREAD_MUTEX_INITIALIZER;

/* ---- Waking and waiting ---- */

/* Call the daemon unless it is awake or promised to look soon; once per sleep of it. */
static void ring_bell(struct sim_page *page, uint64_t now, uint64_t soon)
{
    const struct sim_board *board = sim_board();
    uint64_t looks_at = atomic_load(&board->looks_at), sleep, one = 1;
    ssize_t written;

    if (looks_at <= now + soon)
        return;
    sleep = atomic_load(&board->sleep);
    if (__atomic_exchange_n(&page->rung, sleep, __ATOMIC_RELAXED) == sleep)
        return;
    written = write(page->bell, &one, sizeof(one));
    (void)written; /* full: then it rings already */
}

static CUresult wait_for(struct sim_page *page, struct sim_channel *channel, uint64_t target)
{
    static const struct timespec patience = {.tv_nsec = PATIENCE_NS};

    while (atomic_load_explicit(&channel->done, memory_order_acquire) < target) {
        uint32_t wake = atomic_load(&channel->wake);
        uint64_t wanted = atomic_load(&channel->wanted);

        if (page->broken)
            return CUDA_ERROR_DEVICE_UNAVAILABLE;
        while (wanted > target &&
               !atomic_compare_exchange_weak(&channel->wanted, &wanted, target))
            ;
        if (atomic_load(&channel->done) >= target)
            break;
        ring_bell(page, sim_now(), AWAIT_NS);
        if (syscall(SYS_futex, &channel->wake, FUTEX_WAIT, wake, &patience, NULL, 0) < 0 &&
            !sim_alive(page))
            return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    return CUDA_SUCCESS;
}

/* ---- Submitting ---- */

static CUresult submit(struct sim_queue *queue, struct sim_entry *entry, uint64_t *number)
{
    struct sim_page *page = sim_page();
    struct sim_shared *shared = page->process.shared;

    if (!page->process.ready)
        return CUDA_ERROR_NOT_INITIALIZED;
    entry->queue = (uint32_t)(queue - queues);
    pthread_mutex_lock(&page->submitting);
    while (page->submitted - atomic_load_explicit(&shared->retired.done, memory_order_acquire) >=
           SIM_RING) {
        uint64_t target = page->submitted - SIM_RING + 1;
        CUresult result;

        pthread_mutex_unlock(&page->submitting);
        result = wait_for(page, &shared->retired, target);
        if (result != CUDA_SUCCESS)
            return result;
        pthread_mutex_lock(&page->submitting);
    }
    /* Under the lock, so that the ring's order is that of the times in it. */
    entry->submitted_ns = sim_now();
    *number = atomic_load_explicit(&queue->submitted, memory_order_relaxed) + 1;
    if (entry->kind == SIM_ITEM_HOLD)
        entry->number = *number;
    shared->ring[page->submitted % SIM_RING] = *entry;
    page->submitted++;
    atomic_store_explicit(&queue->submitted, *number, memory_order_relaxed);
    atomic_store(&shared->head, page->submitted);
    pthread_mutex_unlock(&page->submitting);
    ring_bell(page, entry->submitted_ns, NEAR_NS);
    return page->broken ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_SUCCESS;
}

/* ---- Queues ---- */

bool sim_queue_idle(struct sim_queue *queue)
{
    return atomic_load_explicit(&queue->channel->done, memory_order_acquire) >=
           atomic_load_explicit(&queue->submitted, memory_order_relaxed);
}

/* A place to use: best one that is bound to the unit already, then a new one. */
static struct sim_queue *find_place(int unit)
{
    struct sim_queue *other = NULL;

    for (int i = 0; i < queues_used; i++) {
        if (queues[i].open || !sim_queue_idle(&queues[i]))
            continue;
        if (queues[i].unit == unit)
            return &queues[i];
        other = &queues[i];
    }
    if (queues_used == SIM_QUEUES)
        return other;
    other = &queues[queues_used];
    other->channel = &sim_process->shared->queues[queues_used++];
    other->unit = -1;
    return other;
}

CUresult sim_queue_create(CUdevice ordinal, struct sim_queue **queue)
{
    const struct sim_device *device = sim_device(ordinal);
    struct sim_ask ask = {.header = {.op = SIM_OP_QUEUE}};
    struct sim_queue *found;
    struct sim_reply reply;
    CUresult result = sim_ready();

    if (result != CUDA_SUCCESS)
        return result;
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&places);
    found = find_place(device->board);
    if (!found) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    } else if (found->unit != device->board) {
        ask.unit = device->board;
        ask.id = (uint64_t)(found - queues);
        result = sim_ask(&ask, &reply);
        if (result == CUDA_SUCCESS)
            found->unit = device->board;
    }
    if (result == CUDA_SUCCESS) {
        found->open = true;
        *queue = found;
    }
    pthread_mutex_unlock(&places);
    return result;
}

void sim_queue_destroy(struct sim_queue *queue)
{
    pthread_mutex_lock(&places);
    queue->open = false;
    pthread_mutex_unlock(&places);
}

/* HAMI_SIM_JITTER: percent by which durations vary, evenly, in the same order in every run. */
static uint64_t jittered(uint64_t duration)
{
    static _Atomic uint64_t turn, knob; /* knob: one above its value, 0: not asked yet */
    uint64_t percent = atomic_load_explicit(&knob, memory_order_relaxed), dice, span;

    if (percent == 0) {
        percent = sim_knob("JITTER", 0) + 1;
        atomic_store_explicit(&knob, percent, memory_order_relaxed);
    }
    if (--percent == 0)
        return duration;
    dice = (atomic_fetch_add(&turn, 1) + 1) * UINT64_C(0x9e3779b97f4a7c15);
    dice = (dice ^ dice >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    dice = (dice ^ dice >> 27) * UINT64_C(0x94d049bb133111eb);
    span = duration / 100 * (percent < 100 ? percent : 100);
    return duration - span + (span ? (dice ^ dice >> 31) % (2 * span + 1) : 0);
}

static __attribute__((noinline)) CUresult run(struct sim_queue *queue, const struct sim_work *work)
{
    struct sim_entry entry = {.kind = SIM_ITEM_RUN};
    uint64_t number;

    entry.duration_ns = jittered(work->duration_ns);
    entry.width = (uint16_t)(work->width < 1               ? 1
                             : work->width > SIM_WIDTH_MAX ? SIM_WIDTH_MAX
                                                           : work->width);
    return submit(queue, &entry, &number);
}

CUresult sim_queue_run(struct sim_queue *queue, const struct sim_work *work)
{
    /* Nothing to do behind nothing: not worth the daemon's time, nor a benchmark's. */
    if (work->duration_ns == 0 && sim_queue_idle(queue))
        return CUDA_SUCCESS;
    return run(queue, work);
}

CUresult sim_queue_hold(struct sim_queue *queue, uint64_t *hold)
{
    struct sim_entry entry = {.kind = SIM_ITEM_HOLD};

    return submit(queue, &entry, hold);
}

CUresult sim_queue_release(struct sim_queue *queue, uint64_t hold)
{
    struct sim_ask ask = {.header = {.op = SIM_OP_RELEASE},
                          .id = (uint64_t)(queue - queues),
                          .bytes = hold,
                          .at_ns = sim_now()};
    struct sim_reply reply;

    return sim_ask(&ask, &reply);
}

CUresult sim_queue_finish(struct sim_queue *queue)
{
    return wait_for(sim_page(), queue->channel,
                    atomic_load_explicit(&queue->submitted, memory_order_relaxed));
}

bool sim_device_idle(CUdevice ordinal)
{
    const struct sim_device *device = sim_device(ordinal);
    bool idle = true;

    pthread_mutex_lock(&places);
    for (int i = 0; i < queues_used && device && idle; i++)
        idle = queues[i].unit != device->board || sim_queue_idle(&queues[i]);
    pthread_mutex_unlock(&places);
    return idle;
}

CUresult sim_device_finish(CUdevice ordinal)
{
    const struct sim_device *device = sim_device(ordinal);
    CUresult result = device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    bool more = true;

    for (int i = 0; more && result == CUDA_SUCCESS; i++) {
        bool ours;

        pthread_mutex_lock(&places);
        more = i < queues_used;
        ours = more && queues[i].unit == device->board;
        pthread_mutex_unlock(&places);
        if (ours)
            result = sim_queue_finish(&queues[i]);
    }
    return result;
}

/* ---- Markers ---- */

struct sim_marker *sim_marker_create(void)
{
    struct sim_marker *marker;

    pthread_mutex_lock(&places);
    marker = idle_markers;
    if (marker) {
        idle_markers = marker->next;
    } else if (markers_used < SIM_MARKS) {
        marker = calloc(1, sizeof(*marker));
        if (marker)
            marker->place = markers_used++;
    }
    pthread_mutex_unlock(&places);
    if (marker) {
        atomic_store(&marker->state, 0);
        atomic_store(&marker->here_ns, 0);
    }
    return marker;
}

/* Its place may be used at once: what it still has outstanding carries an older number. */
void sim_marker_destroy(struct sim_marker *marker)
{
    if (!marker)
        return;
    pthread_mutex_lock(&places);
    marker->next = idle_markers;
    idle_markers = marker;
    pthread_mutex_unlock(&places);
}

static struct sim_queue *queue_of(uint64_t state)
{
    return &queues[state & (SIM_QUEUES - 1)];
}

static bool is_noted(uint64_t state)
{
    return state == 0 ||
           atomic_load_explicit(&queue_of(state)->channel->done, memory_order_acquire) >=
               state >> PLACE_BITS;
}

CUresult sim_queue_mark(struct sim_queue *queue, struct sim_marker *marker)
{
    struct sim_entry entry = {.kind = SIM_ITEM_MARK, .mark = marker->place};
    uint64_t number;
    CUresult result;

    /* With the ledger kept here, for benchmarks of what calls cost: without the daemon's time. */
    if (sim_process->local && sim_queue_idle(queue)) {
        atomic_store_explicit(&marker->here_ns, sim_now(), memory_order_relaxed);
        atomic_store_explicit(&marker->state, 0, memory_order_release);
        return CUDA_SUCCESS;
    }
    result = submit(queue, &entry, &number);
    if (result == CUDA_SUCCESS)
        atomic_store_explicit(&marker->state, number << PLACE_BITS | (uint64_t)(queue - queues),
                              memory_order_release);
    return result;
}

CUresult sim_queue_wait_marker(struct sim_queue *queue, struct sim_marker *marker)
{
    uint64_t state = atomic_load_explicit(&marker->state, memory_order_acquire), number;
    struct sim_entry entry = {.kind = SIM_ITEM_WAIT};

    if (is_noted(state) || queue_of(state) == queue)
        return CUDA_SUCCESS;
    entry.other = (uint32_t)(state & (SIM_QUEUES - 1));
    entry.number = state >> PLACE_BITS;
    return submit(queue, &entry, &number);
}

/* Who asks in a loop must learn that nobody is left to answer, without a system call each time. */
static CUresult not_ready(void)
{
    static _Thread_local unsigned asked;

    if (!sim_process->ready)
        return CUDA_ERROR_NOT_INITIALIZED;
    return ++asked % 256 != 0 || sim_alive(sim_page()) ? CUDA_ERROR_NOT_READY
                                                       : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

CUresult sim_marker_query(struct sim_marker *marker, uint64_t *at_ns)
{
    uint64_t state = atomic_load_explicit(&marker->state, memory_order_acquire);

    if (!is_noted(state))
        return not_ready();
    if (!at_ns)
        return CUDA_SUCCESS;
    if (state == 0)
        *at_ns = atomic_load_explicit(&marker->here_ns, memory_order_relaxed);
    else
        *at_ns = atomic_load_explicit(&sim_process->shared->marks[marker->place].at_ns,
                                      memory_order_relaxed);
    return CUDA_SUCCESS;
}

CUresult sim_marker_finish(struct sim_marker *marker)
{
    uint64_t state = atomic_load_explicit(&marker->state, memory_order_acquire);

    if (is_noted(state))
        return CUDA_SUCCESS;
    return wait_for(sim_page(), queue_of(state)->channel, state >> PLACE_BITS);
}
