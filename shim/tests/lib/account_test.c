/* Charging, giving back, and what the monitor saw. links: lib/memory/account.c lib/memory/held.c lib/memory/blocks.c lib/memory/charge.c lib/base/reset.c lib/slice/slots.c lib/slice/slot_words.c lib/slice/alive.c */
#include <pthread.h>
#include <sys/wait.h>

#include "fake_slice.h"

static void a_charge_counts_until_it_is_refunded(void)
{
    fake_container(2, 100 * MIB);
    EXPECT(fake_attach());
    EXPECT(hami_charge(0, 60 * MIB));
    EXPECT(hami_charged(0) == 60 * MIB && hami_charged_here(0) == 60 * MIB);
    EXPECT(hami_charged(1) == 0);
    EXPECT(hami_charge(0, 40 * MIB));
    EXPECT(!hami_charge(0, 1));
    EXPECT(hami_charged(0) == 100 * MIB);
    hami_refund(0, 60 * MIB);
    EXPECT(!hami_charge(0, 60 * MIB + 1));
    EXPECT(hami_charge(0, 60 * MIB));
    hami_refund(0, 100 * MIB);
    EXPECT(hami_charged(0) == 0);
    fake_detach();
}

static void what_others_hold_counts_too(void)
{
    fake_container(1, 100 * MIB);
    EXPECT(fake_attach());
    atomic_store(&hami_process->usage->charged[0][200], 70 * MIB);
    atomic_store(&hami_process->usage->slots[200].pid, (uint32_t)getppid());
    EXPECT(hami_charge(0, 30 * MIB));
    EXPECT(hami_charged(0) == 100 * MIB && hami_charged_here(0) == 30 * MIB);
    EXPECT(hami_within(0));
    fake_detach();
}

static void limits_may_change_at_any_time(void)
{
    fake_container(1, 100 * MIB);
    EXPECT(fake_attach());
    EXPECT(hami_charge(0, 80 * MIB));
    fake_limits.devices[0].memory_bytes = 50 * MIB;
    EXPECT(!hami_within(0));
    EXPECT(!hami_charge(0, 1));
    EXPECT(hami_charged(0) == 80 * MIB);
    fake_limits.devices[0].memory_bytes = 200 * MIB;
    EXPECT(hami_within(0));
    EXPECT(hami_charge(0, 120 * MIB));
    fake_limits.devices[0].memory_bytes = 0;
    EXPECT(hami_charge(0, UINT64_C(1) << 50));
    EXPECT(hami_charged(0) == 200 * MIB + (UINT64_C(1) << 50));
    fake_detach();
}

static void no_figure_is_too_large_to_be_refused(void)
{
    static const uint64_t sizes[] = {UINT64_MAX, UINT64_MAX - 1, UINT64_C(1) << 63,
                                     UINT64_C(1) << 62, UINT64_C(1) << 55, UINT64_MAX - MIB};

    for (uint64_t limit = 0; limit <= 10 * MIB; limit += 10 * MIB) {
        fake_container(1, limit);
        EXPECT(fake_attach());
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            EXPECT(!hami_charge(0, sizes[i]));
            EXPECT(!hami_charge_block(0, sizes[i]));
            EXPECT(hami_charged(0) == 0);
        }
        fake_detach();
    }
}

/* Any process of the container can write anything into the region. */
static void scribbled_words_refuse_and_never_wrap(void)
{
    fake_container(1, 100 * MIB);
    EXPECT(fake_attach());
    for (int i = 0; i < 4; i++) {
        static const uint64_t words[][2] = {
            {UINT64_MAX, 1},
            {UINT64_C(1) << 63, UINT64_C(1) << 63},
            {UINT64_MAX - 10 * MIB, 20 * MIB},
            {UINT64_C(1) << 55, 0},
        };

        atomic_store(&hami_process->usage->charged[0][9], words[i][0]);
        atomic_store(&hami_process->usage->charged[0][77], words[i][1]);
        atomic_store(&hami_process->usage->slots[9].pid, (uint32_t)getppid());
        atomic_store(&hami_process->usage->slots[77].pid, (uint32_t)getppid());
        EXPECT(hami_charged(0) == UINT64_MAX);
        EXPECT(!hami_within(0));
        EXPECT(hami_charged_here(0) == 0);
        hami_charge_taken(0, MIB);
        hami_refund(0, MIB);
        EXPECT(hami_charged_here(0) == 0);
    }
    /* They are nobody's: the first who needs memory recovers them. */
    EXPECT(hami_charge(0, MIB));
    EXPECT(hami_charged(0) == MIB);
    fake_detach();
}

