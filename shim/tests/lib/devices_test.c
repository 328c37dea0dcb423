/* Which ordinal is which row. links: lib/slice/devices.c lib/slice/env.c lib/base/log.c */
#include <stdlib.h>
#include <string.h>

#include "driver/real.h"
#include "expect.h"
#include "slice/devices.h"
#include "slice/slice.h"

#define GPU(digit) "GPU-" digit "0000000-0000-4000-8000-00000000000" digit
#define MIG(digit) "MIG-" digit "0000000-0000-4000-8000-00000000000" digit

/* The cards of a made-up machine, in the order in which this process sees them. */
struct card {
    const char *uuid, *place;
};
static const struct card *seen;
static int seen_count;
static bool has_v2;

static CUresult device_count(int *count)
{
    *count = seen_count;
    return CUDA_SUCCESS;
}

static CUresult device_get(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return CUDA_SUCCESS;
}

static CUresult device_uuid(CUuuid *uuid, CUdevice device)
{
    uint8_t id[16];

    if (!hami_uuid_parse(seen[device].uuid, id))
        return CUDA_ERROR_INVALID_DEVICE;
    memcpy(uuid, id, 16);
    return CUDA_SUCCESS;
}

static CUresult device_place(char *place, int size, CUdevice device)
{
    snprintf(place, (size_t)size, "%s", seen[device].place);
    return CUDA_SUCCESS;
}

static nvmlReturn_t nvml_count(unsigned *count);
static nvmlReturn_t nvml_handle(unsigned index, nvmlDevice_t *device);
static nvmlReturn_t nvml_uuid(nvmlDevice_t device, char *uuid, unsigned length);
static int nvml_sessions;
static bool nvml_works;
static const char *const *nvml_uuids;
static unsigned nvml_uuid_count;

static nvmlReturn_t nvml_init(void)
{
    if (!nvml_works)
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    nvml_sessions++;
    return NVML_SUCCESS;
}

static nvmlReturn_t nvml_shutdown(void)
{
    nvml_sessions--;
    return NVML_SUCCESS;
}

