/* addresses
 *
 * For every spelling that the library stands in front of: what dlsym finds and what cuGetProcAddress
 * answers when asked for that version.
 *
 *     NAME absent     this driver exports no such name
 *     NAME alone      exported, but cuGetProcAddress does not know it
 *     NAME same       both find the same address; the library tells functions apart by that
 *     NAME differs    they do not; the library then goes by the name, version and flags
 *     NAME hooked     cuGetProcAddress answers with the library's (under the library, that is)
 *     NAME bypassed   it should and does not */
#include <dlfcn.h>

#include "gpu.h"

static const struct spelling {
    const char *name, *base;
    int from;
    bool per_thread;
} spellings[] = {
#define HAMI_HOOK(name, base, from, stream, kind) {#name, #base, from, stream},
#include "hooks.def"
};

static bool is_library(const void *address)
{
    Dl_info info;
    const char *slash;

    if (!dladdr(address, &info) || !info.dli_fname)
        return false;
    slash = strrchr(info.dli_fname, '/');
    return strcmp(slash ? slash + 1 : info.dli_fname, "libvgpu.so") == 0;
}

static const char *compared(void *driver, const struct spelling *spelling, bool under_library)
{
    cuuint64_t flags = spelling->per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                            : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    int version = spelling->per_thread && spelling->from < 7000 ? 7000 : spelling->from;
    void *exported = dlsym(driver, spelling->name), *found = NULL;

    if (!exported)
        return "absent";
    if (cuGetProcAddress_v2(spelling->base, &found, version, flags, NULL) != CUDA_SUCCESS || !found)
        return "alone";
    if (under_library)
        return is_library(found) ? "hooked" : "bypassed";
    return found == exported ? "same" : "differs";
}

int main(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    bool under_library;

    gpu_open();
    if (!driver)
        return 2;
    under_library = is_library((void *)(uintptr_t)cuInit);
    for (size_t i = 0; i < sizeof(spellings) / sizeof(*spellings); i++)
        printf("%s %s\n", spellings[i].name, compared(driver, &spellings[i], under_library));
    return 0;
}
