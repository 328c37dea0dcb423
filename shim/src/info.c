/* What the program is told of its memory: the slice, as if it were the device. Where nothing may be
 * taken, nothing is free; the size is the device's, which programs divide by. */
#include "account.h"
#include "real.h"
#include "slice.h"

struct view {
    uint64_t limit; /* UINT64_MAX: none */
    uint64_t left;
};

static struct view view_of(int row)
{
    struct view view = {.limit = UINT64_MAX, .left = UINT64_MAX};
    uint64_t limit, charged;

    if (row < 0 || hami_mode() != HAMI_MODE_SLICE) {
        view.left = 0;
        return view;
    }
    limit = hami_limits()->devices[row].memory_bytes;
    if (limit != 0) {
        charged = hami_charged(row);
        view.limit = limit;
        view.left = charged < limit ? limit - charged : 0;
    }
    return view;
}

HAMI_EXPORT CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    CUresult result = hami_real()->cuMemGetInfo_v2(free, total);
    struct view view;
    int row;

    if (result != CUDA_SUCCESS || !hami_counting() || hami_current_row(&row) != CUDA_SUCCESS)
        return result;
    hami_correct();
    hami_slots_expected();
    view = view_of(row);
    if (total && *total > view.limit)
        *total = view.limit;
    if (free && *free > view.left)
        *free = view.left;
    return result;
}

HAMI_EXPORT CUresult cuMemGetInfo(unsigned int *free, unsigned int *total)
{
    CUresult result = hami_real()->cuMemGetInfo(free, total);
    struct view view;
    int row;

    if (result != CUDA_SUCCESS || !hami_counting() || hami_current_row(&row) != CUDA_SUCCESS)
        return result;
    hami_correct();
    hami_slots_expected();
    view = view_of(row);
    if (total && *total > view.limit)
        *total = (unsigned int)view.limit;
    if (free && *free > view.left)
        *free = (unsigned int)view.left;
    return result;
}

HAMI_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CUresult result = hami_real()->cuDeviceTotalMem_v2(bytes, device);

    if (result == CUDA_SUCCESS && bytes && hami_counting()) {
        uint64_t limit = view_of(hami_row_of_ordinal(device)).limit;

        if (*bytes > limit)
            *bytes = limit;
    }
    return result;
}

HAMI_EXPORT CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
    CUresult result = hami_real()->cuDeviceTotalMem(bytes, device);

    if (result == CUDA_SUCCESS && bytes && hami_counting()) {
        uint64_t limit = view_of(hami_row_of_ordinal(device)).limit;

        if (*bytes > limit)
            *bytes = (unsigned int)limit;
    }
    return result;
}
