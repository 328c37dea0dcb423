/* LZ4, one of the two ways in which compilers pack code into fat binaries. */
#ifndef HAMI_UNPACK_LZ4_H
#define HAMI_UNPACK_LZ4_H

#include <stddef.h>
#include <stdint.h>

/* How many bytes came out; 0: it is damaged, or more than `room`. Reads any input without harm and
 * never allocates by malloc. */
size_t hami_unpack_lz4(const uint8_t *packed, size_t bytes, uint8_t *plain, size_t room);

#endif
