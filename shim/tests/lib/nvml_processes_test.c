/* The processes that NVML lists in a slice. links: lib/nvml/memory.c lib/nvml/processes.c lib/nvml/utilisation.c lib/slice/alive.c */
#include <sys/wait.h>

#include "nvml_fixture.h"

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

static nvmlReturn_t lacking(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
    (void)device;
    (void)count;
    (void)infos;
    return NVML_ERROR_FUNCTION_NOT_FOUND;
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
