/* Connections of simulated drivers: what they say, and that they die at any time. */
#include "daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#define F_SEAL_SEAL 1
#define F_SEAL_SHRINK 2
#define F_SEAL_GROW 4
#endif

bool clients_listen(struct daemon *daemon)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    unlink("socket");
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        listen(fd, 512) < 0)
        return false;
    daemon->socket = fd;
    return true;
}

void clients_accept(struct daemon *daemon)
{
    int fd = accept4(daemon->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct ucred who = {0};
    socklen_t size = sizeof(who);
    struct client *client;
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};

    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE)
            daemon_say(NULL, "no descriptor left for another client");
        return;
    }
    client = calloc(1, sizeof(*client));
    event.data.ptr = client;
    if (!client || epoll_ctl(daemon->epoll, EPOLL_CTL_ADD, fd, &event) < 0) {
        free(client);
        close(fd);
        return;
    }
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size);
    client->fd = fd;
    client->pid = (uint32_t)who.pid;
    client->id = ++daemon->client_serial;
    client->next = daemon->clients;
    if (client->next)
        client->next->previous = client;
    daemon->clients = client;
    daemon->client_count++;
}

struct seat *clients_seat(struct daemon *daemon, struct client *client, int unit)
{
    const struct sim_board_unit *shown;
    struct seat *seat;

    if (unit < 0 || unit >= SIM_MAX_UNITS)
        return NULL;
    shown = &daemon->board->units[unit];
    if (shown->kind == SIM_UNIT_ABSENT || shown->mig)
        return NULL;
    if (client->seats[unit])
        return client->seats[unit];
    seat = calloc(1, sizeof(*seat));
    if (!seat)
        return NULL;
    seat->client = client;
    seat->unit = unit;
    seat->holding = ledger_holding(client->tenant, unit);
    if (!seat->holding) {
        free(seat);
        return NULL;
    }
    board_row_take(daemon, seat);
    client->seats[unit] = seat;
    return seat;
}

/* ---- Hello ---- */

/* Sealed, so that no client can cut off what the daemon has mapped. By its number: the C library
 * that the wheel is built for has no memfd_create. */
