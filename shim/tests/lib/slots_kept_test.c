/* Whose slot it stays: of forked children, of who closes all files, of who exec's. links: lib/memory/account.c lib/memory/held.c lib/memory/blocks.c lib/memory/charge.c lib/base/reset.c lib/slice/slots.c lib/slice/slot_words.c lib/slice/alive.c */
#include "slots_fixture.h"

static void fork_a_grandchild(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        setsid();
        pause();
        _exit(0);
    }
    /* Tell the test whom to kill. */
    atomic_store(&hami_process->usage->slots[255].start_time, (uint64_t)pid);
}

static void a_forked_child_keeps_its_parents_slot(void)
{
    struct child child;
    pid_t grandchild;
    struct timespec pause = {.tv_nsec = 1000000};

    fake_container(1, 100 * MIB);
    EXPECT(fake_attach());
    child = start_child(7 * MIB, fork_a_grandchild);
    grandchild = (pid_t)atomic_load(&hami_process->usage->slots[255].start_time);
    kill_child(&child);
    recover_after_a_moment();
    EXPECT(hami_charged(0) == 7 * MIB);
    kill(grandchild, SIGKILL);
    for (int i = 0; i < 2000 && hami_charged(0) != 0; i++) {
        nanosleep(&pause, NULL);
        recover_after_a_moment();
    }
    EXPECT(hami_charged(0) == 0);
    fake_detach();
}

static void close_everything(void)
{
    for (int fd = 3; fd < 64; fd++)
        if (fd == hami_process->usage_fd)
            close(fd);
}

static void who_closes_all_files_keeps_its_slot(void)
{
    struct child child;

    fake_container(1, 100 * MIB);
    EXPECT(fake_attach());
    child = start_child(7 * MIB, close_everything);
    atomic_store(&hami_process->usage->slots[child.slot].found_dead_at, 1);
    recover_after_a_moment();
    EXPECT(hami_charged(0) == 7 * MIB);
    EXPECT(hami_process->usage->slots[child.slot].found_dead_at == 0);
    /* Nor does anybody else take it. */
    {
        struct child other = start_child(MIB, NULL);

        EXPECT(other.slot != child.slot && hami_charged(0) == 8 * MIB);
        kill_child(&other);
    }
    kill_child(&child);
    recover_after_a_moment();
    EXPECT(hami_charged(0) == 0);
    fake_detach();
}

static bool is_locked_in(const char *path, uint32_t slot)
{
    struct flock any = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};
    int probe = open(path, O_RDWR | O_CLOEXEC);

    need(probe >= 0 && fcntl(probe, F_OFD_GETLK, &any) == 0, "F_OFD_GETLK");
    close(probe);
    return any.l_type != F_UNLCK;
}

