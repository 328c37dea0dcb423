/* crowd COUNT
 *
 * That many processes that have initialised CUDA, hold a slot each and do nothing, until the input
 * ends. Says `ready` when all are there. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "hami_cuda.h"

static int be_one(int ready)
{
    char failed = cuInit(0) != CUDA_SUCCESS;

    if (write(ready, &failed, 1) != 1)
        return 1;
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 0, ready[2];
    pid_t parent = getpid();
    char failed;

    if (count < 1 || pipe(ready) != 0)
        return 2;
    for (int i = 0; i < count; i++) {
        pid_t child = fork();

        if (child < 0)
            return 1;
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            return getppid() == parent ? be_one(ready[1]) : 1;
        }
    }
    close(ready[1]);
    for (int i = 0; i < count; i++)
        if (read(ready[0], &failed, 1) != 1 || failed)
            return 1;
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
