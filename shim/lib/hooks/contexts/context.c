/* The life of contexts: charged for what they bring with them before they are made; what is in them
 * goes with them. Those that a program makes itself are here, a device's primary one in
 * primary.c. */
#include "hooks/contexts/context.h"

#include <string.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/reset.h"
#include "compute/gate.h"
#include "driver/real.h"
#include "memory/map.h"
#include "memory/reclaim.h"
#include "program/current.h"
#include "slice/devices.h"
#include "slice/follow.h"
#include "slice/slice.h"

struct hami_lock hami_context_entries;

void hami_context_reset(void)
{
    atomic_store_explicit(&hami_context_entries.word, HAMI_LOCK_FREE, memory_order_relaxed);
}

uint64_t hami_context_reserve(int row)
{
    if (row < 0 || hami_mode() != HAMI_MODE_SLICE)
        return 0;
    return hami_limits()->devices[row].context_reserve_bytes;
}

bool hami_context_charge(int row, uint64_t reserve)
{
    uint64_t limit;

    if (hami_memory_charge(row, reserve))
        return true;
    limit = hami_limits()->devices[row].memory_bytes;
    if (limit != 0 && reserve > limit)
        hami_log(HAMI_ERROR,
                 "a context takes about %llu MiB of device %d, and the limit is %llu MiB: no "
                 "program of this container can use it",
                 (unsigned long long)(reserve >> 20), row, (unsigned long long)(limit >> 20));
    return false;
}

static bool move_entry(struct hami_entry *entry, void *argument)
{
    entry->context = argument;
    return false;
}

void hami_context_move(CUcontext context, CUcontext to)
{
    hami_map_visit(context, move_entry, to);
}

static bool take_green(struct hami_entry *entry, void *argument)
{
    struct hami_entry *green = argument;

    if (entry->kind != HAMI_KIND_CONTEXT || green->kind != HAMI_KIND_NONE)
        return false;
    *green = *entry;
    return true;
}

void hami_context_gone(CUcontext context, CUcontext charged)
{
    struct hami_entry own, green;

    /* Green contexts go with their primary one. */
    for (;;) {
        green = (struct hami_entry){.kind = HAMI_KIND_NONE};
        hami_map_visit(charged, take_green, &green);
        if (green.kind == HAMI_KIND_NONE)
            break;
        hami_entry_refund(&green);
        hami_map_drop_context((CUcontext)(uintptr_t)green.key);
        hami_gate_forget_context((CUcontext)(uintptr_t)green.key);
    }
    hami_map_drop_context(charged);
    if (context && hami_map_take(HAMI_KIND_CONTEXT, (uintptr_t)context, &own))
        hami_entry_refund(&own);
    hami_gate_forget_context(context);
    hami_current_gone();
}

/* ---- Made and destroyed by the program ---- */

static CUresult before(CUdevice device, struct hami_entry *entry)
{
    int row = hami_row_of_ordinal(device);

    *entry = (struct hami_entry){
        .kind = HAMI_KIND_CONTEXT, .row = (int16_t)row, .bytes = hami_context_reserve(row),
    };
    if (row < 0 || hami_mode() == HAMI_MODE_CLOSED || !hami_context_charge(row, entry->bytes))
        return hami_device_refused(device);
    return CUDA_SUCCESS;
}