static uint64_t word(void)
{
    return atomic_load(&hami_process->usage->charged[0][hami_process->slot]);
}

static void overwrite(uint64_t value)
{
    atomic_store(&hami_process->usage->charged[0][hami_process->slot], value);
}

static void a_word_that_says_less_is_put_right(void)
{
    static const uint64_t less[] = {0, 1, 40 * MIB, UINT64_MAX - 10 * MIB, UINT64_C(1) << 63};

    for (size_t i = 0; i < sizeof(less) / sizeof(less[0]); i++) {
        fake_container(1, 100 * MIB);
        EXPECT(fake_attach());
        EXPECT(hami_charge(0, 60 * MIB));
        overwrite(less[i]);
        EXPECT(hami_charged(0) == 60 * MIB && hami_within(0));
        EXPECT(!hami_charge(0, 41 * MIB));
        EXPECT(word() == 60 * MIB);
        overwrite(less[i]);
        hami_refund(0, 10 * MIB);
        EXPECT(word() == 50 * MIB);
        overwrite(less[i]);
        hami_charge_taken(0, 20 * MIB);
        EXPECT(word() == 70 * MIB);
        hami_refund(0, 70 * MIB);
        EXPECT(word() == 0 && hami_charge(0, 100 * MIB));
        fake_detach();
    }
}

static void *charge_and_refund(void *argument)
{
    (void)argument;
    for (int i = 0; i < 20000; i++) {
        hami_charge(0, 20 * MIB);
        hami_charge(0, MIB);
        hami_refund(0, 20 * MIB);
        hami_refund(0, MIB);
    }
    return NULL;
}

/* What one thread is about to write is not mistaken for what a scribbler wrote. */
static void threads_leave_the_word_as_they_found_it(void)
{
    pthread_t threads[4];

    fake_container(1, 0);
    EXPECT(fake_attach());
    EXPECT(hami_charge(0, 7));
    for (size_t i = 0; i < 4; i++)
        need(pthread_create(&threads[i], NULL, charge_and_refund, NULL) == 0, "a thread");
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    EXPECT(word() == 7 && hami_charged_here(0) == 7);
    fake_detach();
}

/* A process that charges and then does nothing until it is told to end. */
static pid_t idle_holder(uint64_t bytes, int *end)
{
    int ready[2], ending[2];
    char byte;
    pid_t pid;

    need(pipe(ready) == 0 && pipe(ending) == 0, "pipes");
    pid = fork();
    need(pid >= 0, "fork");
    if (pid == 0) {
        close(ending[1]);
        memset(hami_process, 0, sizeof(hami_process[0]));
        if (!fake_attach() || !hami_charge(0, bytes) || write(ready[1], "", 1) != 1)
            _exit(1);
        _exit(read(ending[0], &byte, 1) < 0);
    }
    close(ending[0]);
    close(ready[1]);
    need(read(ready[0], &byte, 1) == 1, "a holder");
    close(ready[0]);
    *end = ending[1];
    return pid;
}

static void what_an_idle_process_holds_is_told_by_its_witness(void)
{
    int end, status;
    pid_t pid;

    fake_container(1, 100 * MIB);
    pid = idle_holder(80 * MIB, &end);
    EXPECT(fake_attach());
    EXPECT(hami_charge(0, 20 * MIB) && !hami_charge(0, 1));
    for (uint32_t slot = 0; slot < HAMI_MAX_SLOTS; slot++) {
        atomic_store(&hami_process->usage->charged[0][slot], 0);
        atomic_store(&hami_process->usage->slots[slot].pid, 0);
    }
    EXPECT(!hami_charge(0, 1));
    hami_refund(0, 20 * MIB);
    EXPECT(!hami_charge(0, 20 * MIB)); /* its last unit may be full */
    EXPECT(hami_charge(0, 12 * MIB));
    hami_refund(0, 12 * MIB);
    close(end);
    EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
    EXPECT(hami_charge(0, 100 * MIB));
    fake_detach();
}

