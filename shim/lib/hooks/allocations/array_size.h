/* How much device memory an array takes, as far as its description tells. UINT64_MAX: more than
 * there is. */
#ifndef HAMI_ARRAY_SIZE_H
#define HAMI_ARRAY_SIZE_H

#include <stdint.h>

#include "hami_cuda.h"

uint64_t hami_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *array);
uint64_t hami_mipmap_bytes(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned int levels);

#endif
