/* Compute instances: what a GPU instance can be cut into, and what it is. Each is a MIG device. */
#include "nvml.h"

#include <stdio.h>

struct nvmlComputeInstance_st {
    char place;
};

static struct nvmlComputeInstance_st computes[SIM_MAX_CARDS][SIM_NVML_INSTANCE_IDS]
                                             [SIM_NVML_COMPUTE_IDS];

/* ---- Profiles ---- */

static nvmlReturn_t find_profile(nvmlGpuInstance_t handle, unsigned int profile,
                                 unsigned int engine_profile,
                                 nvmlComputeInstanceProfileInfo_v2_t *info)
{
    struct sim_nvml_whole whole;
    uint32_t slices, of;
    nvmlReturn_t result = sim_nvml_open_whole(handle, &whole);

    if (result)
        return result;
    if (profile >= HAMI_NVML_COMPUTE_INSTANCE_PROFILES ||
        engine_profile != NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
        return NVML_ERROR_INVALID_ARGUMENT;
    of = whole.profile->slices;
    slices = sim_mig_compute_slices(profile, of);
    if (slices == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *info = (nvmlComputeInstanceProfileInfo_v2_t){
        .id = profile,
        .sliceCount = slices,
        .instanceCount = sim_mig_compute_count(slices, of),
        .multiprocessorCount = whole.profile->multiprocessors * slices / of,
        .sharedCopyEngineCount = whole.profile->copy_engines,
        .sharedDecoderCount = whole.profile->decoders,
        .sharedJpegCount = whole.profile->jpegs,
        .sharedOfaCount = whole.profile->ofas,
    };
    if (slices == of)
        snprintf(info->name, sizeof(info->name), "MIG %s", whole.profile->name);
    else
        snprintf(info->name, sizeof(info->name), "MIG %uc.%s", slices, whole.profile->name);
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(
    nvmlGpuInstance_t gpu_instance, unsigned int profile, unsigned int engine_profile,
    nvmlComputeInstanceProfileInfo_t *info)
{
    nvmlComputeInstanceProfileInfo_v2_t found;
    nvmlReturn_t result = find_profile(gpu_instance, profile, engine_profile, &found);

    if (result)
        return result;
    if (!info)
        return NVML_ERROR_INVALID_ARGUMENT;
    *info = (nvmlComputeInstanceProfileInfo_t){
        .id = found.id,
        .sliceCount = found.sliceCount,
        .instanceCount = found.instanceCount,
        .multiprocessorCount = found.multiprocessorCount,
        .sharedCopyEngineCount = found.sharedCopyEngineCount,
        .sharedDecoderCount = found.sharedDecoderCount,
        .sharedJpegCount = found.sharedJpegCount,
        .sharedOfaCount = found.sharedOfaCount,
    };
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(
    nvmlGpuInstance_t gpu_instance, unsigned int profile, unsigned int engine_profile,
    nvmlComputeInstanceProfileInfo_v2_t *info)
{
    nvmlComputeInstanceProfileInfo_v2_t found;
    nvmlReturn_t result = find_profile(gpu_instance, profile, engine_profile, &found);

    if (result)
        return result;
    if (!info)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (info->version != nvmlComputeInstanceProfileInfo_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    *info = found;
    info->version = nvmlComputeInstanceProfileInfo_v2;
    return NVML_SUCCESS;
}

/* ---- Instances ---- */

struct part { /* a compute instance that a handle means now */
    struct sim_nvml_whole of;
    struct sim_nvml_compute is;
};

static nvmlReturn_t open_part(nvmlComputeInstance_t handle, struct part *part)
{
    uintptr_t at = (uintptr_t)handle, first = (uintptr_t)computes;
    nvmlReturn_t result = sim_nvml_session();
    int id, whole;

    if (result)
        return result;
    if (at < first || at >= first + sizeof(computes))
        return NVML_ERROR_INVALID_ARGUMENT;
    at -= first;
    id = (int)(at % SIM_NVML_COMPUTE_IDS);
    whole = (int)(at / SIM_NVML_COMPUTE_IDS);
    result = sim_nvml_open_whole_at(whole / SIM_NVML_INSTANCE_IDS, whole % SIM_NVML_INSTANCE_IDS,
                                    &part->of);
    if (result)
        return result;
    for (int i = 0; i < part->of.is.compute_count; i++)
        if (part->of.is.compute[i].id == id) {
            part->is = part->of.is.compute[i];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

SIM_EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t gpu_instance,
                                                             unsigned int profile_id,
                                                             nvmlComputeInstance_t *instance)
{
    struct sim_nvml_whole whole;
    struct sim_nvml_made made;
    struct sim_nvml_ask ask = {.number = profile_id};
    nvmlReturn_t result = sim_nvml_open_whole(gpu_instance, &whole);

    if (result)
        return result;
    if (!instance)
        return NVML_ERROR_INVALID_ARGUMENT;
    ask.card = whole.card.unit;
    ask.gpu_instance = whole.is.id;
    result = sim_nvml_request(SIM_NVML_CREATE_COMPUTE, &ask, &made, sizeof(made));
    if (result == NVML_SUCCESS)
        *instance = &computes[whole.card.unit][whole.is.id][made.id];
    return result;
}

SIM_EXPORT nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t instance)
{
    struct part part;
    struct sim_nvml_made made;
    nvmlReturn_t result = open_part(instance, &part);

    if (result)
        return result;
    return sim_nvml_request(SIM_NVML_DESTROY_COMPUTE,
                            &(struct sim_nvml_ask){.card = part.of.card.unit,
                                                   .gpu_instance = part.of.is.id,
                                                   .compute_instance = part.is.id},
                            &made, sizeof(made));
}

SIM_EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t gpu_instance,
                                                           unsigned int profile_id,
                                                           nvmlComputeInstance_t *found,
                                                           unsigned int *count)
{
    struct sim_nvml_whole whole;
    nvmlReturn_t result = sim_nvml_open_whole(gpu_instance, &whole);

    if (result)
        return result;
    if (!found || !count || sim_mig_compute_slices(profile_id, whole.profile->slices) == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    for (int i = 0; i < whole.is.compute_count; i++)
        if (whole.is.compute[i].profile == profile_id)
            found[(*count)++] = &computes[whole.card.unit][whole.is.id][whole.is.compute[i].id];
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t gpu_instance,
                                                              unsigned int id,
                                                              nvmlComputeInstance_t *instance)
{
    struct sim_nvml_whole whole;
    nvmlReturn_t result = sim_nvml_open_whole(gpu_instance, &whole);

    if (result)
        return result;
    if (!instance)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < whole.is.compute_count; i++)
        if (whole.is.compute[i].id == (int)id) {
            *instance = &computes[whole.card.unit][whole.is.id][id];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t info_of(nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *info)
{
    struct part part;
    nvmlReturn_t result = open_part(instance, &part);

    if (result)
        return result;
    if (!info)
        return NVML_ERROR_INVALID_ARGUMENT;
    *info = (nvmlComputeInstanceInfo_t){
        .device = sim_nvml_handle(part.of.card.unit),
        .gpuInstance = sim_nvml_instance_handle(part.of.card.unit, part.of.is.id),
        .id = (unsigned int)part.is.id,
        .profileId = part.is.profile,
        .placement = {.start = part.is.start, .size = part.is.size},
    };
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t instance,
                                                   nvmlComputeInstanceInfo_t *info)
{
    return info_of(instance, info);
}

SIM_EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t instance,
                                                      nvmlComputeInstanceInfo_t *info)
{
    return info_of(instance, info);
}
