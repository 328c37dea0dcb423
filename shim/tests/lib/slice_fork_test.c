/* How a child comes to its slice, and leaves its parent's alone. links: lib/slice/slice.c lib/slice/follow.c lib/slice/files.c lib/slice/devices.c lib/slice/env.c lib/slice/process.c lib/base/log.c lib/base/reset.c */
#include "slice_fixture.h"

static bool all_zero(void)
{
    const unsigned char *at = (const unsigned char *)hami_process;

    for (size_t i = 0; i < sizeof(hami_process); i++)
        if (at[i])
            return false;
    return true;
}

/* What a forked child must be: nobody, whose own attaching leaves the parent's slot alone. */
static int as_a_child(void)
{
    int before;

    if (!all_zero() || hami_mode() != HAMI_MODE_UNKNOWN)
        return 1;
    before = descriptors();
    resets = 0;
    if (hami_attach() != HAMI_MODE_SLICE || hami_process->slot != 1 || resets != PARTS)
        return 2;
    if (descriptors() != before) /* one closed, one opened */
        return 3;
    if (!held(in_folder("slice/usage"), 0) || !held(in_folder("slice/usage"), 1))
        return 4;
    return hami_limits()->revision == 1 ? 0 : 5;
}

static void a_forked_child_is_nobody(void)
{
    pid_t child;

    mount_slice();
    EXPECT(hami_attach() == HAMI_MODE_SLICE && hami_process->slot == 0);
    child = fork();
    if (child == 0)
        _exit(as_a_child());
    EXPECT(status_of(child) == 0);
    EXPECT(hami_mode() == HAMI_MODE_SLICE && hami_process->slot == 0);
    EXPECT(held(in_folder("slice/usage"), 0) && !held(in_folder("slice/usage"), 1));
}

static void so_is_one_of_a_raw_clone(void)
{
    pid_t child;

    mount_slice();
    EXPECT(hami_attach() == HAMI_MODE_SLICE);
    child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0)
        syscall(SYS_exit_group, all_zero() ? 0 : 1);
    EXPECT(status_of(child) == 0);
    EXPECT(hami_mode() == HAMI_MODE_SLICE);
}

static void so_is_one_on_an_old_kernel(void)
{
    old_kernel = true;
    a_forked_child_is_nobody();
}

/* A daemon closes every descriptor that it does not know, and opens its own. */
static void a_descriptor_that_became_another_file_is_not_closed(void)
{
    pid_t child;
    int fd;

    mount_slice();
    EXPECT(hami_attach() == HAMI_MODE_SLICE);
    fd = hami_process->usage_fd;
    child = fork();
    if (child == 0) {
        if (dup2(open(in_folder("slice/limits"), O_RDONLY | O_CLOEXEC), fd) != fd)
            _exit(9);
        if (hami_attach() != HAMI_MODE_SLICE || fcntl(fd, F_GETFD) < 0)
            _exit(1);
        _exit(hami_process->usage_fd != fd ? 0 : 2);
    }
    EXPECT(status_of(child) == 0);
}

/* A fork in the middle of another thread's attaching leaves the child free to attach. */
static void a_lock_held_at_the_fork_holds_nobody(void)
{
    pid_t child;

    mount_slice();
    EXPECT(hami_attach_reader() == HAMI_MODE_SLICE);
    hami_lock(&hami_process->attaching);
    child = fork();
    if (child == 0) {
        alarm(10);
        _exit(hami_attach() == HAMI_MODE_SLICE ? 0 : 1);
    }
    EXPECT(status_of(child) == 0);
    hami_unlock(&hami_process->attaching);
}

int main(void)
{
    if (!begin())
        return 1;
    RUN(a_forked_child_is_nobody);
    RUN(so_is_one_of_a_raw_clone);
    RUN(so_is_one_on_an_old_kernel);
    RUN(a_descriptor_that_became_another_file_is_not_closed);
    RUN(a_lock_held_at_the_fork_holds_nobody);
    return end();
}
