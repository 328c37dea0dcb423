/* Memory that was mapped into arrays, for who destroys one (arrays.c). */
#ifndef HAMI_TILES_H
#define HAMI_TILES_H

#include <stdbool.h>
#include <stdint.h>

struct hami_tile;

/* Before the driver is asked to destroy an array or mipmapped array, whose handle may be another's
 * right after it: what is mapped there. One load while nothing was ever mapped into an array. */
struct hami_tile *hami_tiles_take(uint64_t array);
/* The driver destroyed it, and so ended the mappings; or did not. */
void hami_tiles_taken(struct hami_tile *taken, bool destroyed);

#endif
