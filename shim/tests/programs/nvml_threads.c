/* nvml_threads MILLISECONDS: for so long, and until each thread went round once, everything of NVML
 * from many threads while sessions begin and end, a card is cut anew all the time, and errors come.
 * What each call may answer is known; memory is for the sanitizers to look after. Prints how often
 * each thread went round. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "hami_nvml.h"

#define READERS 4
#define XID nvmlEventTypeXidCriticalError

static _Atomic int stop, failures;
static _Atomic unsigned long rounds[READERS + 3];

#define EXPECT(what)                                                                               \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);                     \
            atomic_fetch_add(&failures, 1);                                                        \
        }                                                                                          \
    } while (0)

/* What a call about a MIG device may say while it is being destroyed. */
static int is_gone(nvmlReturn_t result)
{
    return result == NVML_SUCCESS || result == NVML_ERROR_NOT_FOUND ||
           result == NVML_ERROR_INVALID_ARGUMENT || result == NVML_ERROR_NOT_SUPPORTED;
}

static void read_parts(nvmlDevice_t card)
{
    for (unsigned int i = 0; i < 7; i++) {
        nvmlDeviceAttributes_t attributes;
        nvmlMemory_t memory;
        nvmlDevice_t part, of;
        unsigned int id;
        char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
        nvmlReturn_t result = nvmlDeviceGetMigDeviceHandleByIndex(card, i, &part);

        EXPECT(result == NVML_SUCCESS || result == NVML_ERROR_NOT_FOUND);
        if (result)
            return;
        EXPECT(is_gone(nvmlDeviceGetUUID(part, uuid, sizeof(uuid))));
        EXPECT(is_gone(nvmlDeviceGetAttributes_v2(part, &attributes)));
        EXPECT(is_gone(nvmlDeviceGetMemoryInfo(part, &memory)));
        EXPECT(is_gone(nvmlDeviceGetGpuInstanceId(part, &id)));
        EXPECT(is_gone(nvmlDeviceGetIndex(part, &id)));
        EXPECT(is_gone(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part, &of)));
    }
}

static void read_card(unsigned int index)
{
    nvmlProcessInfo_t infos[16];
    nvmlMemory_v2_t memory = {.version = nvmlMemory_v2};
    nvmlUtilization_t utilisation;
    nvmlPciInfo_t pci;
    nvmlDevice_t card, again;
    unsigned int count = 16, current, pending;
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];

    EXPECT(nvmlDeviceGetHandleByIndex_v2(index, &card) == NVML_SUCCESS);
    EXPECT(nvmlDeviceGetUUID(card, uuid, sizeof(uuid)) == NVML_SUCCESS);
    EXPECT(nvmlDeviceGetHandleByUUID(uuid, &again) == NVML_SUCCESS && again == card);
    EXPECT(nvmlDeviceGetMemoryInfo_v2(card, &memory) == NVML_SUCCESS);
    EXPECT(nvmlDeviceGetPciInfo_v3(card, &pci) == NVML_SUCCESS);
    EXPECT(nvmlDeviceGetComputeRunningProcesses_v3(card, &count, infos) == NVML_SUCCESS);
    EXPECT(nvmlDeviceGetMigMode(card, &current, &pending) == NVML_SUCCESS && current == pending);
    EXPECT(nvmlDeviceGetUtilizationRates(card, &utilisation) ==
           (current ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS));
    if (current)
        read_parts(card);
}

/* A session of its own in each round; the main thread's keeps NVML initialised. */
static void *reader(void *which)
{
    _Atomic unsigned long *mine = which;

    while (!stop) {
        EXPECT(nvmlInit_v2() == NVML_SUCCESS);
        read_card(0);
        read_card(1);
        EXPECT(nvmlShutdown() == NVML_SUCCESS);
        atomic_fetch_add(mine, 1);
    }
    return NULL;
}

/* Cuts card 0 into sevenths and puts it together again. */
static void *cutter(void *which)
{
    nvmlDevice_t card;
    nvmlGpuInstanceProfileInfo_t profile;

    EXPECT(nvmlDeviceGetHandleByIndex_v2(0, &card) == NVML_SUCCESS);
    EXPECT(nvmlDeviceGetGpuInstanceProfileInfo(card, NVML_GPU_INSTANCE_PROFILE_1_SLICE, &profile) ==
           NVML_SUCCESS);
    while (!stop) {
        nvmlGpuInstance_t wholes[7];
        nvmlComputeInstance_t parts[7];

        for (int i = 0; i < 7; i++) {
            EXPECT(nvmlDeviceCreateGpuInstance(card, profile.id, &wholes[i]) == NVML_SUCCESS);
            EXPECT(nvmlGpuInstanceCreateComputeInstance(wholes[i], 0, &parts[i]) == NVML_SUCCESS);
        }
        for (int i = 0; i < 7; i++) {
            EXPECT(nvmlComputeInstanceDestroy(parts[i]) == NVML_SUCCESS);
            EXPECT(nvmlGpuInstanceDestroy(wholes[i]) == NVML_SUCCESS);
        }
        atomic_fetch_add((_Atomic unsigned long *)which, 1);
    }
    return NULL;
}

static void *watcher(void *which)
{
    nvmlDevice_t card;

    EXPECT(nvmlDeviceGetHandleByIndex_v2(1, &card) == NVML_SUCCESS);
    while (!stop) {
        nvmlEventSet_t set;
        nvmlEventData_t event;
        nvmlReturn_t result;

        EXPECT(nvmlEventSetCreate(&set) == NVML_SUCCESS);
        EXPECT(nvmlDeviceRegisterEvents(card, XID, set) == NVML_SUCCESS);
        result = nvmlEventSetWait_v2(set, &event, 5);
        EXPECT(result == NVML_ERROR_TIMEOUT || (result == NVML_SUCCESS && event.device == card));
        EXPECT(nvmlEventSetFree(set) == NVML_SUCCESS);
        EXPECT(nvmlEventSetWait_v2(set, &event, 5) == NVML_ERROR_INVALID_ARGUMENT);
        atomic_fetch_add((_Atomic unsigned long *)which, 1);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    void *(*const roles[])(void *) = {reader, reader, reader, reader, cutter, watcher, watcher};
    enum { ROLES = sizeof(roles) / sizeof(*roles) };
    long milliseconds = count > 1 ? strtol(arguments[1], NULL, 10) : 500;
    struct timespec length = {.tv_sec = milliseconds / 1000,
                              .tv_nsec = milliseconds % 1000 * 1000000};
    pthread_t threads[ROLES];

    _Static_assert(ROLES == READERS + 3, "a counter for each");
    if (nvmlInit_v2() != NVML_SUCCESS)
        return 2;
    for (int i = 0; i < ROLES; i++)
        pthread_create(&threads[i], NULL, roles[i], (void *)&rounds[i]);
    nanosleep(&length, NULL);
    for (int i = 0; i < ROLES; i++)
        while (rounds[i] == 0 && failures == 0)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    stop = 1;
    for (int i = 0; i < ROLES; i++) {
        pthread_join(threads[i], NULL);
        printf("%lu\n", rounds[i]);
    }
    EXPECT(nvmlShutdown() == NVML_SUCCESS);
    EXPECT(nvmlShutdown() == NVML_ERROR_UNINITIALIZED);
    return failures != 0;
}
