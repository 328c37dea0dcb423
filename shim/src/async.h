/* Stream-ordered memory, and what every file that charges memory needs of it: memory that the
 * process keeps cached in pools can be had back before a request is refused. */
#ifndef HAMI_ASYNC_H
#define HAMI_ASYNC_H

#include <stdbool.h>
#include <stdint.h>

#include "hami_cuda.h"
#include "map.h"

/* For cuMemFree, which also ends stream-ordered memory: take the entry out of the map; false: the
 * address is no such memory. Then call the driver, then exactly one of the two below. */
bool hami_async_take(CUdeviceptr address, struct hami_entry *entry);
void hami_async_put_back(const struct hami_entry *entry); /* the driver refused */
void hami_async_freed(const struct hami_entry *entry);    /* the driver freed it, and had waited */

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
