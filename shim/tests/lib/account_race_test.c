/* Processes that race for one limit and are killed. links: lib/memory/account.c lib/memory/held.c lib/memory/blocks.c lib/memory/charge.c lib/base/reset.c lib/slice/slots.c lib/slice/slot_words.c lib/slice/alive.c */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "fake_slice.h"

#define RACERS 16
#define LIMIT (64 * MIB)
#define KILLS 40
#define LATE_NS 20000000

/* The card, which knows nothing of slots and charges. What a process holds goes a little after it
 * is dead: that is when the kernel lets go of its file, so life is a lock on a byte of its own. When
 * it died is dated by when it was killed, not by who noticed first: on a busy machine that may be the
 * one that was given its memory since. */
static struct card {
    pthread_mutex_t lock;
    uint64_t held[RACERS], killed[RACERS];
    struct {
        uint64_t bytes, until;
    } leftover[RACERS]; /* of the dead */
    _Atomic uint64_t grants, refusals, most, violations;
} *card;

#define LIFE(racer) (100000 + (racer))

static bool is_dead(int fd, int racer)
{
    struct flock life = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LIFE(racer), .l_len = 1,
    };

    need(fcntl(fd, F_OFD_GETLK, &life) == 0, "F_OFD_GETLK");
    return life.l_type == F_UNLCK;
}

static void live(int fd, int racer)
{
    struct flock life = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LIFE(racer), .l_len = 1,
    };

    need(fcntl(fd, F_OFD_SETLK, &life) == 0, "F_OFD_SETLK");
}

