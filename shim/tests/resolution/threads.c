/* Many threads that resolve for the first time at once: `load`, while they load the driver and a
 * library whose constructor resolves too; `fork`, while children are forked (not at the same time:
 * the C library itself has no answer to a fork in the middle of another thread's dlopen). All get
 * the same answer and nobody waits for ever. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 64 };

static pthread_barrier_t together;
static void *answers[THREADS];
static int loading;

static void *resolve(void *argument)
{
    int number = (int)(size_t)argument;

    pthread_barrier_wait(&together);
    if (loading && number % 8 == 1)
        dlopen(getenv("CONSTRUCTOR"), RTLD_NOW);
    if (loading)
        dlopen("libcuda.so.1", RTLD_NOW);
    answers[number] = dlsym(RTLD_DEFAULT, number % 2 ? "cuMemAlloc_v2" : "cuMemFree_v2");
    return NULL;
}

static int forked(int children)
{
    int status, good = 0;

    for (int i = 0; i < children; i++) {
        pid_t child = fork();

        if (child == 0) {
            unsigned limit = alarm(20);
            void *found = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), *other = answers[THREADS - 1];

            _exit(!limit && found && (!other || found == other) ? 0 : 1);
        }
        if (waitpid(child, &status, 0) == child && status == 0)
            good++;
    }
    return good;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    int children = 0;

    loading = argc > 1 && strcmp(argv[1], "load") == 0;
    if (!loading && !dlopen("libcuda.so.1", RTLD_NOW))
        return 1;
    pthread_barrier_init(&together, NULL, THREADS + 1);
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, resolve, (void *)i) != 0)
            return 2;
    pthread_barrier_wait(&together);
    if (!loading)
        children = forked(8);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 2; i < THREADS; i++)
        if (!answers[i] || answers[i] != answers[i - 2])
            return 3;
    printf("children %d\n", children);
    return 0;
}
