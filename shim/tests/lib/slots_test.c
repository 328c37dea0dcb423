/* Who gets a slot, and when it is free again. links: lib/memory/account.c lib/memory/held.c lib/memory/blocks.c lib/memory/charge.c lib/base/reset.c lib/slice/slots.c lib/slice/slot_words.c lib/slice/alive.c */
#include "slots_fixture.h"

static void let_go(struct hami_process *process)
{
    close(process->usage_fd);
    munmap(process->usage, sizeof(struct hami_usage));
}

static uint64_t generation_of(uint32_t slot)
{
    return atomic_load(&hami_process->usage->slots[slot].generation);
}

static void a_slot_says_who_holds_it(void)
{
    struct hami_slot *slot;
    struct hami_identity self = hami_identity();

    fake_container(1, 100 * MIB);
    EXPECT(fake_attach());
    slot = &hami_process->usage->slots[hami_process->slot];
    EXPECT(hami_process->slot == 0 && hami_process->generation == 1);
    EXPECT(slot->pid == (uint32_t)getpid() && slot->generation == 1 && slot->flags == 0);
    EXPECT(self.start_time != 0 && slot->start_time == self.start_time);
    EXPECT(self.pid_namespace != 0 && slot->pid_namespace == self.pid_namespace);
    hami_slot_flag(HAMI_SLOT_BYPASS);
    hami_slot_flag(HAMI_SLOT_IMPORTS);
    EXPECT(slot->flags == (HAMI_SLOT_BYPASS | HAMI_SLOT_IMPORTS));
    fake_detach();
}

static void a_dead_process_leaves_a_slot_that_is_zeroed_a_moment_later(void)
{
    struct timespec start, end;
    struct child child, next;

    fake_container(2, 100 * MIB);
    EXPECT(fake_attach());
    child = start_child(7 * MIB, NULL);
    EXPECT(child.slot == 1 && hami_charged(0) == 7 * MIB);
    EXPECT(hami_slots_recover(0) == 0);
    EXPECT(hami_charged(0) == 7 * MIB); /* alive */
    kill_child(&child);
    atomic_store(&hami_process->usage->charged[1][1], 3 * MIB);
    clock_gettime(CLOCK_MONOTONIC, &start);
    EXPECT(hami_slots_recover(0) == 7 * MIB && hami_slots_recover(1) == 3 * MIB);
    EXPECT(hami_charged(0) == 7 * MIB); /* dead, but the driver may not be done */
    /* However long a child takes to start here: for it the moment is not over. */
    atomic_store(&hami_process->usage->slots[1].found_dead_at, UINT64_MAX);
    next = start_child(MIB, NULL);
    EXPECT(next.slot == 2);
    EXPECT(hami_charged(0) == 8 * MIB && hami_charged(1) == 3 * MIB);
    recover_after_a_moment();
    clock_gettime(CLOCK_MONOTONIC, &end);
    EXPECT((end.tv_sec - start.tv_sec) * 1000 + (end.tv_nsec - start.tv_nsec) / 1000000 >= 99);
    EXPECT(hami_charged(0) == MIB && hami_charged(1) == 0);
    EXPECT(hami_process->usage->slots[1].pid == 0 && generation_of(1) == 1);
    kill_child(&next);
    next = start_child(MIB, NULL);
    EXPECT(next.slot == 1 && generation_of(1) == 2);
    kill_child(&next);
    fake_detach();
}

static uint64_t milliseconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Whoever looks first notes the moment for all: the next one does not begin anew. */
static void the_moment_begins_for_all_when_one_notices(void)
{
    struct timespec pause = {.tv_nsec = 120000000};
    struct hami_slot *slot;
    struct child child;
    pid_t other;
    int status;

    fake_container(1, 100 * MIB);
    EXPECT(fake_attach());
    child = start_child(7 * MIB, NULL);
    slot = &hami_process->usage->slots[child.slot];
    kill_child(&child);
    EXPECT(slot->found_dead_at == 0);
    EXPECT(hami_slots_recover(0) == 7 * MIB);
    EXPECT(slot->found_dead_at / 1000000 <= milliseconds_now() &&
           slot->found_dead_at / 1000000 + 1000 > milliseconds_now());
    nanosleep(&pause, NULL);
    other = fork();
    if (other == 0) {
        memset(hami_process, 0, sizeof(hami_process[0]));
        /* Taking a slot looks once. */
        _exit(!fake_attach() || hami_charged(0) != 0 || hami_slots_recover(0) != 0);
    }
    need(waitpid(other, &status, 0) == other, "waitpid");
    EXPECT(status == 0 && hami_charged(0) == 0);
    EXPECT(slot->found_dead_at == 0); /* it took this one */
    fake_detach();
}

