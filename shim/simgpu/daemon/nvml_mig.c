/* MIG: GPU instances take memory slices of a card, compute instances take compute slices of a GPU
 * instance and are units of the board, on which processes run. */
#include "nvml.h"

#include <string.h>

#define MEMORY_SLICES 8

const struct sim_mig_model *nvml_model(const struct daemon *daemon, int card)
{
    const struct sim_board_unit *shown = &daemon->board->units[card];

    return shown->mig ? sim_mig_model(shown->name) : NULL;
}

static struct sim_nvml_instance *find_instance(struct nvml_card *of, int32_t id)
{
    for (int i = 0; i < of->state.instance_count; i++)
        if (of->state.instances[i].id == id)
            return &of->state.instances[i];
    return NULL;
}

/* The same for an instance made again at its place, as a driver has it. */
static void name_device(char uuid[48], const char *card, int gpu_instance, int compute_instance)
{
    char text[80];
    uint64_t sum[2] = {UINT64_C(0xcbf29ce484222325), UINT64_C(0x84222325cbf29ce4)};

    snprintf(text, sizeof(text), "%s/%d/%d", card, gpu_instance, compute_instance);
    for (const char *at = text; *at; at++)
        for (int i = 0; i < 2; i++) {
            sum[i] = (sum[i] ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
            sum[i] ^= sum[i] >> 29;
        }
    snprintf(uuid, 48, "MIG-%08x-%04x-%04x-%04x-%012llx", (unsigned)(sum[0] >> 32),
             (unsigned)(sum[0] >> 16 & 0xffff), (unsigned)(sum[0] & 0xffff),
             (unsigned)(sum[1] >> 48), (unsigned long long)(sum[1] & UINT64_C(0xffffffffffff)));
}

/* ---- The mode ---- */

static bool in_use(const struct daemon *daemon, int card, const struct nvml_card *of)
{
    if (board_unit_in_use(daemon, card))
        return true;
    for (int i = 0; i < of->state.instance_count; i++)
        for (int j = 0; j < of->state.instances[i].compute_count; j++)
            if (board_unit_in_use(daemon, of->state.instances[i].compute[j].unit))
                return true;
    return false;
}

uint32_t nvml_mig_apply(struct daemon *daemon, int card, struct nvml_card *of)
{
    const struct sim_board_unit *shown = &daemon->board->units[card];

    if (shown->mig == of->state.mig_pending)
        return NVML_OK;
    if (in_use(daemon, card, of))
        return NVML_IN_USE;
    for (int i = 0; i < of->state.instance_count; i++)
        for (int j = 0; j < of->state.instances[i].compute_count; j++)
            board_remove_instance(daemon, of->state.instances[i].compute[j].unit);
    of->state.instance_count = 0;
    return board_set_mig(daemon, card, of->state.mig_pending != 0) ? NVML_OK : NVML_IN_USE;
}

/* ---- GPU instances ---- */

static bool is_free(const struct nvml_card *of, uint32_t start, uint32_t size)
{
    for (int i = 0; i < of->state.instance_count; i++) {
        const struct sim_nvml_instance *other = &of->state.instances[i];

        if (start < other->start + other->size && other->start < start + size)
            return false;
    }
    return true;
}

/* Drivers number by place: 0 is the whole card, 1 and 2 its halves, 3 to 6 its quarters. */
static int32_t next_id(struct nvml_card *of, uint32_t start, uint32_t size)
{
    int32_t id = (int32_t)(MEMORY_SLICES / size - 1 + start / size);

    if (find_instance(of, id))
        for (id = 0; find_instance(of, id); id++)
            ;
    return id;
}

static struct sim_nvml_instance *insert_instance(struct nvml_card *of, int32_t id)
{
    int at = of->state.instance_count++;
    struct sim_nvml_instance *all = of->state.instances;

    for (; at > 0 && all[at - 1].id > id; at--)
        all[at] = all[at - 1];
    all[at] = (struct sim_nvml_instance){.id = id};
    return &all[at];
}

/* Where it is asked for, or the first place that is free; -1: nowhere. */
static int place(const struct nvml_card *of, const struct sim_mig_profile *profile, int32_t start)
{
    if (start != SIM_NVML_ANYWHERE)
        return is_free(of, (uint32_t)start, profile->size) ? start : -1;
    for (int at = 0; at < MEMORY_SLICES; at++)
        if ((profile->starts >> at & 1) && is_free(of, (uint32_t)at, profile->size))
            return at;
    return -1;
}

uint32_t nvml_instance_create(struct daemon *daemon, struct nvml_card *of,
                              const struct sim_nvml_ask *ask, int32_t *id)
{
    const struct sim_mig_model *model = nvml_model(daemon, ask->card);
    const struct sim_mig_profile *profile = sim_mig_profile(model, ask->number);
    struct sim_nvml_instance *made;
    int alike = 0, at;

    if (!model)
        return NVML_NOT_SUPPORTED;
    if (!profile || (ask->start != SIM_NVML_ANYWHERE &&
                     (ask->start < 0 || ask->start >= MEMORY_SLICES ||
                      !(profile->starts >> ask->start & 1) || ask->size != profile->size)))
        return NVML_INVALID_ARGUMENT;
    for (int i = 0; i < of->state.instance_count; i++)
        alike += of->state.instances[i].profile_id == profile->id;
    at = place(of, profile, ask->start);
    if (alike >= profile->count || of->state.instance_count == SIM_CARD_INSTANCES || at < 0)
        return NVML_NO_ROOM;
    *id = next_id(of, (uint32_t)at, profile->size);
    made = insert_instance(of, *id);
    made->profile_id = profile->id;
    made->start = (uint32_t)at;
    made->size = profile->size;
    return NVML_OK;
}

uint32_t nvml_instance_destroy(struct daemon *daemon, struct nvml_card *of,
                               const struct sim_nvml_ask *ask)
{
    struct sim_nvml_instance *found = find_instance(of, ask->gpu_instance);
    struct sim_nvml_instance *end = of->state.instances + of->state.instance_count;

    (void)daemon;
    if (!found)
        return NVML_NOT_FOUND;
    if (found->compute_count > 0)
        return NVML_IN_USE;
    memmove(found, found + 1, (size_t)(end - found - 1) * sizeof(*found));
    of->state.instance_count--;
    return NVML_OK;
}

/* ---- Compute instances ---- */

static struct sim_nvml_compute *find_compute(struct sim_nvml_instance *of, int32_t id)
{
    for (int i = 0; i < of->compute_count; i++)
        if (of->compute[i].id == id)
            return &of->compute[i];
    return NULL;
}

static int place_compute(const struct sim_nvml_instance *of, uint32_t slices, uint32_t of_slices)
{
    int start;

    for (uint32_t nth = 0; (start = sim_mig_compute_start(slices, of_slices, nth)) >= 0; nth++) {
        bool is_taken = false;

        for (int i = 0; i < of->compute_count; i++)
            if ((uint32_t)start < of->compute[i].start + of->compute[i].size &&
                of->compute[i].start < (uint32_t)start + slices)
                is_taken = true;
        if (!is_taken)
            return start;
    }
    return -1;
}

/* As the driver names it: "<card> MIG 3g.40gb", or "... MIG 1c.3g.40gb" for a part of one. */
static int add_unit(struct daemon *daemon, const struct sim_nvml_ask *ask,
                    const struct sim_mig_model *model, const struct sim_mig_profile *profile,
                    uint32_t slices, int32_t id)
{
    const struct sim_board_unit *card = &daemon->board->units[ask->card];
    uint64_t memory = sim_mig_memory_mib(model, profile, card->memory) << 20;
    char name[sizeof(card->name)], uuid[48], part[8] = "";

    if (slices != profile->slices)
        snprintf(part, sizeof(part), "%uc.", slices);
    snprintf(name, sizeof(name), "%.60s MIG %s%s", card->name, part, profile->name);
    name_device(uuid, card->uuid, ask->gpu_instance, id);
    return board_add_instance(daemon, ask->card, name, uuid, memory,
                              (int)(profile->multiprocessors * slices / profile->slices),
                              ask->gpu_instance, id);
}

uint32_t nvml_compute_create(struct daemon *daemon, struct nvml_card *of,
                             const struct sim_nvml_ask *ask, int32_t *id)
{
    const struct sim_mig_model *model = nvml_model(daemon, ask->card);
    struct sim_nvml_instance *whole = find_instance(of, ask->gpu_instance);
    const struct sim_mig_profile *profile;
    struct sim_nvml_compute *made;
    uint32_t slices;
    int start, unit;

    if (!model)
        return NVML_NOT_SUPPORTED;
    if (!whole)
        return NVML_NOT_FOUND;
    profile = sim_mig_profile(model, whole->profile_id);
    slices = sim_mig_compute_slices(ask->number, profile->slices);
    if (slices == 0)
        return NVML_INVALID_ARGUMENT;
    start = place_compute(whole, slices, profile->slices);
    if (start < 0 || whole->compute_count == SIM_CARD_INSTANCES)
        return NVML_NO_ROOM;
    for (*id = 0; find_compute(whole, *id); ++*id)
        ;
    unit = add_unit(daemon, ask, model, profile, slices, *id);
    if (unit < 0)
        return NVML_NO_ROOM;
    made = &whole->compute[whole->compute_count++];
    *made = (struct sim_nvml_compute){.id = *id, .unit = unit, .profile = ask->number,
                                      .start = (uint32_t)start, .size = slices};
    return NVML_OK;
}

uint32_t nvml_compute_destroy(struct daemon *daemon, struct nvml_card *of,
                              const struct sim_nvml_ask *ask)
{
    struct sim_nvml_instance *whole = find_instance(of, ask->gpu_instance);
    struct sim_nvml_compute *found = whole ? find_compute(whole, ask->compute_instance) : NULL;
    struct sim_nvml_compute *end = whole ? whole->compute + whole->compute_count : NULL;

    if (!found)
        return NVML_NOT_FOUND;
    if (!board_remove_instance(daemon, found->unit))
        return NVML_IN_USE;
    memmove(found, found + 1, (size_t)(end - found - 1) * sizeof(*found));
    whole->compute_count--;
    return NVML_OK;
}
