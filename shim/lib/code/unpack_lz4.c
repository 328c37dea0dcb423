/* One LZ4 block: sequences of a token, literals and a copy of what came before; the last has no
 * copy. */
#include "code/unpack_lz4.h"

#include <stdbool.h>
#include <string.h>

#include "code/unpack_repeat.h"

struct reading {
    const uint8_t *at, *end;
};

/* Lengths of 15 and more go on in further bytes, up to the first that is not 255. */
static bool read_length(struct reading *in, unsigned int begun, size_t *length)
{
    uint8_t more;

    *length = begun;
    if (begun != 15)
        return true;
    do {
        if (in->at == in->end)
            return false;
        more = *in->at++;
        *length += more;
    } while (more == 255);
    return true;
}

size_t hami_unpack_lz4(const uint8_t *packed, size_t bytes, uint8_t *plain, size_t room)
{
    struct reading in = {packed, packed + bytes};
    size_t done = 0, length, distance;

    while (in.at < in.end) {
        unsigned int token = *in.at++;

        if (!read_length(&in, token >> 4, &length) || length > (size_t)(in.end - in.at) ||
            length > room - done)
            return 0;
        memcpy(plain + done, in.at, length);
        done += length;
        in.at += length;
        if (in.at == in.end)
            return done;
        if (in.end - in.at < 2)
            return 0;
        distance = in.at[0] | (size_t)in.at[1] << 8;
        in.at += 2;
        if (!read_length(&in, token & 15, &length))
            return 0;
        length += 4;
        if (distance == 0 || distance > done || length > room - done)
            return 0;
        hami_unpack_repeat(plain + done, distance, length);
        done += length;
    }
    return 0;
}