static CUresult after(CUresult result, struct hami_entry *entry, CUcontext made, CUcontext *context)
{
    struct hami_context_extra extra = {.uses = 1};

    if (result != CUDA_SUCCESS) {
        hami_entry_refund(entry);
        return result;
    }
    hami_current_changed();
    entry->key = (uintptr_t)made;
    memcpy(&entry->extra, &extra, sizeof(entry->extra));
    if (!hami_map_put(entry)) {
        hami_real()->cuCtxDestroy_v2(made);
        hami_entry_refund(entry);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *context = made;
    return CUDA_SUCCESS;
}

#define CREATES(name, parameters, ...)                                                             \
    HAMI_EXPORT CUresult name parameters                                                           \
    {                                                                                              \
        struct hami_entry entry;                                                                   \
        CUcontext made;                                                                            \
        CUresult result;                                                                           \
                                                                                                   \
        if (!hami_counting() || !context)                                                          \
            return hami_real()->name(context, __VA_ARGS__);                                        \
        result = before(device, &entry);                                                           \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        result = hami_real()->name(&made, __VA_ARGS__);                                            \
        return after(result, &entry, made, context);                                               \
    }

CREATES(cuCtxCreate, (CUcontext *context, unsigned int flags, CUdevice device), flags, device)
CREATES(cuCtxCreate_v2, (CUcontext *context, unsigned int flags, CUdevice device), flags, device)
CREATES(cuCtxCreate_v3,
        (CUcontext *context, CUexecAffinityParam *affinities, int affinity_count,
         unsigned int flags, CUdevice device),
        affinities, affinity_count, flags, device)
CREATES(cuCtxCreate_v4,
        (CUcontext *context, CUctxCreateParams *parameters, unsigned int flags, CUdevice device),
        parameters, flags, device)

/* A handle is a multiple of 8, so this is nobody's. While the driver destroys a context its memory
 * is recorded under the stand-in: as soon as it is done, another thread may be given the same
 * handle and allocate in it. */
static CUcontext stand_in(CUcontext context)
{
    return (CUcontext)((uintptr_t)context | 1);
}

static CUresult destroy(CUcontext context, CUresult (*destroy_real)(CUcontext context))
{
    struct hami_entry entry;
    bool known;
    CUresult result;

    if (!hami_counting() || !context)
        return destroy_real(context);
    known = hami_map_take(HAMI_KIND_CONTEXT, (uintptr_t)context, &entry);
    hami_context_move(context, stand_in(context));
    result = destroy_real(context);
    if (result != CUDA_SUCCESS) {
        hami_context_move(stand_in(context), context);
        if (known)
            hami_map_put(&entry);
        return result;
    }
    if (known)
        hami_entry_refund(&entry);
    hami_context_gone(stand_in(context), stand_in(context));
    hami_gate_forget_context(context);
    return CUDA_SUCCESS;
}

static CUresult destroy_v1(CUcontext context)
{
    return hami_real()->cuCtxDestroy(context);
}

static CUresult destroy_v2(CUcontext context)
{
    return hami_real()->cuCtxDestroy_v2(context);
}

static CUresult detach(CUcontext context)
{
    return hami_real()->cuCtxDetach(context);
}

HAMI_EXPORT CUresult cuCtxDestroy(CUcontext context)
{
    return destroy(context, destroy_v1);
}

HAMI_EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
    return destroy(context, destroy_v2);
}

/* One use more or less of a context; how many there are now, -1 where it is not on record. */
static int count_use(CUcontext context, int change)
{
    struct hami_context_extra extra;
    struct hami_entry entry;
    int uses = -1;

    hami_lock(&hami_context_entries);
    if (hami_map_get(HAMI_KIND_CONTEXT, (uintptr_t)context, &entry)) {
        memcpy(&extra, &entry.extra, sizeof(extra));
        uses = (int)extra.uses + change;
        extra.uses = (unsigned int)uses & 0x7f;
        memcpy(&entry.extra, &extra, sizeof(extra));
        hami_map_put(&entry);
    }
    hami_unlock(&hami_context_entries);
    return uses;
}

HAMI_EXPORT CUresult cuCtxAttach(CUcontext *context, unsigned int flags)
{
    CUresult result = hami_real()->cuCtxAttach(context, flags);

    if (result == CUDA_SUCCESS && context && hami_counting())
        count_use(*context, 1);
    return result;
}

/* The last one destroys it. */
HAMI_EXPORT CUresult cuCtxDetach(CUcontext context)
{
    CUresult result;

    if (!hami_counting() || !context)
        return hami_real()->cuCtxDetach(context);
    if (count_use(context, -1) == 0) {
        result = destroy(context, detach);
    } else {
        result = hami_real()->cuCtxDetach(context);
        hami_current_changed();
    }
    if (result != CUDA_SUCCESS)
        count_use(context, 1);
    return result;
}
