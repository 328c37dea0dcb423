/* Zstandard, by RFC 8878, of which the sections are named below. All that a frame says of itself is
 * the program's word: every length is compared with what is there. */
#include "code/unpack_zstd.h"

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "code/unpack_bits.h"
#include "code/unpack_repeat.h"

#define MAGIC 0xfd2fb528u
#define SKIPPABLE 0x184d2a50u /* to ..5f */
#define MOST_BLOCK (128 << 10)

/* 3.1.1.3.2.1.1: what codes stand for. */
static const uint32_t literal_base[36] = {0,  1,  2,  3,  4,  5,  6,   7,   8,   9,    10,   11,
                                          12, 13, 14, 15, 16, 18, 20,  22,  24,  28,   32,   40,
                                          48, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384,
                                          32768, 65536};
static const uint8_t literal_extra[36] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0,  0,  0,  0,  0,  0, 1, 1,
                                          1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
static const uint32_t match_base[53] = {
    3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16,  17,  18,  19,   20,
    21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34,  35,  37,  39,   41,
    43, 47, 51, 59, 67, 83, 99, 131, 259, 515, 1027, 2051, 4099, 8195, 16387, 32771, 65539};
static const uint8_t match_extra[53] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0,  0,  0,  0,  0, 0, 0,
                                        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0,  0,  0,  1,  1, 1, 1,
                                        2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
/* 3.1.1.3.2.2: how often codes come where a block does not say. */
static const int16_t usual_literals[36] = {4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2,  2,  1,  1,  1, 2, 2,
                                           2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1};
static const int16_t usual_matches[53] = {
    1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1};
static const int16_t usual_offsets[29] = {1, 1, 1, 1, 1, 1, 2, 2, 2, 1,  1,  1,  1,  1, 1,
                                          1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1};

/* Of codes for literal lengths, offsets and match lengths, in the order in which blocks have them. */
static const struct coding {
    const int16_t *usual;
    uint8_t codes, usual_log, most_log;
} codings[3] = {{usual_literals, 36, 6, 9}, {usual_offsets, 29, 5, 8}, {usual_matches, 53, 6, 9}};

struct state {
    uint8_t *plain;
    size_t done, room;
    size_t frame; /* where this frame began: nothing before it is copied */
    struct hami_huffman huffman;
    struct hami_fse codes[3];
    uint64_t offsets[3];
    size_t literal_count;
    uint8_t literals[MOST_BLOCK];
};

