/* Which pools there are: the program's, the devices' default ones, those of other processes, and
 * the graph memory of each device. */
#ifndef HAMI_POOL_TABLE_H
#define HAMI_POOL_TABLE_H

#include <stdbool.h>

#include "hami_cuda.h"
#include "memory/pools.h"

/* NULL: no memory for it. */
struct hami_pool *hami_pool_add(CUmemoryPool handle, int row, bool counted, bool ours);
struct hami_pool *hami_pool_of(CUmemoryPool handle); /* whoever made it */
/* The pool that cuMemAllocAsync takes from on a device, which stays until hami_pool_leave. */
CUresult hami_pool_current(int row, struct hami_pool **pool);
void hami_pool_leave(struct hami_pool *pool);
void hami_pool_current_changed(void); /* after the driver's call */
struct hami_pool *hami_pool_graphs(int row);
/* Before the driver's cuMemPoolDestroy, after which another pool may get the handle at once; NULL:
 * not known. Then hami_pool_destroyed, or _kept if the driver refused. */
struct hami_pool *hami_pool_destroying(CUmemoryPool handle);
void hami_pool_destroyed(struct hami_pool *pool, CUmemoryPool handle);
void hami_pool_kept(struct hami_pool *pool);
void hami_pool_drained(struct hami_pool *pool); /* the record is free again */
/* The i-th record that was ever used; NULL after the last. */
struct hami_pool *hami_pool_at(unsigned int index);

/* The row that memory at a location is charged to; false: memory of the host, not counted. */
bool hami_location_row(const CUmemLocation *location, CUmemAllocationType type, int *row);

#endif
