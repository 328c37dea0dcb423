/* MIG and what only NVML shows, between nvml.c and nvml_mig.c. */
#ifndef SIM_DAEMON_NVML_H
#define SIM_DAEMON_NVML_H

#include "../mig_profiles.h"
#include "../nvml_protocol.h"
#include "daemon.h"

/* Of nvmlReturn_t, which needs nothing else of hami_nvml.h here. */
enum {
    NVML_OK = 0,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NOT_FOUND = 6,
    NVML_NOT_LOADED = 9,
    NVML_LOST = 15,
    NVML_IN_USE = 19,
    NVML_RESET_REQUIRED = 16,
    NVML_NO_ROOM = 23,
};

struct nvml_card {
    struct sim_nvml_card state;
    bool resets_late; /* a change of the MIG mode waits for a reset */
};

/* What `card` can be cut into; NULL: nothing, or it is not cut now. */
const struct sim_mig_model *nvml_model(const struct daemon *daemon, int card);

/* Apply the mode that is pending; NVML_IN_USE while a process uses the card. */
uint32_t nvml_mig_apply(struct daemon *daemon, int card, struct nvml_card *of);

uint32_t nvml_instance_create(struct daemon *daemon, struct nvml_card *of,
                              const struct sim_nvml_ask *ask, int32_t *id);
uint32_t nvml_instance_destroy(struct daemon *daemon, struct nvml_card *of,
                               const struct sim_nvml_ask *ask);
uint32_t nvml_compute_create(struct daemon *daemon, struct nvml_card *of,
                             const struct sim_nvml_ask *ask, int32_t *id);
uint32_t nvml_compute_destroy(struct daemon *daemon, struct nvml_card *of,
                              const struct sim_nvml_ask *ask);

#endif