/* Who takes the place of a witness keeps memory from its own container, and from nobody else. */
static void a_witness_that_is_kept_from_us_refuses(void)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = HAMI_MAX_SLOTS};
    int fd;

    fake_container(1, 100 * MIB);
    EXPECT(fake_attach());
    fd = hami_files_open(fake_path);
    need(fcntl(fd, F_OFD_SETLK, &all) == 0, "a lock");
    EXPECT(!hami_charge(0, 20 * MIB) && hami_charged_here(0) == 0);
    close(fd);
    EXPECT(hami_charge(0, 100 * MIB));
    fake_detach();
}

static void modes_and_rows_without_a_word(void)
{
    static const int rows[] = {HAMI_ROW_NONE, HAMI_MAX_DEVICES, -5};

    fake_container(1, 10 * MIB);
    EXPECT(fake_attach());
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        EXPECT(!hami_charge(rows[i], 1));
        EXPECT(!hami_charge_block(rows[i], 1));
        EXPECT(!hami_within(rows[i]));
        EXPECT(hami_charged(rows[i]) == 0 && hami_charged_here(rows[i]) == 0);
        hami_charge_taken(rows[i], 1);
        hami_refund(rows[i], 1);
        hami_refund_block(rows[i], 1);
    }
    EXPECT(hami_charged(0) == 0);
    atomic_store(&hami_process->mode, HAMI_MODE_CLOSED);
    EXPECT(!hami_charge(0, 1));
    EXPECT(!hami_charge_block(0, 1));
    EXPECT(!hami_within(0));
    atomic_store(&hami_process->mode, HAMI_MODE_FREE);
    EXPECT(hami_charge(0, UINT64_MAX) && hami_charge(HAMI_ROW_NONE, 1));
    EXPECT(hami_charge_block(0, UINT64_MAX));
    hami_refund(0, UINT64_MAX);
    hami_refund_block(0, UINT64_MAX);
    EXPECT(hami_within(0));
    /* A forked child: its parent's slot is not its own. */
    atomic_store(&hami_process->mode, HAMI_MODE_UNKNOWN);
    EXPECT(hami_charge(0, 5));
    hami_charge_taken(0, 5);
    hami_refund(0, 7);
    atomic_store(&hami_process->mode, HAMI_MODE_SLICE);
    EXPECT(hami_charged(0) == 0);
    fake_detach();
}

/* As linear.c does, with a driver that puts it there. */
static bool allocate_at(int row, uint64_t address, uint64_t bytes)
{
    if (!hami_charge_block(row, bytes))
        return false;
    hami_block_placed(row, address, bytes);
    return true;
}

static void small_ones_share_the_block_they_lie_in(void)
{
    static const uint64_t sizes[] = {1, 512, 700 << 10, MIB};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint64_t bytes = sizes[i];

        fake_container(2, 100 * MIB);
        EXPECT(fake_attach());
        EXPECT(allocate_at(0, 10 * MIB, bytes) && hami_charged(0) == 2 * MIB);
        EXPECT(allocate_at(0, 11 * MIB, bytes) && hami_charged(0) == 2 * MIB);
        EXPECT(allocate_at(0, 12 * MIB, bytes) && hami_charged(0) == 4 * MIB);
        hami_block_left(0, 10 * MIB, bytes);
        EXPECT(hami_charged(0) == 4 * MIB); /* the other one is still there */
        hami_block_left(0, 12 * MIB, bytes);
        EXPECT(hami_charged(0) == 2 * MIB);
        /* One whose end is not refunded yet, when its address is another device's by now. */
        EXPECT(allocate_at(1, 11 * MIB, bytes) && hami_charged(1) == 2 * MIB);
        hami_block_left(0, 11 * MIB, bytes);
        EXPECT(hami_charged(0) == 0 && hami_charged(1) == 2 * MIB);
        hami_block_left(1, 11 * MIB, bytes);
        EXPECT(hami_charged(1) == 0);
        fake_detach();
    }
}

