/* Another interposer: stands before open() and cuMemAlloc_v2(), and asks for what comes after it,
 * each time anew. Where RTLD_NEXT is taken relative to anybody else it finds itself, and recurses
 * until the stack ends. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT _Atomic int forwarded_opens, forwarded_allocations;

EXPORT int open(const char *path, int flags, ...)
{
    int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    va_list arguments;
    int mode;

    va_start(arguments, flags);
    mode = flags & O_CREAT ? va_arg(arguments, int) : 0;
    va_end(arguments);
    forwarded_opens++;
    return next ? next(path, flags, mode) : -2;
}

EXPORT int cuMemAlloc_v2(unsigned long long *address, size_t size)
{
    int (*next)(unsigned long long *, size_t) =
        (int (*)(unsigned long long *, size_t))dlsym(RTLD_NEXT, "cuMemAlloc_v2");

    forwarded_allocations++;
    return next ? next(address, size) : -2;
}
