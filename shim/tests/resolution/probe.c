/* Resolves names in every way a program can, and prints whose function it got:
 *
 *     probe WAY NAME...     WAY: default, next, handle, self, old, versioned=VERSION,
 *                           library=LIBRARY (by its handle), inside=LIBRARY (which asks itself),
 *                           proc=VERSION:FLAGS, proc2=VERSION:FLAGS
 *
 * With PROBE_AFTER=NAME each time after asking in vain for that one. One line a name: "NAME FILE
 * SYMBOL", or "NAME -" and the error. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __x86_64__
#define OLDEST "GLIBC_2.2.5"
#else
#define OLDEST "GLIBC_2.17"
#endif
/* As a program refers to it that was linked before glibc 2.34. */
void *old_dlsym(void *handle, const char *name);
__asm__(".symver old_dlsym, dlsym@" OLDEST);

typedef int get_proc_address(const char *name, void **function, int version, uint64_t flags);
typedef int get_proc_address_v2(const char *name, void **function, int version, uint64_t flags,
                                int *status);

static void print(const char *name, void *found, const char *error)
{
    const char *file;
    Dl_info info;

    if (!found) {
        printf("%s - %s\n", name, error ? error : "no error");
        return;
    }
    if (!dladdr(found, &info)) {
        printf("%s ? ?\n", name);
        return;
    }
    file = strrchr(info.dli_fname, '/');
    printf("%s %s %s%s\n", name, file ? file + 1 : info.dli_fname,
           info.dli_sname && info.dli_saddr == found ? info.dli_sname : "?",
           error ? " although dlerror says otherwise" : "");
}

static void by_proc(const char *way, char **names, int second)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int version, flags;

    sscanf(strchr(way, '=') + 1, "%d:%d", &version, &flags);
    for (; *names; names++) {
        char error[64] = "";
        void *found = (void *)1;
        int result, status = -1;

        if (second) {
            get_proc_address_v2 *ask = (get_proc_address_v2 *)dlsym(driver, "cuGetProcAddress_v2");

            result = ask(*names, &found, version, (uint64_t)flags, &status);
        } else {
            get_proc_address *ask = (get_proc_address *)dlsym(driver, "cuGetProcAddress");

            result = ask(*names, &found, version, (uint64_t)flags);
        }
        snprintf(error, sizeof(error), "%d %d", result, status);
        print(*names, found, found ? NULL : error);
    }
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "", *before = getenv("PROBE_AFTER");
    void *handle = RTLD_DEFAULT;

    if (strncmp(way, "proc=", 5) == 0 || strncmp(way, "proc2=", 6) == 0) {
        by_proc(way, argv + 2, way[4] == '2');
        return 0;
    }
    if (strcmp(way, "handle") == 0 || strcmp(way, "old") == 0 ||
        strncmp(way, "versioned=", 10) == 0) {
        handle = dlopen("libcuda.so.1", RTLD_NOW);
        if (getenv("PROBE_NVML"))
            handle = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    } else if (strncmp(way, "library=", 8) == 0) {
        handle = dlopen(way + 8, RTLD_NOW);
    } else if (strcmp(way, "self") == 0) {
        handle = dlopen(NULL, RTLD_NOW);
    } else if (strcmp(way, "next") == 0) {
        handle = RTLD_NEXT;
    }
    for (char **name = argv + 2; name < argv + argc; name++) {
        void *found;

        dlerror();
        if (before)
            dlsym(handle, before);
        if (strncmp(way, "inside=", 7) == 0)
            found = ((void *(*)(const char *))dlsym(dlopen(way + 7, RTLD_NOW), "asks"))(*name);
        else if (strcmp(way, "old") == 0)
            found = old_dlsym(handle, *name);
        else if (strncmp(way, "versioned=", 10) == 0)
            found = dlvsym(handle, *name, way + 10);
        else
            found = dlsym(handle, *name);
        print(*name, found, dlerror());
    }
    return 0;
}