static void larger_ones_have_blocks_of_their_own(void)
{
    fake_container(1, 100 * MIB);
    EXPECT(fake_attach());
    EXPECT(allocate_at(0, 10 * MIB, MIB + 1) && hami_charged(0) == 2 * MIB);
    EXPECT(allocate_at(0, 12 * MIB, 2 * MIB) && hami_charged(0) == 4 * MIB);
    EXPECT(allocate_at(0, 14 * MIB, 2 * MIB + 1) && hami_charged(0) == 8 * MIB);
    hami_block_left(0, 14 * MIB, 2 * MIB + 1);
    hami_block_left(0, 12 * MIB, 2 * MIB);
    hami_block_left(0, 10 * MIB, MIB + 1);
    EXPECT(hami_charged(0) == 0);
    fake_detach();
}

/* Enough that the table grows several times, taken and given in different orders. */
static void many_blocks_are_counted(void)
{
    const uint64_t blocks = 20000, pieces = 3;

    fake_container(1, 0);
    EXPECT(fake_attach());
    for (uint64_t piece = 0; piece < pieces; piece++)
        for (uint64_t i = 0; i < blocks; i++)
            EXPECT(allocate_at(0, (i * 7919 % blocks + 1) * 2 * MIB + piece * 512, 512));
    EXPECT(hami_charged(0) == blocks * 2 * MIB);
    for (uint64_t piece = 0; piece < pieces; piece++) {
        EXPECT(hami_charged(0) == blocks * 2 * MIB);
        for (uint64_t i = 0; i < blocks; i++)
            hami_block_left(0, (i * 104729 % blocks + 1) * 2 * MIB + piece * 512, 512);
    }
    EXPECT(hami_charged(0) == 0);
    fake_detach();
}

/* Whether a hole would have held it cannot be known before. */
static void a_small_one_needs_room_for_a_block(void)
{
    fake_container(1, 5 * MIB); /* two whole blocks */
    EXPECT(fake_attach());
    EXPECT(hami_charge_block(0, 3 * MIB));
    EXPECT(!hami_charge_block(0, 1));
    hami_refund_block(0, 3 * MIB);
    EXPECT(allocate_at(0, 2 * MIB, MIB) && allocate_at(0, 3 * MIB, 512));
    EXPECT(allocate_at(0, 4 * MIB, MIB) && hami_charged(0) == 4 * MIB);
    EXPECT(!hami_charge_block(0, 1) && hami_charged(0) == 4 * MIB);
    hami_block_left(0, 4 * MIB, MIB);
    EXPECT(hami_charge_block(0, 1));
    fake_detach();
}

static void a_block_may_turn_out_another_size(void)
{
    uint64_t bytes = 3 * MIB;

    fake_container(1, 10 * MIB);
    EXPECT(fake_attach());
    EXPECT(hami_charge_block(0, bytes));
    EXPECT(hami_resize_block(0, &bytes, 7 * MIB) && bytes == 7 * MIB);
    EXPECT(hami_charged(0) == 8 * MIB);
    EXPECT(!hami_resize_block(0, &bytes, 11 * MIB) && bytes == 7 * MIB);
    EXPECT(hami_resize_block(0, &bytes, 5 * MIB) && bytes == 5 * MIB);
    EXPECT(hami_charged(0) == 6 * MIB);
    EXPECT(hami_resize_block(0, &bytes, 100) && hami_charged(0) == 2 * MIB);
    hami_refund_block(0, bytes);
    bytes = 100;
    EXPECT(hami_charge_block(0, bytes));
    EXPECT(hami_resize_block(0, &bytes, MIB));
    EXPECT(hami_charged(0) == 2 * MIB);
    EXPECT(hami_resize_block(0, &bytes, 3 * MIB));
    EXPECT(hami_charged(0) == 4 * MIB);
    hami_refund_block(0, bytes);
    EXPECT(hami_charged(0) == 0);
    fake_detach();
}

/* ---- What the monitor saw ---- */

