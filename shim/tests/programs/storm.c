/* storm: takes and gives device memory by every way there is. As memory_console, each line on its
 * standard input is answered by one: the CUresult and results. What it holds it holds by number of
 * the way, in the order in which it took it. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ways.h"

/* What the driver caches goes back. */
static CUresult settle(void)
{
    CUresult result = cuCtxSynchronize();

    if (result == CUDA_SUCCESS)
        result = cuDeviceGraphMemTrim(device);
    return result;
}

/* ---- One call at a time ---- */

#define MOST 100000

static struct {
    struct piece pieces[MOST];
    size_t count;
} held[WAYS];

static size_t way_named(const char *name)
{
    for (size_t i = 0; i < WAYS; i++)
        if (strcmp(ways[i].name, name) == 0)
            return i;
    fprintf(stderr, "no way is called %s\n", name);
    exit(3);
}

/* "take WAY BYTES COUNT": until so many or refused; the last result, how many. */
static void do_take(size_t way, size_t bytes, size_t count)
{
    CUresult result = CUDA_SUCCESS;
    size_t taken = 0;

    while (taken < count && result == CUDA_SUCCESS) {
        if (held[way].count == MOST)
            exit(9);
        result = take(way, &held[way].pieces[held[way].count], bytes);
        if (result == CUDA_SUCCESS) {
            held[way].count++;
            taken++;
        }
    }
    printf("%d %zu\n", (int)result, taken);
}

/* "give WAY KEEP": of each KEEP, in the order of taking, the first stays; 0: none does. */
static void do_give(size_t way, size_t keep)
{
    CUresult result = CUDA_SUCCESS;
    size_t left = 0;

    for (size_t i = 0; i < held[way].count; i++) {
        if (keep && i % keep == 0) {
            held[way].pieces[left++] = held[way].pieces[i];
            continue;
        }
        if (result == CUDA_SUCCESS)
            result = ways[way].give(&held[way].pieces[i]);
    }
    held[way].count = left;
    if (result == CUDA_SUCCESS)
        result = settle();
    printf("%d\n", (int)result);
}

/* ---- "storm SEED ROUNDS MOST SMALL THREADS FORKS [WAY...]" ----
 * At random, up to MOST bytes at a time; of 100 requests SMALL are below 1 MiB; of 1000 rounds
 * FORKS fork. ROUNDS of 0: until killed. How often refused, and how often granted by each way. */

#define HANDS 12

struct storm {
    pthread_t thread;
    unsigned int seed;
    unsigned long rounds;
    size_t most;
    unsigned int small, forks;
    unsigned long refused, granted[WAYS];
};
static size_t allowed[WAYS], allowed_count;

static void nap(unsigned int *seed)
{
    struct timespec time = {.tv_nsec = rand_r(seed) % 30 * 1000000};

    nanosleep(&time, NULL);
}

/* A child that lives on for a while as what children are: a copy that holds what was open, another
 * program, or a daemon that closed everything. */
static void fork_one(unsigned int *seed)
{
    int what = rand_r(seed) % 4;
    pid_t child = fork();

    if (child != 0)
        return;
    if (what == 0) {
        execl("/bin/sleep", "sleep", "0.01", (char *)NULL);
        _exit(127);
    }
    if (what == 1)
        for (int fd = 3; fd < 256; fd++)
            close(fd);
    if (what == 2)
        nap(seed);
    nap(seed);
    _exit(0);
}

static size_t size_of_request(struct storm *of)
{
    size_t most = of->most;

    if ((unsigned int)(rand_r(&of->seed) % 100) < of->small)
        most = (size_t)1 << (9 + rand_r(&of->seed) % 12);
    return 1 + (((size_t)(unsigned int)rand_r(&of->seed) << 31) + (size_t)rand_r(&of->seed)) % most;
}

static void fail(const char *what, size_t way, CUresult result)
{
    fprintf(stderr, "storm: %s by %s: %d\n", what, ways[way].name, (int)result);
    exit(5);
}

static void drop_all(struct piece *pieces, size_t *by, size_t *count)
{
    CUresult result;

    while (*count > 0) {
        size_t last = --*count;

        result = ways[by[last]].give(&pieces[last]);
        if (result != CUDA_SUCCESS)
            fail("giving back", by[last], result);
    }
    result = settle();
    if (result != CUDA_SUCCESS)
        fail("settling", 0, result);
}

