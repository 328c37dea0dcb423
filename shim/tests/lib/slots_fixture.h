/* What the tests of slots have in common. */
#ifndef HAMI_TESTS_SLOTS_FIXTURE_H
#define HAMI_TESTS_SLOTS_FIXTURE_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "fake_slice.h"
#include "slice/alive.h"

static inline bool take(struct hami_process *process)
{
    process->usage_fd = fake_open();
    process->usage = fake_map();
    return hami_slot_take(process);
}

/* Something for a child to do once it holds a slot. */
typedef void child_act(void);

struct child {
    pid_t pid;
    uint32_t slot;
    int say; /* closed: go on */
};

static inline struct child start_child(uint64_t charge, child_act *act)
{
    int up[2], down[2];
    struct child child;

    need(pipe(up) == 0 && pipe(down) == 0, "pipe");
    child.pid = fork();
    need(child.pid >= 0, "fork");
    if (child.pid == 0) {
        char byte;

        close(down[1]);
        memset(hami_process, 0, sizeof(hami_process[0]));
        if (!fake_attach() || !hami_charge(0, charge))
            _exit(3);
        if (act)
            act();
        if (write(up[1], &hami_process->slot, sizeof(hami_process->slot)) < 0)
            _exit(4);
        close(up[1]);
        if (read(down[0], &byte, 1) < 0)
            _exit(5);
        _exit(0);
    }
    close(up[1]);
    close(down[0]);
    need(read(up[0], &child.slot, sizeof(child.slot)) == sizeof(child.slot), "child");
    close(up[0]);
    child.say = down[1];
    return child;
}

static inline void kill_child(struct child *child)
{
    kill(child->pid, SIGKILL);
    waitpid(child->pid, NULL, 0);
    close(child->say);
}

/* What a dead process had is free when the driver has had time to take it back. */
static inline void recover_after_a_moment(void)
{
    struct timespec pause = {.tv_nsec = 5000000};

    for (int i = 0; i < 200 && hami_slots_recover(0); i++)
        nanosleep(&pause, NULL);
}

#endif
