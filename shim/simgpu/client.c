/* The connection to the daemon: made once per process, lost by a forked child, whose inherited
 * socket only keeps the parent's memory in the ledger. */
#include "connection.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
#define ANSWER_SECONDS 20 /* a daemon that says nothing for so long is taken for dead */

static struct sim_page before_any;
struct sim_process *sim_process = &before_any.process;
static _Atomic(const struct sim_board *) board;
static pthread_once_t page_once = PTHREAD_ONCE_INIT;

static void wipe_in_the_child(void)
{
    memset((void *)sim_process, 0, sizeof(struct sim_page));
}

static void make_page(void)
{
    void *found = mmap(NULL, sizeof(struct sim_page), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (found == MAP_FAILED) {
        found = &before_any;
        pthread_atfork(NULL, NULL, wipe_in_the_child);
    } else if (madvise(found, sizeof(struct sim_page), MADV_WIPEONFORK) < 0) {
        pthread_atfork(NULL, NULL, wipe_in_the_child);
    }
    sim_process = found;
}

struct sim_page *sim_page(void)
{
    pthread_once(&page_once, make_page);
    return (struct sim_page *)sim_process;
}

uint64_t sim_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- Knobs ---- */

uint64_t sim_knob(const char *name, uint64_t otherwise)
{
    static struct {
        char name[32];
        uint64_t value;
        bool set;
    } known[64];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static size_t count;
    char variable[48];
    const char *value;
    uint64_t found = otherwise;
    size_t i;

    pthread_mutex_lock(&lock);
    for (i = 0; i < count && strcmp(known[i].name, name) != 0; i++)
        ;
    if (i < count) {
        found = known[i].set ? known[i].value : otherwise;
    } else {
        snprintf(variable, sizeof(variable), "HAMI_SIM_%s", name);
        value = getenv(variable);
        if (value && *value)
            found = strtoull(value, NULL, 10);
        if (count < sizeof(known) / sizeof(known[0]) && strlen(name) < sizeof(known[0].name)) {
            strcpy(known[count].name, name);
            known[count].value = found;
            known[count++].set = value && *value;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* ---- Messages ---- */

/* Programs close their standard streams; a socket must not become one. */
static int above_standard(int fd)
{
    int higher;

    if (fd < 0 || fd > 2)
        return fd;
    higher = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    close(fd);
    return higher;
}

/* Descriptors that came with an answer; there are at most two. */
static void take_descriptors(struct msghdr *message, int found[2])
{
    found[0] = found[1] = -1;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS &&
            part->cmsg_len == CMSG_LEN(2 * sizeof(int)))
            memcpy(found, CMSG_DATA(part), 2 * sizeof(int));
    }
}

static bool exchange(int fd, const void *question, size_t length, void *answer, size_t *size,
                     int descriptors[2])
{
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec into = {.iov_base = answer, .iov_len = *size};
    struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1};
    ssize_t got;

    if (descriptors) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
    }
    do
        got = send(fd, question, length, MSG_NOSIGNAL);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return false;
    do
        got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (descriptors)
        take_descriptors(&message, descriptors);
    if (got < (ssize_t)sizeof(struct sim_answer) || (message.msg_flags & MSG_TRUNC) != 0)
        return false;
    *size = (size_t)got;
    return true;
}

bool sim_exchange(struct sim_page *page, struct sim_header *question, size_t length, void *answer,
                  size_t *size)
{
    static _Atomic uint32_t serial;
    bool done;

    pthread_mutex_lock(&page->asking);
    question->serial = ++serial;
    done = !page->broken && page->process.socket > 0 &&
           exchange(page->process.socket, question, length, answer, size, NULL) &&
           ((struct sim_answer *)answer)->serial == question->serial;
    /* An answer that comes late would be taken for the next one's. */
    if (!done)
        page->broken = true;
    pthread_mutex_unlock(&page->asking);
    return done;
}