static nvmlReturn_t nvml_count(unsigned *count)
{
    *count = nvml_uuid_count;
    return nvml_sessions ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

static nvmlReturn_t nvml_handle(unsigned index, nvmlDevice_t *device)
{
    *device = (nvmlDevice_t)(uintptr_t)(index + 1);
    return NVML_SUCCESS;
}

static nvmlReturn_t nvml_uuid(nvmlDevice_t device, char *uuid, unsigned length)
{
    snprintf(uuid, length, "%s", nvml_uuids[(uintptr_t)device - 1]);
    return NVML_SUCCESS;
}

static const struct hami_real real = {
    .cuDeviceGetCount = device_count,
    .cuDeviceGet = device_get,
    .cuDeviceGetUuid = device_uuid,
    .cuDeviceGetUuid_v2 = device_uuid,
    .cuDeviceGetPCIBusId = device_place,
};
static const struct hami_real_nvml nvml = {
    .nvmlInit_v2 = nvml_init,
    .nvmlShutdown = nvml_shutdown,
    .nvmlDeviceGetCount_v2 = nvml_count,
    .nvmlDeviceGetHandleByIndex_v2 = nvml_handle,
    .nvmlDeviceGetUUID = nvml_uuid,
};
const struct hami_real *_Atomic hami_real_found = &real;
const struct hami_real_nvml *_Atomic hami_real_nvml_found = &nvml;

const struct hami_real *hami_real_load(void)
{
    abort();
}

const struct hami_real_nvml *hami_real_load_nvml(void)
{
    abort();
}

bool hami_real_has(const char *name)
{
    return strcmp(name, "cuDeviceGetUuid_v2") != 0 || has_v2;
}

#define SEE(...)                                                                                   \
    do {                                                                                           \
        static const struct card cards[] = {__VA_ARGS__};                                          \
        seen = cards;                                                                              \
        seen_count = sizeof(cards) / sizeof(*cards);                                               \
    } while (0)
#define NVML(...)                                                                                  \
    do {                                                                                           \
        static const char *const listed[] = {__VA_ARGS__};                                         \
        nvml_uuids = listed;                                                                       \
        nvml_uuid_count = sizeof(listed) / sizeof(*listed);                                        \
        nvml_works = true;                                                                         \
    } while (0)

static char uuids[HAMI_MAX_DEVICES][HAMI_UUID_SIZE];

static void clear(void)
{
    unsetenv("NVIDIA_VISIBLE_DEVICES");
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("CUDA_DEVICE_ORDER");
    seen_count = 0;
    nvml_works = false;
    has_v2 = true;
    memset(uuids, 0, sizeof(uuids));
}

static bool in_row(int row, const char *uuid)
{
    return strcmp(uuids[row], uuid) == 0;
}

static void uuids_are_read_and_printed(void)
{
    static const char *const wrong[] = {"",
                                        "GPU-",
                                        "gpu-10000000-0000-4000-8000-000000000001",
                                        "GPU-10000000-0000-4000-8000-00000000000",
                                        "GPU-10000000-0000-4000-8000-0000000000011",
                                        "GPU-1000000-00000-4000-8000-000000000001",
                                        "GPU-10000000000040008000000000000001",
                                        "GPU-1000000g-0000-4000-8000-000000000001",
                                        "MIG-GPU-10000000-0000-4000-8000-000000000001/1/0"};
    uint8_t id[16];
    char printed[HAMI_UUID_SIZE];

    EXPECT(hami_uuid_parse("GPU-01234567-89ab-cDeF-8000-0123456789ab", id));
    EXPECT(id[0] == 0x01 && id[4] == 0x89 && id[6] == 0xcd && id[7] == 0xef && id[15] == 0xab);
    hami_uuid_print(id, printed);
    EXPECT(strcmp(printed, "GPU-01234567-89ab-cdef-8000-0123456789ab") == 0);
    EXPECT(hami_uuid_parse(MIG("3"), id) && id[0] == 0x30);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        EXPECT(!hami_uuid_parse(wrong[i], id));
}

static void take_rows(const char *const *names, uint32_t count)
{
    struct hami_limits limits = {.device_count = count};

    for (uint32_t i = 0; i < count; i++)
        snprintf(limits.devices[i].uuid, HAMI_UUID_SIZE, "%s", names[i]);
    hami_devices_as_rows(&limits);
}

static void rows_of_a_page(void)
{
    clear();
    SEE({GPU("3"), "0000:03:00.0"}, {GPU("1"), "0000:01:00.0"}, {GPU("9"), "0000:09:00.0"});
    take_rows((const char *const[]){GPU("1"), GPU("2"), GPU("3"), "mock-0"}, 4);
    EXPECT(hami_row_count() == 4 && hami_row_of_ordinal(0) == HAMI_ROW_NONE);
    hami_devices_learn_ordinals();
    EXPECT(hami_row_of_ordinal(0) == 2 && hami_row_of_ordinal(1) == 0);
    EXPECT(hami_row_of_ordinal(2) == HAMI_ROW_NONE); /* not of this slice */
    EXPECT(hami_row_of_ordinal(3) == HAMI_ROW_NONE && hami_row_of_ordinal(-1) == HAMI_ROW_NONE);
    EXPECT(hami_row_of_ordinal(1 << 30) == HAMI_ROW_NONE);
    EXPECT(hami_ordinal_of_row(0) == 1 && hami_ordinal_of_row(1) == -1);
    EXPECT(hami_ordinal_of_row(2) == 0 && hami_ordinal_of_row(3) == -1);
    EXPECT(hami_ordinal_of_row(-1) == -1 && hami_ordinal_of_row(4) == -1);
    EXPECT(hami_row_of_uuid(GPU("2")) == 1 && hami_row_of_uuid("mock-0") == 3);
    EXPECT(hami_row_of_uuid(GPU("9")) == HAMI_ROW_NONE && hami_row_of_uuid("") == HAMI_ROW_NONE);

    /* A child takes another slice: nothing of the old rows stays. */
    take_rows((const char *const[]){GPU("9")}, 1);
    EXPECT(hami_row_count() == 1 && hami_row_of_ordinal(0) == HAMI_ROW_NONE);
    EXPECT(hami_ordinal_of_row(0) == -1);
}

static void a_mig_instance_is_told_by_its_own_uuid(void)
{
    clear();
    SEE({MIG("5"), "0000:01:00.0"});
    take_rows((const char *const[]){GPU("1"), MIG("5")}, 2);
    hami_devices_learn_ordinals();
    EXPECT(hami_row_of_ordinal(0) == 1 && hami_row_of_uuid(MIG("5")) == 1);
    has_v2 = false;
    take_rows((const char *const[]){GPU("1"), MIG("5")}, 2);
    hami_devices_learn_ordinals();
    EXPECT(hami_row_of_ordinal(0) == 1);
}

static void the_container_says_which(void)
{
    clear();
    setenv("NVIDIA_VISIBLE_DEVICES", GPU("7") "," GPU("2"), 1);
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    EXPECT(hami_devices_of_container(true, uuids) == 2 && in_row(0, GPU("7")));
    EXPECT(in_row(1, GPU("2")));
    setenv("NVIDIA_VISIBLE_DEVICES", GPU("7") "," GPU("7"), 1);
    EXPECT(hami_devices_of_container(true, uuids) == -1);
}

/* The driver sorts by speed; rows go by place, of which the number is hexadecimal. */
static void else_their_places_do(void)
{
    clear();
    SEE({GPU("4"), "0001:00:00.0"}, {GPU("3"), "0000:A1:00.0"}, {GPU("1"), "0000:09:00.0"},
        {GPU("2"), "0000:1A:00.0"});
    setenv("NVIDIA_VISIBLE_DEVICES", "all", 1);
    EXPECT(hami_devices_of_container(true, uuids) == 4);
    EXPECT(in_row(0, GPU("1")) && in_row(1, GPU("2")));
    EXPECT(in_row(2, GPU("3")) && in_row(3, GPU("4")));
    EXPECT(nvml_sessions == 0);
}

/* With devices hidden from CUDA the driver does not know them all; NVML does, in order of place. */
static void hidden_devices_keep_their_rows(void)
{
    clear();
    SEE({GPU("3"), "0000:03:00.0"});
    NVML(GPU("1"), GPU("2"), GPU("3"));
    static const char *const ways[] = {"2", "0", GPU("3"), "GPU-3", ""};

    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
        setenv("CUDA_VISIBLE_DEVICES", ways[i], 1);
        EXPECT(hami_devices_of_container(true, uuids) == 3);
        EXPECT(in_row(0, GPU("1")) && in_row(2, GPU("3")));
    }
    EXPECT(nvml_sessions == 0);
    /* A process that only asks NVML. */
    unsetenv("CUDA_VISIBLE_DEVICES");
    EXPECT(hami_devices_of_container(false, uuids) == 3 && in_row(1, GPU("2")));
}

