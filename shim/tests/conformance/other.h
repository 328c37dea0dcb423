/* A second process for checks about sharing: this program once more, started with `--other KIND`,
 * which does what it is told over a socket. */
#ifndef HAMI_CONFORMANCE_OTHER_H
#define HAMI_CONFORMANCE_OTHER_H

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"

struct other {
    pid_t pid;
    int socket;
};

/* What goes over the socket in both directions, with a descriptor or without (-1). */
struct message {
    int result; /* CUresult of what was asked for */
    unsigned char bytes[64];
    size_t size;
};

static bool send_message(int socket, const struct message *message, int fd)
{
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)message, .iov_len = sizeof(*message)};
    struct msghdr whole = {.msg_iov = &part, .msg_iovlen = 1};

    if (fd >= 0) {
        struct cmsghdr *head;

        whole.msg_control = control;
        whole.msg_controllen = sizeof(control);
        head = CMSG_FIRSTHDR(&whole);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &fd, sizeof(int));
    }
    return sendmsg(socket, &whole, MSG_NOSIGNAL) == (ssize_t)sizeof(*message);
}

static bool receive_message(int socket, struct message *message, int *fd)
{
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec part = {.iov_base = message, .iov_len = sizeof(*message)};
    struct msghdr whole = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
                           .msg_controllen = sizeof(control)};
    struct cmsghdr *head;

    *fd = -1;
    if (recvmsg(socket, &whole, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*message))
        return false;
    head = CMSG_FIRSTHDR(&whole);
    if (head && head->cmsg_type == SCM_RIGHTS)
        memcpy(fd, CMSG_DATA(head), sizeof(int));
    return true;
}

static bool start_other(const char *kind, struct other *other)
{
    char number[16];
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0)
        return false;
    snprintf(number, sizeof(number), "%d", pair[1]);
    other->socket = pair[0];
    other->pid = fork();
    if (other->pid == 0) {
        close(pair[0]);
        execl("/proc/self/exe", "other", "--other", kind, number, (char *)NULL);
        _exit(127);
    }
    close(pair[1]);
    return other->pid > 0;
}

/* Ask and take the answer; -1: the other process is gone. */
static int ask_other(struct other *other, struct message *message, int fd, int *answered_fd)
{
    int unwanted = -1;
    bool done = send_message(other->socket, message, fd) &&
                receive_message(other->socket, message, answered_fd ? answered_fd : &unwanted);

    if (unwanted >= 0)
        close(unwanted);
    return done ? message->result : -1;
}

static void end_other(struct other *other, int signal)
{
    if (signal)
        kill(other->pid, signal);
    close(other->socket);
    while (waitpid(other->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    /* What it had is free a little later. */
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
}

static bool comes_back(size_t at_least)
{
    for (int i = 0; i < 1000; i++) {
        if (available() >= at_least)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return false;
}

#endif
