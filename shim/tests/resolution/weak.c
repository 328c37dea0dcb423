/* Calls the driver if it is there, by references that need not be satisfied: under the library they
 * are, whether there is a driver or not. Then the driver comes, and is found. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int cuInit(unsigned flags) __attribute__((weak));
int cuMemAlloc_v2(unsigned long long *address, size_t size) __attribute__((weak));
int nvmlDeviceGetMemoryInfo(void *device, void *info) __attribute__((weak));

int main(void)
{
    unsigned long long address;
    const char *error;

    if (!cuInit || !cuMemAlloc_v2 || !nvmlDeviceGetMemoryInfo) {
        printf("nobody\n");
        return 0;
    }
    dlerror();
    printf("%d ", cuInit(0));
    printf("%d ", cuMemAlloc_v2(&address, 1));
    printf("%d ", nvmlDeviceGetMemoryInfo(NULL, NULL));
    error = dlerror();
    printf("%s", error ? error : "quiet");
    if (dlopen(getenv("DRIVER"), RTLD_NOW))
        printf(", then %d", cuInit(0));
    printf("\n");
    return 0;
}
