/* The MIG mode of a card, its MIG devices, and what it can be cut into. */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

/* ---- The mode ---- */

SIM_EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current,
                                             unsigned int *pending)
{
    struct sim_nvml_device opened;
    nvmlReturn_t result = sim_nvml_open_card(device, &opened);

    if (result)
        return result;
    if (!current || !pending)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!sim_mig_model(opened.shown.name))
        return NVML_ERROR_NOT_SUPPORTED;
    *current = opened.shown.mig ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
    *pending = opened.card.mig_pending ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode,
                                             nvmlReturn_t *status)
{
    struct sim_nvml_device opened;
    struct sim_nvml_made made;
    nvmlReturn_t result = sim_nvml_open_card(device, &opened);

    if (result)
        return result;
    if (!status)
        return NVML_ERROR_INVALID_ARGUMENT;
    result = sim_nvml_request(SIM_NVML_SET_MIG,
                              &(struct sim_nvml_ask){.card = opened.unit, .number = mode}, &made,
                              sizeof(made));
    if (result == NVML_SUCCESS)
        *status = (nvmlReturn_t)made.id;
    return result;
}

/* ---- MIG devices ---- */

static bool is_among(int unit, const int *units, int count)
{
    for (int i = 0; i < count; i++)
        if (units[i] == unit)
            return true;
    return false;
}

int sim_nvml_mig_devices(const struct sim_nvml_device *card, int units[SIM_CARD_INSTANCES])
{
    int visible[SIM_MAX_UNITS], visible_count = sim_container_units(visible), count = 0;

    for (int i = 0; i < card->card.instance_count; i++)
        for (int id = 0; id < SIM_NVML_COMPUTE_IDS; id++)
            for (int j = 0; j < card->card.instances[i].compute_count; j++) {
                const struct sim_nvml_compute *part = &card->card.instances[i].compute[j];

                if (part->id == id && is_among(part->unit, visible, visible_count))
                    units[count++] = part->unit;
            }
    return count;
}

nvmlReturn_t sim_nvml_mig_index(const struct sim_nvml_device *mig, unsigned int *index)
{
    int units[SIM_CARD_INSTANCES], count = sim_nvml_mig_devices(mig, units);

    for (int i = 0; i < count; i++)
        if (units[i] == mig->unit) {
            *index = (unsigned int)i;
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    struct sim_nvml_device opened;
    nvmlReturn_t result = sim_nvml_open(device, &opened);

    if (result)
        return result;
    if (!count || opened.is_mig)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = sim_nvml_model(&opened) ? SIM_CARD_INSTANCES : 0;
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device,
                                                            unsigned int index, nvmlDevice_t *mig)
{
    int units[SIM_CARD_INSTANCES];
    struct sim_nvml_device opened;
    nvmlReturn_t result = sim_nvml_open(device, &opened);

    if (result)
        return result;
    if (!mig || opened.is_mig || index >= SIM_CARD_INSTANCES)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!sim_nvml_model(&opened))
        return NVML_ERROR_NOT_SUPPORTED;
    if (index >= (unsigned int)sim_nvml_mig_devices(&opened, units))
        return NVML_ERROR_NOT_FOUND;
    *mig = sim_nvml_handle(units[index]);
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig,
                                                                     nvmlDevice_t *device)
{
    struct sim_nvml_device opened;
    nvmlReturn_t result = sim_nvml_open(mig, &opened);

    if (result)
        return result;
    if (!device || !opened.is_mig)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = sim_nvml_handle(opened.shown.card);
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig)
{
    struct sim_nvml_device opened;
    nvmlReturn_t result = sim_nvml_open(device, &opened);

    if (result)
        return result;
    if (!is_mig)
        return NVML_ERROR_INVALID_ARGUMENT;
    *is_mig = opened.is_mig;
    return NVML_SUCCESS;
}

static nvmlReturn_t own_id(nvmlDevice_t device, bool compute, unsigned int *id)
{
    struct sim_nvml_device opened;
    nvmlReturn_t result = sim_nvml_open_mig(device, &opened);

    if (result)
        return result;
    if (!id)
        return NVML_ERROR_INVALID_ARGUMENT;
    *id = (unsigned int)(compute ? opened.shown.compute_instance : opened.shown.gpu_instance);
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
    return own_id(device, false, id);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
    return own_id(device, true, id);
}

