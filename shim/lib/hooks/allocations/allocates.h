/* A hook that allocates: charge what it asks for, ask the driver, put it on record. */
#ifndef HAMI_ALLOCATES_H
#define HAMI_ALLOCATES_H

#include "driver/real.h"
#include "memory/request.h"
#include "slice/slice.h"

/* The spelling `name` of the driver's function, whose parameters begin with `type *out`; `...` are
 * the names of those that follow.
 *     kind       of memory (map.h)
 *     plain      arguments that the driver answers without allocating: it says what is wrong
 *     asked      the bytes to charge for it
 *     give_back  frees it, by its address or handle as a number
 * `out` is written when all is done: where we refuse, the program finds it as it was. */
#define HAMI_ALLOCATES(name, kind, type, out, plain, asked, give_back, parameters, ...)            \
    HAMI_EXPORT CUresult name parameters                                                           \
    {                                                                                              \
        struct hami_entry entry;                                                                   \
        type made;                                                                                 \
        CUresult result;                                                                           \
                                                                                                   \
        if (!hami_counting() || !(out) || (plain))                                                 \
            return hami_real()->name(out, __VA_ARGS__);                                            \
        result = hami_request(kind, asked, &entry);                                                \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        result = hami_real()->name(&made, __VA_ARGS__);                                            \
        if (result != CUDA_SUCCESS) {                                                              \
            hami_request_failed(&entry);                                                           \
            return result;                                                                         \
        }                                                                                          \
        result = hami_request_done(&entry, (uintptr_t)made, entry.bytes, give_back);               \
        if (result == CUDA_SUCCESS)                                                                \
            *(out) = made;                                                                         \
        return result;                                                                             \
    }

#endif