static uint64_t number(const uint8_t *at, size_t bytes)
{
    uint64_t value = 0;

    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* ---- 3.1.1.3.1: literals ---- */

static bool packed_literals(struct state *state, struct hami_bytes *in, bool new_table,
                            unsigned int format)
{
    size_t header = format < 2 ? 3 : format + 2, width = format < 2 ? 10 : format == 2 ? 14 : 18;
    uint64_t word, mask = (UINT64_C(1) << width) - 1;
    struct hami_bytes section;

    if (in->bytes < header)
        return false;
    word = number(in->at, header) >> 4;
    state->literal_count = (size_t)(word & mask);
    if (state->literal_count > MOST_BLOCK || !hami_bytes_skip(in, header) ||
        !hami_bytes_cut(in, (size_t)(word >> width & mask), &section) ||
        (new_table && !hami_huffman_read(&state->huffman, &section)) || !state->huffman.log)
        return false;
    if (format == 0)
        return hami_huffman_unpack(&state->huffman, &section, state->literals,
                                   state->literal_count);
    return hami_huffman_unpack_four(&state->huffman, &section, state->literals,
                                    state->literal_count);
}

static bool read_literals(struct state *state, struct hami_bytes *in)
{
    unsigned int type, format;
    size_t header;

    if (in->bytes < 1)
        return false;
    type = in->at[0] & 3;
    format = in->at[0] >> 2 & 3;
    if (type >= 2)
        return packed_literals(state, in, type == 2, format);
    header = format == 1 ? 2 : format == 3 ? 3 : 1;
    if (in->bytes < header)
        return false;
    state->literal_count = (size_t)(number(in->at, header) >> (header == 1 ? 3 : 4));
    hami_bytes_skip(in, header);
    if (state->literal_count > MOST_BLOCK || in->bytes < (type == 0 ? state->literal_count : 1))
        return false;
    if (type == 0)
        memcpy(state->literals, in->at, state->literal_count);
    else
        memset(state->literals, in->at[0], state->literal_count);
    return hami_bytes_skip(in, type == 0 ? state->literal_count : 1);
}

/* ---- 3.1.1.3.2: sequences ---- */

static bool read_codes(struct hami_fse *table, const struct coding *coding, unsigned int mode,
                       struct hami_bytes *in)
{
    switch (mode) {
    case 0:
        return hami_fse_make(table, coding->usual, coding->codes, coding->usual_log);
    case 1:
        if (in->bytes < 1 || in->at[0] >= coding->codes + 3u) /* offsets go to 31 */
            return false;
        hami_fse_only(table, in->at[0]);
        return hami_bytes_skip(in, 1);
    case 2:
        return hami_fse_read(table, in, coding->most_log);
    default:
        return table->made;
    }
}

/* 3.1.1.5: the last three are named by 1 to 3, with no literals before them one further on. */
static uint64_t offset_of(struct state *state, uint64_t value, bool literals)
{
    uint64_t *last = state->offsets, offset;
    size_t which = (size_t)value - 1 + !literals;

    if (value > 3) {
        which = 2;
        offset = value - 3;
    } else if (which == 0) {
        return last[0];
    } else {
        offset = which == 3 ? last[0] - 1 : last[which];
    }
    if (which != 1)
        last[2] = last[1];
    last[1] = last[0];
    last[0] = offset;
    return offset;
}

static bool put(struct state *state, size_t *used, size_t literals, size_t match, uint64_t offset)
{
    if (literals > state->literal_count - *used || literals > state->room - state->done ||
        match > state->room - state->done - literals)
        return false;
    memcpy(state->plain + state->done, state->literals + *used, literals);
    *used += literals;
    state->done += literals;
    if (match > 0 && (offset == 0 || offset > state->done - state->frame))
        return false;
    hami_unpack_repeat(state->plain + state->done, (size_t)offset, match);
    state->done += match;
    return true;
}

static bool run(struct state *state, struct hami_bytes *in, size_t count)
{
    struct hami_bits bits;
    uint32_t at[3];
    size_t used = 0;

    if (count > 0 && !hami_bits_open(&bits, in->at, in->bytes))
        return false;
    for (int i = 0; count > 0 && i < 3; i++)
        at[i] = (uint32_t)hami_bits_read(&bits, state->codes[i].log);
    for (size_t i = 0; i < count; i++) {
        unsigned int literal = state->codes[0].symbol[at[0]], far = state->codes[1].symbol[at[1]];
        unsigned int match = state->codes[2].symbol[at[2]];
        uint64_t value;
        size_t literals, length;

        if (literal >= 36 || match >= 53 || far > 31)
            return false;
        value = (UINT64_C(1) << far) + hami_bits_read(&bits, far);
        length = match_base[match] + (size_t)hami_bits_read(&bits, match_extra[match]);
        literals = literal_base[literal] + (size_t)hami_bits_read(&bits, literal_extra[literal]);
        if (!put(state, &used, literals, length, offset_of(state, value, literals != 0)))
            return false;
        if (i + 1 < count) {
            hami_fse_next(&state->codes[0], &at[0], &bits);
            hami_fse_next(&state->codes[2], &at[2], &bits);
            hami_fse_next(&state->codes[1], &at[1], &bits);
        }
        if (bits.left < 0)
            return false;
    }
    return (count == 0 || bits.left == 0) &&
           put(state, &used, state->literal_count - used, 0, 0);
}

static bool block(struct state *state, struct hami_bytes *in)
{
    size_t count, header;
    unsigned int modes;

    if (!read_literals(state, in) || in->bytes < 1)
        return false;
    count = in->at[0];
    header = count < 128 ? 1 : count < 255 ? 2 : 3;
    if (in->bytes < header + (count > 0))
        return false;
    if (header == 2)
        count = ((count - 128) << 8) + in->at[1];
    else if (header == 3)
        count = (size_t)number(in->at + 1, 2) + 0x7f00;
    if (count == 0)
        return run(state, in, 0);
    modes = in->at[header];
    hami_bytes_skip(in, header + 1);
    for (unsigned int i = 0; i < 3; i++)
        if (!read_codes(&state->codes[i], &codings[i], modes >> (6 - 2 * i) & 3, in))
            return false;
    return run(state, in, count);
}

/* ---- 3.1.1: frames ---- */

static bool blocks(struct state *state, struct hami_bytes *in)
{
    struct hami_bytes content;
    uint64_t header;
    size_t bytes;
    unsigned int type;

    do {
        if (in->bytes < 3)
            return false;
        header = number(in->at, 3);
        bytes = (size_t)(header >> 3);
        type = header >> 1 & 3;
        if (type == 3 || !hami_bytes_skip(in, 3) ||
            !hami_bytes_cut(in, type == 1 ? 1 : bytes, &content))
            return false;
        if (type == 2) {
            if (!block(state, &content))
                return false;
            continue;
        }
        if (bytes > state->room - state->done)
            return false;
        if (type == 0)
            memcpy(state->plain + state->done, content.at, bytes);
        else
            memset(state->plain + state->done, content.at[0], bytes);
        state->done += bytes;
    } while (!(header & 1));
    return true;
}

static bool frame(struct state *state, struct hami_bytes *in)
{
    static const uint8_t sizes[4] = {0, 2, 4, 8}, dictionaries[4] = {0, 1, 2, 4};
    unsigned int described;
    bool single;

    if (in->bytes < 8)
        return false;
    if ((number(in->at, 4) & ~UINT64_C(15)) == SKIPPABLE) {
        uint64_t bytes = number(in->at + 4, 4);

        return hami_bytes_skip(in, 8) && hami_bytes_skip(in, (size_t)bytes);
    }
    described = in->at[4];
    single = described >> 5 & 1;
    if (number(in->at, 4) != MAGIC || (described & 3) != 0 ||
        !hami_bytes_skip(in, 5u + !single + dictionaries[described & 3] +
                                 (described >> 6 == 0 ? single : sizes[described >> 6])))
        return false;
    state->frame = state->done;
    state->huffman.log = 0;
    for (int i = 0; i < 3; i++)
        state->codes[i].made = false;
    state->offsets[0] = 1;
    state->offsets[1] = 4;
    state->offsets[2] = 8;
    return blocks(state, in) && hami_bytes_skip(in, described >> 2 & 1 ? 4 : 0);
}

size_t hami_unpack_zstd(const uint8_t *packed, size_t bytes, uint8_t *plain, size_t room)
{
    struct hami_bytes in = {packed, bytes};
    struct state *state = mmap(NULL, sizeof(*state), PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool good = true;
    size_t done;

    if (state == MAP_FAILED)
        return 0;
    state->plain = plain;
    state->room = room;
    while (good && in.bytes > 0)
        good = frame(state, &in);
    done = good ? state->done : 0;
    munmap(state, sizeof(*state));
    return done;
}