static nvmlReturn_t attributes_of(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    struct sim_nvml_device opened;
    const struct sim_nvml_instance *whole;
    const struct sim_mig_profile *profile;
    struct sim_board_unit card;
    nvmlReturn_t result = sim_nvml_open_mig(device, &opened);

    if (result)
        return result;
    if (!attributes)
        return NVML_ERROR_INVALID_ARGUMENT;
    whole = sim_nvml_instance_of(&opened);
    if (!whole || !sim_board_read(opened.shown.card, &card))
        return NVML_ERROR_NOT_FOUND;
    profile = sim_mig_profile(sim_mig_model(card.name), whole->profile_id);
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = (unsigned int)opened.shown.sms,
        .sharedCopyEngineCount = profile->copy_engines,
        .sharedDecoderCount = profile->decoders,
        .sharedJpegCount = profile->jpegs,
        .sharedOfaCount = profile->ofas,
        .gpuInstanceSliceCount = profile->slices,
        .memorySizeMB = opened.shown.memory >> 20,
    };
    for (int i = 0; i < whole->compute_count; i++)
        if (whole->compute[i].unit == opened.unit)
            attributes->computeInstanceSliceCount = whole->compute[i].size;
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device,
                                                nvmlDeviceAttributes_t *attributes)
{
    return attributes_of(device, attributes);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device,
                                                   nvmlDeviceAttributes_t *attributes)
{
    return attributes_of(device, attributes);
}

/* ---- Profiles ---- */

