/* Packed images. links: lib/code/unpack_lz4.c lib/code/unpack_zstd.c lib/code/unpack_bits.c */
#include <stdlib.h>
#include <string.h>

#include "code/unpack_lz4.h"
#include "code/unpack_zstd.h"
#include "expect.h"
#include "packed.h"

#define BYTES 3000

static uint64_t state;

static uint64_t any(uint64_t below)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (state >> 33) % below;
}

/* Something like text, with letters that are frequent and words that come again. */
static void sample(uint8_t *to)
{
    static const char *const words[] = {"ld.global ", "st.shared ", "add.s32 ", "%r", ";\n\t"};
    size_t done = 0;

    state = 7;
    while (done < BYTES) {
        if (any(3) == 0) {
            for (const char *word = words[any(5)]; *word && done < BYTES; word++)
                to[done++] = (uint8_t)*word;
        } else {
            uint64_t value = any(64);

            to[done++] = (uint8_t)('a' + (value < 24 ? 0 : value < 40 ? 1 : 2 + value % 14));
        }
    }
}

static void what_compilers_pack_is_unpacked(void)
{
    uint8_t plain[BYTES], out[BYTES];

    sample(plain);
    EXPECT(hami_unpack_zstd(packed_by_zstd, sizeof(packed_by_zstd), out, BYTES) == BYTES);
    EXPECT(memcmp(out, plain, BYTES) == 0);
    EXPECT(hami_unpack_zstd(packed_by_zstd, sizeof(packed_by_zstd), out, BYTES - 1) == 0);
    memset(out, 0, BYTES);
    EXPECT(hami_unpack_lz4(packed_by_lz4, sizeof(packed_by_lz4), out, BYTES) == BYTES);
    EXPECT(memcmp(out, plain, BYTES) == 0);
    EXPECT(hami_unpack_lz4(packed_by_lz4, sizeof(packed_by_lz4), out, BYTES - 1) == 0);
}

static void cut_short_it_is_refused(void)
{
    uint8_t out[BYTES];

    for (size_t bytes = 0; bytes < sizeof(packed_by_zstd); bytes++)
        EXPECT(hami_unpack_zstd(packed_by_zstd, bytes, out, BYTES) == 0);
    for (size_t bytes = 0; bytes < sizeof(packed_by_lz4); bytes++)
        EXPECT(hami_unpack_lz4(packed_by_lz4, bytes, out, BYTES) < BYTES);
}

/* Under AddressSanitizer: whatever it is, nothing but the two buffers is touched. */
static void damaged_it_does_no_harm(void)
{
    static const struct {
        const uint8_t *bytes;
        size_t size;
    } all[] = {{packed_by_zstd, sizeof(packed_by_zstd)}, {packed_by_lz4, sizeof(packed_by_lz4)}};

    state = 3;
    for (int i = 0; i < 20000; i++) {
        size_t size = all[i % 2].size - (any(4) ? 0 : any(all[i % 2].size));
        uint8_t *packed = malloc(size), *out = malloc(BYTES);

        if (!packed || !out)
            exit(2);
        memcpy(packed, all[i % 2].bytes, size);
        for (uint64_t k = 0; k <= any(4); k++)
            packed[any(size)] = (uint8_t)any(256);
        EXPECT(hami_unpack_zstd(packed, size, out, BYTES) <= BYTES);
        EXPECT(hami_unpack_lz4(packed, size, out, BYTES) <= BYTES);
        free(packed);
        free(out);
    }
}

int main(void)
{
    what_compilers_pack_is_unpacked();
    cut_short_it_is_refused();
    damaged_it_does_no_harm();
    return failures != 0;
}
