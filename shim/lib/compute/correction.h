/* What the monitor sees of this slice against what was charged for it. Elapsed time counts the time
 * slices of other tenants too, and it counts gaps as work; the card's own figures do not. */
#ifndef HAMI_CORRECTION_H
#define HAMI_CORRECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "hami_slice.h"

/* Of one process for one device; all zero at first. */
struct hami_correction {
    uint64_t heartbeat; /* the last one used */
    int64_t at;         /* when; 0: nothing used yet */
    int64_t done;       /* what was charged for work done until then */
    int64_t previous;   /* and of that, in the period before */
    /* Nanoseconds, older ones counting less: passed, seen busy by the monitor, charged, and charged
     * one period earlier each. */
    int64_t passed, busy, counted, counted_before;
    int unseen; /* readings in a row that saw nothing though time was charged */
    int unpaid; /* readings to come that may have work in them that was not paid for */
};

struct hami_reading {
    int64_t now;
    uint64_t heartbeat;   /* the monitor's, */
    uint64_t utilisation; /* and what it saw, in 1/100 percent */
    uint64_t in_force; /* the correction since the reading before; another process of the container
                        * may have replaced it just now */
    bool unpaid;    /* some was launched without a limit since the reading before */
    uint64_t most;  /* what the correction may be where some of what the monitor saw is of processes
                     * that charge another bucket, so that it cannot be taken from this; 0: none is */
    int64_t ahead;  /* what this process was charged for work that has yet to be done */
    int64_t launch; /* how long its launches take on average */
};

/* Use a reading of the monitor's if it is a new one. */
void hami_correction_use(struct hami_correction *correction, struct hami_bucket *bucket,
                         const struct hami_reading *reading);

/* Launches were not charged for a while: what the monitor sees from here on is compared with what is
 * charged from here on. The correction that was found stays. */
void hami_correction_restart(struct hami_correction *correction, uint64_t heartbeat);

/* There is no monitor yet, or no longer: its figures say nothing about now. Should it come, its first
 * one is about what is charged from here on. */
void hami_correction_drop(struct hami_correction *correction, struct hami_bucket *bucket,
                          const struct hami_reading *reading);

#endif
