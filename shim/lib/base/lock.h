/* Two locks of one word, which are unlocked when all zero: a forked child, in which the holder does
 * not exist, writes zero.
 *
 * hami_lock spins a little and then sleeps in the kernel until it is woken: also for sections that
 * take long. hami_spin is for a few dozen instructions on the hottest paths: nobody is woken, so
 * that unlocking is a plain store; whoever meets a holder that was interrupted looks again from
 * time to time. */
#ifndef HAMI_LOCK_H
#define HAMI_LOCK_H

#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct hami_lock {
    _Atomic uint32_t word;
};

enum { HAMI_LOCK_FREE, HAMI_LOCK_HELD, HAMI_LOCK_WAITED_FOR };

static inline void hami_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline int hami_lock_try(struct hami_lock *lock)
{
    uint32_t expected = HAMI_LOCK_FREE;

    return atomic_compare_exchange_strong_explicit(&lock->word, &expected, HAMI_LOCK_HELD,
                                                   memory_order_acquire, memory_order_relaxed);
}

static inline void hami_lock_wait(struct hami_lock *lock)
{
    for (int i = 0; i < 64; i++) {
        hami_pause();
        if (atomic_load_explicit(&lock->word, memory_order_relaxed) == HAMI_LOCK_FREE &&
            hami_lock_try(lock))
            return;
    }
    /* Whoever wakes up takes the lock as waited for: it cannot know that it was the last one. */
    while (atomic_exchange_explicit(&lock->word, HAMI_LOCK_WAITED_FOR, memory_order_acquire) !=
           HAMI_LOCK_FREE)
        syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, HAMI_LOCK_WAITED_FOR, NULL, NULL, 0);
}

static inline void hami_lock(struct hami_lock *lock)
{
    if (__builtin_expect(!hami_lock_try(lock), 0))
        hami_lock_wait(lock);
}

static inline void hami_unlock(struct hami_lock *lock)
{
    if (__builtin_expect(atomic_exchange_explicit(&lock->word, HAMI_LOCK_FREE,
                                                  memory_order_release) == HAMI_LOCK_WAITED_FOR, 0))
        syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

struct hami_spin {
    _Atomic uint32_t held;
};

static inline void hami_spin_wait(struct hami_spin *spin)
{
    struct timespec pause = {.tv_nsec = 20000};
    int tries = 0;

    while (atomic_load_explicit(&spin->held, memory_order_relaxed) ||
           atomic_exchange_explicit(&spin->held, 1, memory_order_acquire)) {
        if (tries < 100)
            hami_pause();
        else if (tries < 110)
            sched_yield();
        else
            nanosleep(&pause, NULL);
        tries++;
    }
}

static inline void hami_spin_lock(struct hami_spin *spin)
{
    if (__builtin_expect(atomic_exchange_explicit(&spin->held, 1, memory_order_acquire) != 0, 0))
        hami_spin_wait(spin);
}

static inline void hami_spin_unlock(struct hami_spin *spin)
{
    atomic_store_explicit(&spin->held, 0, memory_order_release);
}

#endif
