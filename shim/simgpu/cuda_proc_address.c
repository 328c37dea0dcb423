/* cuGetProcAddress: which spelling a name means at a CUDA version, for which kind of null
 * stream. */
#include "execution.h"

#define ALIAS_FROM 12000 /* "cuGraphInstantiate" means another function from here on */

struct entry {
    const char *base;
    void (*function)(void);
    int from;
    bool per_thread;
};

#define ENTRY(name, base, from, stream)                                                            \
    { #base, (void (*)(void))name, from, (stream) != 0 },

static const struct entry entries[] = {
#define HAMI_HOOK(name, base, from, stream, kind) ENTRY(name, base, from, stream)
#include "../lib/hooks.def"
#define SIM_PROC(name, base, from, stream) ENTRY(name, base, from, stream)
#include "proc_address.def"
    ENTRY(cuGraphInstantiateWithFlags, cuGraphInstantiate, ALIAS_FROM, 0)
};

struct answer {
    void (*function)(void);
    CUdriverProcAddressQueryResult status;
};

/* The newest spelling that is not newer than the version; of two of one ABI the per-thread one
 * where that is asked for. What the driver itself is too old for is not there. */
static struct answer look_up(const char *symbol, int version, int driver, bool per_thread)
{
    const struct entry *best = NULL;
    bool known = false;

    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        const struct entry *each = &entries[i];
        if (each->from > driver || (each->per_thread && !per_thread) ||
            strcmp(each->base, symbol) != 0)
            continue;
        known = true;
        if (each->from > version)
            continue;
        if (best == NULL || each->from > best->from ||
            (each->from == best->from && each->per_thread))
            best = each;
    }
    if (best == NULL)
        return (struct answer){ NULL, known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                            : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND };
    return (struct answer){ best->function, CU_GET_PROC_ADDRESS_SUCCESS };
}

static CUresult find(const char *symbol, void **function, int version, cuuint64_t flags,
                     struct answer *answer)
{
    int driver = sim_driver_version();

    if (symbol == NULL || function == NULL ||
        flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM || version < 2000 || version > driver)
        return CUDA_ERROR_INVALID_VALUE;
    *answer = look_up(symbol, version, driver,
                      flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    memcpy(function, &answer->function, sizeof *function);
    return CUDA_SUCCESS;
}

/* This spelling can only say by its result that there is no such function. */
SIM_EXPORT CUresult cuGetProcAddress(const char *symbol, void **function, int cuda_version,
                                     cuuint64_t flags)
{
    SIM_CALLED(cuGetProcAddress);
    struct answer answer;
    CUresult result = find(symbol, function, cuda_version, flags, &answer);

    if (result == CUDA_SUCCESS && answer.status != CU_GET_PROC_ADDRESS_SUCCESS)
        return CUDA_ERROR_NOT_FOUND;
    return result;
}

SIM_EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int cuda_version,
                                        cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    SIM_CALLED(cuGetProcAddress_v2);
    struct answer answer;
    CUresult result = find(symbol, function, cuda_version, flags, &answer);

    if (result == CUDA_SUCCESS && status != NULL)
        *status = answer.status;
    return result;
}
