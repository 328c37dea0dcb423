/* What the parts of the simulated libnvidia-ml.so.1 share. A handle is the address of a place in a
 * table: of a unit of the board, a GPU instance or a compute instance. What is at the place is
 * asked anew in every call, so a handle outlives what it meant, as NVML's do. */
#ifndef SIM_NVML_H
#define SIM_NVML_H

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "client.h"
#include "hami_nvml.h"
#include "mig_profiles.h"
#include "nvml_protocol.h"

/* ---- Sessions (nvml_session.c) ---- */

/* NVML_ERROR_UNINITIALIZED before the first nvmlInit and after the last nvmlShutdown. */
nvmlReturn_t sim_nvml_session(void);
/* Ask the daemon; its status is the answer. */
nvmlReturn_t sim_nvml_request(uint32_t op, const struct sim_nvml_ask *ask, void *answer,
                              size_t size);
/* Write a text with its end, NVML_ERROR_INSUFFICIENT_SIZE where it does not fit. */
nvmlReturn_t sim_nvml_text(const char *text, char *into, unsigned int length);

/* ---- Handles (nvml_device.c) ---- */

struct sim_nvml_device {
    int unit;
    bool is_mig; /* a MIG device; `card` is then its card's state */
    struct sim_board_unit shown;
    struct sim_nvml_card card;
};

/* What a handle means now: NVML_ERROR_UNINITIALIZED, _INVALID_ARGUMENT, or _GPU_IS_LOST. */
nvmlReturn_t sim_nvml_open(nvmlDevice_t handle, struct sim_nvml_device *device);
/* The same for functions that only a card or only a MIG device has: NVML_ERROR_NOT_SUPPORTED of the
 * other. */
nvmlReturn_t sim_nvml_open_card(nvmlDevice_t handle, struct sim_nvml_device *device);
nvmlReturn_t sim_nvml_open_mig(nvmlDevice_t handle, struct sim_nvml_device *device);
nvmlDevice_t sim_nvml_handle(int unit);
/* The cards this process sees, in NVML's order; how many. */
int sim_nvml_cards(int units[SIM_MAX_CARDS]);
/* Its model and memory; NULL: it cannot be cut, or is not cut now. */
const struct sim_mig_model *sim_nvml_model(const struct sim_nvml_device *device);
/* The instance that a MIG device is a part of. */
const struct sim_nvml_instance *sim_nvml_instance_of(const struct sim_nvml_device *device);

/* Where a unit is on PCIe. */
void sim_nvml_pci(const struct sim_board_unit *shown, nvmlPciInfo_t *info);
/* The same in the former structure, which is shorter. */
void sim_nvml_former_pci(const nvmlPciInfo_t *newest, nvmlPciInfo_v2_t *info);

/* ---- MIG (nvml_mig.c) ---- */

/* The units of a card's MIG devices that this process sees, in the order of NVML's indexes. */
int sim_nvml_mig_devices(const struct sim_nvml_device *card, int units[SIM_CARD_INSTANCES]);
nvmlReturn_t sim_nvml_mig_index(const struct sim_nvml_device *mig, unsigned int *index);

/* ---- GPU instances (nvml_instances.c) ---- */

struct sim_nvml_whole { /* a GPU instance that a handle means now */
    struct sim_nvml_device card;
    struct sim_nvml_instance is;
    const struct sim_mig_profile *profile;
};

nvmlReturn_t sim_nvml_open_whole(nvmlGpuInstance_t handle, struct sim_nvml_whole *whole);
/* By the ids of a card's board unit and of the instance; NVML_ERROR_NOT_FOUND. */
nvmlReturn_t sim_nvml_open_whole_at(int card, int id, struct sim_nvml_whole *whole);
nvmlGpuInstance_t sim_nvml_instance_handle(int card, int id);

/* ---- Events (nvml_events.c) ---- */

/* The last session has ended: its event sets are void, and who waits for one is told so. */
void sim_nvml_events_end(void);

/* ---- The board ---- */

/* Copy words out of the board while the daemon does not write; false: it never stopped. Each word
 * is read with acquire, so that the revision is read again after all of them. */
static inline bool sim_nvml_copy(void *into, const void *from, size_t bytes)
{
    const _Atomic uint64_t *revision = &sim_board()->revision;
    const uint64_t *words = from;

    for (int tries = 0; tries < 1000; tries++) {
        uint64_t before = atomic_load_explicit(revision, memory_order_acquire);

        for (size_t i = 0; i < bytes / sizeof(*words); i++) {
            uint64_t word = __atomic_load_n(&words[i], __ATOMIC_ACQUIRE);

            memcpy((char *)into + i * sizeof(word), &word, sizeof(word));
        }
        if ((before & 1) == 0 && atomic_load_explicit(revision, memory_order_relaxed) == before)
            return true;
        sched_yield();
    }
    return false;
}

/* ---- Lists ---- */

/* NVML's protocol for a list of `found`, with room for *count: *count says how many there are, and
 * NVML_SUCCESS that the list may be written. */
static inline nvmlReturn_t sim_nvml_room(unsigned int found, unsigned int *count, const void *room)
{
    unsigned int given = *count;

    *count = found;
    if (found > given)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    return found > 0 && !room ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

#endif
