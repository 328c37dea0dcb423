/* Charging and giving back. There is no shared total: a total beside the processes' words would be
 * two words, and a process killed between them would leak or be over-granted. So each process adds
 * to a word of its own and then looks at all of them.
 *
 * Those words are any tenant's to write. So what this process holds it also keeps to itself, and
 * counts with that; its word, which is there for the others, is put right when it says less.
 * Without scribblers it never does, because charging adds to the word first, and giving back takes
 * from it last. What others hold is told by their words, and by their witnesses (held.h).
 *
 * Memory order: of two processes that reserve at once, each adds (seq_cst) before it loads
 * (seq_cst). In the one order of all these operations one addition is the last, and whoever made it
 * sees the other: both can refuse, both cannot be granted what only one may have. */
#include "memory/account.h"

#include <sched.h>
#include <time.h>

#include "base/lock.h"
#include "base/log.h"
#include "memory/held.h"
#include "slice/follow.h"
#include "slice/slice.h"
#include "slice/slots.h"

#define TRIES 64
#define TRIES_SPINNING 8  /* then dead processes' slots are recovered */
#define TRIES_AWAKE 32    /* then sleeping: a racer may have been interrupted between its steps */
#define TRIES_ALONE 16    /* when no other process holds anything */
#define WAIT_NS UINT64_C(500000000) /* for what the dead had: five times as long as that can take */

struct hami_range hami_charged_range(int row)
{
    uint64_t now = hami_charged_here(row);
    struct hami_range was = {
        .low = atomic_exchange_explicit(&hami_held[row].low, now, memory_order_relaxed),
        .high = atomic_exchange_explicit(&hami_held[row].high, now, memory_order_relaxed),
    };

    if (was.low > now)
        was.low = now;
    if (was.high < now)
        was.high = now;
    return was;
}

/* Lost updates of two threads at once make the range a little narrower for one period. */
static void note_high(int row, uint64_t bytes)
{
    if (bytes > atomic_load_explicit(&hami_held[row].high, memory_order_relaxed))
        atomic_store_explicit(&hami_held[row].high, bytes, memory_order_relaxed);
}

static void note_low(int row, uint64_t bytes)
{
    if (bytes < atomic_load_explicit(&hami_held[row].low, memory_order_relaxed))
        atomic_store_explicit(&hami_held[row].low, bytes, memory_order_relaxed);
}

static _Atomic uint64_t *own_word(int row)
{
    return &hami_process->usage->charged[row][hami_process->slot];
}

/* What is held then. */
static int64_t add_held(int row, uint64_t bytes)
{
    uint64_t change = (bytes & ((UINT64_C(1) << HAMI_HELD_CHANGE) - 1)) + (UINT64_C(1) << HAMI_HELD_CHANGE);

    return hami_held_bytes(atomic_fetch_add_explicit(&hami_held[row].held, change, memory_order_seq_cst) +
                    change);
}

/* Whether a word is lower than what is held, or no figure. */
static inline bool is_wrong(uint64_t word, int64_t held)
{
    return word - (uint64_t)held >= HAMI_IMPOSSIBLE_BYTES;
}

/* Other threads are between their two steps now and then; only what is wrong while nobody moves was
 * written by somebody else. */
static __attribute__((noinline, cold)) void restore(int row)
{
    uint64_t held = atomic_load_explicit(&hami_held[row].held, memory_order_seq_cst), word;

    for (int try = 0; try < TRIES; try++) {
        uint64_t before = held;

        word = atomic_load_explicit(own_word(row), memory_order_seq_cst);
        if (!is_wrong(word, hami_held_bytes(held)))
            return;
        held = atomic_load_explicit(&hami_held[row].held, memory_order_seq_cst);
        if (held == before &&
            atomic_compare_exchange_strong_explicit(own_word(row), &word, (uint64_t)hami_held_bytes(held),
                                                    memory_order_seq_cst, memory_order_relaxed)) {
            hami_log(HAMI_ERROR, "somebody wrote over what this process is charged: %lld bytes of "
                                 "device %d",
                     (long long)hami_held_bytes(held), row);
            return;
        }
    }
}

/* After a change of both: of what the word was and what was held right then. */
static inline void check(int row, uint64_t word, int64_t held)
{
    if (__builtin_expect(is_wrong(word, held), 0))
        restore(row);
}

static uint64_t limit_of(int row)
{
    return hami_limits()->devices[row].memory_bytes;
}

static bool is_within(int row, uint64_t held, uint64_t limit)
{
    uint64_t others;

    if (limit == 0)
        return true;
    others = hami_others(row);
    if (others > limit || held > limit - others)
        return false;
    if (__builtin_expect(!hami_witness_due(row, held, others), 1))
        return true;
    return hami_witness_follow(row) && hami_witness_hidden(row) <= limit - others - held;
}

/* Release: whoever sees the smaller word may ask the driver for what it had, after we gave it. What
 * is held then. */
static uint64_t give_back(int row, uint64_t bytes)
{
    int64_t held = add_held(row, -bytes);
    uint64_t word;

    if (__builtin_expect(hami_witness_behind(row, (uint64_t)held), 0))
        hami_witness_follow(row);
    word = atomic_fetch_sub_explicit(own_word(row), bytes, memory_order_release) - bytes;
    check(row, word, held);
    return (uint64_t)held;
}

