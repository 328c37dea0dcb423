/* The descriptors and fabric handles that this process exported physical allocations as; all with
 * hami_physical_lock. */
#ifndef HAMI_EXPORTS_H
#define HAMI_EXPORTS_H

#include <stdint.h>

#include "hami_cuda.h"
#include "memory/physical.h"

/* Returned is the allocation whose descriptor had the same number and so was closed, if any: that
 * may have been all that held it, and hami_physical_ended is to be called. */
struct hami_physical *hami_export_add(struct hami_physical *physical, const void *shareable,
                                      CUmemAllocationHandleType type);
/* Whose export this is, if it is one of this process. */
struct hami_physical *hami_export_source(const void *shareable, CUmemAllocationHandleType type);
/* Forget descriptors that were closed; how many are left. */
uint32_t hami_exports_open(struct hami_physical *physical);
void hami_exports_forget(struct hami_physical *physical);
/* The next allocation that nothing but descriptors hold and whose last was closed. */
struct hami_physical *hami_exports_next_closed(void);

#endif
