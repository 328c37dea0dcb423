/* Stream-ordered memory, and what every file that charges memory needs of it: memory that the
 * process keeps cached in pools can be had back before a request is refused. */
#ifndef HAMI_ASYNC_H
#define HAMI_ASYNC_H

#include <stdbool.h>
#include <stdint.h>

#include "hami_cuda.h"
#include "memory/map.h"

/* What was allocated at an address, in stream order or not, off the record: each way of freeing ends
 * both. `likely`: as which it is looked for first. */
bool hami_memory_take(enum hami_kind likely, CUdeviceptr address, struct hami_entry *entry);
/* cuMemFree ended stream-ordered memory, and had waited. */
void hami_async_freed(const struct hami_entry *entry);

/* Over the limit: read what the pools and the graphs of this process hold on the device, give back
 * what they only cache (cuMemPoolTrimTo, cuDeviceGraphMemTrim), refund it. True when anything was
 * refunded, so that a refused charge is worth a second try. Takes driver calls: not a hot path. */
bool hami_memory_reclaim(int row);
/* hami_charge, and once more after hami_memory_reclaim. What a request should call. */
bool hami_memory_charge(int row, uint64_t bytes);

/* Forget pools, graphs and physical allocations: a forked child whose own cuInit succeeded
 * (hami_attach calls it where it calls hami_map_reset). */
void hami_memory_reset(void);

#endif
