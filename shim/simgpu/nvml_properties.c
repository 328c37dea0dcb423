/* What a card is and how it is set up; nothing of it changes. */
#include "nvml.h"

#include <string.h>

static nvmlReturn_t open_for(nvmlDevice_t device, const void *into, struct sim_nvml_device *opened)
{
    nvmlReturn_t result = sim_nvml_open(device, opened);

    return result == NVML_SUCCESS && !into ? NVML_ERROR_INVALID_ARGUMENT : result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *type)
{
    struct sim_nvml_device opened;
    nvmlReturn_t result = open_for(device, type, &opened);

    if (result)
        return result;
    *type = strstr(opened.shown.name, "Tesla") ? NVML_BRAND_TESLA : NVML_BRAND_NVIDIA;
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device,
                                                  nvmlDeviceArchitecture_t *architecture)
{
    static const struct {
        int from; /* compute capability, in tenths */
        nvmlDeviceArchitecture_t architecture;
    } known[] = {
        {100, NVML_DEVICE_ARCH_BLACKWELL}, {90, NVML_DEVICE_ARCH_HOPPER},
        {89, NVML_DEVICE_ARCH_ADA},        {80, NVML_DEVICE_ARCH_AMPERE},
        {75, NVML_DEVICE_ARCH_TURING},     {70, NVML_DEVICE_ARCH_VOLTA},
        {60, NVML_DEVICE_ARCH_PASCAL},
    };
    struct sim_nvml_device opened;
    nvmlReturn_t result = open_for(device, architecture, &opened);

    if (result)
        return result;
    *architecture = NVML_DEVICE_ARCH_UNKNOWN;
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (opened.shown.major * 10 + opened.shown.minor >= known[i].from) {
            *architecture = known[i].architecture;
            break;
        }
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major,
                                                           int *minor)
{
    struct sim_nvml_device opened;
    nvmlReturn_t result = open_for(device, major, &opened);

    if (result)
        return result;
    if (!minor)
        return NVML_ERROR_INVALID_ARGUMENT;
    *major = opened.shown.major;
    *minor = opened.shown.minor;
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *cores)
{
    struct sim_nvml_device opened;
    nvmlReturn_t result = open_for(device, cores, &opened);

    if (result)
        return result;
    if (opened.is_mig || opened.shown.mig)
        return NVML_ERROR_NOT_SUPPORTED;
    *cores = (unsigned int)opened.shown.sms * sim_cores(opened.shown.major, opened.shown.minor);
    return NVML_SUCCESS;
}

/* Asks for the node that a card's own memory is, which is so on Grace alone. The node a card is
 * near to is for sysfs to say. */
SIM_EXPORT nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node)
{
    struct sim_nvml_device opened;
    nvmlReturn_t result = open_for(device, node, &opened);

    return result ? result : NVML_ERROR_NOT_SUPPORTED;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device,
                                                        nvmlGpuVirtualizationMode_t *mode)
{
    struct sim_nvml_device opened;
    nvmlReturn_t result = open_for(device, mode, &opened);

    if (result == NVML_SUCCESS)
        *mode = NVML_GPU_VIRTUALIZATION_MODE_NONE;
    return result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
    struct sim_nvml_device opened;
    nvmlReturn_t result = open_for(device, mode, &opened);

    if (result == NVML_SUCCESS)
        *mode = NVML_FEATURE_ENABLED;
    return result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode)
{
    struct sim_nvml_device opened;
    nvmlReturn_t result = open_for(device, mode, &opened);

    if (result == NVML_SUCCESS)
        *mode = NVML_COMPUTEMODE_DEFAULT;
    return result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current,
                                             nvmlEnableState_t *pending)
{
    struct sim_nvml_device opened;
    nvmlReturn_t result = open_for(device, current, &opened);

    if (result)
        return result;
    if (!pending)
        return NVML_ERROR_INVALID_ARGUMENT;
    *current = *pending = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}
