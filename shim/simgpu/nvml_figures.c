/* Figures. Memory is the daemon's ledger's; utilisation is what it sampled: whole percent, of the
 * period before the last, and nothing at all for what is cut by MIG. Temperature, power and clocks
 * follow from the utilisation. */
#include "nvml.h"

#include <string.h>
#include <time.h>

#define IDLE_MILLIWATTS 70000u
#define MILLIWATTS_PER_PERCENT 6300u
#define LIMIT_MILLIWATTS 700000u
#define IDLE_CELSIUS 30u
#define MOST_CELSIUS 90u
#define BAR1_BYTES (UINT64_C(128) << 30)

/* ---- Memory ---- */

/* HAMI_SIM_NVML_RESERVED: bytes that the driver holds back on each card. */
static void read_memory(const struct sim_nvml_device *device, nvmlMemory_v2_t *memory)
{
    int units[SIM_CARD_INSTANCES];
    uint64_t used = device->shown.used;

    if (!device->is_mig) {
        struct sim_board_unit part;
        int count = sim_nvml_mig_devices(device, units);

        for (int i = 0; i < count; i++)
            if (sim_board_read(units[i], &part))
                used += part.used;
    }
    memory->total = device->shown.memory;
    memory->reserved = device->is_mig ? 0 : sim_knob("NVML_RESERVED", 0);
    memory->used = used;
    memory->free = used + memory->reserved < memory->total
                       ? memory->total - used - memory->reserved : 0;
}

