#include "slice/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "driver/real.h"
#include "slice/env.h"
#include "slice/slice.h"

#define ORDINALS 64 /* that a process may see; devices beyond are no device of the slice */

/* Written while a process attaches, before its mode says that anybody may read it. */
static struct {
    int count;
    bool known[HAMI_MAX_DEVICES]; /* the UUID is one: `id` is its bytes */
    uint8_t id[HAMI_MAX_DEVICES][16];
    char printed[HAMI_MAX_DEVICES][HAMI_UUID_SIZE];
    CUdevice ordinal[HAMI_MAX_DEVICES]; /* -1: not visible */
    int8_t row[ORDINALS];
} rows;

static int hex_digit(char text)
{
    if (text >= '0' && text <= '9')
        return text - '0';
    if (text >= 'a' && text <= 'f')
        return text - 'a' + 10;
    if (text >= 'A' && text <= 'F')
        return text - 'A' + 10;
    return -1;
}

bool hami_uuid_parse(const char *printed, uint8_t id[16])
{
    const char *at = printed;

    if (strncmp(at, "GPU-", 4) != 0 && strncmp(at, "MIG-", 4) != 0)
        return false;
    at += 4;
    for (int i = 0; i < 16; i++) {
        int high, low;

        if ((i == 4 || i == 6 || i == 8 || i == 10) && *at++ != '-')
            return false;
        high = hex_digit(at[0]);
        low = high < 0 ? -1 : hex_digit(at[1]);
        if (low < 0)
            return false;
        id[i] = (uint8_t)(high << 4 | low);
        at += 2;
    }
    return *at == '\0';
}

void hami_uuid_print(const uint8_t id[16], char printed[HAMI_UUID_SIZE])
{
    static const char digits[] = "0123456789abcdef";
    char *at = printed;

    memset(printed, 0, HAMI_UUID_SIZE);
    memcpy(at, "GPU-", 4);
    at += 4;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *at++ = '-';
        *at++ = digits[id[i] >> 4];
        *at++ = digits[id[i] & 15];
    }
}

/* A MIG instance's own where the driver can tell (from CUDA 11.4 on). */
static bool id_of_device(CUdevice device, uint8_t id[16])
{
    CUuuid uuid;
    CUresult result = hami_real_has("cuDeviceGetUuid_v2")
                          ? hami_real()->cuDeviceGetUuid_v2(&uuid, device)
                          : hami_real()->cuDeviceGetUuid(&uuid, device);

    if (result != CUDA_SUCCESS)
        return false;
    memcpy(id, &uuid, 16);
    return true;
}

struct placed {
    unsigned domain, bus, slot;
    char uuid[HAMI_UUID_SIZE];
};

static int by_place(const void *one, const void *other)
{
    const struct placed *left = one, *right = other;

    if (left->domain != right->domain)
        return left->domain < right->domain ? -1 : 1;
    if (left->bus != right->bus)
        return left->bus < right->bus ? -1 : 1;
    return (left->slot > right->slot) - (left->slot < right->slot);
}

/* All devices are visible to this process: sort them as NVML does. */
static int from_driver(char uuids[HAMI_MAX_DEVICES][HAMI_UUID_SIZE])
{
    struct placed devices[HAMI_MAX_DEVICES];
    int count;

    if (hami_real()->cuDeviceGetCount(&count) != CUDA_SUCCESS || count < 1 ||
        count > HAMI_MAX_DEVICES)
        return -1;
    for (int i = 0; i < count; i++) {
        CUdevice device;
        char place[32];
        uint8_t id[16];

        if (hami_real()->cuDeviceGet(&device, i) != CUDA_SUCCESS ||
            hami_real()->cuDeviceGetPCIBusId(place, sizeof(place), device) != CUDA_SUCCESS ||
            sscanf(place, "%x:%x:%x", &devices[i].domain, &devices[i].bus, &devices[i].slot) != 3 ||
            !id_of_device(device, id))
            return -1;
        hami_uuid_print(id, devices[i].uuid);
    }
    qsort(devices, (size_t)count, sizeof(*devices), by_place);
    for (int i = 0; i < count; i++)
        memcpy(uuids[i], devices[i].uuid, HAMI_UUID_SIZE);
    return count;
}

/* NVML shows the container's devices in the order of their places, whatever CUDA_VISIBLE_DEVICES
 * says. */
