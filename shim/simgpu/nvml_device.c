/* Handles, and what a card or a MIG device is called. */
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct nvmlDevice_st {
    char place;
};

static struct nvmlDevice_st handles[SIM_MAX_UNITS];

/* ---- Handles ---- */

nvmlDevice_t sim_nvml_handle(int unit)
{
    return &handles[unit];
}

static int unit_of(nvmlDevice_t handle)
{
    uintptr_t at = (uintptr_t)handle, first = (uintptr_t)handles;

    return at >= first && at < first + sizeof(handles) ? (int)(at - first) : -1;
}

static bool is_visible(int unit)
{
    int units[SIM_MAX_UNITS], count = sim_container_units(units);

    for (int i = 0; i < count; i++)
        if (units[i] == unit)
            return true;
    return false;
}

nvmlReturn_t sim_nvml_open(nvmlDevice_t handle, struct sim_nvml_device *device)
{
    nvmlReturn_t result = sim_nvml_session();
    struct sim_nvml_ask ask = {.card = 0};

    if (result)
        return result;
    device->unit = unit_of(handle);
    if (device->unit < 0 || !is_visible(device->unit) ||
        !sim_board_read(device->unit, &device->shown))
        return NVML_ERROR_INVALID_ARGUMENT;
    device->is_mig = device->shown.kind == SIM_UNIT_INSTANCE;
    ask.card = device->shown.card;
    result = sim_nvml_request(SIM_NVML_CARD, &ask, &device->card, sizeof(device->card));
    return result == NVML_SUCCESS && device->card.lost ? NVML_ERROR_GPU_IS_LOST : result;
}

nvmlReturn_t sim_nvml_open_card(nvmlDevice_t handle, struct sim_nvml_device *device)
{
    nvmlReturn_t result = sim_nvml_open(handle, device);

    return result == NVML_SUCCESS && device->is_mig ? NVML_ERROR_NOT_SUPPORTED : result;
}

nvmlReturn_t sim_nvml_open_mig(nvmlDevice_t handle, struct sim_nvml_device *device)
{
    nvmlReturn_t result = sim_nvml_open(handle, device);

    return result == NVML_SUCCESS && !device->is_mig ? NVML_ERROR_NOT_SUPPORTED : result;
}

int sim_nvml_cards(int units[SIM_MAX_CARDS])
{
    int all[SIM_MAX_UNITS], count = sim_container_units(all), cards = 0;

    while (cards < count && all[cards] < SIM_MAX_CARDS) {
        units[cards] = all[cards];
        cards++;
    }
    return cards;
}

const struct sim_mig_model *sim_nvml_model(const struct sim_nvml_device *device)
{
    return device->shown.mig ? sim_mig_model(device->shown.name) : NULL;
}

const struct sim_nvml_instance *sim_nvml_instance_of(const struct sim_nvml_device *device)
{
    for (int i = 0; i < device->card.instance_count; i++)
        if (device->card.instances[i].id == device->shown.gpu_instance)
            return &device->card.instances[i];
    return NULL;
}

/* ---- Finding a card ---- */

/* A card that is lost cannot be found by any of its names. */
static nvmlReturn_t found(int unit, nvmlDevice_t *device)
{
    struct sim_nvml_device opened;
    nvmlReturn_t result = sim_nvml_open(sim_nvml_handle(unit), &opened);

    if (result == NVML_SUCCESS)
        *device = sim_nvml_handle(unit);
    return result;
}

static nvmlReturn_t count_cards(unsigned int *count)
{
    int units[SIM_MAX_CARDS];
    nvmlReturn_t result = sim_nvml_session();

    if (result)
        return result;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = (unsigned int)sim_nvml_cards(units);
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return count_cards(count);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    return count_cards(count);
}

