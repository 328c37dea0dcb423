/* What is mapped where in this process's addresses. */
#ifndef HAMI_VMM_H
#define HAMI_VMM_H

#include <stdint.h>

#include "memory/physical.h"

/* With hami_physical_lock: a mapping's memory, for binding by address: the first that overlaps
 * [*start, end), and *start behind it. NULL: no more. */
struct hami_physical *hami_mapped_in(uint64_t *start, uint64_t end);

#endif
