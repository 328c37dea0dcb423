/* NVLinks and PCIe. A card that is cut has no NVLinks. */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

#define NVLINK_VERSION 4
#define FIRST_SWITCH_BUS 0xc0u /* each link to a switch ends in a port with a bus of its own */

struct link {
    struct sim_nvml_device card;
    int far; /* a card, or SIM_LINK_SWITCH */
    bool is_up;
};

static nvmlReturn_t open_link(nvmlDevice_t device, unsigned int number, struct link *link)
{
    nvmlReturn_t result = sim_nvml_open_card(device, &link->card);

    if (result)
        return result;
    if (number >= HAMI_NVML_NVLINK_LINKS)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (link->card.shown.mig || number >= SIM_MAX_LINKS ||
        link->card.shown.links[number] == SIM_LINK_NONE)
        return NVML_ERROR_NOT_SUPPORTED;
    link->far = link->card.shown.links[number];
    link->is_up = !(link->card.card.links_down >> number & 1);
    return NVML_SUCCESS;
}

/* The end of a link that is down is unknown. */
static nvmlReturn_t open_end(nvmlDevice_t device, unsigned int number, const void *into,
                             struct link *link)
{
    nvmlReturn_t result = open_link(device, number, link);

    if (result)
        return result;
    if (!into)
        return NVML_ERROR_INVALID_ARGUMENT;
    return link->is_up ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                                 nvmlEnableState_t *active)
{
    struct link opened;
    nvmlReturn_t result = open_link(device, link, &opened);

    if (result)
        return result;
    if (!active)
        return NVML_ERROR_INVALID_ARGUMENT;
    *active = opened.is_up ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

/* The bus of the port or card at the other end. */
static nvmlReturn_t remote(nvmlDevice_t device, unsigned int number, nvmlPciInfo_t *info)
{
    struct link opened;
    struct sim_board_unit far;
    nvmlReturn_t result = open_end(device, number, info, &opened);

    if (result)
        return result;
    if (opened.far != SIM_LINK_SWITCH) {
        if (!sim_board_read(opened.far, &far))
            return NVML_ERROR_UNKNOWN;
        sim_nvml_pci(&far, info);
        return NVML_SUCCESS;
    }
    memset(&far, 0, sizeof(far));
    snprintf(far.pci, sizeof(far.pci), "00000000:%02X:00.0", FIRST_SWITCH_BUS + number);
    sim_nvml_pci(&far, info);
    info->pciDeviceId = info->pciSubSystemId = 0x22a310de;
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link,
                                                            nvmlPciInfo_t *info)
{
    return remote(device, link, info);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link,
                                                         nvmlPciInfo_v2_t *info)
{
    nvmlPciInfo_t newest;
    nvmlReturn_t result = remote(device, link, &newest);

    if (result)
        return result;
    if (!info)
        return NVML_ERROR_INVALID_ARGUMENT;
    sim_nvml_former_pci(&newest, info);
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                            nvmlIntNvLinkDeviceType_t *type)
{
    struct link opened;
    nvmlReturn_t result = open_end(device, link, type, &opened);

    if (result == NVML_SUCCESS)
        *type = opened.far == SIM_LINK_SWITCH ? NVML_NVLINK_DEVICE_TYPE_SWITCH
                                              : NVML_NVLINK_DEVICE_TYPE_GPU;
    return result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link,
                                                      nvmlNvLinkCapability_t capability,
                                                      unsigned int *result)
{
    struct link opened;
    nvmlReturn_t failed = open_link(device, link, &opened);

    if (failed)
        return failed;
    if (!result || (unsigned int)capability > NVML_NVLINK_CAP_VALID)
        return NVML_ERROR_INVALID_ARGUMENT;
    *result = capability != NVML_NVLINK_CAP_SLI_BRIDGE;
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link,
                                                   unsigned int *version)
{
    struct link opened;
    nvmlReturn_t result = open_link(device, link, &opened);

    if (result)
        return result;
    if (!version)
        return NVML_ERROR_INVALID_ARGUMENT;
    *version = NVLINK_VERSION;
    return NVML_SUCCESS;
}

/* ---- Pairs ---- */

static nvmlReturn_t open_pair(nvmlDevice_t first, nvmlDevice_t second, struct sim_nvml_device *one,
                              struct sim_nvml_device *other)
{
    nvmlReturn_t result = sim_nvml_open_card(first, one);

    return result ? result : sim_nvml_open_card(second, other);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t first, nvmlDevice_t second,
                                                            nvmlGpuTopologyLevel_t *level)
{
    struct sim_nvml_device one, other;
    nvmlReturn_t result = open_pair(first, second, &one, &other);

    if (result)
        return result;
    if (!level || one.unit == other.unit)
        return NVML_ERROR_INVALID_ARGUMENT;
    *level = one.shown.numa == other.shown.numa ? NVML_TOPOLOGY_NODE : NVML_TOPOLOGY_SYSTEM;
    return NVML_SUCCESS;
}

/* Whether a link of the one that is up leads to the other, or both have one to a switch. */
static bool are_linked(const struct sim_nvml_device *one, const struct sim_nvml_device *other)
{
    bool switched[2] = {false, false};

    if (one->shown.mig || other->shown.mig)
        return false;
    for (int i = 0; i < SIM_MAX_LINKS; i++) {
        bool is_up = !(one->card.links_down >> i & 1);

        if (is_up && one->shown.links[i] == other->unit)
            return true;
        switched[0] = switched[0] || (is_up && one->shown.links[i] == SIM_LINK_SWITCH);
        switched[1] = switched[1] || (!(other->card.links_down >> i & 1) &&
                                      other->shown.links[i] == SIM_LINK_SWITCH);
    }
    return switched[0] && switched[1];
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t first, nvmlDevice_t second,
                                               nvmlGpuP2PCapsIndex_t index,
                                               nvmlGpuP2PStatus_t *status)
{
    struct sim_nvml_device one, other;
    bool is_ok;
    nvmlReturn_t result = open_pair(first, second, &one, &other);

    if (result)
        return result;
    if (!status || (unsigned int)index >= NVML_P2P_CAPS_INDEX_UNKNOWN)
        return NVML_ERROR_INVALID_ARGUMENT;
    switch (index) {
    case NVML_P2P_CAPS_INDEX_NVLINK:
    case NVML_P2P_CAPS_INDEX_ATOMICS:
        is_ok = are_linked(&one, &other);
        break;
    case NVML_P2P_CAPS_INDEX_PCI:
        is_ok = one.shown.numa == other.shown.numa;
        break;
    default:
        is_ok = are_linked(&one, &other) || one.shown.numa == other.shown.numa;
    }
    if (one.shown.mig || other.shown.mig)
        *status = NVML_P2P_STATUS_NOT_SUPPORTED;
    else
        *status = is_ok ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED;
    return NVML_SUCCESS;
}