static nvmlReturn_t by_index(unsigned int index, nvmlDevice_t *device)
{
    int units[SIM_MAX_CARDS];
    nvmlReturn_t result = sim_nvml_session();

    if (result)
        return result;
    if (!device || index >= (unsigned int)sim_nvml_cards(units))
        return NVML_ERROR_INVALID_ARGUMENT;
    return found(units[index], device);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return by_index(index, device);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    return by_index(index, device);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    int units[SIM_MAX_UNITS], count;
    struct sim_board_unit shown;
    nvmlReturn_t result = sim_nvml_session();

    if (result)
        return result;
    if (!uuid || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    count = sim_container_units(units);
    for (int i = 0; i < count; i++)
        if (sim_board_read(units[i], &shown) && strcmp(shown.uuid, uuid) == 0)
            return found(units[i], device);
    return NVML_ERROR_NOT_FOUND;
}

/* With a domain of any width, or without one. */
static bool parse_bus_id(const char *text, unsigned int parts[4])
{
    int end = 0;

    if (sscanf(text, "%x:%x:%x.%x%n", &parts[0], &parts[1], &parts[2], &parts[3], &end) == 4 &&
        text[end] == 0)
        return true;
    parts[0] = 0;
    return sscanf(text, "%x:%x.%x%n", &parts[1], &parts[2], &parts[3], &end) == 3 && text[end] == 0;
}

static nvmlReturn_t by_bus_id(const char *bus_id, nvmlDevice_t *device)
{
    int units[SIM_MAX_CARDS], count;
    unsigned int wanted[4], its[4];
    struct sim_board_unit shown;
    nvmlReturn_t result = sim_nvml_session();

    if (result)
        return result;
    if (!bus_id || !device || !parse_bus_id(bus_id, wanted))
        return NVML_ERROR_INVALID_ARGUMENT;
    count = sim_nvml_cards(units);
    for (int i = 0; i < count; i++)
        if (sim_board_read(units[i], &shown) && parse_bus_id(shown.pci, its) &&
            memcmp(wanted, its, sizeof(its)) == 0)
            return found(units[i], device);
    return NVML_ERROR_NOT_FOUND;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
    return by_bus_id(bus_id, device);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    return by_bus_id(bus_id, device);
}

static void write_serial(const struct sim_board_unit *shown,
                         char text[NVML_DEVICE_SERIAL_BUFFER_SIZE])
{
    unsigned int start = (unsigned int)shown->bytes[0] << 24 | (unsigned int)shown->bytes[1] << 16 |
                         (unsigned int)shown->bytes[2] << 8 | shown->bytes[3];

    snprintf(text, NVML_DEVICE_SERIAL_BUFFER_SIZE, "165%010u",
             start % 1000000000u + (unsigned int)shown->card);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
    int units[SIM_MAX_CARDS], count;
    char its[NVML_DEVICE_SERIAL_BUFFER_SIZE];
    struct sim_board_unit shown;
    nvmlReturn_t result = sim_nvml_session();

    if (result)
        return result;
    if (!serial || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    count = sim_nvml_cards(units);
    for (int i = 0; i < count; i++) {
        if (!sim_board_read(units[i], &shown))
            continue;
        write_serial(&shown, its);
        if (strcmp(its, serial) == 0)
            return found(units[i], device);
    }
    return NVML_ERROR_NOT_FOUND;
}

/* ---- What it is called ---- */

SIM_EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    struct sim_nvml_device opened;
    nvmlReturn_t result = sim_nvml_open(device, &opened);

    return result ? result : sim_nvml_text(opened.shown.name, name, length);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    struct sim_nvml_device opened;
    nvmlReturn_t result = sim_nvml_open(device, &opened);

    return result ? result : sim_nvml_text(opened.shown.uuid, uuid, length);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
    char text[NVML_DEVICE_SERIAL_BUFFER_SIZE];
    struct sim_nvml_device opened;
    nvmlReturn_t result = sim_nvml_open_card(device, &opened);

    if (result)
        return result;
    write_serial(&opened.shown, text);
    return sim_nvml_text(text, serial, length);
}

/* A card's place among the cards that this container has, a MIG device's among its card's. */
SIM_EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    int units[SIM_MAX_UNITS], count;
    struct sim_nvml_device opened;
    nvmlReturn_t result = sim_nvml_open(device, &opened);

    if (result)
        return result;
    if (!index)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (opened.is_mig)
        return sim_nvml_mig_index(&opened, index);
    count = sim_nvml_cards(units);
    for (int i = 0; i < count; i++)
        if (units[i] == opened.unit)
            *index = (unsigned int)i;
    return NVML_SUCCESS;
}

