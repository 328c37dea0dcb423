/* A process beside ours that has device memory to share: snippets open and import what it has. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "matrix.h"

static int peer_socket = -1;
static pid_t peer_process;

static bool send_gifts(int socket, const struct gifts *gifts)
{
    char control[CMSG_SPACE(2 * sizeof(int))] __attribute__((aligned(8))) = {0};
    struct iovec data = {.iov_base = (void *)gifts, .iov_len = sizeof(*gifts)};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof(control)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);

    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(2 * sizeof(int));
    memcpy(CMSG_DATA(head), (int[]){gifts->pool, gifts->physical}, 2 * sizeof(int));
    return sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)sizeof(*gifts);
}

bool matrix_peer_gifts(struct gifts *gifts)
{
    char control[CMSG_SPACE(2 * sizeof(int))] __attribute__((aligned(8)));
    struct iovec data = {.iov_base = gifts, .iov_len = sizeof(*gifts)};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof(control)};
    struct cmsghdr *head;

    if (recvmsg(peer_socket, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*gifts))
        return false;
    head = CMSG_FIRSTHDR(&message);
    if (!head || head->cmsg_len != CMSG_LEN(2 * sizeof(int)))
        return false;
    memcpy(&gifts->pool, CMSG_DATA(head), sizeof(int));
    memcpy(&gifts->physical, CMSG_DATA(head) + sizeof(int), sizeof(int));
    return true;
}

static bool make_gifts(struct gifts *gifts)
{
    CUmemPoolProps pool_of = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    CUmemoryPool pool;
    CUcontext context;

    return cuInit(0) == CUDA_SUCCESS &&
           cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
           cuCtxSetCurrent(context) == CUDA_SUCCESS &&
           cuMemAlloc_v2(&address, BYTES) == CUDA_SUCCESS &&
           cuIpcGetMemHandle(&gifts->memory, address) == CUDA_SUCCESS &&
           cuMemPoolCreate(&pool, &pool_of) == CUDA_SUCCESS &&
           cuMemPoolExportToShareableHandle(&gifts->pool, pool,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                            0) == CUDA_SUCCESS &&
           cuMemAllocFromPoolAsync(&address, BYTES, pool, NULL) == CUDA_SUCCESS &&
           cuStreamSynchronize(NULL) == CUDA_SUCCESS &&
           cuMemPoolExportPointer(&gifts->in_pool, address) == CUDA_SUCCESS &&
           cuMemCreate(&handle, GRANULE, &properties, 0) == CUDA_SUCCESS &&
           cuMemExportToShareableHandle(&gifts->physical, handle,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                        0) == CUDA_SUCCESS;
}

static void be_the_peer(int socket)
{
    struct gifts gifts = {.pool = -1, .physical = -1};
    char end;

    if (!make_gifts(&gifts) || !send_gifts(socket, &gifts))
        _exit(1);
    while (read(socket, &end, 1) < 0 && errno == EINTR)
        ;
    _exit(0);
}

bool matrix_peer_start(void)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return false;
    peer_process = fork();
    if (peer_process == 0) {
        close(ends[0]);
        be_the_peer(ends[1]);
    }
    close(ends[1]);
    peer_socket = ends[0];
    return peer_process > 0;
}

/* Children that we forked meanwhile hold the socket too, so that its end is not enough. */
void matrix_peer_end(void)
{
    int status;

    close(peer_socket);
    kill(peer_process, SIGKILL);
    waitpid(peer_process, &status, 0);
}
