/* The driver is asked which context is current, but not each time which device that has: a thread
 * keeps the last answer, which holds until a context anywhere is destroyed, because its handle may
 * come back as another device's. */
#include "program/current.h"

#include "base/reset.h"
#include "driver/real.h"
#include "slice/devices.h"
#include "slice/slice.h"

#define ONLY_UNKNOWN 0
#define ONLY_SEVERAL 1
#define ONLY_FIRST 2 /* + the row, or HAMI_ROW_NONE, + 1 */

static _Atomic uint32_t epoch = 1;
static _Atomic int only; /* the one device that this process sees */

static _Thread_local struct {
    CUcontext context;
    uint32_t epoch; /* 0: nothing known */
    int row;
} here __attribute__((tls_model("initial-exec")));

void hami_current_reset(void)
{
    atomic_fetch_add_explicit(&epoch, 1, memory_order_relaxed);
    atomic_store_explicit(&only, ONLY_UNKNOWN, memory_order_relaxed);
}

static CUresult ask(CUcontext context, uint32_t now, int *row)
{
    CUdevice device;
    CUresult result = hami_real()->cuCtxGetDevice(&device);

    if (result != CUDA_SUCCESS)
        return result;
    *row = here.row = hami_row_of_ordinal(device);
    here.context = context;
    here.epoch = now;
    return CUDA_SUCCESS;
}

CUresult hami_current(CUcontext *context, int *row)
{
    uint32_t now = atomic_load_explicit(&epoch, memory_order_acquire);
    CUresult result;

    *context = NULL;
    *row = HAMI_ROW_NONE;
    if (hami_mode() == HAMI_MODE_CLOSED)
        return CUDA_SUCCESS;
    result = hami_real()->cuCtxGetCurrent(context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!*context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (here.epoch == now && here.context == *context) {
        *row = here.row;
        return CUDA_SUCCESS;
    }
    return ask(*context, now, row);
}

static int find_only(void)
{
    int count, found = ONLY_SEVERAL;

    if (hami_real()->cuDeviceGetCount(&count) != CUDA_SUCCESS)
        return ONLY_SEVERAL;
    if (count == 1)
        found = ONLY_FIRST + 1 + hami_row_of_ordinal(0);
    atomic_store_explicit(&only, found, memory_order_relaxed);
    return found;
}

CUresult hami_current_row(int *row)
{
    int known = atomic_load_explicit(&only, memory_order_relaxed);
    uint32_t now;
    CUcontext context;

    *row = HAMI_ROW_NONE;
    if (hami_mode() == HAMI_MODE_CLOSED)
        return CUDA_SUCCESS;
    if (__builtin_expect(known == ONLY_UNKNOWN, 0))
        known = find_only();
    if (known >= ONLY_FIRST) {
        *row = known - ONLY_FIRST - 1;
        return CUDA_SUCCESS;
    }
    now = atomic_load_explicit(&epoch, memory_order_acquire);
    if (here.epoch == now) {
        *row = here.row;
        return CUDA_SUCCESS;
    }
    return hami_current(&context, row);
}

void hami_current_changed(void)
{
    here.epoch = 0;
}

void hami_current_is(CUcontext context)
{
    if (context != here.context)
        hami_current_changed();
}

void hami_current_gone(void)
{
    atomic_fetch_add_explicit(&epoch, 1, memory_order_release);
    hami_current_changed();
}
