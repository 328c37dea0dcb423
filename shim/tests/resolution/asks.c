/* Made into libraries of several names: who asks decides who answers. */
#include <dlfcn.h>

__attribute__((visibility("default"))) void *asks(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}
