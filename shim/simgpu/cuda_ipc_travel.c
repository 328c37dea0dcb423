/* What leaves a process in a file descriptor. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "memory_vmm.h"
#include "protocol.h"

#define MAGIC UINT64_C(0x6c657661726d6973)
#define PATIENCE_MS 20000

/* ---- A share of memory in the ledger ---- */

/* Names of sockets are short: by way of the directory. */
static int connect_to(const char *directory)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int folder = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = folder < 0 ? -1 : socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    bool connected = false;

    if (fd >= 0) {
        snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/socket", folder);
        connected = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
    }
    if (folder >= 0)
        close(folder);
    if (!connected && fd >= 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* The answer comes with descriptors, which are not wanted here: received without room for them they
 * are closed. */
static bool greet(int fd)
{
    struct sim_hello hello = {.header = {.op = SIM_OP_HELLO}, .protocol = SIM_PROTOCOL};
    const char *tenant = getenv("HAMI_SIM_TENANT");
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    struct sim_welcome welcome;

    snprintf(hello.tenant, sizeof(hello.tenant), "%s", tenant ? tenant : "");
    return send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) == (ssize_t)sizeof(hello) &&
           poll(&ready, 1, PATIENCE_MS) == 1 &&
           recv(fd, &welcome, sizeof(welcome), 0) == (ssize_t)sizeof(welcome) &&
           welcome.answer.status == SIM_OK;
}

/* The daemon's answer is left unread: it is what the descriptor tells whoever gets it. */
static bool answered(int fd, uint64_t *id, int wait_ms)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    struct sim_reply reply;

    if (poll(&ready, 1, wait_ms) != 1 ||
        recv(fd, &reply, sizeof(reply), MSG_PEEK | MSG_DONTWAIT) != (ssize_t)sizeof(reply) ||
        reply.answer.status != SIM_OK)
        return false;
    *id = reply.id;
    return true;
}

int sim_travel_share(uint64_t *id)
{
    struct sim_ask ask = {.header = {.op = SIM_OP_SHARE}, .id = *id};
    const char *directory = getenv("HAMI_SIM_DIR");
    int fd = directory ? connect_to(directory) : -1;

    if (fd < 0)
        return -1;
    if (greet(fd) && send(fd, &ask, sizeof(ask), MSG_NOSIGNAL) == (ssize_t)sizeof(ask) &&
        answered(fd, id, PATIENCE_MS))
        return fd;
    close(fd);
    return -1;
}

bool sim_travel_shared(int fd, uint64_t *id)
{
    struct stat status;
    int type;
    socklen_t size = sizeof(type);

    return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET &&
           answered(fd, id, 0);
}

/* ---- A description ---- */

int sim_travel_send(const struct sim_travelling *what)
{
    struct sim_travelling sent = *what;
    int fd = (int)syscall(SYS_memfd_create, "simulated memory", 1u /* close on exec */);

    sent.magic = MAGIC;
    sent.pid = (int32_t)getpid();
    if (fd >= 0 && pwrite(fd, &sent, sizeof(sent), 0) != (ssize_t)sizeof(sent)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

bool sim_travel_receive(int fd, struct sim_travelling *what)
{
    struct stat status;

    return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
           pread(fd, what, sizeof(*what), 0) == (ssize_t)sizeof(*what) && what->magic == MAGIC;
}
