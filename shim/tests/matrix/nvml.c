/* Snippets: NVML. Of processes there are ours and the peer, on the card. */
#include "matrix.h"

#define MOST 256

CALL(nvmlDeviceGetMemoryInfo)
{
    nvmlMemory_t memory = {0};

    return and_so(s->api->nvmlDeviceGetMemoryInfo(s->card, &memory),
                  memory.total && memory.used <= memory.total);
}

CALL(nvmlDeviceGetMemoryInfo_v2)
{
    nvmlMemory_v2_t memory = {.version = nvmlMemory_v2};

    return and_so(s->api->nvmlDeviceGetMemoryInfo_v2(s->card, &memory),
                  memory.total && memory.used <= memory.total);
}

/* Graphics and MPS: there are none. */
#define LIST(name, type, some)                                                                     \
    CALL(name)                                                                                     \
    {                                                                                              \
        type found[MOST];                                                                          \
        unsigned int count = MOST;                                                                 \
                                                                                                   \
        return and_so(s->api->name(s->card, &count, found), (count > 0) == (some));           \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, true)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_t, true)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, true)
LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, false)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_t, false)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, false)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, false)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_t, false)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t, false)

CALL(nvmlDeviceGetRunningProcessDetailList)
{
    static const bool some[] = {[NVML_PROCESS_MODE_COMPUTE] = true,
                                [NVML_PROCESS_MODE_GRAPHICS] = false,
                                [NVML_PROCESS_MODE_MPS] = false};
    int result = 0;

    for (unsigned int mode = 0; result == 0 && mode < 3; mode++) {
        nvmlProcessDetail_v1_t found[MOST];
        nvmlProcessDetailList_t list = {.version = nvmlProcessDetailList_v1, .mode = mode,
                                        .numProcArrayEntries = MOST, .procArray = found};

        result = and_so(s->api->nvmlDeviceGetRunningProcessDetailList(s->card, &list),
                        (list.numProcArrayEntries > 0) == some[mode]);
    }
    return result;
}

/* The board shows a process some time after it came. */
static bool shown_by(int result)
{
    return result == NVML_SUCCESS || result == NVML_ERROR_NOT_FOUND;
}

CALL(nvmlDeviceGetProcessUtilization)
{
    nvmlProcessUtilizationSample_t found[MOST];
    unsigned int count = MOST;

    return and_so(0, shown_by(s->api->nvmlDeviceGetProcessUtilization(s->card, found, &count, 0)));
}

CALL(nvmlDeviceGetProcessesUtilizationInfo)
{
    nvmlProcessUtilizationInfo_v1_t found[MOST];
    nvmlProcessesUtilizationInfo_t info = {.version = nvmlProcessesUtilizationInfo_v1,
                                           .processSamplesCount = MOST, .procUtilArray = found};

    return and_so(0, shown_by(s->api->nvmlDeviceGetProcessesUtilizationInfo(s->card, &info)));
}

CALL(nvmlDeviceGetAccountingPids)
{
    unsigned int found[MOST], count = MOST;

    return and_so(s->api->nvmlDeviceGetAccountingPids(s->card, &count, found), count > 0);
}

CALL(nvmlDeviceGetAccountingStats)
{
    unsigned int found[MOST], count = MOST;
    nvmlAccountingStats_t stats;
    int result = s->api->nvmlDeviceGetAccountingPids(s->card, &count, found);

    return result ? result
                  : and_so(s->api->nvmlDeviceGetAccountingStats(s->card, found[0], &stats),
                           stats.isRunning == 1);
}

static const struct snippet all[] = {
    SNIPPET(nvmlDeviceGetAccountingPids, nothing, nothing),
    SNIPPET(nvmlDeviceGetAccountingStats, nothing, nothing),
    SNIPPET(nvmlDeviceGetComputeRunningProcesses, nothing, nothing),
    SNIPPET(nvmlDeviceGetComputeRunningProcesses_v2, nothing, nothing),
    SNIPPET(nvmlDeviceGetComputeRunningProcesses_v3, nothing, nothing),
    SNIPPET(nvmlDeviceGetGraphicsRunningProcesses, nothing, nothing),
    SNIPPET(nvmlDeviceGetGraphicsRunningProcesses_v2, nothing, nothing),
    SNIPPET(nvmlDeviceGetGraphicsRunningProcesses_v3, nothing, nothing),
    SNIPPET(nvmlDeviceGetMPSComputeRunningProcesses, nothing, nothing),
    SNIPPET(nvmlDeviceGetMPSComputeRunningProcesses_v2, nothing, nothing),
    SNIPPET(nvmlDeviceGetMPSComputeRunningProcesses_v3, nothing, nothing),
    SNIPPET(nvmlDeviceGetMemoryInfo, nothing, nothing),
    SNIPPET(nvmlDeviceGetMemoryInfo_v2, nothing, nothing),
    SNIPPET(nvmlDeviceGetProcessUtilization, nothing, nothing),
    SNIPPET(nvmlDeviceGetProcessesUtilizationInfo, nothing, nothing),
    SNIPPET(nvmlDeviceGetRunningProcessDetailList, nothing, nothing),
};
const struct snippets matrix_nvml = SNIPPETS(all);
