/* The layout of arrays is the driver's secret, but devices are known to keep texels in tiles of 64
 * bytes by 8 rows, and pad to that. */
#include "hooks/allocations/array_size.h"

#include <stdbool.h>

#define TILE_BYTES UINT64_C(64)
#define TILE_ROWS UINT64_C(8)

/* Texels come in blocks of side x side (compressed formats: 4 x 4) that take this many bytes. */
struct texel {
    unsigned int side, bytes;
};

static struct texel texel_of(unsigned int format, unsigned int channels)
{
    struct texel texel = {.side = 1, .bytes = 1};

    if (channels == 0 || channels > 4)
        channels = 4;
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
    case 0xc0: case 0xc1: case 0xc2: /* UNORM_INT8X1, X2, X4 */
    case 0xc6: case 0xc7: case 0xc8: /* SNORM_INT8X1, X2, X4 */
        texel.bytes = channels;
        break;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
    case 0xc3: case 0xc4: case 0xc5: /* UNORM_INT16X1, X2, X4 */
    case 0xc9: case 0xca: case 0xcb: /* SNORM_INT16X1, X2, X4 */
        texel.bytes = 2 * channels;
        break;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        texel.bytes = 4 * channels;
        break;
    case 0x91: case 0x92: /* BC1 */
    case 0x97: case 0x98: /* BC4 */
        texel = (struct texel){.side = 4, .bytes = 8};
        break;
    case 0x93: case 0x94: case 0x95: case 0x96: /* BC2, BC3 */
    case 0x99: case 0x9a: case 0x9b: case 0x9c: case 0x9d: case 0x9e: /* BC5, BC6H, BC7 */
        texel = (struct texel){.side = 4, .bytes = 16};
        break;
    case 0xb0: /* NV12: a plane of bytes, and one of a quarter of the size in pairs of them */
        texel = (struct texel){.side = 2, .bytes = 6};
        break;
    default: /* video formats, and newer than this: no texel of CUDA takes more */
        texel.bytes = 16;
    }
    return texel;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;

    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t rounded(uint64_t value, uint64_t unit)
{
    return value > UINT64_MAX - unit ? UINT64_MAX : (value + unit - 1) / unit * unit;
}

static uint64_t at_least_one(uint64_t value)
{
    return value ? value : 1;
}

/* Without a height it is not tiled. */
static uint64_t level_bytes(struct texel texel, uint64_t width, uint64_t height, uint64_t depth)
{
    uint64_t columns = rounded(at_least_one(width), texel.side) / texel.side;
    uint64_t rows = rounded(at_least_one(height), texel.side) / texel.side;
    uint64_t row = rounded(times(columns, texel.bytes), TILE_BYTES);

    if (height > 0)
        rows = rounded(rows, TILE_ROWS);
    return times(times(row, rows), at_least_one(depth));
}

uint64_t hami_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *array)
{
    return level_bytes(texel_of(array->Format, array->NumChannels), array->Width, array->Height,
                       array->Depth);
}

/* Each level is half as large in every direction, but has as many layers and faces. Levels beyond
 * that of one texel are not made. */
uint64_t hami_mipmap_bytes(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned int levels)
{
    bool layers = (array->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    struct texel texel = texel_of(array->Format, array->NumChannels);
    uint64_t width = array->Width, height = array->Height, depth = array->Depth, sum = 0;

    for (unsigned int level = 0; level < at_least_one(levels); level++) {
        uint64_t bytes = level_bytes(texel, width, height, depth);

        if (bytes > UINT64_MAX - sum)
            return UINT64_MAX;
        sum += bytes;
        if (width <= 1 && height <= 1 && (layers || depth <= 1))
            break;
        width /= 2;
        height = height > 1 ? height / 2 : height;
        if (!layers)
            depth /= 2;
    }
    return sum;
}
