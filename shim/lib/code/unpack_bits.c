#include "code/unpack_bits.h"

#include <string.h>

#define MOST_SYMBOLS 256
#define MOST_WEIGHT_LOG 6
#define MOST_HUFFMAN_LOG 11

static unsigned int log_of(uint64_t value) /* rounded down; of no zero */
{
    return 63 - (unsigned int)__builtin_clzll(value);
}

/* The last byte's highest bit that is set only marks the end. */
bool hami_bits_open(struct hami_bits *bits, const uint8_t *at, size_t bytes)
{
    if (bytes == 0 || at[bytes - 1] == 0)
        return false;
    *bits = (struct hami_bits){at, bytes, (int64_t)(bytes - 1) * 8 + log_of(at[bytes - 1])};
    return true;
}

/* `count` bits from bit `first` on, which may lie before the beginning. */
static uint64_t bits_at(const uint8_t *at, size_t bytes, int64_t first, unsigned int count)
{
    uint64_t value = 0;
    int64_t byte = first >> 3;

    if (byte >= 0 && bytes >= sizeof(value) && (uint64_t)byte <= bytes - sizeof(value))
        memcpy(&value, at + byte, sizeof(value)); /* the library is for little-endian machines */
    else
        for (int i = 0; i < 6; i++, byte++)
            if (byte >= 0 && (uint64_t)byte < bytes)
                value |= (uint64_t)at[byte] << (8 * i);
    return value >> (first & 7) & ((UINT64_C(1) << count) - 1);
}

uint64_t hami_bits_read(struct hami_bits *bits, unsigned int count)
{
    bits->left -= count;
    return count ? bits_at(bits->at, bits->bytes, bits->left, count) : 0;
}

/* ---- 4.1 ---- */

bool hami_fse_make(struct hami_fse *table, const int16_t *often, unsigned int symbols,
                   unsigned int log)
{
    uint32_t size = 1u << log, step = (size >> 1) + (size >> 3) + 3, top = size, at = 0;
    uint16_t next[MOST_SYMBOLS];

    for (unsigned int s = 0; s < symbols; s++) {
        next[s] = often[s] < 0 ? 1 : (uint16_t)often[s];
        if (often[s] < 0)
            table->symbol[--top] = (uint8_t)s;
    }
    for (unsigned int s = 0; s < symbols; s++)
        for (int16_t i = 0; i < often[s]; i++) {
            table->symbol[at] = (uint8_t)s;
            do
                at = (at + step) & (size - 1);
            while (at >= top);
        }
    if (at != 0)
        return false;
    for (uint32_t i = 0; i < size; i++) {
        uint32_t count = next[table->symbol[i]]++;

        table->width[i] = (uint8_t)(log - log_of(count));
        table->base[i] = (uint16_t)((count << table->width[i]) - size);
    }
    table->log = (uint8_t)log;
    table->made = true;
    return true;
}

void hami_fse_only(struct hami_fse *table, uint8_t symbol)
{
    table->symbol[0] = symbol;
    table->width[0] = 0;
    table->base[0] = 0;
    table->log = 0;
    table->made = true;
}

/* 4.1.1: how often each symbol comes; values that cannot be so large take a bit less. */
bool hami_fse_read(struct hami_fse *table, struct hami_bytes *in, unsigned int most_log)
{
    int16_t often[MOST_SYMBOLS];
    unsigned int log, symbols = 0;
    int64_t at = 4;
    int32_t left;

    if (in->bytes < 1)
        return false;
    log = (in->at[0] & 15u) + 5;
    if (log > most_log)
        return false;
    left = 1 << log;
    while (left > 0) {
        unsigned int width = log_of((uint64_t)left + 1) + 1, repeat;
        uint32_t value = (uint32_t)bits_at(in->at, in->bytes, at, width);
        uint32_t lower = (1u << (width - 1)) - 1;
        uint32_t short_ones = (1u << width) - 1 - ((uint32_t)left + 1);

        if (symbols == MOST_SYMBOLS || (uint64_t)at > in->bytes * 8)
            return false;
        at += width;
        if ((value & lower) < short_ones) {
            at--;
            value &= lower;
        } else if (value > lower) {
            value -= short_ones;
        }
        often[symbols] = (int16_t)(value - 1);
        left -= often[symbols] < 0 ? 1 : often[symbols];
        if (often[symbols++] != 0)
            continue;
        do {
            repeat = (unsigned int)bits_at(in->at, in->bytes, at, 2);
            at += 2;
            if (symbols + repeat > MOST_SYMBOLS)
                return false;
            for (unsigned int i = 0; i < repeat; i++)
                often[symbols++] = 0;
        } while (repeat == 3);
    }
    return left == 0 && hami_bytes_skip(in, (size_t)(at + 7) / 8) &&
           hami_fse_make(table, often, symbols, log);
}