static int make_shared(struct client *client)
{
    int fd = (int)syscall(SYS_memfd_create, "hami-sim", 1U | 2U); /* close on exec, sealable */
    void *found = MAP_FAILED;

    if (fd >= 0 && ftruncate(fd, sizeof(struct sim_shared)) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        found = mmap(NULL, sizeof(struct sim_shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (found == MAP_FAILED) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    client->shared = found;
    client->shared->retired.wanted = NEVER;
    return fd;
}

static bool greet(struct daemon *daemon, struct client *client, const struct sim_hello *hello)
{
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control = {.bytes = {0}};
    struct sim_welcome welcome = {.answer = {SIM_OK, hello->header.serial},
                                  .protocol = SIM_PROTOCOL,
                                  .shared_size = sizeof(struct sim_shared),
                                  .client = client->id};
    struct iovec from = {.iov_base = &welcome, .iov_len = sizeof(welcome)};
    struct msghdr message = {.msg_iov = &from,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    int passed[2];
    bool sent;

    if (client->greeted || hello->protocol != SIM_PROTOCOL ||
        !memchr(hello->tenant, 0, sizeof(hello->tenant)))
        return false;
    client->tenant = ledger_tenant(daemon, hello->tenant);
    passed[0] = client->tenant ? make_shared(client) : -1;
    if (passed[0] < 0)
        return false;
    passed[1] = daemon->bell;
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(passed));
    memcpy(CMSG_DATA(part), passed, sizeof(passed));
    sent = sendmsg(client->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(welcome);
    close(passed[0]);
    client->greeted = sent;
    return sent;
}

/* ---- Questions ---- */

static void reply_to(struct daemon *daemon, struct client *client, const struct sim_ask *ask,
                     struct sim_reply *reply)
{
    int unit = ask->unit;
    uint64_t id = 0, bytes = 0;
    uint32_t status;

    switch (ask->header.op) {
    case SIM_OP_TAKE:
        status = ledger_take(daemon, client, unit, ask->kind, ask->bytes, &id);
        break;
    case SIM_OP_GIVE:
        status = ledger_give(daemon, client, ask->id);
        break;
    case SIM_OP_SHARE:
        status = ledger_share(daemon, client, ask->id, &id, &unit, &bytes);
        break;
    case SIM_OP_QUEUE:
        status = rings_bind(daemon, client, ask->id, unit);
        break;
    default:
        status = rings_release(daemon, client, ask->id, ask->bytes, ask->at_ns);
        break;
    }
    reply->answer.status = status;
    reply->id = id;
    reply->unit = unit;
    reply->bytes = bytes;
}

static bool answer(struct daemon *daemon, struct client *client, const void *message, size_t length)
{
    const struct sim_header *header = message;
    _Alignas(8) char out[SIM_MESSAGE_MAX];
    struct sim_answer *status = (struct sim_answer *)out;
    size_t size = sizeof(out) - sizeof(*status);

    if (length < sizeof(*header))
        return false;
    if (header->op == SIM_OP_HELLO)
        return length == sizeof(struct sim_hello) && greet(daemon, client, message);
    if (!client->greeted)
        return false;
    /* What was submitted before the question was asked comes before it. */
    rings_drain_client(daemon, client, daemon_now());
    if (client->fd < 0)
        return true;
    if (header->op >= SIM_OP_NVML) {
        status->status = nvml_request(daemon, client, header->op, header + 1,
                                      length - sizeof(*header), status + 1, &size);
        size += sizeof(*status);
    } else if (header->op > SIM_OP_HELLO && header->op <= SIM_OP_RELEASE &&
               length == sizeof(struct sim_ask)) {
        memset(out, 0, sizeof(struct sim_reply));
        reply_to(daemon, client, message, (struct sim_reply *)out);
        size = sizeof(struct sim_reply);
    } else {
        return false;
    }
    status->serial = header->serial;
    return send(client->fd, out, size, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)size;
}

/* It ended since the loop last looked, which will see that at its next look, and judge when. */
static bool has_ended(const struct client *client)
{
    struct pollfd look = {.fd = client->fd};

    return client->fd >= 0 && poll(&look, 1, 0) == 1 && (look.revents & POLLHUP);
}

void clients_message(struct daemon *daemon, struct client *client)
{
    _Alignas(8) char message[SIM_MESSAGE_MAX];
    ssize_t length;

    if (client->fd < 0)
        return;
    length = recv(client->fd, message, sizeof(message), MSG_DONTWAIT | MSG_TRUNC);
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (length > 0 && (size_t)length <= sizeof(message) &&
        answer(daemon, client, message, (size_t)length))
        return;
    if (has_ended(client))
        return;
    if (length > 0)
        daemon_say(client, "a message of %zd bytes that makes no sense", length);
    clients_drop(daemon, client, daemon_now());
}

/* ---- The end ---- */

void clients_drop(struct daemon *daemon, struct client *client, uint64_t gone_ns)
{
    if (client->fd < 0)
        return;
    close(client->fd);
    client->fd = -1;
    client->free_ns = gone_ns + daemon->settings.free_delay_ns;
    nvml_gone(daemon, client);
    schedule_account(daemon, daemon_now()); /* what ran until now did run */
    rings_client_gone(daemon, client);
}

static void forget(struct daemon *daemon, struct client *client)
{
    ledger_client_gone(daemon, client);
    for (int i = 0; i < SIM_MAX_UNITS; i++) {
        if (!client->seats[i])
            continue;
        board_row_drop(daemon, client->seats[i]);
        free(client->seats[i]);
    }
    if (client->shared)
        munmap(client->shared, sizeof(*client->shared));
    if (client->previous)
        client->previous->next = client->next;
    else
        daemon->clients = client->next;
    if (client->next)
        client->next->previous = client->previous;
    daemon->client_count--;
    free(client);
}

uint64_t clients_reap(struct daemon *daemon, uint64_t now)
{
    uint64_t soonest = NEVER;
    struct client *next, *client = daemon->clients;

    for (; client; client = next) {
        next = client->next;
        if (client->fd >= 0)
            continue;
        if (client->free_ns <= now)
            forget(daemon, client);
        else if (client->free_ns < soonest)
            soonest = client->free_ns;
    }
    return soonest;
}
