/* The real driver's functions, found once, when something of it is called for the first time. */
#ifndef HAMI_REAL_H
#define HAMI_REAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "hami_cuda.h"
#include "hami_nvml.h"

#define HAMI_EXPORT __attribute__((visibility("default")))

struct hami_real {
#define HAMI_HOOK(name, base, from, stream, kind) __typeof__(name) *name;
#define HAMI_CALL(name) __typeof__(name) *name;
#include "hooks.def"
};

struct hami_real_nvml {
#define HAMI_NVML_HOOK(name) __typeof__(name) *name;
#define HAMI_NVML_CALL(name) __typeof__(name) *name;
#include "hooks.def"
};

/* NULL until the library in question was seen in this process. Published whole and never changed
 * again: who finds it set needs no lock, and a fork at any moment leaves nothing half done. (A unit
 * test with a driver of its own defines this pointer itself.) */
extern const struct hami_real *_Atomic hami_real_found;
extern const struct hami_real_nvml *_Atomic hami_real_nvml_found;

/* Load the driver where the process has not done so, and look up its functions. What it lacks
 * answers CUDA_ERROR_NOT_SUPPORTED, or NVML_ERROR_FUNCTION_NOT_FOUND; never NULL. */
const struct hami_real *hami_real_load(void);
const struct hami_real_nvml *hami_real_load_nvml(void);

static inline const struct hami_real *hami_real(void)
{
    const struct hami_real *real = atomic_load_explicit(&hami_real_found, memory_order_acquire);

    return __builtin_expect(real != NULL, 1) ? real : hami_real_load();
}

static inline const struct hami_real_nvml *hami_nvml(void)
{
    const struct hami_real_nvml *real =
        atomic_load_explicit(&hami_real_nvml_found, memory_order_acquire);

    return __builtin_expect(real != NULL, 1) ? real : hami_real_load_nvml();
}

/* Whether the real driver, or NVML, has the function itself; `name` is one of hooks.def. */
bool hami_real_has(const char *name);

/* ---- The two structs as what they are: tables of pointers ---- */

/* The table, if the library is loaded in this process; NULL: it is not, and is not loaded now. */
const void *hami_table_cuda(void);
const void *hami_table_nvml(void);

/* Whether the library has the function at a place of its table; false where there is no table. */
bool hami_table_has(const void *table, size_t place);

/* The C library's functions of these names, which our own stand before; NULL: not found. */
void *hami_libc_dlsym(void);
void *hami_libc_dlvsym(void);

#endif
