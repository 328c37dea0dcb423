/* A copy of what came before, which both ways of packing code into fat binaries have. */
#ifndef HAMI_UNPACK_REPEAT_H
#define HAMI_UNPACK_REPEAT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* What is copied may be what is being written. */
static inline void hami_unpack_repeat(uint8_t *to, size_t distance, size_t length)
{
    if (distance >= length) {
        memcpy(to, to - distance, length);
        return;
    }
    for (size_t i = 0; i < length; i++)
        to[i] = to[(ptrdiff_t)i - (ptrdiff_t)distance];
}

#endif
