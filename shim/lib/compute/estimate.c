#include "compute/estimate.h"

#include "compute/bucket.h"

/* An entry's mean follows the last few dozen measurements. */
#define WEIGHT 24
/* A measurement far above the mean is mostly a kernel that another tenant's time slice interrupted.
 * Counted in full it would overcharge the launches until the next one; what the interruptions come
 * to is in the monitor's figures. Something that really became slower gets there in a few steps. */
#define OUTLIER 4
#define SETTLED 4
/* 0 is taken. */
#define SHORTEST 1

/* What an unmeasured launch is charged while nothing at all is known. Two of them use up a full
 * bucket: a program that starts by queueing long kernels is held back until the first is
 * measured. */
#define PROBE (HAMI_BUCKET_FULL * 2 / 3)
/* The same when other work was measured; and where this work cannot be. */
#define FIRST_PROBE (100 * HAMI_MICROSECOND)

static void clear(struct hami_estimate *entry)
{
    atomic_store_explicit(&entry->mean, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->samples, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->launches, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->pending, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->guessed, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->guesses, 0, memory_order_relaxed);
}

/* A kernel on twice the grid takes up to twice as long; on half the grid perhaps no less. */
static int64_t neighbours_suggest(struct hami_estimates *table, const struct hami_what *what)
{
    for (uint32_t far = 1; far <= 4 && what->size != HAMI_ESTIMATE_GRAPH; far++) {
        for (int up = 0; up < 2; up++) {
            struct hami_what other = *what;
            const struct hami_estimate *entry;

            if (!up && what->size < far)
                continue;
            other.size = up ? what->size + far : what->size - far;
            entry = hami_estimate_find(table, hami_what_key(&other));
            if (entry && hami_estimate_known(table, entry))
                return atomic_load_explicit(&entry->mean, memory_order_relaxed) << (up ? 0 : far);
        }
    }
    return 0;
}

/* Which of the candidates a new entry may have: a free one, else one that nobody measured since
 * things were forgotten, else the one with the least behind it. */
static struct hami_estimate *victim(struct hami_estimates *table, uint64_t key)
{
    struct hami_estimate *least = hami_estimate_at(table, key, 0);
    uint32_t least_samples = UINT32_MAX;

    for (unsigned int i = 0; i < HAMI_ESTIMATE_PROBES; i++) {
        struct hami_estimate *entry = hami_estimate_at(table, key, i);
        uint32_t samples = atomic_load_explicit(&entry->samples, memory_order_relaxed);

        if (atomic_load_explicit(&entry->key, memory_order_relaxed) == 0)
            return entry;
        if (!hami_estimate_known(table, entry))
            samples = 0;
        if (samples < least_samples) {
            least_samples = samples;
            least = entry;
        }
    }
    return least;
}

struct hami_estimate *hami_estimate_make(struct hami_estimates *table, const struct hami_what *what)
{
    uint64_t key = hami_what_key(what);
    struct hami_estimate *entry = hami_estimate_find(table, key);
    uint64_t found;

    if (entry)
        return entry;
    entry = victim(table, key);
    found = atomic_load_explicit(&entry->key, memory_order_relaxed);
    /* Two threads that meet here for one key can make two entries of it, of which the first is
     * found ever after. */
    if (found == key || !atomic_compare_exchange_strong_explicit(&entry->key, &found, key,
                                                                 memory_order_relaxed,
                                                                 memory_order_relaxed))
        return entry;
    clear(entry);
    atomic_store_explicit(&entry->mean, neighbours_suggest(table, what), memory_order_relaxed);
    atomic_store_explicit(&entry->generation,
                          atomic_load_explicit(&table->generation, memory_order_relaxed),
                          memory_order_relaxed);
    return entry;
}

int64_t hami_estimate_guess(const struct hami_estimates *table, const struct hami_estimate *entry)
{
    int64_t guess = atomic_load_explicit(&entry->mean, memory_order_relaxed);
    int64_t mean = atomic_load_explicit(&table->mean, memory_order_relaxed);
    uint32_t launches = atomic_load_explicit(&entry->launches, memory_order_relaxed);
    bool measuring = launches < 2 ||
                     atomic_load_explicit(&entry->pending, memory_order_relaxed) > 0;
    int64_t probe = PROBE;

    if (guess > 0)
        return guess;
    if (!measuring)
        return mean > 0 ? mean : FIRST_PROBE;
    /* Once other work is known, the first launches of something new are taken to be like it, and
     * each further one that comes before the measurement to be twice as long. */
    if (mean > 0 && launches < 8) {
        probe = (mean > FIRST_PROBE ? mean : FIRST_PROBE) << launches;
        probe = probe < PROBE ? probe : PROBE;
    }
    return probe > mean ? probe : mean;
}

void hami_estimate_guessed(struct hami_estimate *entry, int64_t time)
{
    if (atomic_load_explicit(&entry->samples, memory_order_relaxed) == 0)
        atomic_store_explicit(&entry->mean, time > SHORTEST ? time : SHORTEST,
                              memory_order_relaxed);
}

static int64_t moved(int64_t mean, int64_t time, uint32_t samples)
{
    int64_t weight = samples + 1 < WEIGHT ? (int64_t)samples + 1 : WEIGHT;

    return mean + (time - mean) / weight;
}

int64_t hami_estimate_measured(struct hami_estimates *table, struct hami_estimate *entry,
                               int64_t time)
{
    uint32_t samples = hami_estimate_known(table, entry)
                           ? atomic_load_explicit(&entry->samples, memory_order_relaxed)
                           : 0;
    int64_t mean = samples ? atomic_load_explicit(&entry->mean, memory_order_relaxed) : 0;
    int64_t all = atomic_load_explicit(&table->mean, memory_order_relaxed);
    int64_t guessed = atomic_exchange_explicit(&entry->guessed, 0, memory_order_relaxed);
    int64_t guesses = atomic_exchange_explicit(&entry->guesses, 0, memory_order_relaxed);
    int64_t counted = time > SHORTEST ? time : SHORTEST;

    if (samples >= SETTLED && counted / OUTLIER > mean)
        counted = mean * OUTLIER;
    atomic_store_explicit(&entry->mean, moved(mean, counted, samples), memory_order_relaxed);
    atomic_store_explicit(&table->mean, all ? moved(all, counted, WEIGHT) : counted,
                          memory_order_relaxed);
    atomic_store_explicit(&entry->generation,
                          atomic_load_explicit(&table->generation, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(&entry->samples, samples < UINT32_MAX ? samples + 1 : samples,
                          memory_order_relaxed);
    return (int64_t)((__int128)guesses * time / HAMI_GUESS) - guessed;
}

void hami_estimate_forget(struct hami_estimates *table, const struct hami_what *what)
{
    struct hami_estimate *entry = hami_estimate_find(table, hami_what_key(what));

    if (entry)
        clear(entry);
}

void hami_estimate_suspect_all(struct hami_estimates *table)
{
    atomic_fetch_add_explicit(&table->generation, 1, memory_order_relaxed);
}
