/* What NVML tells of single processes: how busy they keep a device, and what it has kept for
 * accounting. In a slice of the container's own alone, as in the lists (nvml_processes.c). The
 * numbers of processes are the driver's: a driver that does not translate them into the container's
 * has nothing to say there that is the container's. */
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "driver/real.h"
#include "nvml/processes.h"
#include "slice/slice.h"

#define MORE 64 /* processes that may have come since the driver was asked how many there are */

/* What a driver lists: items with a pid at an offset. */
struct kind {
    size_t bytes, pid_at;
};

struct items {
    void *at;
    size_t mapped;
    unsigned int count;
};

static nvmlReturn_t room(struct items *items, const struct kind *kind, unsigned int count)
{
    items->count = count + MORE;
    items->mapped = items->count * kind->bytes;
    items->at = mmap(NULL, items->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                     0);
    return items->at == MAP_FAILED ? NVML_ERROR_MEMORY : NVML_SUCCESS;
}

static void keep_ours(struct items *items, const struct kind *kind, nvmlDevice_t device)
{
    struct hami_nvml_pids ours = hami_nvml_pids(device);
    unsigned int kept = 0;

    for (unsigned int i = 0; i < items->count; i++) {
        char *item = (char *)items->at + i * kind->bytes;
        unsigned int pid;

        memcpy(&pid, item + kind->pid_at, sizeof(pid));
        if (hami_nvml_has(&ours, pid))
            memmove((char *)items->at + kept++ * kind->bytes, item, kind->bytes);
    }
    items->count = kept;
}

/* NVML's protocol, as in nvml_processes.c. */
static nvmlReturn_t hand_out(const struct items *items, const struct kind *kind,
                             unsigned int *count, void *to)
{
    unsigned int given = *count;

    *count = items->count;
    if (items->count > given)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    if (items->count == 0)
        return NVML_SUCCESS;
    if (!to)
        return NVML_ERROR_INVALID_ARGUMENT;
    memcpy(to, items->at, items->count * kind->bytes);
    return NVML_SUCCESS;
}

/* One of the three calls, into room of ours. */
struct question {
    nvmlDevice_t device;
    struct kind kind;
    unsigned long long last_seen;
    unsigned int version;
    nvmlReturn_t (*ask)(const struct question *question, unsigned int *count, void *items);
};

static nvmlReturn_t answer(const struct question *question, bool none_is_an_error,
                           unsigned int *count, void *to)
{
    struct items items;
    unsigned int number = 0;
    nvmlReturn_t result = question->ask(question, &number, NULL);

    if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE)
        return result;
    result = room(&items, &question->kind, number);
    if (result != NVML_SUCCESS)
        return result;
    result = question->ask(question, &items.count, items.at);
    if (result == NVML_SUCCESS) {
        keep_ours(&items, &question->kind, question->device);
        result = items.count == 0 && none_is_an_error
                     ? NVML_ERROR_NOT_FOUND
                     : hand_out(&items, &question->kind, count, to);
    }
    munmap(items.at, items.mapped);
    return result;
}

static nvmlReturn_t ask_utilization(const struct question *question, unsigned int *count,
                                    void *items)
{
    return hami_nvml()->nvmlDeviceGetProcessUtilization(question->device, items, count,
                                                        question->last_seen);
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                         nvmlProcessUtilizationSample_t *samples,
                                                         unsigned int *count,
                                                         unsigned long long last_seen)
{
    struct question question = {
        .device = device, .last_seen = last_seen, .ask = ask_utilization,
        .kind = {sizeof(*samples), offsetof(nvmlProcessUtilizationSample_t, pid)},
    };

    if (!count || hami_nvml_stands_aside())
        return hami_nvml()->nvmlDeviceGetProcessUtilization(device, samples, count, last_seen);
    return answer(&question, true, count, samples);
}

static nvmlReturn_t ask_all(const struct question *question, unsigned int *count, void *items)
{
    nvmlProcessesUtilizationInfo_t info = {
        .version = question->version, .processSamplesCount = *count,
        .lastSeenTimeStamp = question->last_seen, .procUtilArray = items,
    };
    nvmlReturn_t result =
        hami_nvml()->nvmlDeviceGetProcessesUtilizationInfo(question->device, &info);

    *count = info.processSamplesCount;
    return result;
}

HAMI_EXPORT nvmlReturn_t
nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *info)
{
    struct question question = {
        .device = device, .ask = ask_all,
        .kind = {sizeof(nvmlProcessUtilizationInfo_v1_t),
                 offsetof(nvmlProcessUtilizationInfo_v1_t, pid)},
    };

    if (!info || hami_nvml_stands_aside())
        return hami_nvml()->nvmlDeviceGetProcessesUtilizationInfo(device, info);
    question.version = info->version;
    question.last_seen = info->lastSeenTimeStamp;
    return answer(&question, true, &info->processSamplesCount, info->procUtilArray);
}

static nvmlReturn_t ask_pids(const struct question *question, unsigned int *count, void *items)
{
    return hami_nvml()->nvmlDeviceGetAccountingPids(question->device, count, items);
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count,
                                                     unsigned int *pids)
{
    struct question question = {.device = device, .kind = {sizeof(*pids), 0}, .ask = ask_pids};

    if (!count || hami_nvml_stands_aside())
        return hami_nvml()->nvmlDeviceGetAccountingPids(device, count, pids);
    return answer(&question, false, count, pids);
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid,
                                                      nvmlAccountingStats_t *stats)
{
    nvmlReturn_t result = hami_nvml()->nvmlDeviceGetAccountingStats(device, pid, stats);
    struct hami_nvml_pids ours;

    if (result != NVML_SUCCESS || hami_nvml_stands_aside())
        return result;
    ours = hami_nvml_pids(device);
    if (hami_nvml_has(&ours, pid))
        return NVML_SUCCESS;
    *stats = (nvmlAccountingStats_t){.isRunning = 0};
    return NVML_ERROR_NOT_FOUND;
}
