/* Event sets: what the daemon puts on the board, from the moment of registering on. A handle is the
 * number of a set, never used twice, so a set that was freed, or that a former session left behind,
 * is known for what it is. */
#include "nvml.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SETS 64
#define LOOK_NS 100000000u /* a wait looks so often whether set and driver are still there */

struct set {
    uintptr_t number; /* 0: the place is free */
    uint64_t seen;    /* of the board's events */
    bool is_watching; /* something was registered, `seen` counts */
    unsigned long long types[SIM_MAX_CARDS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct set sets[SETS];
static uintptr_t last_number;

/* With the lock held. */
static struct set *find(nvmlEventSet_t handle)
{
    for (int i = 0; i < SETS; i++)
        if (handle && sets[i].number == (uintptr_t)handle)
            return &sets[i];
    return NULL;
}

/* A fork while another thread is in here would leave the child a lock that nobody opens. */
static void take(void)
{
    pthread_mutex_lock(&lock);
}

static void leave(void)
{
    pthread_mutex_unlock(&lock);
}

static void prepare(void)
{
    pthread_atfork(take, leave, leave);
}

void sim_nvml_events_end(void)
{
    take();
    memset(sets, 0, sizeof(sets));
    leave();
}

SIM_EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    nvmlReturn_t result = sim_nvml_session();

    if (result)
        return result;
    if (!set)
        return NVML_ERROR_INVALID_ARGUMENT;
    pthread_once(&once, prepare);
    result = NVML_ERROR_MEMORY;
    take();
    for (int i = 0; i < SETS && result; i++)
        if (sets[i].number == 0) {
            sets[i] = (struct set){.number = ++last_number};
            *set = (nvmlEventSet_t)last_number;
            result = NVML_SUCCESS;
        }
    leave();
    return result;
}

SIM_EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    nvmlReturn_t result = sim_nvml_session();
    struct set *found;

