/* What module_size.c and module_text.c share. */
#ifndef HAMI_MODULE_PARTS_H
#define HAMI_MODULE_PARTS_H

#include <stddef.h>
#include <stdint.h>

#include "module_size.h"

/* Bytes at an offset; fewer than asked for where the file or the readable memory ends. */
size_t hami_module_read(const struct hami_module_source *source, uint64_t offset, void *buffer,
                        size_t bytes);

/* What the variables of a text take, and how long it is. UINT64_MAX: a size cannot be read. */
uint64_t hami_module_text(const struct hami_module_source *source, uint64_t *length);

static inline uint64_t hami_module_sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

#endif
