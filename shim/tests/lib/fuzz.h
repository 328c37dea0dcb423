/* A fuzzer that needs no engine: mutates its seeds from a fixed start, so that a failure is found
 * again. With -DHAMI_LIBFUZZER there is no main, and libFuzzer drives LLVMFuzzerTestOneInput:
 * clang -fsanitize=fuzzer,address -DHAMI_LIBFUZZER -D_GNU_SOURCE -Iinclude -Isrc tests/fuzz_env.c \
 *     lib/slice/env.c */
#ifndef HAMI_TESTS_FUZZ_H
#define HAMI_TESTS_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(what)                                                                                 \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);                     \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct fuzz_seed {
    const void *bytes;
    size_t size;
};

#ifndef HAMI_LIBFUZZER
static uint64_t fuzz_state = UINT64_C(0x9e3779b97f4a7c15);

static uint64_t fuzz_number(void)
{
    fuzz_state ^= fuzz_state << 13;
    fuzz_state ^= fuzz_state >> 7;
    fuzz_state ^= fuzz_state << 17;
    return fuzz_state;
}

/* Change, insert, remove, repeat or overwrite; at most `most` bytes remain. */
static size_t fuzz_mutate(uint8_t *bytes, size_t size, size_t most)
{
    static const uint64_t telling[] = {0, 1, 16, 17, 100, 101, 255, 256, INT32_MAX, UINT32_MAX,
                                       INT64_MAX, UINT64_MAX};
    size_t at = size ? fuzz_number() % size : 0, length;

    switch (fuzz_number() % 6) {
    case 0:
        if (size)
            bytes[at] ^= (uint8_t)(1u << (fuzz_number() % 8));
        return size;
    case 1:
        if (size)
            bytes[at] = (uint8_t)fuzz_number();
        return size;
    case 2:
        if (size == most)
            return size;
        memmove(bytes + at + 1, bytes + at, size - at);
        bytes[at] = (uint8_t)"0123456789gGmMkKbB-,. xGPUMI"[fuzz_number() % 28];
        return size + 1;
    case 3:
        return size ? fuzz_number() % (size + 1) : 0;
    case 4:
        length = 1 + fuzz_number() % 8;
        if (size < length)
            return size;
        at = fuzz_number() % (size - length + 1);
        memcpy(bytes + at, &telling[fuzz_number() % (sizeof(telling) / sizeof(*telling))], length);
        return size;
    default:
        length = size - at;
        if (size + length > most)
            return size;
        memcpy(bytes + size, bytes + at, length);
        return size + length;
    }
}

static int fuzz(const struct fuzz_seed *seeds, size_t count, size_t most, unsigned rounds)
{
    uint8_t *bytes = malloc(most);

    for (unsigned i = 0; i < rounds; i++) {
        const struct fuzz_seed *seed = &seeds[fuzz_number() % count];
        size_t size = seed->size;
        uint8_t *exact;

        memcpy(bytes, seed->bytes, size);
        for (uint64_t changes = i < count ? 0 : fuzz_number() % 6; changes; changes--)
            size = fuzz_mutate(bytes, size, most);
        /* In a block of its own size, so that the sanitizer sees one byte too many. */
        exact = malloc(size ? size : 1);
        memcpy(exact, bytes, size);
        LLVMFuzzerTestOneInput(exact, size);
        free(exact);
    }
    free(bytes);
    return 0;
}
#endif

#endif