    if (result)
        return result;
    take();
    found = find(set);
    if (found)
        memset(found, 0, sizeof(*found));
    leave();
    return found ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* ---- Registering ---- */

static unsigned long long known_types(const struct sim_nvml_device *card)
{
    unsigned long long types = nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError |
                               nvmlEventTypePState | nvmlEventTypeXidCriticalError |
                               nvmlEventTypeClock;

    return sim_mig_model(card->shown.name) ? types | nvmlEventMigConfigChange : types;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device,
                                                         unsigned long long *types)
{
    struct sim_nvml_device opened;
    nvmlReturn_t result = sim_nvml_open_card(device, &opened);

    if (result)
        return result;
    if (!types)
        return NVML_ERROR_INVALID_ARGUMENT;
    *types = known_types(&opened);
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                                 nvmlEventSet_t set)
{
    struct sim_nvml_device opened;
    struct set *found;
    nvmlReturn_t result = sim_nvml_open_card(device, &opened);

    if (result)
        return result;
    if (types & ~known_types(&opened))
        return NVML_ERROR_NOT_SUPPORTED;
    take();
    found = find(set);
    if (found) {
        if (!found->is_watching)
            found->seen = atomic_load(&sim_board()->event_count);
        found->is_watching = true;
        found->types[opened.unit] |= types;
    }
    leave();
    return found ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* ---- Waiting ---- */

/* Event number `number`, whole; false: it was overwritten meanwhile. */
static bool read_event(uint64_t number, struct sim_board_event *event)
{
    const struct sim_board *board = sim_board();

    _Static_assert(sizeof(*event) % sizeof(uint64_t) == 0, "copied in words");
    return sim_nvml_copy(event, &board->events[number % SIM_BOARD_EVENTS], sizeof(*event)) &&
           atomic_load(&board->event_count) - number <= SIM_BOARD_EVENTS;
}

/* The next event of the set, NVML_ERROR_TIMEOUT where there is none now. */
static nvmlReturn_t next_event(nvmlEventSet_t handle, struct sim_board_event *event,
                               unsigned long long types[SIM_MAX_CARDS])
{
    uint64_t count = atomic_load(&sim_board()->event_count);
    nvmlReturn_t result = NVML_ERROR_TIMEOUT;
    struct set *set;

    take();
    set = find(handle);
    if (!set)
        result = NVML_ERROR_INVALID_ARGUMENT;
    else
        memcpy(types, set->types, sizeof(set->types));
    if (set && set->is_watching && count - set->seen > SIM_BOARD_EVENTS)
        set->seen = count - SIM_BOARD_EVENTS;
    while (result == NVML_ERROR_TIMEOUT && set->is_watching && set->seen < count) {
        if (read_event(set->seen++, event) && event->unit >= 0 && event->unit < SIM_MAX_CARDS &&
            (set->types[event->unit] & event->type))
            result = NVML_SUCCESS;
    }
    leave();
    return result;
}

/* NVML_SUCCESS while every card of the set answers. */
static nvmlReturn_t look_after(const unsigned long long types[SIM_MAX_CARDS])
{
    nvmlReturn_t result = NVML_SUCCESS;
    struct sim_nvml_card card;

    for (int unit = 0; unit < SIM_MAX_CARDS && result == NVML_SUCCESS; unit++) {
        if (!types[unit])
            continue;
        result = sim_nvml_request(SIM_NVML_CARD, &(struct sim_nvml_ask){.card = unit}, &card,
                                  sizeof(card));
        if (result == NVML_SUCCESS && card.lost)
            result = NVML_ERROR_GPU_IS_LOST;
    }
    return result;
}

/* Until the board shows another event, at most `most_ns`. */
static void sleep_on(uint32_t wake, uint64_t most_ns)
{
    struct timespec most = {.tv_sec = (time_t)(most_ns / 1000000000u),
                            .tv_nsec = (long)(most_ns % 1000000000u)};

    syscall(SYS_futex, &sim_board()->event_wake, FUTEX_WAIT, wake, &most, NULL, 0);
}

static nvmlReturn_t wait_for(nvmlEventSet_t set, unsigned int timeout_ms,
                             struct sim_board_event *event)
{
    uint64_t until = sim_now() + (uint64_t)timeout_ms * 1000000u;
    unsigned long long types[SIM_MAX_CARDS];

    for (;;) {
        uint32_t wake = atomic_load(&sim_board()->event_wake);
        nvmlReturn_t result = sim_nvml_session();
        uint64_t now;

        if (result == NVML_SUCCESS)
            result = next_event(set, event, types);
        if (result != NVML_ERROR_TIMEOUT)
            return result;
        result = look_after(types);
        if (result)
            return result;
        now = sim_now();
        if (now >= until)
            return NVML_ERROR_TIMEOUT;
        sleep_on(wake, until - now < LOOK_NS ? until - now : LOOK_NS);
    }
}

static nvmlReturn_t wait_into(nvmlEventSet_t set, nvmlEventData_t *event, unsigned int timeout_ms,
                              bool instances)
{
    struct sim_board_event found;
    nvmlReturn_t result = sim_nvml_session();

    if (result)
        return result;
    if (!event)
        return NVML_ERROR_INVALID_ARGUMENT;
    result = wait_for(set, timeout_ms, &found);
    if (result)
        return result;
    event->device = sim_nvml_handle(found.unit);
    event->eventType = found.type;
    event->eventData = found.data;
    if (instances) {
        event->gpuInstanceId = (unsigned int)found.gpu_instance;
        event->computeInstanceId = (unsigned int)found.compute_instance;
    }
    return NVML_SUCCESS;
}

/* The first one knows nothing of instances and leaves their words as they are. */
SIM_EXPORT nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *event,
                                         unsigned int timeout_ms)
{
    return wait_into(set, event, timeout_ms, false);
}

SIM_EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *event,
                                            unsigned int timeout_ms)
{
    return wait_into(set, event, timeout_ms, true);
}
