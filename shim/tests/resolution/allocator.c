/* An allocator that replaces the C library's and asks for that one with its first call, as several
 * in use do: whoever answers dlsym must not allocate. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static void *(*real_malloc)(size_t), *(*real_calloc)(size_t, size_t);
static void *(*real_realloc)(void *, size_t);
static void (*real_free)(void *);
static int starting;

static void start(void)
{
    static const char complaint[] = "allocated while starting\n";

    if (real_malloc)
        return;
    if (starting) {
        if (write(2, complaint, sizeof(complaint) - 1))
            _exit(3);
        _exit(3);
    }
    starting = 1;
    real_calloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
    real_realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    real_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    real_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    starting = 0;
}

EXPORT void *malloc(size_t size)
{
    start();
    return real_malloc(size);
}

EXPORT void *calloc(size_t count, size_t size)
{
    start();
    return real_calloc(count, size);
}

EXPORT void *realloc(void *old, size_t size)
{
    start();
    return real_realloc(old, size);
}

EXPORT void free(void *old)
{
    start();
    real_free(old);
}