static struct hami_observed observed;

static void monitor_saw(uint64_t bytes)
{
    uint32_t slot = hami_process->slot;

    atomic_store(&observed.bytes[0][slot], bytes);
    atomic_store(&observed.slot_generation[slot], hami_process->generation);
    atomic_fetch_add(&observed.heartbeat, 1);
}

static void watched(uint64_t limit)
{
    fake_container(1, limit);
    EXPECT(fake_attach());
    memset(&observed, 0, sizeof(observed));
    fake_observed = &observed;
}

static void what_the_driver_took_is_charged(void)
{
    watched(100 * MIB);
    EXPECT(hami_charge(0, 10 * MIB));
    monitor_saw(25 * MIB);
    EXPECT(hami_charge(0, MIB));
    EXPECT(hami_charged(0) == 26 * MIB);
    monitor_saw(100 * MIB);
    EXPECT(!hami_charge(0, 1));
    EXPECT(hami_charged(0) == 100 * MIB);
    /* Found only afterwards, it may exceed the limit: then nothing new is granted. */
    monitor_saw(130 * MIB);
    EXPECT(!hami_charge(0, 1));
    EXPECT(hami_charged(0) == 130 * MIB);
    /* It falls again: once it is below all that was charged in the last periods. */
    for (int i = 0; i < 4; i++) {
        monitor_saw(30 * MIB);
        hami_correct();
    }
    EXPECT(hami_charged(0) == 30 * MIB);
    /* Never below what was asked for. */
    for (int i = 0; i < 4; i++) {
        monitor_saw(1);
        hami_correct();
    }
    EXPECT(hami_charged(0) == 11 * MIB);
    fake_detach();
}

static void memory_just_freed_is_not_taken_for_the_drivers(void)
{
    watched(100 * MIB);
    for (int i = 0; i < 20; i++) {
        EXPECT(hami_charge(0, 90 * MIB));
        monitor_saw(90 * MIB); /* sampled while it was held, read after it was freed */
        hami_refund(0, 90 * MIB);
        hami_correct();
        EXPECT(hami_charged(0) == 0);
        EXPECT(hami_charge(0, 90 * MIB));
        hami_refund(0, 90 * MIB);
        monitor_saw(2 * MIB); /* and the other way round */
        EXPECT(hami_charge(0, 90 * MIB));
        EXPECT(hami_charged(0) == 90 * MIB);
        hami_refund(0, 90 * MIB);
    }
    fake_detach();
}

static void figures_of_others_are_ignored(void)
{
    watched(100 * MIB);
    EXPECT(hami_charge(0, MIB));
    monitor_saw(50 * MIB);
    atomic_fetch_sub(&observed.slot_generation[hami_process->slot], 1); /* the slot's last holder */
    hami_correct();
    EXPECT(hami_charged(0) == MIB);
    monitor_saw(0); /* it cannot tell */
    hami_correct();
    EXPECT(hami_charged(0) == MIB);
    monitor_saw(5 * MIB);
    hami_correct();
    EXPECT(hami_charged(0) == 5 * MIB);
    fake_observed = NULL; /* the monitor is gone: what was found stays */
    EXPECT(hami_charge(0, MIB));
    EXPECT(hami_charged(0) == 6 * MIB);
    fake_detach();
}

int main(void)
{
    a_charge_counts_until_it_is_refunded();
    what_others_hold_counts_too();
    limits_may_change_at_any_time();
    no_figure_is_too_large_to_be_refused();
    scribbled_words_refuse_and_never_wrap();
    a_word_that_says_less_is_put_right();
    threads_leave_the_word_as_they_found_it();
    what_an_idle_process_holds_is_told_by_its_witness();
    a_witness_that_is_kept_from_us_refuses();
    modes_and_rows_without_a_word();
    small_ones_share_the_block_they_lie_in();
    larger_ones_have_blocks_of_their_own();
    many_blocks_are_counted();
    a_small_one_needs_room_for_a_block();
    a_block_may_turn_out_another_size();
    what_the_driver_took_is_charged();
    memory_just_freed_is_not_taken_for_the_drivers();
    figures_of_others_are_ignored();
    return report();
}