static int open_files(void)
{
    int count = 0;

    for (int fd = 0; fd < 64; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* It finds the dead all the same, and what it does with the number afterwards is not touched. */
static void who_closed_its_descriptor_recovers_and_leaves_the_number_alone(void)
{
    int other, again, keep, files;
    struct flock first = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1, .l_len = 1};
    struct child child;
    char path[64];

    fake_container(1, 100 * MIB);
    EXPECT(fake_attach());
    child = start_child(7 * MIB, NULL);
    kill_child(&child);
    keep = dup(hami_process->usage_fd);
    other = memfd_create("other", MFD_CLOEXEC);
    need(keep >= 0 && dup2(other, hami_process->usage_fd) >= 0, "dup2");
    snprintf(path, sizeof(path), "/proc/self/fd/%d", other);
    again = open(path, O_RDWR | O_CLOEXEC);
    need(fcntl(again, F_OFD_SETLK, &first) == 0, "F_OFD_SETLK");
    files = open_files();
    recover_after_a_moment();
    EXPECT(hami_charged(0) == 0);
    EXPECT(open_files() == files);
    EXPECT(is_locked_in(path, 1) && !is_locked_in(path, 0));
    /* The own slot is held by the lock that the open file has, whatever its number. */
    EXPECT(is_locked_in(fake_path, hami_process->slot));
    close(hami_process->usage_fd);
    EXPECT(hami_slots_recover(0) == 0 && open_files() == files - 1);
    need(dup2(keep, hami_process->usage_fd) >= 0, "dup2");
    close(other);
    close(again);
    close(keep);
    fake_detach();
}

static void another_file_in_the_regions_place_is_not_taken_for_it(void)
{
    int files, other = memfd_create("other", MFD_CLOEXEC), keep;
    struct child child;
    char path[64];

    fake_container(1, 100 * MIB);
    EXPECT(fake_attach());
    child = start_child(7 * MIB, NULL);
    kill_child(&child);
    keep = dup(hami_process->usage_fd);
    close(hami_process->usage_fd);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", other);
    hami_process->usage_path = path;
    files = open_files();
    recover_after_a_moment();
    hami_process->usage_path = "/nowhere";
    recover_after_a_moment();
    EXPECT(hami_charged(0) == 7 * MIB && open_files() == files);
    hami_process->usage_path = fake_path;
    recover_after_a_moment();
    EXPECT(hami_charged(0) == 0);
    need(dup2(keep, hami_process->usage_fd) >= 0, "dup2");
    close(keep);
    close(other);
    fake_detach();
}

static void exec_drops_a_slot(void)
{
    struct timespec pause = {.tv_nsec = 1000000};
    int up[2];
    pid_t pid;
    char byte;

    fake_container(1, 100 * MIB);
    EXPECT(fake_attach());
    need(pipe(up) == 0, "pipe");
    pid = fork();
    if (pid == 0) {
        memset(hami_process, 0, sizeof(hami_process[0]));
        if (!fake_attach() || !hami_charge(0, 7 * MIB) || write(up[1], "y", 1) != 1)
            _exit(3);
        execl("/bin/sleep", "sleep", "60", (char *)NULL);
        _exit(4);
    }
    need(read(up[0], &byte, 1) == 1, "child");
    close(up[0]);
    close(up[1]);
    for (int i = 0; i < 2000 && hami_charged(0) != 0; i++) {
        nanosleep(&pause, NULL);
        recover_after_a_moment();
    }
    EXPECT(hami_charged(0) == 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    fake_detach();
}

/* The same process, after exec, is on record as alive. */
static void who_comes_back_after_exec_gives_up_its_old_slot(void)
{
    fake_container(1, 100 * MIB);
    EXPECT(fake_attach());
    EXPECT(hami_charge(0, 7 * MIB));
    fake_detach();
    EXPECT(fake_attach());
    recover_after_a_moment();
    EXPECT(hami_charged(0) == 0);
    EXPECT(hami_process->usage->slots[0].pid == 0 || hami_process->slot == 0);
    fake_detach();
}

static void another_pid_namespace_is_judged_by_the_lock_alone(void)
{
    struct child child;

    fake_container(1, 100 * MIB);
    EXPECT(fake_attach());
    child = start_child(7 * MIB, close_everything);
    atomic_fetch_add(&hami_process->usage->slots[child.slot].pid_namespace, 1);
    recover_after_a_moment();
    EXPECT(hami_charged(0) == 0);
    kill_child(&child);
    fake_detach();
}

static void a_reused_number_is_not_the_one_on_record(void)
{
    struct child child;

    fake_container(1, 100 * MIB);
    EXPECT(fake_attach());
    child = start_child(7 * MIB, close_everything);
    atomic_fetch_sub(&hami_process->usage->slots[child.slot].start_time, 1);
    recover_after_a_moment();
    EXPECT(hami_charged(0) == 0);
    kill_child(&child);
    fake_detach();
}

static void export_it(void)
{
    hami_slot_flag(HAMI_SLOT_EXPORTS);
}

static void import_it(void)
{
    hami_slot_flag(HAMI_SLOT_IMPORTS);
}

static void what_was_exported_outlives_its_owner_while_somebody_imports(void)
{
    struct child exporter, importer;

    fake_container(1, 100 * MIB);
    EXPECT(fake_attach());
    exporter = start_child(7 * MIB, export_it);
    importer = start_child(MIB, import_it);
    kill_child(&exporter);
    recover_after_a_moment();
    EXPECT(hami_charged(0) == 8 * MIB);
    kill_child(&importer);
    recover_after_a_moment(); /* the exporter's slot comes first: it may still see the importer's */
    recover_after_a_moment();
    EXPECT(hami_charged(0) == 0);
    /* The importer may be who recovers. */
    exporter = start_child(7 * MIB, export_it);
    kill_child(&exporter);
    hami_slot_flag(HAMI_SLOT_IMPORTS);
    recover_after_a_moment();
    EXPECT(hami_charged(0) == 7 * MIB);
    fake_detach();
}

int main(void)
{
    a_forked_child_keeps_its_parents_slot();
    who_closes_all_files_keeps_its_slot();
    who_closed_its_descriptor_recovers_and_leaves_the_number_alone();
    another_file_in_the_regions_place_is_not_taken_for_it();
    exec_drops_a_slot();
    who_comes_back_after_exec_gives_up_its_old_slot();
    another_pid_namespace_is_judged_by_the_lock_alone();
    a_reused_number_is_not_the_one_on_record();
    what_was_exported_outlives_its_owner_while_somebody_imports();
    return report();
}