static void *storm(void *argument)
{
    struct storm *of = argument;
    struct piece pieces[HANDS];
    size_t by[HANDS], count = 0;

    if (cuCtxSetCurrent(context) != CUDA_SUCCESS)
        exit(8);
    for (unsigned long i = 0; of->rounds == 0 || i < of->rounds; i++) {
        size_t at = (size_t)rand_r(&of->seed) % HANDS;
        CUresult result;

        if (of->forks && (unsigned int)(rand_r(&of->seed) % 1000) < of->forks)
            fork_one(&of->seed);
        if (at < count) {
            result = ways[by[at]].give(&pieces[at]);
            if (result != CUDA_SUCCESS)
                fail("giving back", by[at], result);
            pieces[at] = pieces[--count];
            by[at] = by[count];
            continue;
        }
        by[count] = allowed[(size_t)rand_r(&of->seed) % allowed_count];
        result = take(by[count], &pieces[count], size_of_request(of));
        if (result == CUDA_SUCCESS) {
            of->granted[by[count++]]++;
        } else if (result == CUDA_ERROR_OUT_OF_MEMORY) {
            of->refused++;
            drop_all(pieces, by, &count);
        } else {
            fail("taking", by[count], result);
        }
    }
    drop_all(pieces, by, &count);
    if (own_pool && cuMemPoolDestroy(own_pool) != CUDA_SUCCESS)
        exit(7);
    own_pool = NULL;
    return NULL;
}

static void storms(char **word, int words)
{
    static struct storm all[64];
    unsigned long numbers[6] = {0}, refused = 0;
    size_t threads;

    for (int i = 0; i < 6 && i < words; i++)
        numbers[i] = strtoul(word[i], NULL, 0);
    allowed_count = 0;
    for (int i = 6; i < words; i++)
        allowed[allowed_count++] = way_named(word[i]);
    if (allowed_count == 0)
        for (; allowed_count < WAYS; allowed_count++)
            allowed[allowed_count] = allowed_count;
    signal(SIGCHLD, SIG_IGN);
    threads = numbers[4] ? numbers[4] : 1;
    for (size_t i = 0; i < threads; i++) {
        all[i] = (struct storm){.seed = (unsigned int)(numbers[0] * 64 + i + 1),
                                .rounds = numbers[1], .most = numbers[2],
                                .small = (unsigned int)numbers[3],
                                .forks = (unsigned int)numbers[5]};
        if (pthread_create(&all[i].thread, NULL, storm, &all[i]) != 0)
            exit(9);
    }
    for (size_t i = 0; i < threads; i++) {
        pthread_join(all[i].thread, NULL);
        refused += all[i].refused;
    }
    printf("0 %lu", refused);
    for (size_t way = 0; way < WAYS; way++) {
        unsigned long granted = 0;

        for (size_t i = 0; i < threads; i++)
            granted += all[i].granted[way];
        printf(" %lu", granted);
    }
    putchar('\n');
}

/* "fork SECONDS HOW": a child of this process lives so long, as a copy ("copy"), as another program
 * ("exec"), or having closed all it inherited ("closed"); its pid. */
static void do_fork(const char *seconds, const char *how)
{
    pid_t child = fork();

    if (child == 0) {
        if (strcmp(how, "exec") == 0) {
            execl("/bin/sleep", "sleep", seconds, (char *)NULL);
            _exit(127);
        }
        /* The pipes too: a test waits for their end. */
        for (int fd = 0; fd < (strcmp(how, "closed") == 0 ? 256 : 3); fd++)
            close(fd);
        usleep((useconds_t)(strtod(seconds, NULL) * 1e6));
        _exit(0);
    }
    signal(SIGCHLD, SIG_IGN);
    printf("0 %d\n", (int)child);
}

static CUresult become(CUdevice ordinal)
{
    CUresult result;

    device = ordinal;
    result = cuDevicePrimaryCtxRetain(&context, device);
    return result == CUDA_SUCCESS ? cuCtxSetCurrent(context) : result;
}

static int obey(char **word, int words)
{
    if (strcmp(word[0], "init") == 0)
        printf("%d\n", (int)cuInit(0));
    else if (strcmp(word[0], "device") == 0 && words == 2)
        printf("%d\n", (int)become(atoi(word[1])));
    else if (strcmp(word[0], "take") == 0 && words == 4)
        do_take(way_named(word[1]), strtoull(word[2], NULL, 0), strtoull(word[3], NULL, 0));
    else if (strcmp(word[0], "give") == 0 && words == 3)
        do_give(way_named(word[1]), strtoull(word[2], NULL, 0));
    else if (strcmp(word[0], "storm") == 0)
        storms(word + 1, words - 1);
    else if (strcmp(word[0], "fork") == 0 && words == 3)
        do_fork(word[1], word[2]);
    else
        return 0;
    return 1;
}

int main(int argc, char **argv)
{
    char text[1024];

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 2 && strcmp(argv[1], "ways") == 0) {
        for (size_t way = 0; way < WAYS; way++)
            puts(ways[way].name);
        return 0;
    }
    while (fgets(text, sizeof(text), stdin)) {
        char *word[40];
        int words = 0;

        for (char *at = strtok(text, " \n"); at && words < 40; at = strtok(NULL, " \n"))
            word[words++] = at;
        if (words > 0 && !obey(word, words))
            return 2;
    }
    return 0;
}
