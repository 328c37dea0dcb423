/* How long work takes on the device, learnt from event pairs: one entry per function (or graph),
 * context and order of magnitude of its grid. Read at every launch without a lock; written when a
 * measurement comes in, by whoever holds the samples' lock. */
#ifndef HAMI_ESTIMATE_H
#define HAMI_ESTIMATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HAMI_ESTIMATES 16384 /* a power of two; untouched ones cost no memory */

/* What is measured: a handle, where it runs, and log2 of how many blocks; see hami_what_*. */
struct hami_what {
    uint64_t handle;
    uint64_t context;
    uint32_t size;
};

struct hami_estimate {
    _Atomic uint64_t key;        /* hash of a hami_what; 0: free */
    _Atomic int64_t mean;        /* nanoseconds; without samples a guess, 0: not even that */
    _Atomic uint32_t samples;    /* measurements behind the mean */
    _Atomic uint32_t generation; /* of the table, when last measured; older: suspect */
    _Atomic uint32_t launches;   /* before the first measurement */
    _Atomic uint32_t pending;    /* measurements under way */
    /* Launches that were charged before anything was known, to be settled by the first measurement:
     * what they were charged, and that as a multiple of the guesses (in 1/HAMI_GUESS). */
    _Atomic int64_t guessed;
    _Atomic int64_t guesses;
} __attribute__((aligned(64)));

#define HAMI_GUESS 65536

struct hami_estimates {
    _Atomic uint32_t generation;
    _Atomic int64_t mean; /* of all measurements of this process; 0: none yet */
    struct hami_estimate entries[HAMI_ESTIMATES];
};

#define HAMI_ESTIMATE_GRAPH 63u /* `size` of a graph: no grid has it together with a function */

/* log2 of the number of blocks, rounded down; 0 for an empty or absurd grid. */
static inline uint32_t hami_grid_size(unsigned int x, unsigned int y, unsigned int z)
{
    uint64_t plane = (uint64_t)x * y;
    uint64_t volume;

    if (__builtin_mul_overflow(plane, (uint64_t)z, &volume))
        return 62;
    return volume ? 63u - (uint32_t)__builtin_clzll(volume) : 0;
}

static inline uint64_t hami_what_key(const struct hami_what *what)
{
    uint64_t hash = (what->handle ^ (what->context << 17 | what->context >> 47)) + what->size;

    hash *= UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 29;
    hash = (hash + what->size) * UINT64_C(0xbf58476d1ce4e5b9);
    return hash | 1;
}

/* Candidates for a key are a few neighbours. */
#define HAMI_ESTIMATE_PROBES 8

static inline struct hami_estimate *hami_estimate_at(struct hami_estimates *table, uint64_t key,
                                                     unsigned int probe)
{
    return &table->entries[((key >> 40) + probe) & (HAMI_ESTIMATES - 1)];
}

/* The entry of something known, or NULL. */
static inline struct hami_estimate *hami_estimate_find(struct hami_estimates *table, uint64_t key)
{
    for (unsigned int i = 0; i < HAMI_ESTIMATE_PROBES; i++) {
        struct hami_estimate *entry = hami_estimate_at(table, key, i);
        uint64_t found = atomic_load_explicit(&entry->key, memory_order_relaxed);

        if (found == key)
            return entry;
        if (found == 0)
            return NULL;
    }
    return NULL;
}

/* Measured since the last time something was forgotten. */
static inline bool hami_estimate_known(const struct hami_estimates *table,
                                       const struct hami_estimate *entry)
{
    return atomic_load_explicit(&entry->samples, memory_order_relaxed) > 0 &&
           atomic_load_explicit(&entry->generation, memory_order_relaxed) ==
               atomic_load_explicit(&table->generation, memory_order_relaxed);
}

/* As hami_estimate_find, made where it is not there: never NULL. A new entry begins with what a
 * measured neighbour in size suggests. */
struct hami_estimate *hami_estimate_make(struct hami_estimates *table,
                                         const struct hami_what *what);

/* What to charge for a launch of something not measured yet: the guess if there is one. Else what
 * makes a burst of such launches use up the budget before it has used up the device, as long as a
 * measurement is under way, and the mean of all work when none is. */
int64_t hami_estimate_guess(const struct hami_estimates *table, const struct hami_estimate *entry);

/* A first launch's time, which is good for a guess. */
void hami_estimate_guessed(struct hami_estimate *entry, int64_t time);

/* Take a measurement in. Returns what the launches that went before it still owe, or get back. */
int64_t hami_estimate_measured(struct hami_estimates *table, struct hami_estimate *entry,
                               int64_t time);

/* A handle may be given to something else now: remember its time as a guess. One handle; all. */
void hami_estimate_forget(struct hami_estimates *table, const struct hami_what *what);
void hami_estimate_suspect_all(struct hami_estimates *table);

#endif
