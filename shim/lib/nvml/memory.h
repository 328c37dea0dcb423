/* A device of NVML as a device of the slice. */
#ifndef HAMI_NVML_MEMORY_H
#define HAMI_NVML_MEMORY_H

#include <stdbool.h>

#include "hami_nvml.h"

/* The row of what a handle means now; HAMI_ROW_NONE: not of this slice. Not remembered by handle:
 * one may come to mean another MIG device, and NVML keeps the UUIDs itself. */
int hami_nvml_row(nvmlDevice_t device);

/* Whether row `row` is a MIG device of this card. */
bool hami_nvml_is_part(int row, nvmlDevice_t card, nvmlDevice_t *part);

#endif
