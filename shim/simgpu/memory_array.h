/* CUDA arrays, between cuda_array*.c. The memory lock is held. */
#ifndef SIM_MEMORY_ARRAY_H
#define SIM_MEMORY_ARRAY_H

#include "memory.h"

struct sim_tile;

/* What arrays and mipmapped arrays have in common. Sparse arrays and those whose memory is mapped
 * later take nothing themselves: their tiles keep what is mapped there. */
struct sim_texture {
    CUDA_ARRAY3D_DESCRIPTOR shape;
    CUcontext context;
    CUdevice ordinal;
    uint64_t bytes;
    struct sim_part part;
    struct sim_tile *tiles;
    unsigned int levels; /* 0: a plain array */
};

struct CUarray_st {
    struct sim_texture texture;
    CUmipmappedArray whole; /* a level of it; not to be destroyed by itself */
    CUarray next, *place;
};

struct CUmipmappedArray_st {
    struct sim_texture texture;
    CUarray level[32];
    CUmipmappedArray next, *place;
};

CUarray sim_array_known(CUarray array);
CUmipmappedArray sim_mipmap_known(CUmipmappedArray array);
/* Nothing is mapped there any more. */
void sim_tiles_end(struct sim_texture *texture);

#define SIM_ARRAY_EMPTY (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)
#define SIM_TILE UINT64_C(65536)

#endif
