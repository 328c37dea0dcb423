/* Which processes NVML lists on a device: in a slice the container's own, by the numbers they have
 * in it and with what they are charged, where the driver would list the whole node's by numbers
 * that mean nothing here. Nothing that draws, and no client of MPS, is known to the slice. */
#include "nvml/processes.h"

#include "driver/real.h"
#include "nvml/memory.h"
#include "slice/alive.h"
#include "slice/devices.h"
#include "slice/slice.h"

#define MOST HAMI_NVML_MOST
#define NO_INSTANCE 0xffffffffu

struct list {
    unsigned int count;
    nvmlProcessInfo_t infos[MOST];
};

/* Told from what a dead process left and nobody has recovered yet by looking for the process. */
static bool is_here(uint32_t slot, const struct hami_identity *who)
{
    if (hami_mode() == HAMI_MODE_SLICE && slot == hami_process->slot)
        return true;
    return hami_is_alive(who, hami_process->usage);
}

/* Add those that are charged anything on a row, which is the device `device`. */
static void add_row(struct list *list, int row, nvmlDevice_t device)
{
    struct hami_usage *usage = hami_process->usage;
    unsigned int gpu_instance, compute_instance;

    if (hami_nvml()->nvmlDeviceGetGpuInstanceId(device, &gpu_instance) != NVML_SUCCESS ||
        hami_nvml()->nvmlDeviceGetComputeInstanceId(device, &compute_instance) != NVML_SUCCESS)
        gpu_instance = compute_instance = NO_INSTANCE;
    for (uint32_t slot = 0; slot < HAMI_MAX_SLOTS && list->count < MOST; slot++) {
        struct hami_slot *of = &usage->slots[slot];
        uint64_t bytes = atomic_load_explicit(&usage->charged[row][slot], memory_order_relaxed);
        struct hami_identity who = {
            .pid = atomic_load_explicit(&of->pid, memory_order_relaxed),
            .start_time = atomic_load_explicit(&of->start_time, memory_order_relaxed),
            .pid_namespace = atomic_load_explicit(&of->pid_namespace, memory_order_relaxed),
        };

        if (bytes == 0 || !is_here(slot, &who))
            continue;
        list->infos[list->count++] = (nvmlProcessInfo_t){
            .pid = who.pid,
            .usedGpuMemory = bytes,
            .gpuInstanceId = gpu_instance,
            .computeInstanceId = compute_instance,
        };
    }
}

/* A card that is cut lists what runs on its MIG devices. */
static void add_device(struct list *list, nvmlDevice_t device)
{
    int row = hami_nvml_row(device);
    nvmlDevice_t part;

    if (row != HAMI_ROW_NONE) {
        add_row(list, row, device);
        return;
    }
    for (row = 0; row < hami_row_count(); row++)
        if (hami_nvml_is_part(row, device, &part))
            add_row(list, row, part);
}

/* What the driver said of a list without room: whether it could be asked at all. */
static bool can_ask(nvmlReturn_t result)
{
    return result == NVML_SUCCESS || result == NVML_ERROR_INSUFFICIENT_SIZE;
}

bool hami_nvml_stands_aside(void)
{
    enum hami_mode mode = hami_attach_reader();

    return mode == HAMI_MODE_FREE || mode == HAMI_MODE_UNKNOWN;
}

struct hami_nvml_pids hami_nvml_pids(nvmlDevice_t device)
{
    struct list list = {.count = 0};
    struct hami_nvml_pids pids;

    if (hami_attach_reader() == HAMI_MODE_SLICE)
        add_device(&list, device);
    pids.count = list.count;
    for (unsigned int i = 0; i < list.count; i++)
        pids.pids[i] = list.infos[i].pid;
    return pids;
}

/* NVML's protocol: *count says how much room there is, then how many there are. */
static nvmlReturn_t room_for(const struct list *list, unsigned int *count, const void *infos)
{
    unsigned int given = *count;

    *count = list->count;
    if (list->count > given)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    return list->count > 0 && !infos ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

static nvmlReturn_t answer(bool compute, nvmlDevice_t device, unsigned int *count,
                           nvmlProcessInfo_t *infos)
{
    struct list list = {.count = 0};
    nvmlReturn_t result;

    if (compute && hami_attach_reader() == HAMI_MODE_SLICE)
        add_device(&list, device);
    result = room_for(&list, count, infos);
    for (unsigned int i = 0; result == NVML_SUCCESS && i < list.count; i++)
        infos[i] = list.infos[i];
    return result;
}

static nvmlReturn_t answer_v1(bool compute, nvmlDevice_t device, unsigned int *count,
                              nvmlProcessInfo_v1_t *infos)
{
    struct list list = {.count = 0};
    nvmlReturn_t result;

    if (compute && hami_attach_reader() == HAMI_MODE_SLICE)
        add_device(&list, device);
    result = room_for(&list, count, infos);
    for (unsigned int i = 0; result == NVML_SUCCESS && i < list.count; i++)
        infos[i] = (nvmlProcessInfo_v1_t){.pid = list.infos[i].pid,
                                          .usedGpuMemory = list.infos[i].usedGpuMemory};
    return result;
}

/* The driver is asked first, with no room: of a device it does not know, before nvmlInit, or for a
 * function it lacks, it says so itself. */
#define LIST(name, type, answers, compute)                                                         \
    HAMI_EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, type *infos)           \
    {                                                                                              \
        unsigned int none = 0;                                                                     \
        nvmlReturn_t result;                                                                       \
                                                                                                   \
        if (!count || hami_nvml_stands_aside())                                                              \
            return hami_nvml()->name(device, count, infos);                                        \
        result = hami_nvml()->name(device, &none, NULL);                                           \
        return can_ask(result) ? answers(compute, device, count, infos) : result;                  \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, answer_v1, true)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_t, answer, true)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, answer, true)
LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, answer_v1, false)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_t, answer, false)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, answer, false)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, answer_v1, false)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_t, answer, false)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t, answer, false)

/* The three lists once more in one function, by mode, with the memory that confidential computing
 * protects: of that the slice knows nothing. */
HAMI_EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                               nvmlProcessDetailList_t *details)
{
    struct list list = {.count = 0};
    nvmlProcessDetailList_t none;
    nvmlReturn_t result;

    if (!details || hami_nvml_stands_aside())
        return hami_nvml()->nvmlDeviceGetRunningProcessDetailList(device, details);
    none = (nvmlProcessDetailList_t){.version = details->version, .mode = details->mode};
    result = hami_nvml()->nvmlDeviceGetRunningProcessDetailList(device, &none);
    if (!can_ask(result))
        return result;
    if (details->mode == NVML_PROCESS_MODE_COMPUTE && hami_attach_reader() == HAMI_MODE_SLICE)
        add_device(&list, device);
    result = room_for(&list, &details->numProcArrayEntries, details->procArray);
    for (unsigned int i = 0; result == NVML_SUCCESS && i < list.count; i++)
        details->procArray[i] = (nvmlProcessDetail_v1_t){
            .pid = list.infos[i].pid,
            .usedGpuMemory = list.infos[i].usedGpuMemory,
            .gpuInstanceId = list.infos[i].gpuInstanceId,
            .computeInstanceId = list.infos[i].computeInstanceId,
        };
    return result;
}
