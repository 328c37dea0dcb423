/* page_stress FILE THREADS LAST: readers of a page that somebody else keeps changing.
 *
 * Each thread reads until it has seen revision LAST, and checks that every copy it took is whole
 * (see sample.h: the writer must fill it that way) and newer than the one before. It prints
 * "ready" once all threads have read the page once, and at the end what they saw. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sample.h"

struct reader {
    pthread_t thread;
    uint64_t taken, torn, wrong;
};

static const struct hami_limits_page *page;
static uint64_t last_revision;
static atomic_uint ready;

static void *read_until_the_last(void *argument)
{
    struct reader *reader = argument;
    union hami_limits_copy last;
    uint64_t before = 0;

    memset(&last, 0, sizeof(last));
    do {
        switch (hami_page_read(page, &last)) {
        case HAMI_PAGE_NEWER:
            reader->taken++;
            if (!sample_is_whole(&last) || last.content.revision <= before)
                reader->wrong++;
            if (before == 0)
                atomic_fetch_add(&ready, 1);
            before = last.content.revision;
            break;
        case HAMI_PAGE_TORN:
            reader->torn++;
            break;
        case HAMI_PAGE_SAME:
            break;
        }
    } while (before < last_revision);
    return NULL;
}

static const struct hami_limits_page *mapped(const char *file)
{
    struct stat status;
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    void *found;

    if (fd < 0 || fstat(fd, &status) < 0 || (size_t)status.st_size < sizeof(*page))
        return NULL;
    found = mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    return found != MAP_FAILED && hami_page_check(found, (size_t)status.st_size) ? found : NULL;
}

int main(int count, char **arguments)
{
    struct reader readers[16] = {0};
    uint64_t taken = 0, torn = 0, wrong = 0;
    unsigned threads;

    if (count != 4 || (threads = (unsigned)strtoul(arguments[2], NULL, 10)) == 0 || threads > 16) {
        fprintf(stderr, "usage: page_stress FILE THREADS LAST (1 to 16 threads)\n");
        return 2;
    }
    page = mapped(arguments[1]);
    if (!page) {
        fprintf(stderr, "page_stress: %s is no limits page\n", arguments[1]);
        return 2;
    }
    last_revision = strtoull(arguments[3], NULL, 10);
    for (unsigned i = 0; i < threads; i++)
        if (pthread_create(&readers[i].thread, NULL, read_until_the_last, &readers[i]) != 0)
            return 2;
    while (atomic_load(&ready) < threads)
        usleep(1000);
    puts("ready");
    fflush(stdout);
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(readers[i].thread, NULL);
        taken += readers[i].taken;
        torn += readers[i].torn;
        wrong += readers[i].wrong;
    }
    printf("taken %llu torn %llu wrong %llu\n", (unsigned long long)taken, (unsigned long long)torn,
           (unsigned long long)wrong);
    return wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}
