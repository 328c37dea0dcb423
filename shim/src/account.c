/* Charging and giving back. There is no shared total: a total beside the processes' words would be
 * two words, and a process killed between them would leak or be over-granted. So each process adds
 * to a word of its own and then looks at all of them.
 *
 * Memory order: of two processes that reserve at once, each adds (seq_cst) before it loads (seq_cst).
 * In the one order of all these operations one addition is the last, and whoever made it sees the
 * other: both can refuse, both cannot be granted what only one may have. */
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

/* Of the whole row. Words are written by other processes of the container, which may write anything:
 * if one is no figure, neither is the sum, and UINT64_MAX stands for it. Four chains of additions:
 * one alone takes twice as long as the loads. */
static uint64_t row_sum(int row)
{
    _Atomic uint64_t *words = hami_process->usage->charged[row];
    uint64_t sum[4] = {0}, all[4] = {0};

    _Static_assert(HAMI_MAX_SLOTS % 4 == 0, "summed in fours");
    for (int slot = 0; slot < HAMI_MAX_SLOTS; slot += 4) {
        for (int i = 0; i < 4; i++) {
            uint64_t word = atomic_load_explicit(&words[slot + i], memory_order_seq_cst);

            sum[i] += word;
            all[i] |= word;
        }
    }
    if ((all[0] | all[1] | all[2] | all[3]) >= IMPOSSIBLE_BYTES)
        return UINT64_MAX;
    return sum[0] + sum[1] + sum[2] + sum[3];
}

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
        struct timespec pause = {.tv_nsec = 10000 + (long)(seed % 40000)};

        nanosleep(&pause, NULL);
    }
}

static bool reserve_contended(int row, uint64_t bytes)
{
    for (int try = 1; try < TRIES; try++) {
        uint64_t limit, sum;

        if (try == TRIES_SPINNING)
            hami_slots_recover();
        back_off(try);
        limit = limit_of(row);
        sum = row_sum(row);
        /* Looking first: a reservation that cannot hold would only be in the way of others'. */
        if ((limit == 0 || (sum <= limit && bytes <= limit - sum)) && reserve(row, bytes, limit))
            return true;
        if (try >= TRIES_ALONE && sum == hami_charged_here(row))
            break;
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
        note_high(row, atomic_fetch_add_explicit(own_word(row), bytes, memory_order_seq_cst) + bytes);
}

/* Release: whoever sees the smaller word may ask the driver for what it had, after we gave it. */
void hami_refund(int row, uint64_t bytes)
{
    bool answer;

    if (bytes != 0 && has_word(row, &answer))
        note_low(row, atomic_fetch_sub_explicit(own_word(row), bytes, memory_order_release) - bytes);
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
