/* The slice as NVML shows it: memory in nvml.c, processes in nvml_processes.c and
 * nvml_utilisation.c. */
#ifndef HAMI_NVML_VIEW_H
#define HAMI_NVML_VIEW_H

#include <stdbool.h>

#include "hami_slice.h"
#include "driver/real.h"

/* The row of what a handle means now; HAMI_ROW_NONE: not of this slice. Not remembered by handle:
 * one may come to mean another MIG device, and NVML keeps the UUIDs itself. */
int hami_nvml_row(nvmlDevice_t device);

/* Whether row `row` is a MIG device of this card. */
bool hami_nvml_is_part(int row, nvmlDevice_t card, nvmlDevice_t *part);

/* No slice: the driver's own answers are the program's. */
bool hami_nvml_stands_aside(void);

/* The container's own processes on a device (nvml_processes.c). */
#define HAMI_NVML_MOST (HAMI_MAX_SLOTS * 2) /* a card's list has those of several MIG devices */
struct hami_nvml_pids {
    unsigned int count;
    unsigned int pids[HAMI_NVML_MOST];
};
struct hami_nvml_pids hami_nvml_pids(nvmlDevice_t device);

static inline bool hami_nvml_has(const struct hami_nvml_pids *of, unsigned int pid)
{
    for (unsigned int i = 0; i < of->count; i++)
        if (of->pids[i] == pid)
            return true;
    return false;
}

#endif
