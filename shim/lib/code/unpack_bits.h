/* The entropy coding of unpack_zstd.c (RFC 8878, section 4). */
#ifndef HAMI_UNPACK_BITS_H
#define HAMI_UNPACK_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hami_bytes {
    const uint8_t *at;
    size_t bytes;
};

static inline bool hami_bytes_skip(struct hami_bytes *in, size_t bytes)
{
    if (bytes > in->bytes)
        return false;
    in->at += bytes;
    in->bytes -= bytes;
    return true;
}

static inline bool hami_bytes_cut(struct hami_bytes *in, size_t bytes, struct hami_bytes *cut)
{
    *cut = (struct hami_bytes){in->at, bytes};
    return hami_bytes_skip(in, bytes);
}

/* Bits that are read from the last one to the first; behind the first there are zeroes. */
struct hami_bits {
    const uint8_t *at;
    size_t bytes;
    int64_t left; /* negative: so many more were read than there were */
};

bool hami_bits_open(struct hami_bits *bits, const uint8_t *at, size_t bytes);
uint64_t hami_bits_read(struct hami_bits *bits, unsigned int count); /* up to 32 */

/* 4.1: a state machine, whose states each mean a symbol. */
struct hami_fse {
    bool made;
    uint8_t log; /* of the number of states */
    uint8_t symbol[512], width[512];
    uint16_t base[512];
};

/* By how often each symbol comes; -1: less than once. */
bool hami_fse_make(struct hami_fse *table, const int16_t *often, unsigned int symbols,
                   unsigned int log);
bool hami_fse_read(struct hami_fse *table, struct hami_bytes *in, unsigned int most_log);
void hami_fse_only(struct hami_fse *table, uint8_t symbol);

static inline void hami_fse_next(const struct hami_fse *table, uint32_t *state,
                                 struct hami_bits *bits)
{
    *state = table->base[*state] + (uint32_t)hami_bits_read(bits, table->width[*state]);
}

/* 4.2: prefix codes of literals. */
struct hami_huffman {
    uint8_t log; /* of the longest code; 0: none was read */
    uint8_t symbol[2048], width[2048];
};

bool hami_huffman_read(struct hami_huffman *table, struct hami_bytes *in);
bool hami_huffman_unpack(const struct hami_huffman *table, const struct hami_bytes *in,
                         uint8_t *plain, size_t count);
bool hami_huffman_unpack_four(const struct hami_huffman *table, struct hami_bytes *in,
                              uint8_t *plain, size_t count);

#endif
