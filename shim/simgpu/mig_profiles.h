/* What the cards that know MIG can be cut into, as their drivers report it. The same models stand
 * in the plugin's data/simulated_gpus.yaml; tests/shim/nvml/test_plugin.py compares the two. */
#ifndef SIM_MIG_PROFILES_H
#define SIM_MIG_PROFILES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct sim_mig_profile {
    char name[16];
    uint8_t number; /* NVML_GPU_INSTANCE_PROFILE_... */
    uint8_t id;     /* what this driver calls it */
    uint8_t slices; /* of compute */
    uint8_t count;  /* so many fit at most */
    uint8_t starts; /* bit n: it may begin at memory slice n */
    uint8_t size;   /* in memory slices */
    uint8_t copy_engines, decoders, jpegs, ofas;
    uint16_t multiprocessors;
    uint32_t memory_mib;
};

#define SIM_MIG_PROFILES 7

struct sim_mig_model {
    const char *name; /* of the card */
    uint32_t memory_mib;
    struct sim_mig_profile profiles[SIM_MIG_PROFILES];
};

/* Where profiles may begin. */
#define SIM_MIG_EVERY 0x7f
#define SIM_MIG_EVEN 0x55
#define SIM_MIG_PAIRS 0x15
#define SIM_MIG_HALVES 0x11
#define SIM_MIG_WHOLE 0x01

static const struct sim_mig_model sim_mig_models[] = {
    {"NVIDIA A100-SXM4-40GB", 40960, {
        {"1g.5gb", 0, 19, 1, 7, SIM_MIG_EVERY, 1, 1, 0, 0, 0, 14, 4864},
        {"2g.10gb", 1, 14, 2, 3, SIM_MIG_PAIRS, 2, 2, 1, 0, 0, 28, 9984},
        {"3g.20gb", 2, 9, 3, 2, SIM_MIG_HALVES, 4, 3, 2, 0, 0, 42, 20096},
        {"4g.20gb", 3, 5, 4, 1, SIM_MIG_WHOLE, 4, 4, 2, 0, 0, 56, 20096},
        {"7g.40gb", 4, 0, 7, 1, SIM_MIG_WHOLE, 8, 7, 5, 1, 1, 98, 40320},
        {"1g.5gb+me", 7, 20, 1, 1, SIM_MIG_EVERY, 1, 1, 1, 1, 1, 14, 4864},
        {"1g.10gb", 9, 15, 1, 4, SIM_MIG_EVEN, 2, 1, 1, 0, 0, 14, 9984},
    }},
    {"NVIDIA A100-SXM4-80GB", 81920, {
        {"1g.10gb", 0, 19, 1, 7, SIM_MIG_EVERY, 1, 1, 0, 0, 0, 14, 9728},
        {"2g.20gb", 1, 14, 2, 3, SIM_MIG_PAIRS, 2, 2, 1, 0, 0, 28, 19968},
        {"3g.40gb", 2, 9, 3, 2, SIM_MIG_HALVES, 4, 3, 2, 0, 0, 42, 40192},
        {"4g.40gb", 3, 5, 4, 1, SIM_MIG_WHOLE, 4, 4, 2, 0, 0, 56, 40192},
        {"7g.80gb", 4, 0, 7, 1, SIM_MIG_WHOLE, 8, 7, 5, 1, 1, 98, 80896},
        {"1g.10gb+me", 7, 20, 1, 1, SIM_MIG_EVERY, 1, 1, 1, 1, 1, 14, 9728},
        {"1g.20gb", 9, 15, 1, 4, SIM_MIG_EVEN, 2, 1, 1, 0, 0, 14, 19968},
    }},
    {"NVIDIA H100 80GB HBM3", 81559, {
        {"1g.10gb", 0, 19, 1, 7, SIM_MIG_EVERY, 1, 1, 1, 1, 0, 16, 9984},
        {"2g.20gb", 1, 14, 2, 3, SIM_MIG_PAIRS, 2, 2, 2, 2, 0, 32, 20096},
        {"3g.40gb", 2, 9, 3, 2, SIM_MIG_HALVES, 4, 3, 3, 3, 0, 60, 40448},
        {"4g.40gb", 3, 5, 4, 1, SIM_MIG_WHOLE, 4, 4, 4, 4, 0, 64, 40448},
        {"7g.80gb", 4, 0, 7, 1, SIM_MIG_WHOLE, 8, 8, 7, 7, 1, 132, 81152},
        {"1g.10gb+me", 7, 20, 1, 1, SIM_MIG_EVERY, 1, 1, 1, 1, 1, 16, 9984},
        {"1g.20gb", 9, 15, 1, 4, SIM_MIG_EVEN, 2, 1, 1, 1, 0, 26, 20096},
    }},
    {"NVIDIA H200", 143771, {
        {"1g.18gb", 0, 19, 1, 7, SIM_MIG_EVERY, 1, 1, 1, 1, 0, 16, 16384},
        {"2g.35gb", 1, 14, 2, 3, SIM_MIG_PAIRS, 2, 2, 2, 2, 0, 32, 33280},
        {"3g.71gb", 2, 9, 3, 2, SIM_MIG_HALVES, 4, 3, 3, 3, 0, 60, 71424},
        {"4g.71gb", 3, 5, 4, 1, SIM_MIG_WHOLE, 4, 4, 4, 4, 0, 64, 71424},
        {"7g.141gb", 4, 0, 7, 1, SIM_MIG_WHOLE, 8, 8, 7, 7, 1, 132, 143360},
        {"1g.18gb+me", 7, 20, 1, 1, SIM_MIG_EVERY, 1, 1, 1, 1, 1, 16, 16384},
        {"1g.35gb", 9, 15, 1, 4, SIM_MIG_EVEN, 2, 1, 1, 1, 0, 26, 33280},
    }},
};