static uint64_t take(int row, uint64_t bytes)
{
    uint64_t word = atomic_fetch_add_explicit(own_word(row), bytes, memory_order_seq_cst) + bytes;
    int64_t held = add_held(row, bytes);

    check(row, word, held);
    return (uint64_t)held;
}

static bool reserve(int row, uint64_t bytes, uint64_t limit)
{
    uint64_t held = take(row, bytes);

    if (__builtin_expect(!is_within(row, held, limit), 0)) {
        give_back(row, bytes);
        return false;
    }
    note_high(row, held);
    return true;
}

/* Racers that refuse each other must not try again in step. */
static void back_off(int try)
{
    static _Thread_local uint32_t seed __attribute__((tls_model("initial-exec")));

    if (seed == 0)
        seed = (uint32_t)((uintptr_t)&seed >> 4) ^ (hami_process->slot * 2654435769u) ^ 1u;
    seed ^= seed << 13;
    seed ^= seed >> 17;
    seed ^= seed << 5;
    if (try < TRIES_SPINNING) {
        for (uint32_t i = seed % (8u << try); i > 0; i--)
            hami_pause();
    } else if (try < TRIES_AWAKE) {
        sched_yield();
    } else {
        long most = try < TRIES ? 40000 : 2000000;
        struct timespec pause = {.tv_nsec = 10000 + (long)(seed % (uint32_t)most)};

        nanosleep(&pause, NULL);
    }
}

/* Looking first: a reservation that cannot hold would only be in the way of others'. *alone: nobody
 * else holds anything. */
static bool reserve_if_it_fits(int row, uint64_t bytes, bool *alone)
{
    uint64_t limit = limit_of(row), sum = hami_charged(row);

    *alone = sum == hami_charged_here(row);
    if (limit != 0 && (sum > limit || bytes > limit - sum))
        return false;
    return reserve(row, bytes, limit);
}

/* Whether it would fit when what the dead had is free. */
static bool is_worth_waiting(int row, uint64_t bytes, uint64_t coming)
{
    uint64_t limit = limit_of(row), sum = hami_charged(row);

    return coming != 0 && bytes <= limit &&
           (sum == UINT64_MAX || coming >= sum ||
            (sum - coming <= limit && bytes <= limit - (sum - coming)));
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static bool reserve_contended(int row, uint64_t bytes)
{
    uint64_t coming = 0, until;
    bool alone;

    for (int try = 1; try < TRIES; try++) {
        if (try == TRIES_SPINNING)
            coming = hami_slots_recover(row);
        back_off(try);
        if (reserve_if_it_fits(row, bytes, &alone))
            return true;
        if (try >= TRIES_ALONE && alone)
            break;
    }
    until = now_ns() + WAIT_NS;
    while (is_worth_waiting(row, bytes, coming) && now_ns() < until) {
        back_off(TRIES);
        coming = hami_slots_recover(row);
        if (reserve_if_it_fits(row, bytes, &alone))
            return true;
    }
    hami_log(HAMI_WARNING, "out of memory: %llu bytes asked for, %llu of %llu charged, device %d",
             (unsigned long long)bytes, (unsigned long long)hami_charged(row),
             (unsigned long long)limit_of(row), row);
    return false;
}

/* Whether there is a word to charge. Otherwise *answer is what hami_reserve says. */
static bool has_word(int row, bool *answer)
{
    enum hami_mode mode = hami_mode_settled();

    *answer = mode == HAMI_MODE_FREE || mode == HAMI_MODE_UNKNOWN;
    return mode == HAMI_MODE_SLICE && row >= 0 && row < HAMI_MAX_DEVICES;
}

bool hami_reserve(int row, uint64_t bytes)
{
    bool answer;

    if (!has_word(row, &answer))
        return answer;
    if (bytes >= HAMI_IMPOSSIBLE_BYTES)
        return false;
    if (__builtin_expect(reserve(row, bytes, limit_of(row)), 1))
        return true;
    return reserve_contended(row, bytes);
}

void hami_charge_taken(int row, uint64_t bytes)
{
    bool answer;
    uint64_t held;

    if (!has_word(row, &answer) || bytes >= HAMI_IMPOSSIBLE_BYTES)
        return;
    held = take(row, bytes);
    note_high(row, held);
    if (held / HAMI_WITNESS_BYTES != (held - bytes) / HAMI_WITNESS_BYTES)
        hami_witness_follow(row);
}

void hami_refund(int row, uint64_t bytes)
{
    bool answer;

    if (bytes != 0 && has_word(row, &answer))
        note_low(row, give_back(row, bytes));
}

uint64_t hami_charged(int row)
{
    bool answer;
    uint64_t others;

    if (!has_word(row, &answer))
        return 0;
    others = hami_others(row);
    return others == UINT64_MAX ? others : others + hami_charged_here(row);
}

uint64_t hami_charged_here(int row)
{
    bool answer;

    return has_word(row, &answer) ? hami_held_here(row) : 0;
}

bool hami_within(int row)
{
    bool answer;
    uint64_t limit;

    if (!has_word(row, &answer))
        return answer;
    limit = limit_of(row);
    return limit == 0 || hami_charged(row) <= limit;
}
