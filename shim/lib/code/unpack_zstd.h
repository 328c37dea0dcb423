/* Zstandard, one of the two ways in which compilers pack code into fat binaries. */
#ifndef HAMI_UNPACK_ZSTD_H
#define HAMI_UNPACK_ZSTD_H

#include <stddef.h>
#include <stdint.h>

/* Whole frames (RFC 8878), without dictionaries; checksums are not compared. How many bytes came
 * out; 0: it is damaged, or more than `room`. Reads any input without harm and never allocates by
 * malloc. */
size_t hami_unpack_zstd(const uint8_t *packed, size_t bytes, uint8_t *plain, size_t room);

#endif
