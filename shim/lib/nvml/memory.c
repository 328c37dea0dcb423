/* What NVML says of memory: the slice, as if it were the device, in the same figures as
 * cuMemGetInfo. Utilisation, power and clocks stay the device's own: they are measured, and a share
 * of a share would tell nobody anything.
 *
 * A slice that cannot be read shows a device that is full. An error would end programs that only
 * want to know what there is, a size of zero those that divide by it; a full device says what CUDA
 * says there, out of memory, and the log says why. The same holds for a device that NVML shows and
 * the slice does not have. */
#include "nvml/memory.h"

#include "driver/real.h"
#include "memory/charge.h"
#include "slice/devices.h"
#include "slice/follow.h"
#include "slice/slice.h"

/* No device has so much; account.c has the same bound. */
#define IMPOSSIBLE_BYTES (UINT64_C(1) << 55)

int hami_nvml_row(nvmlDevice_t device)
{
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];

    if (hami_nvml()->nvmlDeviceGetUUID(device, uuid, sizeof(uuid)) != NVML_SUCCESS)
        return HAMI_ROW_NONE;
    return hami_row_of_uuid(uuid);
}

bool hami_nvml_is_part(int row, nvmlDevice_t card, nvmlDevice_t *part)
{
    const struct hami_real_nvml *real = hami_nvml();
    const char *uuid = hami_limits()->devices[row].uuid;
    nvmlDevice_t its_card;

    return uuid[0] == 'M' && real->nvmlDeviceGetHandleByUUID(uuid, part) == NVML_SUCCESS &&
           real->nvmlDeviceGetDeviceHandleFromMigDeviceHandle(*part, &its_card) == NVML_SUCCESS &&
           its_card == card;
}

static bool has_parts(nvmlDevice_t card)
{
    nvmlDevice_t part;

    for (int row = 0; row < hami_row_count(); row++)
        if (hami_nvml_is_part(row, card, &part))
            return true;
    return false;
}

/* Not hami_charged: a process that only asks NVML holds no slot and is in no mode. A word that is
 * no figure makes the sum none either: then the slice is full. */
static uint64_t charged(int row, uint64_t otherwise)
{
    const struct hami_usage *usage = hami_process->usage;
    uint64_t sum = 0;

    for (int slot = 0; slot < HAMI_MAX_SLOTS; slot++) {
        uint64_t word = atomic_load_explicit(&usage->charged[row][slot], memory_order_relaxed);

        if (word >= IMPOSSIBLE_BYTES)
            return otherwise;
        sum += word;
    }
    return sum;
}

struct figures {
    unsigned long long total, free, used;
};

/* From the device's own figures to what this process is shown; false: those. */
static bool show_slice(nvmlDevice_t device, struct figures *figures)
{
    enum hami_mode mode = hami_attach_reader();
    uint64_t limit, left;
    int row;

    if (mode == HAMI_MODE_FREE || mode == HAMI_MODE_UNKNOWN)
        return false;
    row = mode == HAMI_MODE_SLICE ? hami_nvml_row(device) : HAMI_ROW_NONE;
    if (row == HAMI_ROW_NONE) {
        /* Of a card that is cut NVML sums up the MIG devices that we see, ours among them. */
        if (mode == HAMI_MODE_SLICE && has_parts(device))
            return false;
        figures->used = figures->total;
        figures->free = 0;
        return true;
    }
    limit = hami_limits()->devices[row].memory_bytes;
    if (limit == 0)
        return false;
    hami_correct();
    if (figures->total > limit)
        figures->total = limit;
    figures->used = charged(row, figures->total);
    left = figures->used < figures->total ? figures->total - figures->used : 0;
    if (figures->free > left)
        figures->free = left;
    return true;
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    nvmlReturn_t result = hami_nvml()->nvmlDeviceGetMemoryInfo(device, memory);
    struct figures figures;

    if (result != NVML_SUCCESS || !memory)
        return result;
    figures = (struct figures){memory->total, memory->free, memory->used};
    if (show_slice(device, &figures))
        *memory = (nvmlMemory_t){
            .total = figures.total, .free = figures.free, .used = figures.used};
    return result;
}

/* What the driver reserves of the device is not taken from the slice. */
HAMI_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlReturn_t result = hami_nvml()->nvmlDeviceGetMemoryInfo_v2(device, memory);
    struct figures figures;

    if (result != NVML_SUCCESS || !memory)
        return result;
    figures = (struct figures){memory->total, memory->free, memory->used};
    if (show_slice(device, &figures)) {
        memory->total = figures.total;
        memory->reserved = 0;
        memory->free = figures.free;
        memory->used = figures.used;
    }
    return result;
}
