/* Which processes run on a device. A process is the daemon's: its pid is of the daemon's pid
 * namespace, as the real driver's are the host's.
 *
 * HAMI_SIM_NVML_MPS=1: what runs does so under MPS. Then NVML cannot tell a client's memory nor its
 * utilisation, and lists it among the clients of MPS as well. */
#include "nvml.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct process {
    unsigned int pid, utilisation;
    unsigned int gpu_instance, compute_instance;
    unsigned long long bytes;
    uint8_t samples[SIM_BOARD_SAMPLES];
};

static bool is_mps(void)
{
    return sim_knob("NVML_MPS", 0) != 0;
}

/* One row of the board, whole; false: nobody has it. */
static bool read_row(int at, struct sim_board_row *copy)
{
    _Static_assert(sizeof(*copy) % sizeof(uint64_t) == 0, "copied in words");
    return sim_nvml_copy(copy, &sim_board()->rows[at], sizeof(*copy)) && copy->pid != 0;
}

/* A card's processes are those of its MIG devices too. */
static bool is_on(const struct sim_nvml_device *device, int unit, struct sim_board_unit *shown)
{
    if (!sim_board_read(unit, shown))
        return false;
    return device->is_mig ? unit == device->unit : shown->card == device->unit;
}

/* At most SIM_MAX_ROWS; in the order in which they came to the board. */
static unsigned int list(const struct sim_nvml_device *device, struct process *found)
{
    unsigned int count = 0;

    for (int i = 0; i < SIM_MAX_ROWS; i++) {
        struct process *next = &found[count];
        struct sim_board_unit shown;
        struct sim_board_row row;
        uint64_t bytes = 0;

        if (!read_row(i, &row) || !is_on(device, row.unit, &shown))
            continue;
        for (int kind = 0; kind < SIM_BOARD_KINDS; kind++)
            bytes += row.bytes[kind];
        if (bytes == 0 && row.contexts == 0)
            continue;
        next->pid = row.pid;
        next->utilisation = row.utilisation;
        memcpy(next->samples, row.samples, sizeof(next->samples));
        next->bytes = is_mps() ? (unsigned long long)NVML_VALUE_NOT_AVAILABLE : bytes;
        next->gpu_instance = (unsigned int)shown.gpu_instance; /* -1: not of an instance */
        next->compute_instance = (unsigned int)shown.compute_instance;
        count++;
    }
    return count;
}

enum kind { COMPUTE, GRAPHICS, MPS };

/* Nothing that simulates draws; and there is nobody under MPS unless all are. */
static nvmlReturn_t open_list(nvmlDevice_t device, enum kind kind, struct sim_nvml_device *opened,
                              struct process **found, unsigned int *count)
{
    nvmlReturn_t result = sim_nvml_open(device, opened);

    *found = NULL;
    if (result)
        return result;
    *found = calloc(SIM_MAX_ROWS, sizeof(**found));
    if (!*found)
        return NVML_ERROR_MEMORY;
    *count = kind == COMPUTE || (kind == MPS && is_mps()) ? list(opened, *found) : 0;
    return NVML_SUCCESS;
}

static nvmlReturn_t running_v1(nvmlDevice_t device, enum kind kind, unsigned int *count,
                               nvmlProcessInfo_v1_t *infos)
{
    struct sim_nvml_device opened;
    struct process *found;
    unsigned int number;
    nvmlReturn_t result = open_list(device, kind, &opened, &found, &number);

    if (result == NVML_SUCCESS)
        result = count ? sim_nvml_room(number, count, infos) : NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned int i = 0; result == NVML_SUCCESS && i < number; i++)
        infos[i] = (nvmlProcessInfo_v1_t){.pid = found[i].pid, .usedGpuMemory = found[i].bytes};
    free(found);
    return result;
}

