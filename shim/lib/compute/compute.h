/* The compute share of one process: what its launches are charged, and which may go.
 *
 * Work is charged in device time, and not once per launch: what a launch is charged is by how much
 * it puts off the moment at which this process is done with the device, its *horizon*. Work that
 * runs beside other work of the process puts off nothing and is free. Which work that is, nobody
 * knows beforehand: what is launched on one stream while another has work is taken to come after
 * that, until measurements show that it does not wait (`overlap`).
 *
 * Nothing here sleeps, calls the driver or asks for the time: gate.c and samples.c do, and the
 * model in tests/ does it in a time of its own. */
#ifndef HAMI_COMPUTE_H
#define HAMI_COMPUTE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "compute/bucket.h"
#include "compute/correction.h"
#include "compute/estimate.h"
#include "compute/terms.h"

#define HAMI_STREAMS 1024 /* a power of two */
#define HAMI_STREAMS_LISTED 64

/* Until when a stream has work, as far as this process knows; in hami_now()'s time. */
struct hami_stream {
    _Atomic uint64_t key; /* 0: free */
    _Atomic int64_t end;
    _Atomic int64_t alone; /* the same if it waited for no other stream */
} __attribute__((aligned(64)));

/* What is launched by one rate may be in so many readings that come after it was changed. */
#define HAMI_RATES_KEPT 5

/* One process on one device. */
struct hami_share {
    _Atomic int64_t horizon; /* paid for up to here */
    /* When the device would be done if it did all streams' work in the order of the launches, of
     * each launch that part which does not run beside others. */
    _Atomic int64_t queue;
    _Atomic int64_t restated;  /* by how much single measurements moved that in all */
    _Atomic uint32_t overlap;  /* the part that does, of HAMI_OVERLAP_ALL; 0: nothing is known */
    _Atomic uint32_t trying;   /* launches under way to find out */
    _Atomic bool closed; /* the gate */
    /* What this process was charged for in all, and of that the work known to be done, and since
     * when: up to the latest launch whose measurement came in. `measuring` are under way. */
    _Atomic int64_t charged, done, done_at;
    _Atomic uint32_t measuring;
    _Atomic uint64_t seen; /* 1 more than the monitor's last heartbeat, 0 for none; 0: never looked */
    _Atomic uint64_t uncharged; /* of a hami_sight, when that was last looked at */
    _Atomic bool unpaid; /* something was launched without a limit since */
    _Atomic uint64_t in_force;  /* the correction, as last seen before the next heartbeat */
    /* The bucket as it would be if nobody else charged it. The container's own lies in a file that
     * any program of the container may fill; it holds no more than this one, whatever they write. */
    struct hami_bucket own;
    /* What the monitor saw beyond the share, which nothing in the container can change; and whether
     * that was ever more than can be by chance: the file is not what it should be then. */
    _Atomic int64_t excess;
    _Atomic bool distrusts;
    struct hami_lock correcting;
    _Atomic uint32_t rate, highest; /* what it may use now, and at most since the last heartbeat */
    int64_t judged_at; /* under the lock: when its figure was last compared with that, */
    uint32_t rates[HAMI_RATES_KEPT]; /* which was this then, and at the readings before; 0: never */
    struct hami_correction correction, of_own; /* under the lock: of the two buckets */
} __attribute__((aligned(64)));

/* Some of each launch always counts: on ever more streams more is launched than runs at a time. */
#define HAMI_OVERLAP_ALL 65536u
#define HAMI_OVERLAP_MOST (HAMI_OVERLAP_ALL - HAMI_OVERLAP_ALL / 64)

/* One process. All zero at first; about 1.1 MiB, of which only what is used is touched. */
struct hami_compute {
    struct hami_share shares[HAMI_MAX_DEVICES];
    struct hami_stream streams[HAMI_STREAMS];
    struct hami_stream crowd; /* for all streams that find no place in the table */
    _Atomic uint32_t listed;  /* how many there were; the last of them: */
    struct hami_stream *_Atomic list[HAMI_STREAMS_LISTED];
    struct hami_estimates estimates;
    _Atomic int64_t sample_cost; /* what one measurement costs the launching thread; 0: not known */
    _Atomic int64_t launch_cost; /* what the driver's launch costs it */
};

/* What one thread knows, so that most of its launches touch nothing that others write: a
 * stream's end and the horizon as they were when it last looked, which it does after 64 launches
 * at the latest, and device time that it has taken ahead (a lease, at most HAMI_LEASE). All zero
 * at first. */
