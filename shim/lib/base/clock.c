#include "base/clock.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int64_t hami_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The system call itself: libc's nanosleep is a cancellation point, which a launch is not. */
void hami_sleep(int64_t nanoseconds)
{
    struct timespec left = {.tv_sec = (time_t)(nanoseconds / 1000000000),
                            .tv_nsec = (long)(nanoseconds % 1000000000)};

    syscall(SYS_nanosleep, &left, NULL);
}