static nvmlReturn_t running(nvmlDevice_t device, enum kind kind, unsigned int *count,
                            nvmlProcessInfo_t *infos)
{
    struct sim_nvml_device opened;
    struct process *found;
    unsigned int number;
    nvmlReturn_t result = open_list(device, kind, &opened, &found, &number);

    if (result == NVML_SUCCESS)
        result = count ? sim_nvml_room(number, count, infos) : NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned int i = 0; result == NVML_SUCCESS && i < number; i++)
        infos[i] = (nvmlProcessInfo_t){
            .pid = found[i].pid,
            .usedGpuMemory = found[i].bytes,
            .gpuInstanceId = found[i].gpu_instance,
            .computeInstanceId = found[i].compute_instance,
        };
    free(found);
    return result;
}

#define RUNNING(name, which)                                                                       \
    SIM_EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned int *count,                         \
                                 nvmlProcessInfo_v1_t *infos)                                      \
    {                                                                                              \
        return running_v1(device, which, count, infos);                                            \
    }                                                                                              \
    SIM_EXPORT nvmlReturn_t name##_v2(nvmlDevice_t device, unsigned int *count,                    \
                                      nvmlProcessInfo_t *infos)                                    \
    {                                                                                              \
        return running(device, which, count, infos);                                               \
    }                                                                                              \
    SIM_EXPORT nvmlReturn_t name##_v3(nvmlDevice_t device, unsigned int *count,                    \
                                      nvmlProcessInfo_t *infos)                                    \
    {                                                                                              \
        return running(device, which, count, infos);                                               \
    }

RUNNING(nvmlDeviceGetComputeRunningProcesses, COMPUTE)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses, MPS)

