/* What is taken for a page or a region, and how a region is made. links: lib/slice/files.c lib/base/log.c */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"
#include "sample.h"
#include "slice/files.h"

static char folder[] = "/tmp/hami-files-XXXXXX";
static char path[PATH_MAX];

/* The path of a name in the folder of this test; one at a time. */
static const char *at(const char *name)
{
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const void *bytes, size_t size)
{
    int fd = open(at(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    EXPECT(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    close(fd);
}

static int entries(void)
{
    DIR *listing = opendir(folder);
    int count = 0;

    while (readdir(listing))
        count++;
    closedir(listing);
    return count - 2;
}

static int descriptors(void)
{
    DIR *listing = opendir("/proc/self/fd");
    int count = 0;

    while (readdir(listing))
        count++;
    closedir(listing);
    return count;
}

static void a_page(void)
{
    struct hami_limits_page page;
    const struct hami_limits_page *mapped;
    int before = descriptors();

    sample_page(&page, 3, 2);
    put("limits", &page, sizeof(page));
    mapped = hami_files_page(at("limits"));
    EXPECT(mapped && memcmp(mapped, &page, sizeof(page)) == 0);
    EXPECT(descriptors() == before);
    munmap((void *)mapped, sizeof(*mapped));

    EXPECT(!hami_files_page(at("nothing")));
    put("short", &page, sizeof(page) - 1);
    EXPECT(!hami_files_page(at("short")));
    put("empty", "", 0);
    EXPECT(!hami_files_page(at("empty")));
    EXPECT(!hami_files_page(folder));
    page.magic++;
    put("other", &page, sizeof(page));
    EXPECT(!hami_files_page(at("other")));
    mkfifo(at("fifo"), 0666);
    EXPECT(!hami_files_page(at("fifo")));
    EXPECT(symlink("limits", at("link")) == 0);
    EXPECT(!hami_files_page(at("link")));
    EXPECT(descriptors() == before);
}

static void a_region_is_made_once(void)
{
    struct hami_region first, second;
    struct stat found;
    int before = entries();

    umask(077);
    EXPECT(hami_files_usage_made(at("made.usage"), &first));
    EXPECT(umask(022) == 077);
    EXPECT(stat(at("made.usage"), &found) == 0 && (found.st_mode & 07777) == 0666);
    EXPECT(found.st_size == (off_t)sizeof(struct hami_usage) && found.st_nlink == 1);
    EXPECT(entries() == before + 1);
    EXPECT(fcntl(first.fd, F_GETFD) & FD_CLOEXEC && first.fd > STDERR_FILENO);
    for (size_t i = 0; i < sizeof(first.usage->reserved); i++)
        EXPECT(first.usage->reserved[i] == 0);

    EXPECT(hami_files_usage_made(at("made.usage"), &second));
    first.usage->charged[1][2] = 77;
    EXPECT(second.usage->charged[1][2] == 77 && second.fd != first.fd);
    hami_files_close(&first);
    hami_files_close(&second);
    EXPECT(first.fd == -1 && !first.usage);
    EXPECT(hami_files_usage(at("made.usage"), &first) && first.usage->charged[1][2] == 77);
    hami_files_close(&first);
}

static void what_is_no_region_is_refused(void)
{
    struct hami_region region;
    struct hami_usage *usage;
    int before = descriptors();

    EXPECT(hami_files_usage_made(at("good.usage"), &region));
    usage = malloc(sizeof(*usage));
    memcpy(usage, region.usage, sizeof(*usage));
    hami_files_close(&region);
    EXPECT(!hami_files_usage(at("nothing"), &region) && region.fd == -1);
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        struct hami_usage *copy = malloc(sizeof(*copy));                                           \
        memcpy(copy, usage, sizeof(*copy));                                                        \
        change;                                                                                    \
        put("bad.usage", copy, sizeof(*copy));                                                     \
        free(copy);                                                                                \
        EXPECT(!hami_files_usage(at("bad.usage"), &region) && region.fd == -1 && !region.usage);   \
        EXPECT(!hami_files_usage_made(at("bad.usage"), &region));                                  \
    } while (0)
    REFUSED(copy->magic++);
    REFUSED(copy->abi++);
    REFUSED(copy->size--);
    REFUSED(copy->device_capacity = 8);
    REFUSED(copy->slot_capacity = 1024);
    REFUSED(copy->slots_offset = 0);
    REFUSED(copy->charged_offset = 0);
    REFUSED(copy->buckets_offset = 0);
#undef REFUSED
    put("short.usage", usage, sizeof(*usage) - 1);
    EXPECT(!hami_files_usage_made(at("short.usage"), &region));
    put("empty.usage", "", 0);
    EXPECT(!hami_files_usage_made(at("empty.usage"), &region));
    free(usage);

    /* A link leads to where its maker, not we, may write; also one that leads nowhere. */
    EXPECT(symlink("good.usage", at("link.usage")) == 0);
    EXPECT(!hami_files_usage_made(at("link.usage"), &region));
    EXPECT(symlink("not-there", at("dangling.usage")) == 0);
    EXPECT(!hami_files_usage_made(at("dangling.usage"), &region));
    EXPECT(access(at("not-there"), F_OK) != 0);
    EXPECT(mkdir(at("folder.usage"), 0777) == 0);
    EXPECT(!hami_files_usage_made(at("folder.usage"), &region));
    EXPECT(mkfifo(at("fifo.usage"), 0666) == 0);
    EXPECT(!hami_files_usage_made(at("fifo.usage"), &region));
    EXPECT(!hami_files_usage_made("/nowhere/at/all.usage", &region));
    EXPECT(!hami_files_usage_made("/dev/null", &region));
    EXPECT(descriptors() == before);
}

/* Who was killed half-way left its unfinished file; who has its pid now tries the next name. */
static void a_leftover_is_in_nobodys_way(void)
{
    struct hami_region region;
    char name[64];

    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), "killed.usage.%d.%d", (int)getpid(), i);
        put(name, "x", 1);
    }
    EXPECT(hami_files_usage_made(at("killed.usage"), &region));
    hami_files_close(&region);
}

