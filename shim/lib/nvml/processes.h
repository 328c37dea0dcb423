/* The processes that NVML shows: the container's own. */
#ifndef HAMI_NVML_PROCESSES_H
#define HAMI_NVML_PROCESSES_H

#include <stdbool.h>

#include "hami_nvml.h"
#include "hami_slice.h"

/* No slice: the driver's own answers are the program's. */
bool hami_nvml_stands_aside(void);

/* The container's own processes on a device. */
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
