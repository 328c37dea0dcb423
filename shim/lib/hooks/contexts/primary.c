/* Primary contexts, one per device, made by the first who retains them; and green contexts, which
 * live in them and retain them. Whether one is there is the driver's to say: libraries retain and
 * release it in ways that we need not have seen. So after each call that may have ended it we
 * ask. */
#include "base/lock.h"
#include "base/reset.h"
#include "driver/real.h"
#include "hooks/contexts/context.h"
#include "memory/account.h"
#include "memory/map.h"
#include "program/current.h"
#include "slice/devices.h"
#include "slice/slice.h"

static struct primary {
    /* Held over the driver's call, so that what is charged agrees with what is there. */
    struct hami_lock lock;
    bool charged;
    uint64_t reserve;
    CUcontext _Atomic context; /* also read without the lock */
} primaries[HAMI_MAX_DEVICES];

/* Tools get callbacks out of the driver's call, and may retain the context in them. */
static _Thread_local struct primary *held __attribute__((tls_model("initial-exec")));

void hami_primary_reset(void)
{
    for (int row = 0; row < HAMI_MAX_DEVICES; row++)
        primaries[row] = (struct primary){0};
    held = NULL;
}

/* NULL: nothing may be made there. *nested goes to leave. */
static struct primary *enter(CUdevice device, bool *nested)
{
    int row = hami_row_of_ordinal(device);
    struct primary *primary;

    if (row < 0 || hami_mode() != HAMI_MODE_SLICE)
        return NULL;
    primary = &primaries[row];
    *nested = held == primary;
    if (!*nested) {
        hami_lock(&primary->lock);
        held = primary;
    }
    return primary;
}

static void leave(struct primary *primary, bool nested)
{
    if (!nested) {
        held = NULL;
        hami_unlock(&primary->lock);
    }
}

static bool charge(struct primary *primary)
{
    int row = (int)(primary - primaries);
    uint64_t reserve = hami_context_reserve(row);

    if (primary->charged)
        return true;
    if (!hami_context_charge(row, reserve))
        return false;
    primary->charged = true;
    primary->reserve = reserve;
    return true;
}

static void settle(struct primary *primary, CUdevice device)
{
    unsigned int flags;
    int active;

    if (!primary->charged ||
        hami_real()->cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active)
        return;
    hami_context_gone(primary->context, primary->context);
    hami_refund((int)(primary - primaries), primary->reserve);
    primary->charged = false;
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    struct primary *primary;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    bool nested;

    if (!hami_counting() || !context)
        return hami_real()->cuDevicePrimaryCtxRetain(context, device);
    primary = enter(device, &nested);
    if (!primary)
        return hami_device_refused(device);
    if (charge(primary)) {
        result = hami_real()->cuDevicePrimaryCtxRetain(context, device);
        if (result == CUDA_SUCCESS)
            primary->context = *context;
        else
            settle(primary, device);
    }
    leave(primary, nested);
    return result;
}

static CUresult ending(CUdevice device, CUresult (*end_real)(CUdevice device))
{
    struct primary *primary;
    CUresult result;
    bool nested;

    primary = hami_counting() ? enter(device, &nested) : NULL;
    if (!primary)
        return end_real(device);
    result = end_real(device);
    settle(primary, device);
    leave(primary, nested);
    hami_current_changed();
    return result;
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return ending(device, hami_real()->cuDevicePrimaryCtxRelease);
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return ending(device, hami_real()->cuDevicePrimaryCtxRelease_v2);
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    return ending(device, hami_real()->cuDevicePrimaryCtxReset);
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    return ending(device, hami_real()->cuDevicePrimaryCtxReset_v2);
}

/* ---- Green contexts ---- */

/* What we must know when it is destroyed: its device, and its handle as a context if it ever got
 * one. Kept under a key that is no context's; `bytes` is 0, `extra` the handle. */
static uint64_t green_key(CUgreenCtx green)
{
    return (uintptr_t)green | 2;
}

HAMI_EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *green_context, CUdevResourceDesc descriptor,
                                      CUdevice device, unsigned int flags)
{
    struct hami_entry entry = {.kind = HAMI_KIND_CONTEXT};
    struct primary *primary;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    CUcontext context;
    bool nested;

    if (!hami_counting() || !green_context)
        return hami_real()->cuGreenCtxCreate(green_context, descriptor, device, flags);
    primary = enter(device, &nested);
    if (!primary)
        return hami_device_refused(device);
    if (charge(primary)) {
        result = hami_real()->cuGreenCtxCreate(green_context, descriptor, device, flags);
        /* Its memory goes with the primary context, whose handle we may not have seen yet. */
        if (result == CUDA_SUCCESS && !primary->context &&
            hami_real()->cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS) {
            primary->context = context;
            hami_real()->cuDevicePrimaryCtxRelease_v2(device);
        }
        if (result == CUDA_SUCCESS) {
            entry.key = green_key(*green_context);
            entry.row = (int16_t)(primary - primaries);
            hami_map_put(&entry);
        }
        settle(primary, device);
    }
    leave(primary, nested);
    return result;
}

HAMI_EXPORT CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green_context)
{
    CUresult result = hami_real()->cuCtxFromGreenCtx(context, green_context);
    struct hami_entry green, own = {.kind = HAMI_KIND_CONTEXT};

    if (result != CUDA_SUCCESS || !hami_counting() ||
        !hami_map_get(HAMI_KIND_CONTEXT, green_key(green_context), &green))
        return result;
    green.extra = (uintptr_t)*context;
    hami_map_put(&green);
    own.key = (uintptr_t)*context;
    own.row = green.row;
    own.context = primaries[green.row].context;
    hami_map_put(&own);
    return result;
}

/* The driver does not say whether memory that was allocated in a green context ends with it, but it
 * knows which addresses are memory. What cannot be asked for stays charged until the primary
 * context goes. */
static bool drop_freed(struct hami_entry *entry, void *primary)
{
    CUdeviceptr base;
    size_t bytes;

    /* With `extra` it was freed (late.c), by an event that was the green context's. */
    if (entry->kind == HAMI_KIND_LINEAR &&
        (entry->extra != 0 ||
         hami_real()->cuMemGetAddressRange_v2(&base, &bytes, entry->key) != CUDA_SUCCESS)) {
        hami_entry_refund(entry);
        return true;
    }
    entry->context = primary;
    return false;
}

HAMI_EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green_context)
{
    struct hami_entry green, own;
    struct primary *primary = NULL;
    bool nested, known;
    CUresult result;

    known = hami_counting() && hami_map_take(HAMI_KIND_CONTEXT, green_key(green_context), &green);
    if (known)
        primary = enter(hami_ordinal_of_row(green.row), &nested);
    result = hami_real()->cuGreenCtxDestroy(green_context);
    if (!known)
        return result;
    if (result != CUDA_SUCCESS) {
        hami_map_put(&green);
    } else {
        if (green.extra && hami_map_take(HAMI_KIND_CONTEXT, green.extra, &own))
            hami_map_visit((CUcontext)(uintptr_t)green.extra, drop_freed, own.context);
        hami_current_gone();
    }
    if (primary) {
        settle(primary, hami_ordinal_of_row(green.row));
        leave(primary, nested);
    }
    return result;
}