/* A time of a former boot, or one that a program of the container made up. */
static void a_moment_that_is_not_there_yet_begins_now(void)
{
    struct timespec pause = {.tv_nsec = 2000000};
    struct child child;
    uint64_t start;

    fake_container(1, 100 * MIB);
    EXPECT(fake_attach());
    for (int shift = 1; shift < 64; shift += 31) {
        child = start_child(7 * MIB, NULL);
        kill_child(&child);
        start = milliseconds_now();
        atomic_store(&hami_process->usage->slots[child.slot].found_dead_at,
                     start * 1000000 + (UINT64_C(1) << 40) + (UINT64_C(1) << shift));
        for (int i = 0; i < 500 && hami_slots_recover(0) != 0; i++)
            nanosleep(&pause, NULL);
        EXPECT(hami_charged(0) == 0);
        EXPECT(milliseconds_now() - start >= 99);
    }
    fake_detach();
}

/* Somebody holds the lock of a slot whose process is dead, as who recovers it does, and never ends. */
static void a_request_does_not_wait_for_ever_for_what_the_dead_had(void)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    struct child child;
    uint64_t start, took;
    int other;

    fake_container(1, 100 * MIB);
    EXPECT(fake_attach());
    child = start_child(90 * MIB, NULL);
    kill_child(&child);
    EXPECT(hami_slots_recover(0) == 90 * MIB);
    other = fake_open();
    lock.l_start = child.slot;
    need(fcntl(other, F_OFD_SETLK, &lock) == 0, "F_OFD_SETLK");
    start = milliseconds_now();
    EXPECT(!hami_charge(0, 20 * MIB));
    took = milliseconds_now() - start;
    EXPECT(took >= 499 && took < 5000);
    close(other);
    EXPECT(hami_charge(0, 20 * MIB));
    fake_detach();
}

/* A recovery that was killed half-way left the time behind. */
static void a_new_holder_is_not_dead(void)
{
    struct child child;

    fake_container(1, 100 * MIB);
    EXPECT(fake_attach());
    atomic_store(&hami_process->usage->slots[1].found_dead_at, 1);
    child = start_child(7 * MIB, NULL);
    EXPECT(child.slot == 1 && hami_process->usage->slots[1].found_dead_at == 0);
    EXPECT(hami_slots_recover(0) == 0 && hami_charged(0) == 7 * MIB);
    kill_child(&child);
    EXPECT(hami_slots_recover(0) == 7 * MIB);
    fake_detach();
}

static void a_dead_process_that_had_nothing_leaves_its_slot_at_once(void)
{
    struct child child;

    fake_container(1, 100 * MIB);
    EXPECT(fake_attach());
    for (uint64_t generation = 1; generation < 4; generation++) {
        child = start_child(0, NULL);
        EXPECT(child.slot == 1 && generation_of(1) == generation);
        kill_child(&child);
    }
    EXPECT(hami_slots_recover(0) == 0);
    EXPECT(hami_process->usage->slots[1].pid == 0);
    fake_detach();
}

static void what_is_expected_is_looked_for_when_it_is_due(void)
{
    struct timespec pause = {.tv_nsec = 110000000};
    struct child child;

    fake_container(1, 100 * MIB);
    EXPECT(fake_attach());
    child = start_child(7 * MIB, NULL);
    kill_child(&child);
    hami_slots_expected(); /* nobody looked yet */
    EXPECT(hami_charged(0) == 7 * MIB);
    hami_slots_recover(0);
    hami_slots_expected();
    EXPECT(hami_charged(0) == 7 * MIB);
    nanosleep(&pause, NULL);
    hami_slots_expected();
    EXPECT(hami_charged(0) == 0);
    fake_detach();
}

static void a_look_for_the_dead_is_taken_once_in_a_while(void)
{
    struct timespec pause = {.tv_nsec = 10000000};
    struct child child;
    int looks = 0, tries = 0;

    fake_container(1, 100 * MIB);
    EXPECT(fake_attach());
    child = start_child(7 * MIB, NULL);
    EXPECT(hami_slots_look());
    EXPECT(!hami_slots_look());
    EXPECT(hami_charged(0) == 7 * MIB);
    kill_child(&child);
    for (; tries < 200 && hami_charged(0) != 0; tries++) {
        looks += hami_slots_look();
        nanosleep(&pause, NULL);
    }
    EXPECT(hami_charged(0) == 0);
    EXPECT(looks >= 2 && looks <= 2 + tries / 10);
    fake_detach();
}

