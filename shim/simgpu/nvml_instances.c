/* GPU instances: made, found, told of and destroyed. They live in the daemon, and outlive whoever
 * made them. */
#include "nvml.h"

struct nvmlGpuInstance_st {
    char place;
};

static struct nvmlGpuInstance_st instances[SIM_MAX_CARDS][SIM_NVML_INSTANCE_IDS];

nvmlGpuInstance_t sim_nvml_instance_handle(int card, int id)
{
    return &instances[card][id];
}

nvmlReturn_t sim_nvml_open_whole_at(int card, int id, struct sim_nvml_whole *whole)
{
    nvmlReturn_t result = sim_nvml_open_card(sim_nvml_handle(card), &whole->card);
    const struct sim_mig_model *model;

    if (result)
        return result;
    model = sim_nvml_model(&whole->card);
    if (!model)
        return NVML_ERROR_NOT_SUPPORTED;
    for (int i = 0; i < whole->card.card.instance_count; i++)
        if (whole->card.card.instances[i].id == id) {
            whole->is = whole->card.card.instances[i];
            whole->profile = sim_mig_profile(model, whole->is.profile_id);
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t sim_nvml_open_whole(nvmlGpuInstance_t handle, struct sim_nvml_whole *whole)
{
    uintptr_t at = (uintptr_t)handle, first = (uintptr_t)instances;
    nvmlReturn_t result = sim_nvml_session();

    if (result)
        return result;
    if (at < first || at >= first + sizeof(instances))
        return NVML_ERROR_INVALID_ARGUMENT;
    at -= first;
    return sim_nvml_open_whole_at((int)(at / SIM_NVML_INSTANCE_IDS),
                                  (int)(at % SIM_NVML_INSTANCE_IDS), whole);
}

static nvmlReturn_t create(nvmlDevice_t device, unsigned int profile_id, int start, int size,
                           nvmlGpuInstance_t *instance)
{
    struct sim_nvml_device opened;
    struct sim_nvml_made made;
    struct sim_nvml_ask ask = {.number = profile_id, .start = start, .size = size};
    nvmlReturn_t result = sim_nvml_open_card(device, &opened);

    if (result)
        return result;
    if (!instance)
        return NVML_ERROR_INVALID_ARGUMENT;
    ask.card = opened.unit;
    result = sim_nvml_request(SIM_NVML_CREATE_INSTANCE, &ask, &made, sizeof(made));
    if (result == NVML_SUCCESS)
        *instance = &instances[opened.unit][made.id];
    return result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int profile_id,
                                                    nvmlGpuInstance_t *instance)
{
    return create(device, profile_id, SIM_NVML_ANYWHERE, 0, instance);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(
    nvmlDevice_t device, unsigned int profile_id, const nvmlGpuInstancePlacement_t *placement,
    nvmlGpuInstance_t *instance)
{
    if (!placement || placement->start > INT16_MAX || placement->size > INT16_MAX)
        return sim_nvml_session() ? NVML_ERROR_UNINITIALIZED : NVML_ERROR_INVALID_ARGUMENT;
    return create(device, profile_id, (int)placement->start, (int)placement->size, instance);
}

SIM_EXPORT nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance)
{
    struct sim_nvml_whole whole;
    struct sim_nvml_made made;
    nvmlReturn_t result = sim_nvml_open_whole(instance, &whole);

    if (result)
        return result;
    return sim_nvml_request(SIM_NVML_DESTROY_INSTANCE,
                            &(struct sim_nvml_ask){.card = whole.card.unit,
                                                   .gpu_instance = whole.is.id},
                            &made, sizeof(made));
}

/* As many as there may be of the profile have room, whatever *count was. */
SIM_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profile_id,
                                                  nvmlGpuInstance_t *found, unsigned int *count)
{
    struct sim_nvml_device opened;
    nvmlReturn_t result = sim_nvml_open_card(device, &opened);

    if (result)
        return result;
    if (!sim_nvml_model(&opened))
        return NVML_ERROR_NOT_SUPPORTED;
    if (!found || !count || !sim_mig_profile(sim_nvml_model(&opened), profile_id))
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    for (int i = 0; i < opened.card.instance_count; i++)
        if (opened.card.instances[i].profile_id == profile_id)
            found[(*count)++] = &instances[opened.unit][opened.card.instances[i].id];
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id,
                                                     nvmlGpuInstance_t *instance)
{
    struct sim_nvml_device opened;
    struct sim_nvml_whole whole;
    nvmlReturn_t result = sim_nvml_open_card(device, &opened);

    if (result)
        return result;
    if (!instance)
        return NVML_ERROR_INVALID_ARGUMENT;
    result = sim_nvml_open_whole_at(opened.unit, (int)id, &whole);
    if (result == NVML_SUCCESS)
        *instance = &instances[opened.unit][whole.is.id];
    return result;
}

SIM_EXPORT nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance,
                                               nvmlGpuInstanceInfo_t *info)
{
    struct sim_nvml_whole whole;
    nvmlReturn_t result = sim_nvml_open_whole(instance, &whole);

    if (result)
        return result;
    if (!info)
        return NVML_ERROR_INVALID_ARGUMENT;
    *info = (nvmlGpuInstanceInfo_t){
        .device = sim_nvml_handle(whole.card.unit),
        .id = (unsigned int)whole.is.id,
        .profileId = whole.is.profile_id,
        .placement = {.start = whole.is.start, .size = whole.is.size},
    };
    return NVML_SUCCESS;
}