SIM_EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                              nvmlProcessDetailList_t *details)
{
    struct sim_nvml_device opened;
    struct process *found;
    unsigned int number;
    nvmlReturn_t result;

    if (!details || details->mode > MPS)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (details->version != nvmlProcessDetailList_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    result = open_list(device, (enum kind)details->mode, &opened, &found, &number);
    if (result == NVML_SUCCESS)
        result = sim_nvml_room(number, &details->numProcArrayEntries, details->procArray);
    for (unsigned int i = 0; result == NVML_SUCCESS && i < number; i++)
        details->procArray[i] = (nvmlProcessDetail_v1_t){
            .pid = found[i].pid,
            .usedGpuMemory = found[i].bytes,
            .gpuInstanceId = found[i].gpu_instance,
            .computeInstanceId = found[i].compute_instance,
        };
    free(found);
    return result;
}

/* ---- Utilisation of each ---- */

/* NVML's times are of the wall clock, in microseconds. The distance between the clocks is taken
 * once: a sample must have the same time whenever it is asked for. */
static unsigned long long wall_us(uint64_t at_ns)
{
    static _Atomic uint64_t distance;
    uint64_t known = atomic_load(&distance), nobody = 0;
    struct timespec now;

    if (known == 0) {
        clock_gettime(CLOCK_REALTIME, &now);
        known = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - sim_now();
        if (!atomic_compare_exchange_strong(&distance, &nobody, known))
            known = nobody;
    }
    return (known + at_ns) / 1000;
}

/* The mean of the samples that ended after `last_seen`, as far back as they are kept. */
static unsigned int mean_since(const struct sim_board_samples *taken, const uint8_t *percents,
                               unsigned long long last_seen)
{
    uint64_t first = taken->count > SIM_BOARD_SAMPLES ? taken->count - SIM_BOARD_SAMPLES : 0;
    unsigned int sum = 0, counted = 0;

    for (uint64_t n = taken->count; n > first; n--) {
        size_t at = (n - 1) % SIM_BOARD_SAMPLES;

        if (wall_us(taken->ends_ns[at]) <= last_seen)
            break;
        sum += percents[at];
        counted++;
    }
    return counted ? (sum + counted / 2) / counted : 0;
}

/* One sample of each process: what it used since the caller last saw any, if there are newer ones. */
static nvmlReturn_t open_sample(nvmlDevice_t device, unsigned long long last_seen,
                                struct process **found, unsigned int *number,
                                unsigned long long *at)
{
    struct sim_board_samples taken = {.count = 0};
    struct sim_nvml_device opened;
    nvmlReturn_t result;

    /* Before the processes: a sample that they lack would be one of long ago. */
    if (!sim_nvml_copy(&taken, &sim_board()->samples, sizeof(taken)))
        taken.count = 0;
    result = open_list(device, COMPUTE, &opened, found, number);
    if (result == NVML_SUCCESS && (opened.is_mig || opened.shown.mig || is_mps()))
        result = NVML_ERROR_NOT_SUPPORTED;
    if (result != NVML_SUCCESS)
        return result;
    if (*number == 0 || taken.count == 0)
        return NVML_ERROR_NOT_FOUND;
    *at = wall_us(taken.ends_ns[(taken.count - 1) % SIM_BOARD_SAMPLES]);
    if (*at <= last_seen)
        return NVML_ERROR_NOT_FOUND;
    for (unsigned int i = 0; i < *number; i++)
        (*found)[i].utilisation = mean_since(&taken, (*found)[i].samples, last_seen);
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                        nvmlProcessUtilizationSample_t *utilization,
                                                        unsigned int *count,
                                                        unsigned long long last_seen)
{
    struct process *found;
    unsigned int number;
    unsigned long long at;
    nvmlReturn_t result;

    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    result = open_sample(device, last_seen, &found, &number, &at);
    if (result == NVML_SUCCESS)
        result = sim_nvml_room(number, count, utilization);
    for (unsigned int i = 0; result == NVML_SUCCESS && i < number; i++)
        utilization[i] = (nvmlProcessUtilizationSample_t){
            .pid = found[i].pid,
            .timeStamp = at,
            .smUtil = found[i].utilisation,
            .memUtil = found[i].utilisation / 2,
        };
    free(found);
    return result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                              nvmlProcessesUtilizationInfo_t *info)
{
    struct process *found;
    unsigned int number;
    unsigned long long at;
    nvmlReturn_t result;

    if (!info)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (info->version != nvmlProcessesUtilizationInfo_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    result = open_sample(device, info->lastSeenTimeStamp, &found, &number, &at);
    if (result == NVML_SUCCESS)
        result = sim_nvml_room(number, &info->processSamplesCount, info->procUtilArray);
    for (unsigned int i = 0; result == NVML_SUCCESS && i < number; i++)
        info->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){
            .pid = found[i].pid,
            .timeStamp = at,
            .smUtil = found[i].utilisation,
            .memUtil = found[i].utilisation / 2,
        };
    free(found);
    return result;
}

/* ---- Accounting, which is always on here and forgets who has ended ---- */

SIM_EXPORT nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device, unsigned int *size)
{
    struct sim_nvml_device opened;
    nvmlReturn_t result = sim_nvml_open(device, &opened);

    if (result == NVML_SUCCESS && !size)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *size = SIM_MAX_ROWS;
    return result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count,
                                                    unsigned int *pids)
{
    struct sim_nvml_device opened;
    struct process *found;
    unsigned int number;
    nvmlReturn_t result = open_list(device, COMPUTE, &opened, &found, &number);

    if (result == NVML_SUCCESS)
        result = count ? sim_nvml_room(number, count, pids) : NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned int i = 0; result == NVML_SUCCESS && i < number; i++)
        pids[i] = found[i].pid;
    free(found);
    return result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid,
                                                     nvmlAccountingStats_t *stats)
{
    struct sim_nvml_device opened;
    struct process *found;
    unsigned int number = 0;
    nvmlReturn_t result = open_list(device, COMPUTE, &opened, &found, &number);

    if (result == NVML_SUCCESS)
        result = stats ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned int i = 0; result == NVML_ERROR_NOT_FOUND && i < number; i++) {
        if (found[i].pid != pid)
            continue;
        *stats = (nvmlAccountingStats_t){
            .gpuUtilization = found[i].utilisation,
            .maxMemoryUsage = found[i].bytes,
            .isRunning = 1,
        };
        result = NVML_SUCCESS;
    }
    free(found);
    return result;
}
