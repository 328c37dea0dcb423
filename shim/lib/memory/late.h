/* Memory of cuMemAlloc that is freed in stream order: the device has it until the stream comes to the
 * free. */
#ifndef HAMI_LATE_H
#define HAMI_LATE_H

#include <stdbool.h>
#include <stdint.h>

#include "hami_cuda.h"
#include "memory/map.h"

/* After the driver took the free: what was on record is refunded when the stream has come so far. */
void hami_late_free(const struct hami_entry *entry, CUstream stream, bool per_thread);
/* Refund what came to its end in the current context; how much. One load while nothing waits. */
uint64_t hami_late_settle(void);

#endif
