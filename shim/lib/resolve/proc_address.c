/* cuGetProcAddress: the driver decides which function a request means, by version and flags, and we
 * answer with the hook that stands before exactly that one. */
#include <stddef.h>

#include "base/log.h"
#include "driver/real.h"
#include "resolve/hook_list.h"
#include "slice/slice.h"

/* The newest CUDA version whose spellings hooks.def holds. */
#define NEWEST_KNOWN 13050

/* A function of an ABI that we do not know, under a name that we stand before: memory and launches
 * are withheld, the rest is let through. Both is told to the monitor. */
static CUresult unknown(const char *symbol, enum hami_hook_kind kind, void **function,
                        CUdriverProcAddressQueryResult *status)
{
    hami_bypass_seen();
    if (kind != HAMI_HOOK_memory && kind != HAMI_HOOK_launch) {
        hami_log(HAMI_WARNING, "%s is newer than this library and is not watched", symbol);
        return CUDA_SUCCESS;
    }
    hami_log(HAMI_ERROR, "%s is newer than this library and is withheld", symbol);
    *function = NULL;
    if (status)
        *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_ERROR_NOT_FOUND;
}

/* The hook of a function that the driver does not export under the name of any hook: by what the
 * request says. What hands out all others is ours at any version. */
static const struct hami_hook *by_request(const char *symbol, enum hami_hook_kind kind, int version,
                                          bool per_thread)
{
    if (version <= NEWEST_KNOWN || kind == HAMI_HOOK_proc || kind == HAMI_HOOK_init)
        return hami_hook_for(symbol, version, per_thread);
    return NULL;
}

/* Put our hook in the place of what the driver answered. */
static CUresult stand_before(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    const struct hami_hook *hook = hami_hook_before(*function, symbol, version, per_thread);
    enum hami_hook_kind kind;

    if (!hook && hami_hook_kind_of(symbol, &kind)) {
        hook = by_request(symbol, kind, version, per_thread);
        if (!hook && hami_mode_expected() != HAMI_MODE_FREE)
            return unknown(symbol, kind, function, status);
    } else if (!hook) {
        hook = hami_hook_named(symbol); /* an exported spelling, which is no base name */
    }
    if (hook)
        *function = hook->hook;
    return CUDA_SUCCESS;
}

HAMI_EXPORT CUresult cuGetProcAddress(const char *symbol, void **function, int cuda_version,
                                      cuuint64_t flags)
{
    CUresult result = hami_real()->cuGetProcAddress(symbol, function, cuda_version, flags);

    if (result != CUDA_SUCCESS || !symbol || !function || !*function)
        return result;
    return stand_before(symbol, function, cuda_version, flags, NULL);
}

HAMI_EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int cuda_version,
                                         cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    CUresult result =
        hami_real()->cuGetProcAddress_v2(symbol, function, cuda_version, flags, status);

    if (result != CUDA_SUCCESS || !symbol || !function || !*function)
        return result;
    return stand_before(symbol, function, cuda_version, flags, status);
}