#define HAMI_LEASE HAMI_MILLISECOND
#define HAMI_LAUNCHES_AHEAD 64

struct hami_launcher {
    struct hami_share *share;   /* of the device that the rest is about; NULL: none yet */
    struct hami_stream *stream; /* whose end is kept here */
    uint64_t stream_key;
    int64_t end;        /* of the stream */
    int64_t unflushed;  /* of that, not yet in the stream itself, nor in the queue */
    int64_t since;      /* when that begins, at the earliest */
    int64_t first;      /* when this thread last looked at the clock */
    int64_t covered;    /* ends up to here cost nothing */
    int64_t lease_end;  /* the horizon, if this thread was the last to put it off; 0: it was not */
    int64_t lease_used; /* of that the part in use */
    bool launched;      /* anything on this device */
    int64_t credit;     /* device time to launch until the next measurement */
    int64_t launch_cost;
    uint32_t launches;  /* since it last looked */
    int64_t beside;     /* how long those run that were admitted by hami_admit_beside since */
    uint32_t random;
};

/* One launch. */
struct hami_work {
    struct hami_what what;
    uint64_t stream_key; /* of hami_stream_key */
    struct hami_bucket *bucket;
    struct hami_share *share;
    /* Set by hami_admit: */
    bool limited;
    bool known;    /* the estimate was measured */
    bool forgiven; /* the debt it made was more than a bucket remembers */
    bool idle;     /* nothing is known to run before it in its stream */
    bool mixed;    /* work of other streams may be in its way */
    int64_t behind;   /* so much of the queue comes after what is before it in its stream */
    int64_t alone;    /* the part of work that runs beside no other, of HAMI_OVERLAP_ALL, */
    int64_t restated; /* and this of the share, when it was admitted */
    int64_t settled;  /* by so much measurements of this launch moved the queue */
    struct hami_estimate *entry;
    struct hami_stream *stream;
    int64_t estimate; /* how long it is taken to run */
    int64_t start;    /* when its stream comes to it */
    int64_t lasts;    /* and how long to last in its stream, with what it waits for */
    int64_t charged;  /* by how much the horizon moved for it */
    int64_t place;    /* what the process was charged for in all with it */
    bool first;       /* of its function: a measurement has the loading of code in it */
    bool trial;       /* it went though the gate is closed, to find out what runs beside what */
    bool sample;      /* measure this one */
};

#define HAMI_ROW_OF_KEY UINT64_C(15)

/* A stream on a device; `own` is a per-thread stream's thread, else NULL. Never 0. */
static inline uint64_t hami_stream_key(uint64_t handle, unsigned int row, const void *own)
{
    return own ? (uint64_t)(uintptr_t)own << 4 | UINT64_C(1) << 63 | row
               : (handle ? handle : 1) << 4 | row;
}

/* A launch of something measured, on the stream that this thread launched on before, within what is
 * paid for: admitted here and now, and no measurement is due. Else hami_admit must be asked. */
static inline bool hami_admit_quickly(struct hami_launcher *launcher, uint64_t stream_key,
                                      int64_t estimate)
{
    int64_t end = launcher->end + estimate;

    if (launcher->stream_key != stream_key || end > launcher->covered ||
        launcher->launches >= HAMI_LAUNCHES_AHEAD)
        return false;
    launcher->credit -= estimate > launcher->launch_cost ? estimate : launcher->launch_cost;
    if (launcher->credit < 0)
        return false;
    launcher->end = end;
    launcher->unflushed += estimate;
    launcher->launches++;
    return true;
}

/* The same for another stream than before, as far as that can be judged without asking for the
 * time: what runs beside what depends on it. */
bool hami_admit_beside(struct hami_compute *compute, struct hami_launcher *launcher,
                       unsigned int row, uint64_t stream_key, int64_t estimate);

/* 0: the launch may go and was charged. Else ask again after so many nanoseconds at the latest;
 * much sooner if a measurement may come in or the terms may change meanwhile. */
int64_t hami_admit(struct hami_compute *compute, struct hami_launcher *launcher,
                   struct hami_work *work, const struct hami_terms *terms, int64_t now);

/* The driver refused the launch that hami_admit let go; or that hami_admit_quickly did, of which
 * `work` has the estimate alone. */
void hami_admit_undo(struct hami_launcher *launcher, const struct hami_work *work);

#endif
