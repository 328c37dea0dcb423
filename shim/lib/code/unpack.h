/* The two ways in which compilers pack code into fat binaries. */
#ifndef HAMI_UNPACK_H
#define HAMI_UNPACK_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* How many bytes came out; 0: it is damaged, or more than `room`. Both read any input without harm
 * and never allocate by malloc. */
size_t hami_unpack_lz4(const uint8_t *packed, size_t bytes, uint8_t *plain, size_t room);
/* Whole frames (RFC 8878), without dictionaries; checksums are not compared. */
size_t hami_unpack_zstd(const uint8_t *packed, size_t bytes, uint8_t *plain, size_t room);

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
