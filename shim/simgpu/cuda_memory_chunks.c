/* Ledger memory for single allocations. As on a real card, what is small shares 2 MiB: so many
 * small allocations take from the card what they need together, not 2 MiB each. */
#include <stdlib.h>
#include <string.h>

#include "memory.h"

#define UNIT UINT64_C(512)
#define UNITS (SIM_GRANULE / UNIT)
#define SHARED_MAX (SIM_GRANULE / 2)
#define LOW_FIRST UINT64_C(0x20000000)
#define LOW_END UINT64_C(0x100000000)
#define KEPT 64
#define MOST (UINT64_C(1) << 47) /* no card has it, and no address space */

struct sim_chunk {
    uint64_t id;
    CUdeviceptr address;
    CUcontext context;
    CUdevice ordinal;
    uint32_t used; /* units */
    uint32_t hopeless; /* that many units in a row were not found since the last give */
    uint64_t map[UNITS / 64];
    struct sim_chunk *next, *previous;
};

static struct sim_chunk *chunks; /* those with room; a full one is in no list */
static CUdeviceptr low_next = LOW_FIRST;

/* Addresses given back last. Real drivers hand out the same address again at once, which is what
 * programs (and libraries between them and the driver) must cope with. */
static struct recent {
    CUdeviceptr address[KEPT];
    uint64_t bytes[KEPT];
    unsigned int next;
} recent[2];

CUdeviceptr sim_address_again(uint64_t bytes, bool async)
{
    struct recent *kept = &recent[async];

    for (unsigned int i = 1; i <= KEPT; i++) {
        unsigned int place = (kept->next + KEPT - i) % KEPT;
        CUdeviceptr address = kept->address[place];

        if (address && kept->bytes[place] == bytes) {
            kept->address[place] = 0;
            return address;
        }
    }
    return sim_address(bytes, async ? UNIT : SIM_GRANULE);
}

void sim_address_keep(CUdeviceptr address, uint64_t bytes, bool async)
{
    struct recent *kept = &recent[async];

    kept->address[kept->next] = address;
    kept->bytes[kept->next] = bytes;
    kept->next = (kept->next + 1) % KEPT;
}

/* Below 4 GiB; only what the spellings of CUDA 2.0 give out lies there, so a scan will do. */
static CUdeviceptr low_address(uint64_t bytes)
{
    for (int round = 0; round < 2; round++) {
        while (low_next + bytes <= LOW_END) {
            struct sim_range *there = sim_range_touching(low_next, bytes);
            CUdeviceptr address = low_next;
            CUdeviceptr end = there ? there->base + there->bytes : address + bytes;

            low_next = sim_round_up(end, SIM_GRANULE);
            if (!there)
                return address;
        }
        low_next = LOW_FIRST;
    }
    return 0;
}

static bool unit_used(const struct sim_chunk *chunk, uint32_t unit)
{
    return chunk->map[unit / 64] >> (unit % 64) & 1;
}

static void set_units(struct sim_chunk *chunk, uint32_t from, uint32_t units, bool used)
{
    for (uint32_t unit = from; unit < from + units; unit++) {
        uint64_t bit = UINT64_C(1) << (unit % 64);

        if (used)
            chunk->map[unit / 64] |= bit;
        else
            chunk->map[unit / 64] &= ~bit;
    }
}

/* The first run of `units` free ones, or UNITS. */
static uint32_t find_units(struct sim_chunk *chunk, uint32_t units)
{
    uint32_t run = 0;

    if (UNITS - chunk->used < units || (chunk->hopeless && units >= chunk->hopeless))
        return UNITS;
    for (uint32_t unit = 0; unit < UNITS; unit++) {
        if (unit % 64 == 0 && chunk->map[unit / 64] == UINT64_MAX) {
            run = 0;
            unit += 63;
            continue;
        }
        run = unit_used(chunk, unit) ? 0 : run + 1;
        if (run == units)
            return unit + 1 - units;
    }
    chunk->hopeless = units;
    return UNITS;
}

static void chunk_list(struct sim_chunk *chunk)
{
    chunk->previous = NULL;
    chunk->next = chunks;
    if (chunks)
        chunks->previous = chunk;
    chunks = chunk;
}

static void chunk_unlist(struct sim_chunk *chunk)
{
    if (chunk->previous)
        chunk->previous->next = chunk->next;
    else
        chunks = chunk->next;
    if (chunk->next)
        chunk->next->previous = chunk->previous;
}

static CUresult chunk_new(CUcontext context, CUdevice ordinal, struct sim_chunk **made)
{
    struct sim_chunk *chunk = calloc(1, sizeof(*chunk));
    CUresult result;

    if (!chunk)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = sim_take(ordinal, SIM_GRANULE, SIM_MEMORY_DATA, &chunk->id);
    if (result != CUDA_SUCCESS) {
        free(chunk);
        return result;
    }
    chunk->address = sim_address_again(SIM_GRANULE, false);
    chunk->context = context;
    chunk->ordinal = ordinal;
    chunk_list(chunk);
    *made = chunk;
    return CUDA_SUCCESS;
}

static CUresult take_shared(CUcontext context, CUdevice ordinal, uint64_t bytes,
                            struct sim_part *part)
{
    uint32_t units = (uint32_t)(sim_round_up(bytes, UNIT) / UNIT), first = UNITS;
    struct sim_chunk *chunk;

    for (chunk = chunks; chunk; chunk = chunk->next)
        if (chunk->context == context && chunk->ordinal == ordinal) {
            first = find_units(chunk, units);
            if (first < UNITS)
                break;
        }
    if (!chunk) {
        CUresult result = chunk_new(context, ordinal, &chunk);

        if (result != CUDA_SUCCESS)
            return result;
        first = 0;
    }
    set_units(chunk, first, units, true);
    chunk->used += units;
    if (chunk->used == UNITS)
        chunk_unlist(chunk);
    *part = (struct sim_part){.id = chunk->id, .chunk = chunk, .first = first, .units = units,
                              .address = chunk->address + first * UNIT};
    return CUDA_SUCCESS;
}

CUresult sim_part_take(CUcontext context, CUdevice ordinal, uint64_t bytes, bool low,
                       struct sim_part *part)
{
    uint64_t whole = sim_round_up(bytes, SIM_GRANULE);
    CUresult result;

    if (bytes > MOST)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!low && bytes <= SHARED_MAX)
        return take_shared(context, ordinal, bytes, part);
    memset(part, 0, sizeof(*part));
    result = sim_take(ordinal, whole, SIM_MEMORY_DATA, &part->id);
    if (result != CUDA_SUCCESS)
        return result;
    part->address = low ? low_address(whole) : sim_address_again(whole, false);
    part->first = low;
    part->units = (uint32_t)(whole / SIM_GRANULE);
    if (!part->address) {
        sim_give(part->id);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

void sim_part_give(struct sim_part *part)
{
    struct sim_chunk *chunk = part->chunk;

    if (!chunk) {
        if (part->id) {
            if (!part->first && part->units)
                sim_address_keep(part->address, part->units * SIM_GRANULE, false);
            sim_give(part->id);
        }
        part->id = 0;
        return;
    }
    if (chunk->used == UNITS)
        chunk_list(chunk);
    set_units(chunk, part->first, part->units, false);
    chunk->used -= part->units;
    chunk->hopeless = 0;
    part->id = 0;
    part->chunk = NULL;
    if (chunk->used)
        return;
    chunk_unlist(chunk);
    sim_address_keep(chunk->address, SIM_GRANULE, false);
    sim_give(chunk->id);
    free(chunk);
}
