/* A library that resolves and calls before main, and before the constructors of most others. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

__attribute__((constructor)) static void begin(void)
{
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(RTLD_NEXT, "cuInit");
    void *allocate = dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    Dl_info info;

    if (!init || !allocate || !dladdr(allocate, &info)) {
        printf("constructor: %s\n", dlerror());
        return;
    }
    printf("constructor: cuInit %d, cuMemAlloc_v2 of %s\n", init(0),
           strrchr(info.dli_fname, '/') + 1);
    fflush(stdout);
}
