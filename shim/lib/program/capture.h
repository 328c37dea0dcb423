/* Stream captures. What is launched into one runs when the graph does: no charge and no wait there,
 * and none of our events. While none is open anywhere in the process, asking costs one load. */
#ifndef HAMI_CAPTURE_H
#define HAMI_CAPTURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "hami_cuda.h"

/* How many are open in the process. */
extern _Atomic uint32_t hami_captures_open;

/* Whether a stream captures now. While no capture is open in the process this is one load. */
bool hami_capturing(CUstream stream, bool per_thread);

/* One begins or has ended on a stream. */
void hami_capture_opened(CUstream stream, bool per_thread);
void hami_capture_closed(CUstream stream, bool per_thread);
/* The stream goes, and what was captured on it. */
void hami_captures_forget(CUstream stream);

#endif
