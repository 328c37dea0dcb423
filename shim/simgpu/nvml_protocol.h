/* What libnvidia-ml asks of the daemon beyond the board: MIG, and the states of a card that only
 * NVML shows. The status of each answer is an nvmlReturn_t. */
#ifndef SIM_NVML_PROTOCOL_H
#define SIM_NVML_PROTOCOL_H

#include <stdint.h>

#include "protocol.h"

enum sim_nvml_op {
    SIM_NVML_CARD = SIM_OP_NVML, /* card; answer: struct sim_nvml_card */
    SIM_NVML_SET_MIG,            /* card, number: on or off; answer: struct sim_nvml_made, id: the
                                    activation status */
    SIM_NVML_CREATE_INSTANCE,    /* card, number: profile id, start; answer: id */
    SIM_NVML_DESTROY_INSTANCE,   /* card, gpu_instance */
    SIM_NVML_CREATE_COMPUTE,     /* card, gpu_instance, number: profile; answer: id */
    SIM_NVML_DESTROY_COMPUTE,    /* card, gpu_instance, compute_instance */
    SIM_NVML_END,
};

#define SIM_NVML_OPS (SIM_NVML_END - SIM_NVML_CARD)

#define SIM_NVML_ANYWHERE (-1)

struct sim_nvml_ask {
    int32_t card, gpu_instance, compute_instance;
    uint32_t number;
    int32_t start, size; /* of a placement; start SIM_NVML_ANYWHERE: the first that fits */
};

struct sim_nvml_made {
    int32_t id;
};

#define SIM_NVML_INSTANCE_IDS 16 /* ids of a card's GPU instances are below */
#define SIM_NVML_COMPUTE_IDS 8   /* ids of a GPU instance's compute instances are below */

struct sim_nvml_compute { /* a compute instance, which is a MIG device: a unit of the board */
    int32_t id, unit;
    uint32_t profile, start, size; /* in compute slices of the GPU instance */
};

struct sim_nvml_instance { /* a GPU instance */
    int32_t id;
    uint32_t profile_id, start, size; /* in memory slices of the card */
    int32_t compute_count;
    struct sim_nvml_compute compute[SIM_CARD_INSTANCES];
};

struct sim_nvml_card {
    uint32_t mig_pending; /* the mode after the next reset; the mode in force is on the board */
    uint32_t lost;        /* it does not answer any more */
    uint32_t recovery;    /* nvmlDeviceGpuRecoveryAction_t */
    uint32_t links_down;  /* bit n: NVLink n */
    uint32_t mig_devices; /* what a request for them is refused with; 0: it is answered */
    int32_t instance_count;
    struct sim_nvml_instance instances[SIM_CARD_INSTANCES]; /* by id */
};

#endif