/* The first structure has no word for what is reserved: it counts as used. */
SIM_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    struct sim_nvml_device opened;
    nvmlMemory_v2_t found;
    nvmlReturn_t result = sim_nvml_open(device, &opened);

    if (result)
        return result;
    if (!memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    read_memory(&opened, &found);
    *memory = (nvmlMemory_t){
        .total = found.total, .free = found.free, .used = found.total - found.free};
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    struct sim_nvml_device opened;
    nvmlReturn_t result = sim_nvml_open(device, &opened);

    if (result)
        return result;
    if (!memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (memory->version != nvmlMemory_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    read_memory(&opened, memory);
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    struct sim_nvml_device opened;
    nvmlReturn_t result = sim_nvml_open_card(device, &opened);

    if (result)
        return result;
    if (!memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    *memory = (nvmlBAR1Memory_t){
        .bar1Total = BAR1_BYTES, .bar1Free = BAR1_BYTES - (1u << 20), .bar1Used = 1u << 20};
    return NVML_SUCCESS;
}

/* ---- Utilisation ---- */

/* Of a card that is not cut; what is cut has no such figure. */
static nvmlReturn_t open_busy(nvmlDevice_t device, struct sim_nvml_device *opened,
                              unsigned int *percent)
{
    nvmlReturn_t result = sim_nvml_open_card(device, opened);

    if (result == NVML_SUCCESS && opened->shown.mig)
        result = NVML_ERROR_NOT_SUPPORTED;
    if (result == NVML_SUCCESS)
        *percent = opened->shown.utilisation;
    return result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device,
                                                      nvmlUtilization_t *utilization)
{
    struct sim_nvml_device opened;
    unsigned int percent;
    nvmlReturn_t result = open_busy(device, &opened, &percent);

    if (result)
        return result;
    if (!utilization)
        return NVML_ERROR_INVALID_ARGUMENT;
    *utilization = (nvmlUtilization_t){.gpu = percent, .memory = percent / 2};
    return NVML_SUCCESS;
}

static nvmlReturn_t codec(nvmlDevice_t device, unsigned int *utilization, unsigned int *period_us)
{
    struct sim_nvml_device opened;
    unsigned int percent;
    nvmlReturn_t result = open_busy(device, &opened, &percent);

    if (result)
        return result;
    if (!utilization || !period_us)
        return NVML_ERROR_INVALID_ARGUMENT;
    *utilization = 0;
    *period_us = (unsigned int)(sim_board()->sample_period_ns / 1000);
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device,
                                                        unsigned int *utilization,
                                                        unsigned int *period_us)
{
    return codec(device, utilization, period_us);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device,
                                                        unsigned int *utilization,
                                                        unsigned int *period_us)
{
    return codec(device, utilization, period_us);
}

/* ---- Heat, power and clocks: of the card, whatever runs on it ---- */

static nvmlReturn_t open_warm(nvmlDevice_t device, const void *into, unsigned int *percent)
{
    struct sim_nvml_device opened;
    nvmlReturn_t result = sim_nvml_open_card(device, &opened);

    if (result)
        return result;
    if (!into)
        return NVML_ERROR_INVALID_ARGUMENT;
    *percent = opened.shown.utilisation;
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device,
                                                 nvmlTemperatureSensors_t sensor,
                                                 unsigned int *celsius)
{
    unsigned int percent;
    nvmlReturn_t result = open_warm(device, celsius, &percent);

    if (result)
        return result;
    if (sensor != NVML_TEMPERATURE_GPU && sensor != NVML_TEMPERATURE_GPU_MAX)
        return NVML_ERROR_INVALID_ARGUMENT;
    *celsius = sensor == NVML_TEMPERATURE_GPU ? IDLE_CELSIUS + percent * 2 / 5 : MOST_CELSIUS;
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts)
{
    unsigned int percent;
    nvmlReturn_t result = open_warm(device, milliwatts, &percent);

    if (result == NVML_SUCCESS)
        *milliwatts = IDLE_MILLIWATTS + percent * MILLIWATTS_PER_PERCENT;
    return result;
}

static nvmlReturn_t power_limit(nvmlDevice_t device, unsigned int *milliwatts)
{
    unsigned int percent;
    nvmlReturn_t result = open_warm(device, milliwatts, &percent);

    if (result == NVML_SUCCESS)
        *milliwatts = LIMIT_MILLIWATTS;
    return result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device,
                                                        unsigned int *milliwatts)
{
    return power_limit(device, milliwatts);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device,
                                                          unsigned int *milliwatts)
{
    return power_limit(device, milliwatts);
}

/* Since the machine started, as if it had been idle. */
SIM_EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device,
                                                            unsigned long long *millijoules)
{
    unsigned int percent;
    nvmlReturn_t result = open_warm(device, millijoules, &percent);

    if (result == NVML_SUCCESS)
        *millijoules = sim_now() / 1000000 * (IDLE_MILLIWATTS / 1000);
    return result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t *state)
{
    unsigned int percent;
    nvmlReturn_t result = open_warm(device, state, &percent);

    if (result == NVML_SUCCESS)
        *state = NVML_PSTATE_0;
    return result;
}

static nvmlReturn_t clock_of(nvmlDevice_t device, nvmlClockType_t type, bool most,
                             unsigned int *mhz)
{
    static const unsigned int highest[] = {1980, 1980, 2619, 1545};
    static const unsigned int idle[] = {345, 345, 2619, 765};
    unsigned int percent;
    nvmlReturn_t result = open_warm(device, mhz, &percent);

    if (result)
        return result;
    if ((unsigned int)type > NVML_CLOCK_VIDEO)
        return NVML_ERROR_INVALID_ARGUMENT;
    *mhz = most || percent > 0 ? highest[type] : idle[type];
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type,
                                               unsigned int *mhz)
{
    return clock_of(device, type, false, mhz);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type,
                                                  unsigned int *mhz)
{
    return clock_of(device, type, true, mhz);
}

/* ---- Fields ---- */

/* Each value says for itself whether it is one; of all fields the card knows a single one. */
SIM_EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count,
                                                 nvmlFieldValue_t *values)
{
    struct sim_nvml_device opened;
    struct timespec now;
    nvmlReturn_t result = sim_nvml_open(device, &opened);

    if (result)
        return result;
    if (count <= 0 || !values)
        return NVML_ERROR_INVALID_ARGUMENT;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < count; i++) {
        nvmlFieldValue_t *value = &values[i];

        value->timestamp = (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000;
        value->latencyUsec = 0;
        value->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
        memset(&value->value, 0, sizeof(value->value));
        if (value->fieldId == NVML_FI_DEV_GET_GPU_RECOVERY_ACTION && !opened.is_mig) {
            value->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
            value->nvmlReturn = NVML_SUCCESS;
            value->value.uiVal = opened.card.recovery;
        }
    }
    return NVML_SUCCESS;
}
