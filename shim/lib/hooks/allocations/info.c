/* What the program is told of its memory: the slice, as if it were the device. Where nothing may be
 * taken, nothing is free; the size is the device's, which programs divide by. */
#include "driver/real.h"
#include "memory/account.h"
#include "memory/charge.h"
#include "memory/late.h"
#include "memory/physical.h"
#include "program/current.h"
#include "slice/devices.h"
#include "slice/follow.h"
#include "slice/slice.h"
#include "slice/slots.h"

struct view {
    uint64_t limit; /* UINT64_MAX: none */
    uint64_t left;
};

/* What a dead process had, and what only a closed descriptor kept, is free for whoever asks for it:
 * a request finds that out when it would be refused, and the program must be told the same. */
static uint64_t charged_now(int row)
{
    uint64_t charged;

    hami_correct();
    hami_physical_settle();
    hami_late_settle();
    hami_slots_expected();
    charged = hami_charged(row);
    if (charged != hami_charged_here(row) && hami_slots_look())
        charged = hami_charged(row);
    return charged;
}

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
        charged = charged_now(row);
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