/* The number in /dev/nvidia<n> is the machine's, whatever a container has of it. */
SIM_EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor_number)
{
    struct sim_nvml_device opened;
    nvmlReturn_t result = sim_nvml_open_card(device, &opened);

    if (result)
        return result;
    if (!minor_number)
        return NVML_ERROR_INVALID_ARGUMENT;
    *minor_number = (unsigned int)opened.unit;
    return NVML_SUCCESS;
}

/* ---- PCI ---- */

/* The pair of device and vendor numbers. */
static unsigned int pci_numbers(const char *name)
{
    static const struct {
        const char *part;
        unsigned int numbers;
    } known[] = {
        {"A100-SXM4-40GB", 0x20b010de}, {"A100-SXM4-80GB", 0x20b210de}, {"H200", 0x233510de},
        {"V100", 0x1db510de},           {"T4", 0x1eb810de},             {"L4", 0x27b810de},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (strstr(name, known[i].part))
            return known[i].numbers;
    return 0x233010de;
}

void sim_nvml_pci(const struct sim_board_unit *shown, nvmlPciInfo_t *info)
{
    unsigned int parts[4] = {0};

    parse_bus_id(shown->pci, parts);
    memset(info, 0, sizeof(*info));
    info->domain = parts[0];
    info->bus = parts[1];
    info->device = parts[2];
    info->pciDeviceId = pci_numbers(shown->name);
    info->pciSubSystemId = info->pciDeviceId;
    snprintf(info->busIdLegacy, sizeof(info->busIdLegacy), "%04X:%02X:%02X.0", parts[0] & 0xffff,
             parts[1] & 0xff, parts[2] & 0xff);
    snprintf(info->busId, sizeof(info->busId), "%08X:%02X:%02X.0", parts[0], parts[1], parts[2]);
}

void sim_nvml_former_pci(const nvmlPciInfo_t *newest, nvmlPciInfo_v2_t *info)
{
    *info = (nvmlPciInfo_v2_t){
        .domain = newest->domain,
        .bus = newest->bus,
        .device = newest->device,
        .pciDeviceId = newest->pciDeviceId,
        .pciSubSystemId = newest->pciSubSystemId,
    };
    memcpy(info->busId, newest->busIdLegacy, sizeof(info->busId));
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info)
{
    struct sim_nvml_device opened;
    nvmlReturn_t result = sim_nvml_open(device, &opened);

    if (result)
        return result;
    if (!info)
        return NVML_ERROR_INVALID_ARGUMENT;
    sim_nvml_pci(&opened.shown, info);
    return NVML_SUCCESS;
}

static nvmlReturn_t former_pci_info(nvmlDevice_t device, nvmlPciInfo_v2_t *info)
{
    struct sim_nvml_device opened;
    nvmlPciInfo_t newest;
    nvmlReturn_t result = sim_nvml_open(device, &opened);

    if (result)
        return result;
    if (!info)
        return NVML_ERROR_INVALID_ARGUMENT;
    sim_nvml_pci(&opened.shown, &newest);
    sim_nvml_former_pci(&newest, info);
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_v2_t *info)
{
    return former_pci_info(device, info);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_v2_t *info)
{
    return former_pci_info(device, info);
}