/* However many begin at once, all end with one and the same whole file. */
static void many_make_one(void)
{
    enum { MAKERS = 24, ROUNDS = 20 };

    for (int round = 0; round < ROUNDS; round++) {
        struct hami_region region;
        pid_t children[MAKERS];
        int start[2];
        char name[64];

        snprintf(name, sizeof(name), "race%d.usage", round);
        EXPECT(pipe2(start, O_CLOEXEC) == 0);
        for (int i = 0; i < MAKERS; i++) {
            children[i] = fork();
            if (children[i] == 0) {
                char byte;

                close(start[1]);
                if (read(start[0], &byte, 1) != 0 || !hami_files_usage_made(at(name), &region))
                    _exit(1);
                atomic_fetch_add(&region.usage->charged[0][0], 1);
                _exit(0);
            }
        }
        close(start[0]);
        close(start[1]);
        for (int i = 0; i < MAKERS; i++) {
            int status;

            EXPECT(waitpid(children[i], &status, 0) == children[i] && status == 0);
        }
        EXPECT(hami_files_usage(at(name), &region));
        EXPECT(region.usage && region.usage->charged[0][0] == MAKERS);
        hami_files_close(&region);
    }
}

/* A program that starts without standard streams must not write its output into our file. */
static void standard_streams_are_left_alone(void)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        struct hami_region region;
        bool good;

        close(0);
        close(1);
        close(2);
        good = hami_files_usage_made(at("streams.usage"), &region) && region.fd > 2 &&
               fcntl(0, F_GETFD) < 0 && fcntl(1, F_GETFD) < 0 && fcntl(2, F_GETFD) < 0 &&
               fcntl(region.fd, F_GETFD) & FD_CLOEXEC;
        _exit(good ? 0 : 1);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

static void cleared(void)
{
    DIR *listing = opendir(folder);
    struct dirent *entry;

    while ((entry = readdir(listing)))
        if (unlink(at(entry->d_name)) != 0)
            rmdir(at(entry->d_name));
    closedir(listing);
    rmdir(folder);
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    a_page();
    a_region_is_made_once();
    what_is_no_region_is_refused();
    a_leftover_is_in_nobodys_way();
    many_make_one();
    standard_streams_are_left_alone();
    cleared();
    return failures != 0;
}
