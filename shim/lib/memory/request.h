/* One request for memory that the driver lays out in its own blocks (cuMemAlloc and its like,
 * arrays), from asking to being on record. */
#ifndef HAMI_REQUEST_H
#define HAMI_REQUEST_H

#include "hami_cuda.h"
#include "memory/map.h"

/* Before the driver is asked: charge the current context's device. Fills *entry but for its key.
 * CUDA_ERROR_OUT_OF_MEMORY, or what the driver says without a context: do not ask it. */
CUresult hami_request(enum hami_kind kind, uint64_t bytes, struct hami_entry *entry);
/* The driver refused. */
void hami_request_failed(const struct hami_entry *entry);
/* The driver answered `key`, which takes `really` bytes. CUDA_ERROR_OUT_OF_MEMORY: that does not
 * fit, or cannot be remembered; it was given back to the driver by `give_back`, then refunded. */
CUresult hami_request_done(struct hami_entry *entry, uint64_t key, uint64_t really,
                           CUresult (*give_back)(uint64_t key));

#endif
