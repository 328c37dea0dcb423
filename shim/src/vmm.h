/* Physical allocations (cuMemCreate): counted until nothing refers to them any more. vmm.c. */
#ifndef HAMI_VMM_H
#define HAMI_VMM_H

#include <stdint.h>

/* An array or mipmapped array was destroyed (arrays.c): what cuMemMapArrayAsync put into it is
 * mapped there no more. One load while nothing was ever mapped into an array. */
void hami_vmm_forget_resource(uint64_t array);

#endif