/* By NVML's number. A card whose MIG mode is off has none. */
static nvmlReturn_t find_profile(nvmlDevice_t device, unsigned int number,
                                 nvmlGpuInstanceProfileInfo_v2_t *info)
{
    struct sim_nvml_device opened;
    const struct sim_mig_model *model;
    nvmlReturn_t result = sim_nvml_open_card(device, &opened);

    if (result)
        return result;
    if (number >= HAMI_NVML_GPU_INSTANCE_PROFILES)
        return NVML_ERROR_INVALID_ARGUMENT;
    model = sim_nvml_model(&opened);
    for (int i = 0; model && i < SIM_MIG_PROFILES; i++) {
        const struct sim_mig_profile *profile = &model->profiles[i];

        if (profile->number != number)
            continue;
        *info = (nvmlGpuInstanceProfileInfo_v2_t){
            .id = profile->id,
            .sliceCount = profile->slices,
            .instanceCount = profile->count,
            .multiprocessorCount = profile->multiprocessors,
            .copyEngineCount = profile->copy_engines,
            .decoderCount = profile->decoders,
            .jpegCount = profile->jpegs,
            .ofaCount = profile->ofas,
            .memorySizeMB = sim_mig_memory_mib(model, profile, opened.shown.memory),
        };
        snprintf(info->name, sizeof(info->name), "MIG %s", profile->name);
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_SUPPORTED;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device,
                                                            unsigned int profile,
                                                            nvmlGpuInstanceProfileInfo_t *info)
{
    nvmlGpuInstanceProfileInfo_v2_t found;
    nvmlReturn_t result = find_profile(device, profile, &found);

    if (result)
        return result;
    if (!info)
        return NVML_ERROR_INVALID_ARGUMENT;
    *info = (nvmlGpuInstanceProfileInfo_t){
        .id = found.id,
        .sliceCount = found.sliceCount,
        .instanceCount = found.instanceCount,
        .multiprocessorCount = found.multiprocessorCount,
        .copyEngineCount = found.copyEngineCount,
        .decoderCount = found.decoderCount,
        .jpegCount = found.jpegCount,
        .ofaCount = found.ofaCount,
        .memorySizeMB = found.memorySizeMB,
    };
    return NVML_SUCCESS;
}

static void write_v3(nvmlGpuInstanceProfileInfo_v3_t *info,
                     const nvmlGpuInstanceProfileInfo_v2_t *found)
{
    *info = (nvmlGpuInstanceProfileInfo_v3_t){
        .version = nvmlGpuInstanceProfileInfo_v3,
        .id = found->id,
        .sliceCount = found->sliceCount,
        .instanceCount = found->instanceCount,
        .multiprocessorCount = found->multiprocessorCount,
        .copyEngineCount = found->copyEngineCount,
        .decoderCount = found->decoderCount,
        .jpegCount = found->jpegCount,
        .ofaCount = found->ofaCount,
        .memorySizeMB = found->memorySizeMB,
    };
    memcpy(info->name, found->name, sizeof(info->name));
}

/* The first word of what is passed says which structure it is. */
SIM_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device,
                                                             unsigned int profile,
                                                             nvmlGpuInstanceProfileInfo_v2_t *info)
{
    nvmlGpuInstanceProfileInfo_v2_t found;
    nvmlReturn_t result = find_profile(device, profile, &found);

    if (result)
        return result;
    if (!info)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (info->version == nvmlGpuInstanceProfileInfo_v3) {
        write_v3((void *)info, &found);
        return NVML_SUCCESS;
    }
    if (info->version != nvmlGpuInstanceProfileInfo_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    *info = found;
    info->version = nvmlGpuInstanceProfileInfo_v2;
    return NVML_SUCCESS;
}

/* The profile that this card's driver calls `id`, while the card is cut. */
static nvmlReturn_t profile_of(nvmlDevice_t device, unsigned int id, struct sim_nvml_device *opened,
                               const struct sim_mig_profile **profile)
{
    nvmlReturn_t result = sim_nvml_open_card(device, opened);

    if (result)
        return result;
    if (!sim_nvml_model(opened))
        return NVML_ERROR_NOT_SUPPORTED;
    *profile = sim_mig_profile(sim_nvml_model(opened), id);
    return *profile ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* Without room for them the number alone is told. */
static nvmlReturn_t placements_of(nvmlDevice_t device, unsigned int id,
                                  nvmlGpuInstancePlacement_t *placements, unsigned int *count)
{
    struct sim_nvml_device opened;
    const struct sim_mig_profile *profile;
    unsigned int number, at = 0;
    nvmlReturn_t result = profile_of(device, id, &opened, &profile);

    if (result)
        return result;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    number = (unsigned int)__builtin_popcount(profile->starts);
    if (!placements) {
        *count = number;
        return NVML_SUCCESS;
    }
    result = sim_nvml_room(number, count, placements);
    for (unsigned int start = 0; result == NVML_SUCCESS && start < 8; start++)
        if (profile->starts >> start & 1)
            placements[at++] = (nvmlGpuInstancePlacement_t){.start = start, .size = profile->size};
    return result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements(
    nvmlDevice_t device, unsigned int profile_id, nvmlGpuInstancePlacement_t *placements,
    unsigned int *count)
{
    return placements_of(device, profile_id, placements, count);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(
    nvmlDevice_t device, unsigned int profile_id, nvmlGpuInstancePlacement_t *placements,
    unsigned int *count)
{
    return placements_of(device, profile_id, placements, count);
}

/* How many of a profile fit beside what is there. */
SIM_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device,
                                                                  unsigned int profile_id,
                                                                  unsigned int *count)
{
    struct sim_nvml_device opened;
    const struct sim_mig_profile *profile;
    unsigned int taken = 0, alike = 0;
    nvmlReturn_t result = profile_of(device, profile_id, &opened, &profile);

    if (result)
        return result;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < opened.card.instance_count; i++) {
        const struct sim_nvml_instance *other = &opened.card.instances[i];

        taken |= ((1u << other->size) - 1) << other->start;
        alike += other->profile_id == profile->id;
    }
    *count = 0;
    for (unsigned int start = 0; start < 8 && alike + *count < profile->count; start++) {
        unsigned int wanted = ((1u << profile->size) - 1) << start;

        if ((profile->starts >> start & 1) && !(taken & wanted)) {
            taken |= wanted;
            ++*count;
        }
    }
    return NVML_SUCCESS;
}
