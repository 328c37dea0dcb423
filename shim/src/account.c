/* Charging and giving back. There is no shared total: a total beside the processes' words would be
 * two words, and a process killed between them would leak or be over-granted. So each process adds
 * to a word of its own and then looks at all of them.
 *
 * Memory order: of two processes that reserve at once, each adds (seq_cst) before it loads
 * (seq_cst). In the one order of all these operations one addition is the last, and whoever made it
 * sees the other: both can refuse, both cannot be granted what only one may have. */
#include "account.h"

#include <sched.h>
#include <time.h>

#include "lock.h"
#include "log.h"
#include "slice.h"

#define TRIES 64
#define TRIES_SPINNING 8  /* then dead processes' slots are recovered */
#define TRIES_AWAKE 32    /* then sleeping: a racer may have been interrupted between its steps */
#define TRIES_ALONE 16    /* when no other process holds anything */
#define WAIT_NS UINT64_C(500000000) /* for what the dead had: five times as long as that can take */

/* No device has so much. Words below it cannot overflow a sum, and one above it is not a figure. */
#define IMPOSSIBLE_BYTES (UINT64_C(1) << 55)

/* Since observed.c last asked; kept here because every change of the own word passes here. */
static struct {
    _Atomic uint64_t low, high;
} range[HAMI_MAX_DEVICES];

void hami_account_reset(void)
{
    for (int row = 0; row < HAMI_MAX_DEVICES; row++) {
        atomic_store_explicit(&range[row].low, 0, memory_order_relaxed);
        atomic_store_explicit(&range[row].high, 0, memory_order_relaxed);
    }
}