static void without_nvml_only_places_help(void)
{
    clear();
    SEE({GPU("3"), "0000:03:00.0"}, {GPU("2"), "0000:02:00.0"});
    setenv("CUDA_VISIBLE_DEVICES", "3,1", 1);
    EXPECT(hami_devices_of_container(true, uuids) == -1); /* numbers by speed: who knows */
    setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST", 1);
    EXPECT(hami_devices_of_container(true, uuids) == -1);
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    EXPECT(hami_devices_of_container(true, uuids) == 4);
    EXPECT(in_row(3, GPU("3")) && in_row(1, GPU("2")) && in_row(0, "") && in_row(2, ""));
    setenv("CUDA_VISIBLE_DEVICES", "3,1,0", 1); /* the driver sees another number than is listed */
    EXPECT(hami_devices_of_container(true, uuids) == -1);
    setenv("CUDA_VISIBLE_DEVICES", "3", 1);
    EXPECT(hami_devices_of_container(true, uuids) == -1);
    setenv("CUDA_VISIBLE_DEVICES", GPU("3"), 1);
    EXPECT(hami_devices_of_container(true, uuids) == -1);
    setenv("CUDA_VISIBLE_DEVICES", "16,1", 1);
    EXPECT(hami_devices_of_container(true, uuids) == -1);
    EXPECT(hami_devices_of_container(false, uuids) == -1);
}

int main(void)
{
    uuids_are_read_and_printed();
    rows_of_a_page();
    a_mig_instance_is_told_by_its_own_uuid();
    the_container_says_which();
    else_their_places_do();
    hidden_devices_keep_their_rows();
    without_nvml_only_places_help();
    return failures != 0;
}
