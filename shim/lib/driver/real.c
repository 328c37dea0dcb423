#include "driver/real.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "driver/image.h"

typedef void function(void);

/* What stands in a table for a function that the library lacks. */
static CUresult no_such_call(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t no_such_nvml_call(void)
{
    return NVML_ERROR_FUNCTION_NOT_FOUND;
}

static const char *no_error_string(nvmlReturn_t result)
{
    (void)result;
    return "libnvidia-ml.so.1 has no nvmlErrorString";
}

/* In the order of the fields of the two structs. */
static const char *const cuda_names[] = {
#define HAMI_HOOK(name, base, from, stream, kind) #name,
#define HAMI_CALL(name) #name,
#include "hooks.def"
};
static const char *const nvml_names[] = {
#define HAMI_NVML_HOOK(name) #name,
#define HAMI_NVML_CALL(name) #name,
#include "hooks.def"
};
#define CUDA_NAMES (sizeof(cuda_names) / sizeof(*cuda_names))
#define NVML_NAMES (sizeof(nvml_names) / sizeof(*nvml_names))

_Static_assert(sizeof(struct hami_real) == CUDA_NAMES * sizeof(function *), "a table of pointers");
_Static_assert(sizeof(struct hami_real_nvml) == NVML_NAMES * sizeof(function *), "as well");

const struct hami_real *_Atomic hami_real_found;
const struct hami_real_nvml *_Atomic hami_real_nvml_found;

/* Where there is no driver at all. */
static const struct hami_real no_driver = {
#define HAMI_HOOK(name, base, from, stream, kind)                                                  \
    .name = (__typeof__(name) *)(function *)no_such_call,
#define HAMI_CALL(name) .name = (__typeof__(name) *)(function *)no_such_call,
#include "hooks.def"
};
static const struct hami_real_nvml no_nvml = {
#define HAMI_NVML_HOOK(name) .name = (__typeof__(name) *)(function *)no_such_nvml_call,
#define HAMI_NVML_CALL(name)                                                                       \
    .name = (__typeof__(name) *)_Generic(&name,                                                    \
        const char *(*)(nvmlReturn_t): (function *)no_error_string,                                \
        default: (function *)no_such_nvml_call),
#include "hooks.def"
};

/* A table with what the library has, and `none` for the rest; NULL: not loaded, or no memory.
 * Pinned first: nobody may unmap a library that our tables point into. No lock is held, because
 * dlopen takes the dynamic linker's, which another thread may hold while a constructor that it runs
 * waits for us; two threads at once make the same table twice. */
static function **table_of(const char *soname, bool load, const char *const *names, size_t count,
                           function *const *none)
{
    void *handle = dlopen(soname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
    const struct link_map *map = NULL;
    struct hami_image image;
    function **table;

    if (!handle && load)
        handle = dlopen(soname, RTLD_NOW | RTLD_NODELETE);
    if (!handle || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || !hami_image_read(map, &image)) {
        dlerror(); /* ours to take: the program must not find it when it asks about its own calls */
        return NULL;
    }
    table = mmap(NULL, count * sizeof(*table), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                 -1, 0);
    if (table == MAP_FAILED)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        void *found = hami_image_symbol(&image, names[i]);

        /* Our own hook would call itself. */
        table[i] = found && !hami_image_ours(found) ? (function *)found : none[i];
    }
    mprotect(table, count * sizeof(*table), PROT_READ);
    return table;
}

static const struct hami_real *cuda(bool load)
{
    const struct hami_real *found =
        atomic_load_explicit(&hami_real_found, memory_order_acquire);
    const struct hami_real *made;

    if (found)
        return found;
    made = (const void *)table_of("libcuda.so.1", load, cuda_names, CUDA_NAMES,
                                  (function *const *)(const void *)&no_driver);
    if (!made)
        return NULL;
    if (atomic_compare_exchange_strong(&hami_real_found, &found, made))
        return made;
    munmap((void *)made, sizeof(*made));
    return found;
}

static const struct hami_real_nvml *nvml(bool load)
{
    const struct hami_real_nvml *found =
        atomic_load_explicit(&hami_real_nvml_found, memory_order_acquire);
    const struct hami_real_nvml *made;

    if (found)
        return found;
    made = (const void *)table_of("libnvidia-ml.so.1", load, nvml_names, NVML_NAMES,
                                  (function *const *)(const void *)&no_nvml);
    if (!made)
        return NULL;
    if (atomic_compare_exchange_strong(&hami_real_nvml_found, &found, made))
        return made;
    munmap((void *)made, sizeof(*made));
    return found;
}

const struct hami_real *hami_real_load(void)
{
    const struct hami_real *found = cuda(true);

    return found ? found : &no_driver;
}

const struct hami_real_nvml *hami_real_load_nvml(void)
{
    const struct hami_real_nvml *found = nvml(true);

    return found ? found : &no_nvml;
}

const void *hami_table_cuda(void)
{
    return cuda(false);
}

const void *hami_table_nvml(void)
{
    return nvml(false);
}

bool hami_table_has(const void *table, size_t place)
{
    function *found;

    if (!table)
        return false;
    memcpy(&found, (const char *)table + place * sizeof(found), sizeof(found));
    return found != (function *)no_such_call && found != (function *)no_such_nvml_call &&
           found != (function *)no_error_string;
}

bool hami_real_has(const char *name)
{
    for (size_t i = 0; i < CUDA_NAMES; i++)
        if (strcmp(cuda_names[i], name) == 0)
            return hami_table_has(hami_real(), i);
    for (size_t i = 0; i < NVML_NAMES; i++)
        if (strcmp(nvml_names[i], name) == 0)
            return hami_table_has(hami_nvml(), i);
    return false;
}

/* From the C library, or from libdl of one older than 2.34: both were there when the process
 * started, so their place in the list of libraries does not move. (Not dl_iterate_phdr: programs
 * replace it with their own, which asks dlsym for the original. Not dlopen: it allocates, and an
 * allocator that is just starting may be who asks.) */
HAMI_EARLY static void *from_libc(const char *name)
{
    const struct link_map *map = hami_image_around((const void *)(uintptr_t)from_libc);

    if (!map)
        return NULL;
    while (map->l_prev)
        map = map->l_prev;
    for (; map; map = map->l_next) {
        struct hami_image image;
        void *found;

        if (!hami_image_read(map, &image) || !(hami_image_has_soname(&image, "libc.so.6") ||
                                               hami_image_has_soname(&image, "libdl.so.2")))
            continue;
        found = hami_image_symbol(&image, name);
        if (found)
            return found;
    }
    return NULL;
}

/* The same answer whenever it is looked for, so two threads at once do no harm. */
HAMI_EARLY static void *remembered(void *_Atomic *place, const char *name)
{
    void *known = atomic_load_explicit(place, memory_order_relaxed);

    if (!known) {
        known = from_libc(name);
        atomic_store_explicit(place, known, memory_order_relaxed);
    }
    return known;
}

HAMI_EARLY void *hami_libc_dlsym(void)
{
    static void *_Atomic found;

    return remembered(&found, "dlsym");
}

HAMI_EARLY void *hami_libc_dlvsym(void)
{
    static void *_Atomic found;

    return remembered(&found, "dlvsym");
}
