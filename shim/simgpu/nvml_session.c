/* Sessions, texts and what NVML says of the system. NVML needs no CUDA, counts its initialisations,
 * and works in a forked child. */
#include "nvml.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define NEWEST_DRIVER 13050 /* as cuda_init.c */
#define DRIVER_SHOWN "580.65.06"
#define NVML_SHOWN "13." DRIVER_SHOWN

static _Atomic unsigned int sessions;

nvmlReturn_t sim_nvml_session(void)
{
    return atomic_load(&sessions) > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t sim_nvml_request(uint32_t op, const struct sim_nvml_ask *ask, void *answer,
                              size_t size)
{
    uint32_t status;
    size_t got = size;

    /* The connection of a forked child's parent is not its own. */
    if (sim_watch() != CUDA_SUCCESS ||
        sim_request(op, ask, sizeof(*ask), &status, answer, &got) != CUDA_SUCCESS)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if (status == NVML_SUCCESS && got != size)
        return NVML_ERROR_UNKNOWN;
    return (nvmlReturn_t)status;
}

nvmlReturn_t sim_nvml_text(const char *text, char *into, unsigned int length)
{
    if (!into)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(into, text);
    return NVML_SUCCESS;
}

/* ---- Sessions ---- */

static nvmlReturn_t begin(void)
{
    struct sim_nvml_ask ask = {.card = 0};
    struct sim_nvml_card card;
    nvmlReturn_t result = sim_nvml_request(SIM_NVML_CARD, &ask, &card, sizeof(card));

    if (result == NVML_SUCCESS)
        atomic_fetch_add(&sessions, 1);
    return result;
}

SIM_EXPORT nvmlReturn_t nvmlInit(void)
{
    return begin();
}

SIM_EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    return begin();
}

SIM_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    if (flags & ~(unsigned int)(NVML_INIT_FLAG_NO_GPUS | NVML_INIT_FLAG_NO_ATTACH))
        return NVML_ERROR_INVALID_ARGUMENT;
    return begin();
}

SIM_EXPORT nvmlReturn_t nvmlShutdown(void)
{
    unsigned int count = atomic_load(&sessions);

    do {
        if (count == 0)
            return NVML_ERROR_UNINITIALIZED;
    } while (!atomic_compare_exchange_weak(&sessions, &count, count - 1));
    if (count == 1)
        sim_nvml_events_end();
    return NVML_SUCCESS;
}

SIM_EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    static const char *const texts[] = {
        [NVML_SUCCESS] = "Success",
        [NVML_ERROR_UNINITIALIZED] = "Uninitialized",
        [NVML_ERROR_INVALID_ARGUMENT] = "Invalid Argument",
        [NVML_ERROR_NOT_SUPPORTED] = "Not Supported",
        [NVML_ERROR_NO_PERMISSION] = "Insufficient Permissions",
        [NVML_ERROR_ALREADY_INITIALIZED] = "Already Initialized",
        [NVML_ERROR_NOT_FOUND] = "Not Found",
        [NVML_ERROR_INSUFFICIENT_SIZE] = "Insufficient Size",
        [NVML_ERROR_INSUFFICIENT_POWER] = "Insufficient External Power",
        [NVML_ERROR_DRIVER_NOT_LOADED] = "Driver Not Loaded",
        [NVML_ERROR_TIMEOUT] = "Timeout",
        [NVML_ERROR_LIBRARY_NOT_FOUND] = "NVML Shared Library Not Found",
        [NVML_ERROR_FUNCTION_NOT_FOUND] = "Function Not Found",
        [NVML_ERROR_GPU_IS_LOST] = "GPU is lost",
        [NVML_ERROR_RESET_REQUIRED] = "GPU requires reset",
        [NVML_ERROR_LIB_RM_VERSION_MISMATCH] = "Driver/library version mismatch",
        [NVML_ERROR_IN_USE] = "In use by another client",
        [NVML_ERROR_MEMORY] = "Insufficient Memory",
        [NVML_ERROR_NO_DATA] = "No data",
        [NVML_ERROR_INSUFFICIENT_RESOURCES] = "Insufficient Resources",
        [NVML_ERROR_ARGUMENT_VERSION_MISMATCH] = "Argument version mismatch",
    };

    if ((size_t)result < sizeof(texts) / sizeof(*texts) && texts[result])
        return texts[result];
    return "Unknown Error";
}

/* ---- The system ---- */

SIM_EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    nvmlReturn_t result = sim_nvml_session();

    return result ? result : sim_nvml_text(DRIVER_SHOWN, version, length);
}

SIM_EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    /* This one works without a session. */
    return sim_nvml_text(NVML_SHOWN, version, length);
}

static nvmlReturn_t cuda_version(int *version)
{
    if (!version)
        return NVML_ERROR_INVALID_ARGUMENT;
    *version = (int)sim_knob("DRIVER_VERSION", NEWEST_DRIVER);
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return cuda_version(version);
}

SIM_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return cuda_version(version);
}

SIM_EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    nvmlReturn_t result = sim_nvml_session();
    char path[32], text[4096];
    size_t got;
    FILE *file;

    if (result)
        return result;
    if (!name || length == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
    file = fopen(path, "re");
    if (!file)
        return NVML_ERROR_NOT_FOUND;
    got = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[got] = 0; /* the first of its arguments, each of which ends with a NUL */
    snprintf(name, length, "%s", text);
    return NVML_SUCCESS;
}
