/* How programs come to functions of the driver, and what cuGetProcAddress answers. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "matrix.h"

struct function {
    const char *name, *base; /* base: NULL for NVML */
    int from, per_thread;
    size_t place; /* in struct api */
    void *linked;
};

static const struct function functions[] = {
#define HAMI_HOOK(name, base, from, stream, kind)                                                  \
    {#name, #base, from, stream, offsetof(struct api, name), (void *)name},
#define HAMI_NVML_HOOK(name) {#name, NULL, 0, 0, offsetof(struct api, name), (void *)name},
#include "../../lib/hooks.def"
};
#define FUNCTIONS (sizeof(functions) / sizeof(*functions))

static void *of_driver(const char *base)
{
    return dlopen(base ? "libcuda.so.1" : "libnvidia-ml.so.1", RTLD_NOW);
}

static void *by_handle(const char *name, const char *base, int from, int per_thread)
{
    (void)from;
    (void)per_thread;
    return dlsym(of_driver(base), name);
}

static void *by_default(const char *name, const char *base, int from, int per_thread)
{
    (void)base;
    (void)from;
    (void)per_thread;
    return dlsym(RTLD_DEFAULT, name);
}

static void *by_next(const char *name, const char *base, int from, int per_thread)
{
    (void)base;
    (void)from;
    (void)per_thread;
    return dlsym(RTLD_NEXT, name);
}

/* The driver's symbols have no version: without the library this finds none of them. */
static void *by_version(const char *name, const char *base, int from, int per_thread)
{
    (void)from;
    (void)per_thread;
    return dlvsym(of_driver(base), name, "GLIBC_2.17");
}

static void *by_link(const char *name, const char *base, int from, int per_thread)
{
    (void)base;
    (void)from;
    (void)per_thread;
    for (size_t i = 0; i < FUNCTIONS; i++)
        if (strcmp(functions[i].name, name) == 0)
            return functions[i].linked;
    return NULL;
}

/* As the runtime does it: the one function by dlsym, the others of it. */
static void *by_proc_address(const char *name, const char *base, int from, int per_thread)
{
    __typeof__(cuGetProcAddress) *ask = base ? dlsym(of_driver(base), "cuGetProcAddress") : NULL;
    cuuint64_t flags = per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                  : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    void *found = NULL;

    (void)name;
    return ask && ask(base, &found, from, flags) == CUDA_SUCCESS ? found : NULL;
}

static void *by_proc_address_v2(const char *name, const char *base, int from, int per_thread)
{
    __typeof__(cuGetProcAddress_v2) *ask =
        base ? dlsym(of_driver(base), "cuGetProcAddress_v2") : NULL;
    cuuint64_t flags = per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                  : CU_GET_PROC_ADDRESS_DEFAULT;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    void *found = NULL;

    (void)name;
    return ask && ask(base, &found, from, flags, &status) == CUDA_SUCCESS &&
                   status == CU_GET_PROC_ADDRESS_SUCCESS
               ? found
               : NULL;
}

const struct way matrix_ways[] = {
    {"link", by_link},
    {"handle", by_handle},
    {"default", by_default},
    {"next", by_next},
    {"version", by_version},
    {"proc", by_proc_address},
    {"proc2", by_proc_address_v2},
};
const size_t matrix_way_count = sizeof(matrix_ways) / sizeof(*matrix_ways);

void matrix_fill(struct api *api, const struct way *way)
{
    for (size_t i = 0; i < FUNCTIONS; i++) {
        const struct function *f = &functions[i];
        void *found = way->find(f->name, f->base, f->from, f->per_thread);

        memcpy((char *)api + f->place, found ? &found : &f->linked, sizeof(found));
    }
}

static const struct function *named(const char *name)
{
    for (size_t i = 0; i < FUNCTIONS; i++)
        if (strcmp(functions[i].name, name) == 0)
            return &functions[i];
    return NULL;
}

bool matrix_leads(const struct way *way, const char *name)
{
    const struct function *f = named(name);

    return way->find(f->name, f->base, f->from, f->per_thread) != NULL;
}

void *matrix_pointer(const struct api *api, const char *name)
{
    void *found;

    memcpy(&found, (const char *)api + named(name)->place, sizeof(found));
    return found;
}

const char *matrix_base(const char *name)
{
    const struct function *f = named(name);

    return f ? f->base : NULL;
}

void matrix_owner(void *function, char *text, size_t size)
{
    const char *file;
    Dl_info info;

    if (!function || !dladdr(function, &info) || !info.dli_sname) {
        snprintf(text, size, "- -");
        return;
    }
    file = strrchr(info.dli_fname, '/');
    snprintf(text, size, "%s %s", file ? file + 1 : info.dli_fname,
             info.dli_saddr == function ? info.dli_sname : "inside");
}

/* ---- The ABI by version ---- */

static const char *const bases[] = {
#define HAMI_HOOK(name, base, from, stream, kind) #base,
#include "../../lib/hooks.def"
#define SIM_PROC(name, base, from, stream) #base,
#include "../../simgpu/proc_address.def"
    "cuNotThere", "", "cuMemAlloc_v2", "cuLaunchKernel_ptsz",
};
#define BASES (sizeof(bases) / sizeof(*bases))
static const int since[] = {
#define HAMI_HOOK(name, base, from, stream, kind) from,
#include "../../lib/hooks.def"
#define SIM_PROC(name, base, from, stream) from,
#include "../../simgpu/proc_address.def"
    13050, 13060, 2000,
};
#define VERSIONS (sizeof(since) / sizeof(*since))

static bool first_base(size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (strcmp(bases[k], bases[i]) == 0)
            return false;
    return true;
}

static bool first_version(size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (since[k] == since[i])
            return false;
    return true;
}

static void print_answer(const char *how, const char *base, int version, unsigned int flags,
                         int result, int status, void *found)
{
    char owner[128];

    matrix_owner(found, owner, sizeof(owner));
    printf("%s %s %d %u %d %d %s\n", how, *base ? base : "\"\"", version, flags, result, status,
           owner);
}

/* Where the answer says nothing the function is to stay as it was: here, NULL. */
static void print_base(const char *base, int version, unsigned int flags)
{
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)77;
    void *found = NULL;
    CUresult result = cuGetProcAddress(base, &found, version, flags);

    print_answer("1", base, version, flags, (int)result, 0, found);
    found = NULL;
    result = cuGetProcAddress_v2(base, &found, version, flags, &status);
    print_answer("2", base, version, flags, (int)result, (int)status, found);
}

int matrix_print_abi(void)
{
    for (size_t i = 0; i < VERSIONS; i++) {
        if (!first_version(i))
            continue;
        for (size_t k = 0; k < BASES; k++)
            for (unsigned int flags = 0; flags <= 3 && first_base(k); flags++) {
                print_base(bases[k], since[i], flags);
                print_base(bases[k], since[i] - 1, flags);
            }
    }
    return 0;
}