static int from_nvml(char uuids[HAMI_MAX_DEVICES][HAMI_UUID_SIZE])
{
    const struct hami_real_nvml *nvml = hami_nvml();
    unsigned count = 0;
    bool all = true;

    if (nvml->nvmlInit_v2() != NVML_SUCCESS)
        return -1;
    if (nvml->nvmlDeviceGetCount_v2(&count) != NVML_SUCCESS || count < 1 ||
        count > HAMI_MAX_DEVICES)
        all = false;
    for (unsigned i = 0; all && i < count; i++) {
        nvmlDevice_t device;

        memset(uuids[i], 0, HAMI_UUID_SIZE);
        all = nvml->nvmlDeviceGetHandleByIndex_v2(i, &device) == NVML_SUCCESS &&
              nvml->nvmlDeviceGetUUID(device, uuids[i], HAMI_UUID_SIZE) == NVML_SUCCESS;
    }
    nvml->nvmlShutdown();
    return all ? (int)count : -1;
}

/* Without NVML, numbers say enough where they count places. The devices that are hidden from this
 * process have rows without a name. */
static int from_numbers(const char *visible, char uuids[HAMI_MAX_DEVICES][HAMI_UUID_SIZE])
{
    const char *order = getenv("CUDA_DEVICE_ORDER");
    int numbers[HAMI_MAX_DEVICES], listed = hami_env_numbers(visible, numbers), count = 0, seen;

    if (listed < 1 || !order || strcmp(order, "PCI_BUS_ID") != 0 ||
        hami_real()->cuDeviceGetCount(&seen) != CUDA_SUCCESS || seen != listed)
        return -1;
    memset(uuids, 0, HAMI_MAX_DEVICES * HAMI_UUID_SIZE);
    for (int i = 0; i < listed; i++) {
        CUdevice device;
        uint8_t id[16];

        if (numbers[i] >= HAMI_MAX_DEVICES ||
            hami_real()->cuDeviceGet(&device, i) != CUDA_SUCCESS || !id_of_device(device, id))
            return -1;
        hami_uuid_print(id, uuids[numbers[i]]);
        if (numbers[i] >= count)
            count = numbers[i] + 1;
    }
    return count;
}

int hami_devices_of_container(bool driver, char uuids[HAMI_MAX_DEVICES][HAMI_UUID_SIZE])
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int count = hami_env_uuids(getenv("NVIDIA_VISIBLE_DEVICES"), uuids);

    if (count)
        return count;
    if (driver && !visible)
        return from_driver(uuids);
    count = from_nvml(uuids);
    if (count < 0 && driver && visible)
        count = from_numbers(visible, uuids);
    return count;
}

void hami_devices_as_rows(const struct hami_limits *limits)
{
    memset(&rows, 0, sizeof(rows));
    memset(rows.row, HAMI_ROW_NONE, sizeof(rows.row));
    rows.count = (int)limits->device_count;
    for (int i = 0; i < rows.count; i++) {
        memcpy(rows.printed[i], limits->devices[i].uuid, HAMI_UUID_SIZE);
        rows.known[i] = hami_uuid_parse(rows.printed[i], rows.id[i]);
        rows.ordinal[i] = -1;
    }
}

static int row_of_id(const uint8_t id[16])
{
    for (int i = 0; i < rows.count; i++)
        if (rows.known[i] && memcmp(rows.id[i], id, 16) == 0)
            return i;
    return HAMI_ROW_NONE;
}

void hami_devices_learn_ordinals(void)
{
    int count = 0;

    if (hami_real()->cuDeviceGetCount(&count) != CUDA_SUCCESS)
        return;
    for (int i = 0; i < count; i++) {
        CUdevice device;
        uint8_t id[16];
        int row;

        if (hami_real()->cuDeviceGet(&device, i) != CUDA_SUCCESS || device < 0 ||
            device >= ORDINALS || !id_of_device(device, id))
            continue;
        row = row_of_id(id);
        rows.row[device] = (int8_t)row;
        if (row == HAMI_ROW_NONE)
            hami_log(HAMI_WARNING, "device %d is none of this container's: nothing of it is given",
                     i);
        else
            rows.ordinal[row] = device;
    }
}

int hami_row_of_ordinal(CUdevice ordinal)
{
    return ordinal >= 0 && ordinal < ORDINALS ? rows.row[ordinal] : HAMI_ROW_NONE;
}

int hami_row_of_uuid(const char *printed)
{
    uint8_t id[16];

    if (hami_uuid_parse(printed, id))
        return row_of_id(id);
    for (int i = 0; i < rows.count; i++)
        if (strcmp(rows.printed[i], printed) == 0 && *printed)
            return i;
    return HAMI_ROW_NONE;
}

int hami_row_count(void)
{
    return rows.count;
}

CUdevice hami_ordinal_of_row(int row)
{
    return row >= 0 && row < rows.count ? rows.ordinal[row] : -1;
}

CUresult hami_device_refused(CUdevice device)
{
    int count;
    CUresult result = hami_real()->cuDeviceGetCount(&count);

    if (result != CUDA_SUCCESS)
        return result;
    return device < 0 || device >= count ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_OUT_OF_MEMORY;
}