/* ---- 4.2 ---- */

/* Two machines take turns until there are no bits left for one; the other's symbol is the last. */
static bool read_packed_weights(struct hami_bytes *in, uint8_t *weights, unsigned int *count)
{
    struct hami_fse table;
    struct hami_bits bits;
    uint32_t at[2];

    if (!hami_fse_read(&table, in, MOST_WEIGHT_LOG) || !hami_bits_open(&bits, in->at, in->bytes))
        return false;
    at[0] = (uint32_t)hami_bits_read(&bits, table.log);
    at[1] = (uint32_t)hami_bits_read(&bits, table.log);
    if (bits.left < 0)
        return false;
    for (unsigned int turn = 0;; turn ^= 1) {
        if (*count >= MOST_SYMBOLS - 2)
            return false;
        weights[(*count)++] = table.symbol[at[turn]];
        hami_fse_next(&table, &at[turn], &bits);
        if (bits.left < 0) {
            weights[(*count)++] = table.symbol[at[turn ^ 1]];
            return true;
        }
    }
}

static bool read_weights(struct hami_bytes *in, uint8_t *weights, unsigned int *count)
{
    struct hami_bytes packed;
    unsigned int header;

    if (in->bytes < 1)
        return false;
    header = in->at[0];
    hami_bytes_skip(in, 1);
    *count = 0;
    if (header < 128)
        return hami_bytes_cut(in, header, &packed) && read_packed_weights(&packed, weights, count);
    *count = header - 127;
    if (in->bytes < (*count + 1) / 2)
        return false;
    for (unsigned int i = 0; i < *count; i++)
        weights[i] = i % 2 ? in->at[i / 2] & 15 : in->at[i / 2] >> 4;
    return hami_bytes_skip(in, (*count + 1) / 2);
}

/* The last weight is not written: it is what makes the sum of all a power of two. */
bool hami_huffman_read(struct hami_huffman *table, struct hami_bytes *in)
{
    uint8_t weights[MOST_SYMBOLS];
    uint32_t sum = 0, rest, place = 0;
    unsigned int count, log;

    table->log = 0;
    if (!read_weights(in, weights, &count))
        return false;
    for (unsigned int i = 0; i < count; i++) {
        if (weights[i] > MOST_HUFFMAN_LOG)
            return false;
        sum += weights[i] ? 1u << (weights[i] - 1) : 0;
    }
    if (sum == 0)
        return false;
    log = log_of(sum) + 1;
    rest = (1u << log) - sum;
    if (log > MOST_HUFFMAN_LOG || count >= MOST_SYMBOLS || (rest & (rest - 1)) != 0)
        return false;
    weights[count++] = (uint8_t)(log_of(rest) + 1);
    /* Long codes first, which have small weights; of one length in the symbols' order. */
    for (unsigned int weight = 1; weight <= log; weight++)
        for (unsigned int s = 0; s < count; s++)
            if (weights[s] == weight) {
                memset(table->symbol + place, (int)s, (size_t)1 << (weight - 1));
                memset(table->width + place, (int)(log + 1 - weight), (size_t)1 << (weight - 1));
                place += 1u << (weight - 1);
            }
    table->log = (uint8_t)log;
    return place == 1u << log;
}

bool hami_huffman_unpack(const struct hami_huffman *table, const struct hami_bytes *in,
                         uint8_t *plain, size_t count)
{
    uint32_t mask = (1u << table->log) - 1, state;
    struct hami_bits bits;

    if (!hami_bits_open(&bits, in->at, in->bytes))
        return false;
    state = (uint32_t)hami_bits_read(&bits, table->log);
    for (size_t i = 0; i < count; i++) {
        unsigned int width = table->width[state];

        plain[i] = table->symbol[state];
        state = (state << width | (uint32_t)hami_bits_read(&bits, width)) & mask;
    }
    return bits.left == -(int64_t)table->log;
}

bool hami_huffman_unpack_four(const struct hami_huffman *table, struct hami_bytes *in,
                              uint8_t *plain, size_t count)
{
    size_t each = (count + 3) / 4, sizes[4] = {0};
    struct hami_bytes stream;

    if (in->bytes < 6 || count < 3 * each)
        return false;
    for (int i = 0; i < 3; i++)
        sizes[i] = in->at[2 * i] | (size_t)in->at[2 * i + 1] << 8;
    hami_bytes_skip(in, 6);
    if (sizes[0] + sizes[1] + sizes[2] > in->bytes)
        return false;
    sizes[3] = in->bytes - sizes[0] - sizes[1] - sizes[2];
    for (size_t i = 0; i < 4; i++) {
        size_t part = i < 3 ? each : count - 3 * each;

        if (!hami_bytes_cut(in, sizes[i], &stream) ||
            !hami_huffman_unpack(table, &stream, plain + i * each, part))
            return false;
    }
    return true;
}