/* NULL: the card cannot be cut. */
static inline const struct sim_mig_model *sim_mig_model(const char *card_name)
{
    for (size_t i = 0; i < sizeof(sim_mig_models) / sizeof(*sim_mig_models); i++)
        if (strcmp(sim_mig_models[i].name, card_name) == 0)
            return &sim_mig_models[i];
    return NULL;
}

/* NULL: it has no profile that its driver calls so. */
static inline const struct sim_mig_profile *sim_mig_profile(const struct sim_mig_model *model,
                                                            uint32_t id)
{
    for (int i = 0; model && i < SIM_MIG_PROFILES; i++)
        if (model->profiles[i].id == id)
            return &model->profiles[i];
    return NULL;
}

/* Of a card that was given another memory than its model has, every part is as much smaller. */
static inline uint64_t sim_mig_memory_mib(const struct sim_mig_model *model,
                                          const struct sim_mig_profile *profile,
                                          uint64_t card_bytes)
{
    return profile->memory_mib * (card_bytes >> 20) / model->memory_mib;
}

/* ---- Compute instances: profiles by NVML's number, which is also their id ---- */

/* 0: a GPU instance of so many slices has no such part. */
static inline uint32_t sim_mig_compute_slices(uint32_t profile, uint32_t of_slices)
{
    static const uint8_t slices[] = {1, 2, 3, 4, 7};

    if (profile >= sizeof(slices) || slices[profile] > of_slices ||
        (slices[profile] == 3 && of_slices == 4))
        return 0;
    return slices[profile];
}

/* The nth place where a part of so many slices may begin; -1: there are fewer. */
static inline int sim_mig_compute_start(uint32_t slices, uint32_t of_slices, uint32_t nth)
{
    uint32_t start = nth * (slices == 3 ? 4 : slices);

    return start + slices <= of_slices ? (int)start : -1;
}

static inline uint32_t sim_mig_compute_count(uint32_t slices, uint32_t of_slices)
{
    uint32_t count = 0;

    while (sim_mig_compute_start(slices, of_slices, count) >= 0)
        count++;
    return count;
}

#endif
