/* No stdio, no malloc: we are called from within other people's allocations. */
#include "slice/alive.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct process_stat {
    char state;
    long threads;
    uint64_t start_time;
};

static int open_proc(const char *process, const char *name)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%s/%s", process, name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* The name in field 2 may hold anything, parentheses too: fields are counted from the last one. */
static bool parse_stat(const char *text, struct process_stat *stat)
{
    const char *at = strrchr(text, ')');

    if (!at || at[1] != ' ')
        return false;
    at += 2;
    stat->state = *at;
    for (int field = 3; field < 22; field++) {
        if (field == 20)
            stat->threads = strtol(at, NULL, 10);
        at = strchr(at, ' ');
        if (!at)
            return false;
        at++;
    }
    stat->start_time = strtoull(at, NULL, 10);
    return true;
}

static bool read_stat(const char *process, struct process_stat *stat)
{
    char text[1024];
    int fd = open_proc(process, "stat");
    ssize_t got;

    if (fd < 0)
        return false;
    do
        got = read(fd, text, sizeof(text) - 1);
    while (got < 0 && errno == EINTR);
    close(fd);
    if (got <= 0)
        return false;
    text[got] = 0;
    return parse_stat(text, stat);
}

static uint64_t own_pid_namespace(void)
{
    struct stat found;

    return stat("/proc/self/ns/pid", &found) == 0 ? found.st_ino : 0;
}

struct hami_identity hami_identity(void)
{
    struct process_stat stat = {0};

    read_stat("self", &stat);
    return (struct hami_identity){
        .pid = (uint32_t)getpid(),
        .start_time = stat.start_time,
        .pid_namespace = own_pid_namespace(),
    };
}

/* A line of /proc/<pid>/maps: "start-end perms offset MAJOR:MINOR INODE path". */
struct mapping {
    uintptr_t start, end;
    unsigned long device_major, device_minor;
    unsigned long long inode;
};

static bool parse_mapping(const char *line, struct mapping *mapping)
{
    char *at;

    mapping->start = strtoul(line, &at, 16);
    if (*at != '-')
        return false;
    mapping->end = strtoul(at + 1, &at, 16);
    for (int field = 1; field < 4; field++) {
        at = strchr(at, ' ');
        if (!at)
            return false;
        at++;
    }
    mapping->device_major = strtoul(at, &at, 16);
    if (*at != ':')
        return false;
    mapping->device_minor = strtoul(at + 1, &at, 16);
    mapping->inode = strtoull(at, NULL, 10);
    return true;
}

enum found { FOUND, NOT_FOUND, NOTHING_MAPPED, UNREADABLE };

/* The mapping that holds `address`; of the same file as `wanted` where that is given. */
static enum found find_mapping(const char *process, const void *address,
                               const struct mapping *wanted, struct mapping *found)
{
    char text[4096 + 1];
    size_t length = 0;
    int fd = open_proc(process, "maps");
    enum found result = fd < 0 ? UNREADABLE : NOTHING_MAPPED;
    bool rest = false; /* of a line that was too long to hold */

    while (result == NOTHING_MAPPED || result == NOT_FOUND) {
        ssize_t got = read(fd, text + length, sizeof(text) - 1 - length);
        char *line = text, *end;

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            result = UNREADABLE;
        if (got <= 0)
            break;
        result = NOT_FOUND;
        length += (size_t)got;
        text[length] = 0;
        while (result == NOT_FOUND && ((end = strchr(line, '\n')) != NULL ||
                                       (line == text && length == sizeof(text) - 1))) {
            if (end)
                *end = 0;
            if (!rest && parse_mapping(line, found) &&
                (wanted ? found->inode == wanted->inode &&
                              found->device_major == wanted->device_major &&
                              found->device_minor == wanted->device_minor
                        : found->start <= (uintptr_t)address && (uintptr_t)address < found->end))
                result = FOUND;
            rest = !end;
            line = end ? end + 1 : text + length;
        }
        length -= (size_t)(line - text);
        memmove(text, line, length);
    }
    if (fd >= 0)
        close(fd);
    return result;
}

/* True also where we may not look. What stat says of a file and what maps says of its mapping are
 * not the same on every filesystem, so maps is compared with maps. A process that maps nothing at
 * all is on its way out: it has closed its files, but the driver may not be done with them. */
static bool may_map(const char *process, const void *region)
{
    struct mapping own, found;

    return find_mapping("self", region, NULL, &own) != FOUND ||
           find_mapping(process, NULL, &own, &found) != NOT_FOUND;
}

bool hami_is_alive(const struct hami_identity *who, const void *region)
{
    struct process_stat stat;
    char name[24];

    if (who->pid_namespace != own_pid_namespace())
        return false;
    if (who->pid == 0 || who->pid > INT32_MAX || (kill((pid_t)who->pid, 0) != 0 && errno == ESRCH))
        return false;
    snprintf(name, sizeof(name), "%u", who->pid);
    if (!read_stat(name, &stat))
        return true;
    if (who->start_time != 0 && stat.start_time != who->start_time)
        return false;
    /* A zombie has given back everything; but a zombie first thread may have living siblings. */
    if ((stat.state == 'Z' || stat.state == 'X') && stat.threads <= 1)
        return false;
    /* The process that took the slot keeps its number and start over exec, its memory it does not.
     * If it is us, it was before an exec as well: this image has no slot yet, or another one. */
    if (who->pid == (uint32_t)getpid())
        return false;
    return may_map(name, region);
}
