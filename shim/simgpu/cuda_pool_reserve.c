/* What pools and graphs hold of the card: taken in steps, kept while it is useful, given back in
 * whole pieces. */
#include <stdlib.h>

#include "memory_pools.h"

#define STEP sim_knob("POOL_STEP", UINT64_C(32) << 20)

static CUresult take_piece(struct sim_reserve *reserve, uint64_t bytes)
{
    struct sim_piece piece = {.bytes = bytes};

    if (reserve->most && reserve->reserved + bytes > reserve->most)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (reserve->count == reserve->room) {
        size_t room = reserve->room ? 2 * reserve->room : 8;
        struct sim_piece *pieces = realloc(reserve->pieces, room * sizeof(*pieces));

        if (!pieces)
            return CUDA_ERROR_OUT_OF_MEMORY;
        reserve->pieces = pieces;
        reserve->room = room;
    }
    if (reserve->ordinal >= 0) {
        CUresult result = sim_take(reserve->ordinal, bytes, SIM_MEMORY_POOL, &piece.id);

        if (result != CUDA_SUCCESS)
            return result;
    }
    reserve->pieces[reserve->count++] = piece;
    reserve->reserved += bytes;
    if (reserve->reserved > reserve->reserved_high)
        reserve->reserved_high = reserve->reserved;
    return CUDA_SUCCESS;
}

/* In steps; where the card has no room for a whole one, what is needed. */
CUresult sim_reserve_grow(struct sim_reserve *reserve, uint64_t bytes)
{
    uint64_t need, step = sim_round_up(STEP, SIM_GRANULE);
    CUresult result;

    if (bytes > UINT64_MAX / 2)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (reserve->used + bytes <= reserve->reserved)
        return CUDA_SUCCESS;
    need = sim_round_up(reserve->used + bytes - reserve->reserved, SIM_GRANULE);
    result = take_piece(reserve, step ? sim_round_up(need, step) : need);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? take_piece(reserve, need) : result;
}

CUresult sim_reserve_use(struct sim_reserve *reserve, uint64_t bytes)
{
    CUresult result = sim_reserve_grow(reserve, bytes);

    if (result != CUDA_SUCCESS)
        return result;
    reserve->used += bytes;
    if (reserve->used > reserve->used_high)
        reserve->used_high = reserve->used;
    return CUDA_SUCCESS;
}

void sim_reserve_unuse(struct sim_reserve *reserve, uint64_t bytes)
{
    reserve->used -= bytes < reserve->used ? bytes : reserve->used;
}

void sim_reserve_trim(struct sim_reserve *reserve, uint64_t keep)
{
    uint64_t least = reserve->used > keep ? reserve->used : keep;

    for (size_t i = reserve->count; i-- > 0;) {
        struct sim_piece piece = reserve->pieces[i];

        if (reserve->reserved - least < piece.bytes || reserve->reserved < least)
            continue;
        reserve->pieces[i] = reserve->pieces[--reserve->count];
        reserve->reserved -= piece.bytes;
        if (piece.id)
            sim_give(piece.id);
    }
    if (reserve->count == 0) {
        free(reserve->pieces);
        reserve->pieces = NULL;
        reserve->room = 0;
    }
}