CUresult sim_ask(struct sim_ask *ask, struct sim_reply *reply)
{
    size_t size = sizeof(*reply);

    memset(reply, 0, sizeof(*reply));
    if (!sim_process->ready)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!sim_exchange(sim_page(), &ask->header, sizeof(*ask), reply, &size) ||
        size != sizeof(*reply))
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    switch (reply->answer.status) {
    case SIM_OK:
        return CUDA_SUCCESS;
    case SIM_FULL:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case SIM_UNKNOWN:
        return CUDA_ERROR_INVALID_HANDLE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult sim_request(uint32_t op, const void *body, size_t length, uint32_t *status, void *answer,
                     size_t *size)
{
    struct sim_page *page = sim_page();
    _Alignas(8) char question[SIM_MESSAGE_MAX];
    _Alignas(8) char reply[SIM_MESSAGE_MAX];
    struct sim_header *header = (struct sim_header *)question;
    size_t got = sizeof(reply);

    if (length > sizeof(question) - sizeof(*header))
        return CUDA_ERROR_INVALID_VALUE;
    if (page->process.socket <= 0)
        return CUDA_ERROR_NOT_INITIALIZED;
    header->op = op;
    if (length > 0)
        memcpy(header + 1, body, length);
    if (!sim_exchange(page, header, sizeof(*header) + length, reply, &got))
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    *status = ((struct sim_answer *)reply)->status;
    got -= sizeof(struct sim_answer);
    if (size) {
        *size = got < *size ? got : *size;
        if (*size > 0)
            memcpy(answer, reply + sizeof(struct sim_answer), *size);
    }
    return CUDA_SUCCESS;
}

bool sim_alive(struct sim_page *page)
{
    struct pollfd asked = {.fd = page->process.socket, .events = POLLRDHUP};

    if (page->broken)
        return false;
    if (poll(&asked, 1, 0) > 0 && (asked.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0)
        page->broken = true;
    return !page->broken;
}

/* ---- Connecting ---- */

/* Paths of sockets are short, those of tests long: through a descriptor of the directory where the
 * name does not fit. */
static int connect_in(const char *directory)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd, folder = -1, failed;

    if (strlen(directory) + sizeof("/socket") <= sizeof(address.sun_path)) {
        snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", directory);
    } else {
        folder = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (folder < 0)
            return -1;
        snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/socket", folder);
    }
    fd = above_standard(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    do
        failed = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0;
    while (failed && errno == EINTR);
    if (folder >= 0)
        close(folder);
    if (failed) {
        close(fd);
        return -1;
    }
    return fd;
}

static const struct sim_board *map_board(const char *directory)
{
    const struct sim_board *found = atomic_load(&board);
    char path[4096];
    struct stat status;
    int fd;

    if (found)
        return found;
    if (snprintf(path, sizeof(path), "%s/board", directory) >= (int)sizeof(path))
        return NULL;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    if (fstat(fd, &status) == 0 && (size_t)status.st_size >= sizeof(*found)) {
        void *at = mmap(NULL, sizeof(*found), PROT_READ, MAP_SHARED, fd, 0);

        found = at == MAP_FAILED ? NULL : at;
    }
    close(fd);
    if (!found || found->magic != SIM_BOARD_MAGIC || found->version != SIM_BOARD_VERSION ||
        found->size != sizeof(*found))
        return NULL;
    atomic_store(&board, found);
    return found;
}

/* Say hello and map what comes with the welcome. */
static bool welcome(struct sim_page *page, int fd)
{
    struct timeval patience = {.tv_sec = ANSWER_SECONDS};
    struct sim_hello hello = {.header = {.op = SIM_OP_HELLO}, .protocol = SIM_PROTOCOL};
    const char *tenant = getenv("HAMI_SIM_TENANT");
    struct sim_welcome answer;
    size_t size = sizeof(answer);
    int passed[2] = {-1, -1};
    void *shared = MAP_FAILED;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    snprintf(hello.tenant, sizeof(hello.tenant), "%s", tenant ? tenant : "");
    if (exchange(fd, &hello, sizeof(hello), &answer, &size, passed) && size == sizeof(answer) &&
        answer.answer.status == SIM_OK && answer.protocol == SIM_PROTOCOL &&
        answer.shared_size == sizeof(struct sim_shared) && passed[0] >= 0)
        shared = mmap(NULL, sizeof(struct sim_shared), PROT_READ | PROT_WRITE, MAP_SHARED,
                      passed[0], 0);
    if (passed[0] >= 0)
        close(passed[0]);
    if (shared == MAP_FAILED) {
        if (passed[1] >= 0)
            close(passed[1]);
        return false;
    }
    page->process.shared = shared;
    page->bell = above_standard(passed[1]);
    return true;
}

CUresult sim_open(struct sim_page *page)
{
    const char *directory = getenv("HAMI_SIM_DIR");
    int fd;

    if (page->process.socket > 0)
        return CUDA_SUCCESS;
    if (!directory || !*directory || !map_board(directory))
        return CUDA_ERROR_NO_DEVICE;
    fd = connect_in(directory);
    if (fd < 0)
        return CUDA_ERROR_NO_DEVICE;
    if (!welcome(page, fd)) {
        close(fd);
        return CUDA_ERROR_NO_DEVICE;
    }
    page->process.socket = fd;
    return CUDA_SUCCESS;
}

CUresult sim_watch(void)
{
    struct sim_page *page = sim_page();
    CUresult result;

    pthread_mutex_lock(&page->connecting);
    result = sim_open(page);
    pthread_mutex_unlock(&page->connecting);
    return result;
}

/* ---- The board ---- */

const struct sim_board *sim_board(void)
{
    return atomic_load_explicit(&board, memory_order_acquire);
}

bool sim_board_read(int unit, struct sim_board_unit *copy)
{
    const struct sim_board *shown = sim_board();

    if (!shown || unit < 0 || unit >= SIM_MAX_UNITS)
        return false;
    for (int tries = 0; tries < 1000; tries++) {
        uint64_t before = atomic_load_explicit(&shown->revision, memory_order_acquire);

        memcpy(copy, &shown->units[unit], sizeof(*copy));
        atomic_thread_fence(memory_order_acquire);
        if ((before & 1) == 0 &&
            atomic_load_explicit(&shown->revision, memory_order_relaxed) == before)
            return copy->kind != SIM_UNIT_ABSENT;
        sched_yield();
    }
    return false;
}

static bool named_in(const char *list, int unit, const struct sim_board_unit *shown)
{
    char copy[4096], *rest = copy, *word;

    snprintf(copy, sizeof(copy), "%s", list);
    while ((word = strsep(&rest, ",")) != NULL) {
        char *end;
        long number = strtol(word, &end, 10);

        if (end != word && *end == '\0' ? number == unit : strcmp(word, shown->uuid) == 0)
            return true;
    }
    return false;
}

int sim_container_units(int units[SIM_MAX_UNITS])
{
    const char *list = getenv("HAMI_SIM_VISIBLE");
    bool named[SIM_MAX_UNITS] = {false}, has[SIM_MAX_UNITS] = {false};
    struct sim_board_unit unit;
    int count = 0;

    for (int i = 0; i < SIM_MAX_UNITS; i++) {
        if (!sim_board_read(i, &unit))
            continue;
        named[i] = !list || named_in(list, i, &unit);
        has[i] = named[i] || named[unit.card];
        if (has[i])
            has[unit.card] = true;
    }
    for (int i = 0; i < SIM_MAX_UNITS; i++)
        if (has[i])
            units[count++] = i;
    return count;
}