struct hami_range hami_charged_range(int row)
{
    uint64_t now = hami_charged_here(row);
    struct hami_range was = {
        .low = atomic_exchange_explicit(&range[row].low, now, memory_order_relaxed),
        .high = atomic_exchange_explicit(&range[row].high, now, memory_order_relaxed),
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
    if (bytes > atomic_load_explicit(&range[row].high, memory_order_relaxed))
        atomic_store_explicit(&range[row].high, bytes, memory_order_relaxed);
}

static void note_low(int row, uint64_t bytes)
{
    if (bytes < atomic_load_explicit(&range[row].low, memory_order_relaxed))
        atomic_store_explicit(&range[row].low, bytes, memory_order_relaxed);
}

static _Atomic uint64_t *own_word(int row)
{
    return &hami_process->usage->charged[row][hami_process->slot];
}

static uint64_t limit_of(int row)
{
    return hami_limits()->devices[row].memory_bytes;
}

/* Of the whole row. Words are written by other processes of the container, which may write
 * anything: if one is no figure, neither is the sum, and UINT64_MAX stands for it. It is what a
 * charge spends most of its time on, hence several chains of additions, and, where two words come
 * with one load, that: 29 ns instead of 52. */
#ifdef __x86_64__
typedef uint64_t pair __attribute__((vector_size(16)));

/* A processor with 64 bits loads each half of an aligned pair at once, which the compiler does not
 * know; loads stay behind the locked addition before them, and in their order. */
static inline pair load(const _Atomic uint64_t *words)
{
    pair both;

    __asm__ volatile("movdqa %1, %0" : "=x"(both) : "m"(*(const pair *)(const void *)words));
    return both;
}

static uint64_t row_sum(int row)
{
    const _Atomic uint64_t *words = hami_process->usage->charged[row];
    pair a = {0}, b = {0}, c = {0}, d = {0}, any = {0}, other = {0};

    _Static_assert(HAMI_MAX_SLOTS % 8 == 0, "summed in eights");
    atomic_signal_fence(memory_order_seq_cst);
    for (int slot = 0; slot < HAMI_MAX_SLOTS; slot += 8) {
        pair one = load(words + slot), two = load(words + slot + 2);
        pair three = load(words + slot + 4), four = load(words + slot + 6);

        a += one;
        b += two;
        c += three;
        d += four;
        any |= one | two;
        other |= three | four;
    }
    atomic_signal_fence(memory_order_seq_cst);
    a += b + c + d;
    any |= other;
    return (any[0] | any[1]) >= IMPOSSIBLE_BYTES ? UINT64_MAX : a[0] + a[1];
}
#else
static uint64_t row_sum(int row)
{
    const _Atomic uint64_t *words = hami_process->usage->charged[row];
    uint64_t a = 0, b = 0, any = 0, other = 0;

    _Static_assert(HAMI_MAX_SLOTS % 2 == 0, "summed in pairs");
    for (int slot = 0; slot < HAMI_MAX_SLOTS; slot += 2) {
        uint64_t one = atomic_load_explicit(&words[slot], memory_order_seq_cst);
        uint64_t two = atomic_load_explicit(&words[slot + 1], memory_order_seq_cst);

        a += one;
        b += two;
        any |= one;
        other |= two;
    }
    return (any | other) >= IMPOSSIBLE_BYTES ? UINT64_MAX : a + b;
}
#endif

static bool reserve(int row, uint64_t bytes, uint64_t limit)
{
    uint64_t own = atomic_fetch_add_explicit(own_word(row), bytes, memory_order_seq_cst) + bytes;

    if (__builtin_expect(limit != 0 && row_sum(row) > limit, 0)) {
        atomic_fetch_sub_explicit(own_word(row), bytes, memory_order_release);
        return false;
    }
    note_high(row, own);
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
    uint64_t limit = limit_of(row), sum = row_sum(row);

    *alone = sum == hami_charged_here(row);
    if (limit != 0 && (sum > limit || bytes > limit - sum))
        return false;
    return reserve(row, bytes, limit);
}

/* Whether it would fit when what the dead had is free. */
static bool is_worth_waiting(int row, uint64_t bytes, uint64_t coming)
{
    uint64_t limit = limit_of(row), sum = row_sum(row);

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

/* Whether there is a word to charge. Otherwise *answer is what hami_charge says. */
static bool has_word(int row, bool *answer)
{
    enum hami_mode mode = hami_mode_settled();

    *answer = mode == HAMI_MODE_FREE || mode == HAMI_MODE_UNKNOWN;
    return mode == HAMI_MODE_SLICE && row >= 0 && row < HAMI_MAX_DEVICES;
}

bool hami_charge(int row, uint64_t bytes)
{
    bool answer;

    if (!has_word(row, &answer))
        return answer;
    if (bytes >= IMPOSSIBLE_BYTES)
        return false;
    hami_correct();
    if (__builtin_expect(reserve(row, bytes, limit_of(row)), 1))
        return true;
    return reserve_contended(row, bytes);
}

void hami_charge_taken(int row, uint64_t bytes)
{
    bool answer;

    if (has_word(row, &answer) && bytes < IMPOSSIBLE_BYTES)
        note_high(row, bytes + atomic_fetch_add_explicit(own_word(row), bytes,
                                                         memory_order_seq_cst));
}

/* Release: whoever sees the smaller word may ask the driver for what it had, after we gave it. */
void hami_refund(int row, uint64_t bytes)
{
    bool answer;

    if (bytes != 0 && has_word(row, &answer))
        note_low(row, atomic_fetch_sub_explicit(own_word(row), bytes, memory_order_release) -
                          bytes);
}

uint64_t hami_charged(int row)
{
    bool answer;

    return has_word(row, &answer) ? row_sum(row) : 0;
}

uint64_t hami_charged_here(int row)
{
    bool answer;

    return has_word(row, &answer) ? atomic_load_explicit(own_word(row), memory_order_relaxed) : 0;
}

bool hami_within(int row)
{
    bool answer;
    uint64_t limit;

    if (!has_word(row, &answer))
        return answer;
    limit = limit_of(row);
    return limit == 0 || row_sum(row) <= limit;
}
