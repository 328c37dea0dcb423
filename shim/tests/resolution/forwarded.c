/* Calls what forwarder.c stands before, linked to the driver; prints how that went. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int cuInit(unsigned flags);
int cuMemAlloc_v2(unsigned long long *address, size_t size);
extern _Atomic int forwarded_opens __attribute__((weak));
extern _Atomic int forwarded_allocations __attribute__((weak));

int main(void)
{
    int good = 0;

    cuInit(0);
    for (int i = 0; i < 3; i++) {
        unsigned long long address;
        int fd = open("/dev/null", O_RDONLY);

        if (fd > 2 && close(fd) == 0)
            good++;
        printf("%d ", cuMemAlloc_v2(&address, 1));
    }
    printf("opened %d forwarded %d %d\n", good, &forwarded_opens ? forwarded_opens : -1,
           &forwarded_allocations ? forwarded_allocations : -1);
    return 0;
}
