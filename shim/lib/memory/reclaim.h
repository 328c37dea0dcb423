/* When the driver may have given memory back, and when we ask it to. */
#ifndef HAMI_RECLAIM_H
#define HAMI_RECLAIM_H

#include <stdbool.h>
#include <stdint.h>

/* The program has waited for the device (or launched a graph): what graphs and pools hold is read
 * anew. `row` may be HAMI_ROW_NONE: all. Cheap when the process has neither pools nor graph
 * memory. */
void hami_memory_settle(int row);

/* Over the limit: read what the pools and the graphs of this process hold on the device, give back
 * what they only cache (cuMemPoolTrimTo, cuDeviceGraphMemTrim), refund it. True when anything was
 * refunded, so that a refused charge is worth a second try. Takes driver calls: not a hot path. */
bool hami_memory_reclaim(int row);
/* hami_charge, and once more after hami_memory_reclaim. What a request should call. */
bool hami_memory_charge(int row, uint64_t bytes);

#endif