static void a_zombie_holds_nothing(void)
{
    struct child child;
    siginfo_t info;

    fake_container(1, 100 * MIB);
    EXPECT(fake_attach());
    child = start_child(7 * MIB, NULL);
    close(child.say);
    need(waitid(P_PID, (id_t)child.pid, &info, WEXITED | WNOWAIT) == 0, "waitid");
    recover_after_a_moment();
    EXPECT(hami_charged(0) == 0);
    waitpid(child.pid, NULL, 0);
    fake_detach();
}

static void slots_come_to_an_end(void)
{
    static struct hami_process holders[HAMI_MAX_SLOTS + 1];

    fake_container(1, 100 * MIB);
    for (int i = 0; i < HAMI_MAX_SLOTS; i++) {
        EXPECT(take(&holders[i]));
        EXPECT(holders[i].slot == (uint32_t)i);
    }
    EXPECT(!take(&holders[HAMI_MAX_SLOTS]));
    let_go(&holders[77]);
    EXPECT(take(&holders[77]));
    EXPECT(holders[77].slot == 77 && holders[77].generation == 2);
    EXPECT(!hami_slot_take(&holders[HAMI_MAX_SLOTS]));
    for (int i = 0; i <= HAMI_MAX_SLOTS; i++)
        let_go(&holders[i]);
}

static void scribbled_slots_are_survived(void)
{
    static const uint32_t pids[] = {UINT32_MAX, 1, 0x80000000u, 0, 999999999};

    for (size_t i = 0; i < sizeof(pids) / sizeof(pids[0]); i++) {
        fake_container(1, 100 * MIB);
        EXPECT(fake_attach());
        for (uint32_t slot = 1; slot < HAMI_MAX_SLOTS; slot++) {
            memset(&hami_process->usage->slots[slot], 0xff, sizeof(struct hami_slot));
            atomic_store(&hami_process->usage->slots[slot].pid, pids[i]);
            atomic_store(&hami_process->usage->charged[0][slot], UINT64_MAX);
        }
        /* All of them import and export: no one of them lives. */
        EXPECT(hami_charge(0, 100 * MIB));
        EXPECT(hami_charged(0) == 100 * MIB);
        fake_detach();
    }
}

static _Atomic bool stop;

static void *keep_recovering(void *argument)
{
    (void)argument;
    while (!atomic_load(&stop))
        hami_slots_recover(0);
    return NULL;
}

/* Locks do not keep one thread of a process from another: two that recover at once must not zero a
 * slot that a new process has taken in between. */
static void threads_that_recover_do_not_harm_newcomers(void)
{
    pthread_t threads[2];

    fake_container(1, 100 * MIB);
    EXPECT(fake_attach());
    atomic_store(&stop, false);
    for (int i = 0; i < 2; i++)
        need(pthread_create(&threads[i], NULL, keep_recovering, NULL) == 0, "pthread_create");
    for (int i = 0; i < 100; i++) {
        pid_t pid = fork();
        int status;

        if (pid == 0) {
            memset(hami_process, 0, sizeof(hami_process[0]));
            if (!fake_attach() || !hami_charge(0, MIB))
                _exit(3);
            for (int n = 0; n < 3; n++) {
                sched_yield();
                if (hami_charged_here(0) != MIB)
                    _exit(4);
            }
            _exit(0);
        }
        need(waitpid(pid, &status, 0) == pid, "waitpid");
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    recover_after_a_moment();
    EXPECT(hami_charged(0) == 0);
    fake_detach();
}

int main(void)
{
    a_slot_says_who_holds_it();
    a_dead_process_leaves_a_slot_that_is_zeroed_a_moment_later();
    the_moment_begins_for_all_when_one_notices();
    a_moment_that_is_not_there_yet_begins_now();
    a_request_does_not_wait_for_ever_for_what_the_dead_had();
    a_new_holder_is_not_dead();
    a_dead_process_that_had_nothing_leaves_its_slot_at_once();
    what_is_expected_is_looked_for_when_it_is_due();
    a_look_for_the_dead_is_taken_once_in_a_while();
    a_zombie_holds_nothing();
    slots_come_to_an_end();
    scribbled_slots_are_survived();
    threads_that_recover_do_not_harm_newcomers();
    return report();
}
