/* What NVML shows of a slice. links: lib/nvml/memory.c lib/nvml/processes.c lib/nvml/utilisation.c lib/slice/alive.c */
#include <signal.h>
#include <sys/wait.h>

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

static nvmlReturn_t lacking(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
    (void)device;
    (void)count;
    (void)infos;
    return NVML_ERROR_FUNCTION_NOT_FOUND;
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
static void start(uint64_t limit)
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

static void charge(uint32_t slot, uint64_t bytes)
{
    atomic_store(&hami_process->usage->charged[0][slot], bytes);
}

/* ---- Memory ---- */

static bool shows(nvmlDevice_t device, uint64_t total, uint64_t free, uint64_t used)
{
    nvmlMemory_t found = {0};
    nvmlMemory_v2_t second = {.version = nvmlMemory_v2};
    bool same;

    if (nvmlDeviceGetMemoryInfo(device, &found) || nvmlDeviceGetMemoryInfo_v2(device, &second))
        return false;
    same = found.total == second.total && found.free == second.free &&
           found.used == second.used + second.reserved;
    if (found.total != total * MIB || found.free != free * MIB || found.used != used * MIB)
        fprintf(stderr, "total %llu free %llu used %llu\n", found.total / MIB, found.free / MIB,
                found.used / MIB);
    return same && found.total == total * MIB && found.free == free * MIB &&
           found.used == used * MIB;
}

static void the_slice_is_shown_as_the_device(void)
{
    start(100 * MIB);
    EXPECT(shows(CARD, 100, 100, 0));
    charge(0, 30 * MIB);
    charge(255, 20 * MIB);
    EXPECT(shows(CARD, 100, 50, 50));
    EXPECT(shows(PART, 100, 100, 0));
    charge(7, 80 * MIB); /* after a resize below what is used */
    EXPECT(shows(CARD, 100, 0, 130));
}

static void no_more_is_free_than_the_device_has(void)
{
    start(900 * MIB);
    charge(0, 100 * MIB);
    EXPECT(shows(CARD, 900, 700, 100));
    start(2000 * MIB); /* more than there is */
    EXPECT(shows(CARD, 1000, 700, 0));
}

static void what_the_driver_reserves_is_not_the_slices(void)
{
    nvmlMemory_v2_t found = {.version = nvmlMemory_v2};

    start(100 * MIB);
    EXPECT(nvmlDeviceGetMemoryInfo_v2(CARD, &found) == NVML_SUCCESS);
    EXPECT(found.reserved == 0 && found.version == nvmlMemory_v2);
    mode_found = HAMI_MODE_FREE;
    EXPECT(nvmlDeviceGetMemoryInfo_v2(CARD, &found) == NVML_SUCCESS);
    EXPECT(found.reserved == 3 * MIB);
}

static void without_a_limit_the_device_is_shown(void)
{
    start(0);
    EXPECT(shows(CARD, 1000, 700, 300));
    start(100 * MIB);
    mode_found = HAMI_MODE_FREE;
    EXPECT(shows(CARD, 1000, 700, 300));
}

static void where_nothing_may_be_taken_nothing_is_free(void)
{
    start(100 * MIB);
    EXPECT(shows(OTHER_CARD, 1000, 0, 1000));
    mode_found = HAMI_MODE_CLOSED;
    EXPECT(shows(CARD, 1000, 0, 1000));
}

static void a_card_that_is_cut_is_shown_as_it_is(void)
{
    start(100 * MIB);
    EXPECT(shows(CUT_CARD, 1000, 700, 300));
}

static void words_that_are_no_figures_make_the_slice_full(void)
{
    start(100 * MIB);
    charge(9, UINT64_MAX);
    EXPECT(shows(CARD, 100, 0, 100));
    charge(9, UINT64_C(1) << 55);
    charge(10, UINT64_C(1) << 63);
    EXPECT(shows(CARD, 100, 0, 100));
}

static void errors_are_the_drivers(void)
{
    nvmlMemory_t found = {.total = 7};
    nvmlMemory_v2_t second = {.version = 5};

    start(100 * MIB);
    EXPECT(nvmlDeviceGetMemoryInfo(CARD, NULL) == NVML_ERROR_INVALID_ARGUMENT);
    EXPECT(nvmlDeviceGetMemoryInfo_v2(CARD, NULL) == NVML_ERROR_INVALID_ARGUMENT);
    EXPECT(nvmlDeviceGetMemoryInfo(NOBODY, &found) == NVML_ERROR_INVALID_ARGUMENT);
    EXPECT(nvmlDeviceGetMemoryInfo_v2(CARD, &second) == NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    driver_says = NVML_ERROR_UNINITIALIZED;
    EXPECT(nvmlDeviceGetMemoryInfo(CARD, &found) == NVML_ERROR_UNINITIALIZED);
    EXPECT(found.total == 7 && second.total == 0);
}

/* ---- Processes ---- */

static void occupy(uint32_t slot, const struct hami_identity *who, uint64_t bytes)
{
    struct hami_slot *of = &hami_process->usage->slots[slot];

    atomic_store(&of->pid, who->pid);
    atomic_store(&of->start_time, who->start_time);
    atomic_store(&of->pid_namespace, who->pid_namespace);
    charge(slot, bytes);
}

/* This process, as one that has a slot. */
static struct hami_identity attached(uint64_t bytes)
{
    struct hami_identity self = hami_identity();

    hami_process->slot = 3;
    atomic_store(&hami_process->mode, HAMI_MODE_SLICE);
    occupy(3, &self, bytes);
    return self;
}

/* Another one, which has the region mapped and lives until its pipe is closed. */
static pid_t neighbour(int *hold)
{
    int ends[2];
    pid_t child;

    need(pipe(ends) == 0, "pipe");
    child = fork();
    need(child >= 0, "fork");
    if (child == 0) {
        char byte;

        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    close(ends[0]);
    *hold = ends[1];
    return child;
}

/* What start time the kernel knows it by is the kernel's: 0 is "unknown". */
static struct hami_identity identity_of(pid_t pid)
{
    struct hami_identity who = hami_identity();

    who.pid = (uint32_t)pid;
    who.start_time = 0;
    return who;
}

static void the_containers_own_processes_are_listed(void)
{
    struct hami_identity self, other;
    nvmlProcessInfo_t infos[8];
    nvmlProcessInfo_v1_t former[8];
    unsigned int count = 8;
    int hold;
    pid_t child;

    start(100 * MIB);
    self = attached(5 * MIB);
    child = neighbour(&hold);
    other = identity_of(child);
    occupy(200, &other, 6 * MIB);
    EXPECT(nvmlDeviceGetComputeRunningProcesses_v3(CARD, &count, infos) == NVML_SUCCESS);
    EXPECT(count == 2);
    EXPECT(infos[0].pid == self.pid && infos[0].usedGpuMemory == 5 * MIB);
    EXPECT(infos[1].pid == (unsigned int)child && infos[1].usedGpuMemory == 6 * MIB);
    EXPECT(infos[0].gpuInstanceId == 0xffffffff && infos[0].computeInstanceId == 0xffffffff);
    count = 8;
    EXPECT(nvmlDeviceGetComputeRunningProcesses_v2(CARD, &count, infos) == NVML_SUCCESS);
    EXPECT(count == 2 && infos[1].usedGpuMemory == 6 * MIB);
    count = 8;
    EXPECT(nvmlDeviceGetComputeRunningProcesses(CARD, &count, former) == NVML_SUCCESS);
    EXPECT(count == 2 && former[1].pid == (unsigned int)child);
    EXPECT(former[1].usedGpuMemory == 6 * MIB);
    close(hold);
    waitpid(child, NULL, 0);
    count = 8;
    EXPECT(nvmlDeviceGetComputeRunningProcesses_v3(CARD, &count, infos) == NVML_SUCCESS);
    EXPECT(count == 1 && infos[0].pid == self.pid);
}

static void who_has_nothing_on_the_device_is_not_listed(void)
{
    struct hami_identity stranger = identity_of(getppid());
    nvmlProcessInfo_t infos[8];
    unsigned int count = 8;

    start(100 * MIB);
    attached(0);
    EXPECT(nvmlDeviceGetComputeRunningProcesses_v3(CARD, &count, infos) == NVML_SUCCESS);
    EXPECT(count == 0);
    stranger.pid_namespace ^= 1;
    occupy(9, &stranger, MIB);
    stranger.pid = 0;
    occupy(10, &stranger, MIB);
    count = 8;
    EXPECT(nvmlDeviceGetComputeRunningProcesses_v3(CARD, &count, infos) == NVML_SUCCESS);
    EXPECT(count == 0);
    attached(MIB);
    count = 8;
    EXPECT(nvmlDeviceGetComputeRunningProcesses_v3(OTHER_CARD, &count, infos) == NVML_SUCCESS);
    EXPECT(count == 0);
}

static void room_is_asked_for_as_nvml_has_it(void)
{
    nvmlProcessInfo_t infos[1] = {{.pid = 77}};
    unsigned int count = 0;

    start(100 * MIB);
    attached(MIB);
    EXPECT(nvmlDeviceGetComputeRunningProcesses_v3(CARD, &count, NULL) ==
           NVML_ERROR_INSUFFICIENT_SIZE);
    EXPECT(count == 1);
    count = 0;
    EXPECT(nvmlDeviceGetComputeRunningProcesses_v3(CARD, &count, infos) ==
           NVML_ERROR_INSUFFICIENT_SIZE);
    EXPECT(count == 1 && infos[0].pid == 77);
    EXPECT(nvmlDeviceGetComputeRunningProcesses_v3(CARD, &count, NULL) ==
           NVML_ERROR_INVALID_ARGUMENT);
    EXPECT(nvmlDeviceGetComputeRunningProcesses_v3(CARD, NULL, infos) ==
           NVML_ERROR_INVALID_ARGUMENT);
    count = 1;
    EXPECT(nvmlDeviceGetComputeRunningProcesses_v3(NOBODY, &count, infos) ==
           NVML_ERROR_INVALID_ARGUMENT);
    driver_says = NVML_ERROR_UNINITIALIZED;
    EXPECT(nvmlDeviceGetComputeRunningProcesses_v3(CARD, &count, infos) ==
           NVML_ERROR_UNINITIALIZED);
    EXPECT(count == 1 && infos[0].pid == 77);
}

static void a_driver_without_the_function_lacks_it_in_a_slice_too(void)
{
    nvmlProcessInfo_t infos[1];
    unsigned int count = 1;

    start(100 * MIB);
    driver.nvmlDeviceGetComputeRunningProcesses_v3 = lacking;
    EXPECT(nvmlDeviceGetComputeRunningProcesses_v3(CARD, &count, infos) ==
           NVML_ERROR_FUNCTION_NOT_FOUND);
    driver.nvmlDeviceGetComputeRunningProcesses_v3 = running;
}

static void the_parts_of_a_card_say_which_they_are(void)
{
    nvmlDevice_t devices[] = {PART, CUT_CARD};

    start(100 * MIB);
    attached(0);
    atomic_store(&hami_process->usage->charged[1][3], 4 * MIB);
    for (int i = 0; i < 2; i++) {
        nvmlProcessInfo_t infos[2];
        unsigned int count = 2;

        EXPECT(nvmlDeviceGetComputeRunningProcesses_v3(devices[i], &count, infos) == NVML_SUCCESS);
        EXPECT(count == 1 && infos[0].usedGpuMemory == 4 * MIB);
        EXPECT(infos[0].gpuInstanceId == 5 && infos[0].computeInstanceId == 5);
    }
}

static nvmlReturn_t detailed(nvmlDevice_t device, unsigned int mode, unsigned int *count,
                             nvmlProcessDetail_v1_t *found)
{
    nvmlProcessDetailList_t list = {.version = nvmlProcessDetailList_v1, .mode = mode,
                                    .numProcArrayEntries = *count, .procArray = found};
    nvmlReturn_t result = nvmlDeviceGetRunningProcessDetailList(device, &list);

    *count = list.numProcArrayEntries;
    return result;
}

static void the_list_with_details_is_the_same(void)
{
    nvmlProcessDetail_v1_t found[4] = {{.pid = 77}};
    nvmlProcessDetailList_t list = {.version = nvmlProcessDetailList_v1, .procArray = found};
    struct hami_identity self;
    unsigned int count = 4;

    start(100 * MIB);
    self = attached(5 * MIB);
    EXPECT(detailed(CARD, NVML_PROCESS_MODE_COMPUTE, &count, found) == NVML_SUCCESS && count == 1);
    EXPECT(found[0].pid == self.pid && found[0].usedGpuMemory == 5 * MIB);
    EXPECT(found[0].gpuInstanceId == 0xffffffff && found[0].computeInstanceId == 0xffffffff);
    EXPECT(found[0].usedGpuCcProtectedMemory == 0);
    for (unsigned int mode = NVML_PROCESS_MODE_GRAPHICS; mode <= NVML_PROCESS_MODE_MPS; mode++) {
        count = 4;
        EXPECT(detailed(CARD, mode, &count, found) == NVML_SUCCESS && count == 0);
    }
    count = 4;
    EXPECT(detailed(CARD, 3, &count, found) == NVML_ERROR_INVALID_ARGUMENT && count == 4);
    count = 0;
    EXPECT(detailed(CARD, 0, &count, NULL) == NVML_ERROR_INSUFFICIENT_SIZE && count == 1);
    EXPECT(detailed(CARD, 0, &count, NULL) == NVML_ERROR_INVALID_ARGUMENT);
    EXPECT(nvmlDeviceGetRunningProcessDetailList(CARD, NULL) == NVML_ERROR_INVALID_ARGUMENT);
    EXPECT(nvmlDeviceGetRunningProcessDetailList(NOBODY, &list) == NVML_ERROR_INVALID_ARGUMENT);
    list.version = 5;
    EXPECT(nvmlDeviceGetRunningProcessDetailList(CARD, &list) ==
           NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    mode_found = HAMI_MODE_CLOSED;
    count = 4;
    EXPECT(detailed(CARD, NVML_PROCESS_MODE_COMPUTE, &count, found) == NVML_SUCCESS && count == 0);
    mode_found = HAMI_MODE_FREE;
    count = 4;
    EXPECT(detailed(CARD, NVML_PROCESS_MODE_COMPUTE, &count, found) == NVML_SUCCESS && count == 2);
    EXPECT(found[1].pid == 4194301);
}

typedef nvmlReturn_t lists(nvmlDevice_t, unsigned int *, nvmlProcessInfo_t *);
typedef nvmlReturn_t lists_v1(nvmlDevice_t, unsigned int *, nvmlProcessInfo_v1_t *);

static lists *const others[] = {
    nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlDeviceGetGraphicsRunningProcesses_v3,
    nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlDeviceGetMPSComputeRunningProcesses_v3};
static lists_v1 *const others_v1[] = {nvmlDeviceGetGraphicsRunningProcesses,
                                      nvmlDeviceGetMPSComputeRunningProcesses};

static void the_nodes_other_processes_are_not_shown(void)
{
    start(100 * MIB);
    attached(MIB);
    for (int i = 0; i < 4; i++) {
        unsigned int count = 0;

        EXPECT(others[i](CARD, &count, NULL) == NVML_SUCCESS);
        EXPECT(count == 0);
    }
    for (int i = 0; i < 2; i++) {
        unsigned int count = 0;

        EXPECT(others_v1[i](CARD, &count, NULL) == NVML_SUCCESS);
        EXPECT(count == 0);
    }
}

static void without_a_slice_all_lists_are_the_drivers(void)
{
    nvmlProcessInfo_t infos[4];
    nvmlProcessInfo_v1_t former[4];
    unsigned int count = 4;

    start(100 * MIB);
    mode_found = HAMI_MODE_FREE;
    EXPECT(nvmlDeviceGetComputeRunningProcesses_v3(CARD, &count, infos) == NVML_SUCCESS);
    EXPECT(count == 2 && infos[1].pid == 4194301 && driver_asked == 1);
    for (int i = 0; i < 4; i++) {
        count = 4;
        EXPECT(others[i](CARD, &count, infos) == NVML_SUCCESS && count == 2);
    }
    for (int i = 0; i < 2; i++) {
        count = 4;
        EXPECT(others_v1[i](CARD, &count, former) == NVML_SUCCESS && count == 2);
    }
}

static void a_slice_that_cannot_be_read_lists_nobody(void)
{
    nvmlProcessInfo_t infos[4];
    unsigned int count = 4;

    start(100 * MIB);
    mode_found = HAMI_MODE_CLOSED;
    EXPECT(nvmlDeviceGetComputeRunningProcesses_v3(CARD, &count, infos) == NVML_SUCCESS);
    EXPECT(count == 0);
}

int main(void)
{
    the_slice_is_shown_as_the_device();
    no_more_is_free_than_the_device_has();
    what_the_driver_reserves_is_not_the_slices();
    without_a_limit_the_device_is_shown();
    where_nothing_may_be_taken_nothing_is_free();
    a_card_that_is_cut_is_shown_as_it_is();
    words_that_are_no_figures_make_the_slice_full();
    errors_are_the_drivers();
    the_containers_own_processes_are_listed();
    who_has_nothing_on_the_device_is_not_listed();
    room_is_asked_for_as_nvml_has_it();
    a_driver_without_the_function_lacks_it_in_a_slice_too();
    the_parts_of_a_card_say_which_they_are();
    the_list_with_details_is_the_same();
    the_nodes_other_processes_are_not_shown();
    without_a_slice_all_lists_are_the_drivers();
    a_slice_that_cannot_be_read_lists_nobody();
    return report();
}