static void card_lock(void)
{
    if (pthread_mutex_lock(&card->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&card->lock);
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Of one that died since anybody looked. */
static void bury(int racer)
{
    if (card->held[racer] == 0)
        return;
    card->leftover[racer].bytes = card->held[racer];
    card->leftover[racer].until = card->killed[racer] + LATE_NS;
    card->held[racer] = 0;
}

static void card_change(int fd, int self, uint64_t now)
{
    uint64_t sum = 0, time;

    card_lock();
    time = now_ns();
    card->held[self] = now;
    for (int i = 0; i < RACERS; i++) {
        if (i != self && is_dead(fd, i))
            bury(i);
        if (card->leftover[i].until < time)
            card->leftover[i].bytes = 0;
        sum += card->held[i] + card->leftover[i].bytes;
    }
    if (sum > atomic_load(&card->most))
        atomic_store(&card->most, sum);
    if (sum > LIMIT)
        atomic_fetch_add(&card->violations, 1);
    pthread_mutex_unlock(&card->lock);
}

static uint32_t next(uint32_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed;
}

static void give_back(int self, uint64_t *held, uint64_t *sum)
{
    *sum -= *held;
    card_change(hami_process->usage_fd, self, *sum);
    hami_refund_block(0, *held);
    *held = 0;
}

/* Takes and gives back for ever, in whole blocks, which is what the card gives out. Who is refused
 * gives up most of what it has, so that the race goes on. */
static void race(int self, uint32_t seed)
{
    uint64_t held[8] = {0}, sum = 0;

    for (;;) {
        uint32_t i = next(&seed) % 8;
        uint64_t bytes = (1 + next(&seed) % 5) * 2 * MIB;

        if (held[i]) {
            give_back(self, &held[i], &sum);
        } else if (hami_charge_block(0, bytes)) {
            held[i] = bytes;
            sum += bytes;
            card_change(hami_process->usage_fd, self, sum);
            atomic_fetch_add(&card->grants, 1);
        } else {
            atomic_fetch_add(&card->refusals, 1);
            for (i = 0; i < 8; i++)
                if (held[i] && next(&seed) % 4 != 0)
                    give_back(self, &held[i], &sum);
        }
    }
}

static pid_t start_racer(int self, uint32_t seed)
{
    pid_t child = fork();

    need(child >= 0, "fork");
    if (child == 0) {
        memset(hami_process, 0, sizeof(hami_process[0]));
        if (!fake_attach())
            _exit(3);
        card_lock();
        bury(self); /* the last one that raced under this number */
        pthread_mutex_unlock(&card->lock);
        live(hami_process->usage_fd, self);
        race(self, seed);
    }
    return child;
}

static void never_above_the_limit_whoever_dies(void)
{
    pthread_mutexattr_t shared;
    pid_t racers[RACERS];
    uint32_t seed = 12345;

    fake_container(1, LIMIT);
    card = mmap(NULL, sizeof(*card), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need(card != MAP_FAILED, "mmap");
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&card->lock, &shared);
    for (int i = 0; i < RACERS; i++)
        racers[i] = start_racer(i, next(&seed));
    for (int kill_number = 0; kill_number < KILLS; kill_number++) {
        struct timespec pause = {.tv_nsec = 10000000 + (long)(next(&seed) % 40000000)};
        int victim = (int)(next(&seed) % RACERS), status;

        nanosleep(&pause, NULL);
        card->killed[victim] = now_ns();
        kill(racers[victim], SIGKILL);
        need(waitpid(racers[victim], &status, 0) == racers[victim], "waitpid");
        EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        racers[victim] = start_racer(victim, next(&seed));
    }
    for (int i = 0; i < RACERS; i++) {
        kill(racers[i], SIGKILL);
        waitpid(racers[i], NULL, 0);
    }
    EXPECT(atomic_load(&card->violations) == 0);
    EXPECT(atomic_load(&card->grants) > 200);
    EXPECT(atomic_load(&card->refusals) > 20);
    EXPECT(atomic_load(&card->most) > LIMIT / 4 * 3);
    /* All of it can be had again, by one who comes after them. */
    EXPECT(fake_attach());
    EXPECT(hami_charge(0, LIMIT));
    fake_detach();
    munmap(card, sizeof(*card));
}

/* A survivor that never attaches anew gets what the dead had. */
static void the_living_recover_the_dead_when_they_need_to(void)
{
    int ready[2];
    pid_t child;
    char byte;

    fake_container(1, LIMIT);
    EXPECT(fake_attach());
    for (int round = 0; round < 5; round++) {
        need(pipe(ready) == 0, "pipe");
        child = fork();
        if (child == 0) {
            memset(hami_process, 0, sizeof(hami_process[0]));
            byte = fake_attach() && hami_charge(0, LIMIT - 2 * MIB) ? 'y' : 'n';
            if (write(ready[1], &byte, 1) == 1)
                pause();
            _exit(0);
        }
        need(read(ready[0], &byte, 1) == 1 && byte == 'y', "child");
        EXPECT(!hami_charge(0, 4 * MIB));
        EXPECT(hami_charged(0) == LIMIT - 2 * MIB);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        EXPECT(hami_charge(0, LIMIT));
        hami_refund(0, LIMIT);
        close(ready[0]);
        close(ready[1]);
    }
    fake_detach();
}

/* ---- Threads of one process ---- */

static _Atomic uint64_t granted, granted_too_much;

static void *take_and_give(void *argument)
{
    uint32_t seed = (uint32_t)(uintptr_t)argument * 7919;

    for (int i = 0; i < 4000; i++) {
        static const uint64_t sizes[] = {512, 4096, MIB / 2, MIB, 2 * MIB, 6 * MIB};
        uint64_t bytes = sizes[next(&seed) % 6];

        if (!hami_charge_block(0, bytes))
            continue;
        if (atomic_fetch_add(&granted, bytes) + bytes > LIMIT)
            atomic_fetch_add(&granted_too_much, 1);
        if (hami_charged(0) > LIMIT + 8 * 8 * MIB) /* reservations that will be taken back */
            atomic_fetch_add(&granted_too_much, 1);
        atomic_fetch_sub(&granted, bytes);
        hami_refund_block(0, bytes);
    }
    return NULL;
}

static void threads_share_a_slot(void)
{
    pthread_t threads[8];

    fake_container(1, LIMIT / 4);
    EXPECT(fake_attach());
    for (uintptr_t i = 0; i < 8; i++)
        need(pthread_create(&threads[i], NULL, take_and_give, (void *)(i + 1)) == 0, "a thread");
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    EXPECT(atomic_load(&granted_too_much) == 0);
    EXPECT(hami_charged(0) == 0);
    fake_detach();
}

int main(void)
{
    never_above_the_limit_whoever_dies();
    the_living_recover_the_dead_when_they_need_to();
    threads_share_a_slot();
    return report();
}
