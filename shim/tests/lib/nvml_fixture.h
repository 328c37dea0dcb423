/* A driver's NVML with a card and a MIG device, and a slice of both. */
#ifndef HAMI_TESTS_NVML_FIXTURE_H
#define HAMI_TESTS_NVML_FIXTURE_H

#include "driver/real.h"
#include "fake_slice.h"
#include "slice/alive.h"

#define CARD ((nvmlDevice_t)0x10)
#define OTHER_CARD ((nvmlDevice_t)0x20) /* NVML shows it, the slice has it not */
#define CUT_CARD ((nvmlDevice_t)0x30)
#define PART ((nvmlDevice_t)0x31) /* a MIG device of CUT_CARD */
#define NOBODY ((nvmlDevice_t)0x40)

static const char card_uuid[] = "GPU-00000000-0000-0000-0000-000000000001";
static const char part_uuid[] = "MIG-00000000-0000-0000-0000-000000000002";

/* ---- A driver ---- */

static nvmlReturn_t driver_says; /* of everything */
static int driver_asked;
static nvmlMemory_t driver_memory;
static unsigned int driver_processes;

static nvmlReturn_t uuid_of(nvmlDevice_t device, char *uuid, unsigned int length)
{
    const char *found = device == CARD   ? card_uuid
                        : device == PART ? part_uuid
                                         : "GPU-00000000-0000-0000-0000-00000000000f";

    if (driver_says || device == NOBODY)
        return driver_says ? driver_says : NVML_ERROR_INVALID_ARGUMENT;
    snprintf(uuid, length, "%s", found);
    return NVML_SUCCESS;
}

static nvmlReturn_t by_uuid(const char *uuid, nvmlDevice_t *device)
{
    *device = strcmp(uuid, part_uuid) == 0 ? PART : CARD;
    return driver_says;
}

static nvmlReturn_t card_of_part(nvmlDevice_t mig, nvmlDevice_t *device)
{
    *device = CUT_CARD;
    return mig == PART ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t instance(nvmlDevice_t device, unsigned int *id)
{
    *id = 5;
    return device == PART ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t memory(nvmlDevice_t device, nvmlMemory_t *into)
{
    driver_asked++;
    if (driver_says || device == NOBODY || !into)
        return driver_says ? driver_says : NVML_ERROR_INVALID_ARGUMENT;
    *into = driver_memory;
    return NVML_SUCCESS;
}

static nvmlReturn_t memory_v2(nvmlDevice_t device, nvmlMemory_v2_t *into)
{
    nvmlMemory_t found;
    nvmlReturn_t result = memory(device, into ? &found : NULL);

    if (result)
        return result;
    if (into->version != nvmlMemory_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    into->total = found.total;
    into->free = found.free;
    into->reserved = 3 * MIB;
    into->used = found.used - 3 * MIB;
    return NVML_SUCCESS;
}

/* Lists strangers, with pids nobody here has. */
static nvmlReturn_t room(nvmlDevice_t device, unsigned int *count, const void *infos)
{
    unsigned int given;

    driver_asked++;
    if (driver_says || device == NOBODY || !count)
        return driver_says ? driver_says : NVML_ERROR_INVALID_ARGUMENT;
    given = *count;
    *count = driver_processes;
    if (given < driver_processes)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    return driver_processes && !infos ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

static nvmlReturn_t running(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
    nvmlReturn_t result = room(device, count, infos);

    for (unsigned int i = 0; result == NVML_SUCCESS && i < driver_processes; i++)
        infos[i] = (nvmlProcessInfo_t){.pid = 4194300 + i, .usedGpuMemory = MIB};
    return result;
}

static nvmlReturn_t running_v1(nvmlDevice_t device, unsigned int *count,
                               nvmlProcessInfo_v1_t *infos)
{
    nvmlReturn_t result = room(device, count, infos);

    for (unsigned int i = 0; result == NVML_SUCCESS && i < driver_processes; i++)
        infos[i] = (nvmlProcessInfo_v1_t){.pid = 4194300 + i, .usedGpuMemory = MIB};
    return result;
}

static nvmlReturn_t details(nvmlDevice_t device, nvmlProcessDetailList_t *list)
{
    nvmlReturn_t result;

    if (!list || list->mode > NVML_PROCESS_MODE_MPS)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (list->version != nvmlProcessDetailList_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    result = room(device, &list->numProcArrayEntries, list->procArray);
    for (unsigned int i = 0; result == NVML_SUCCESS && i < driver_processes; i++)
        list->procArray[i] = (nvmlProcessDetail_v1_t){.pid = 4194300 + i, .usedGpuMemory = MIB};
    return result;
}

static struct hami_real_nvml driver = {
    .nvmlDeviceGetUUID = uuid_of,
    .nvmlDeviceGetHandleByUUID = by_uuid,
    .nvmlDeviceGetDeviceHandleFromMigDeviceHandle = card_of_part,
    .nvmlDeviceGetGpuInstanceId = instance,
    .nvmlDeviceGetComputeInstanceId = instance,
    .nvmlDeviceGetMemoryInfo = memory,
    .nvmlDeviceGetMemoryInfo_v2 = memory_v2,
    .nvmlDeviceGetComputeRunningProcesses = running_v1,
    .nvmlDeviceGetComputeRunningProcesses_v2 = running,
    .nvmlDeviceGetComputeRunningProcesses_v3 = running,
    .nvmlDeviceGetGraphicsRunningProcesses = running_v1,
    .nvmlDeviceGetGraphicsRunningProcesses_v2 = running,
    .nvmlDeviceGetGraphicsRunningProcesses_v3 = running,
    .nvmlDeviceGetMPSComputeRunningProcesses = running_v1,
    .nvmlDeviceGetMPSComputeRunningProcesses_v2 = running,
    .nvmlDeviceGetMPSComputeRunningProcesses_v3 = running,
    .nvmlDeviceGetRunningProcessDetailList = details,
};
const struct hami_real_nvml *_Atomic hami_real_nvml_found = &driver;

const struct hami_real_nvml *hami_real_load_nvml(void)
{
    return &driver;
}

/* ---- A slice ---- */

static enum hami_mode mode_found;

enum hami_mode hami_attach_reader(void)
{
    return mode_found;
}

int hami_row_of_uuid(const char *printed)
{
    for (uint32_t row = 0; row < fake_limits.device_count; row++)
        if (strcmp(fake_limits.devices[row].uuid, printed) == 0)
            return (int)row;
    return HAMI_ROW_NONE;
}

void hami_correct(void)
{
}

/* Row 0 is the card, row 1 the MIG device; the device has 1000 MiB, of which 300 are used. */
static inline void start(uint64_t limit)
{
    if (hami_process->usage)
        munmap(hami_process->usage, sizeof(struct hami_usage));
    fake_container(2, limit);
    strcpy(fake_limits.devices[0].uuid, card_uuid);
    strcpy(fake_limits.devices[1].uuid, part_uuid);
    hami_process->usage = fake_map();
    hami_process->usage_fd = fake_region;
    mode_found = HAMI_MODE_SLICE;
    driver_says = NVML_SUCCESS;
    driver_asked = 0;
    driver_processes = 2;
    driver_memory = (nvmlMemory_t){.total = 1000 * MIB, .free = 700 * MIB, .used = 300 * MIB};
}

static inline void charge(uint32_t slot, uint64_t bytes)
{
    atomic_store(&hami_process->usage->charged[0][slot], bytes);
}

#endif
