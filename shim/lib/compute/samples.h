/* Measurements under way: pairs of the driver's events around single launches. Nobody waits for
 * one: a later launch, or a thread that waits for its turn, looks whether the oldest has come in.
 *
 * The events live in the context that was current when they were made; a process with several has
 * some for each. All driver calls here are safe beside a stream capture of any thread. */
#ifndef HAMI_SAMPLES_H
#define HAMI_SAMPLES_H

#include "compute/compute.h"
#include "hami_cuda.h"

#define HAMI_SAMPLES 64

enum hami_sample_state { HAMI_SAMPLE_FREE, HAMI_SAMPLE_TAKEN, HAMI_SAMPLE_RECORDED };

/* All but the state and hints belongs to the thread that made it TAKEN. */
struct hami_sample {
    _Atomic uint32_t state;    /* enum hami_sample_state */
    _Atomic int64_t expected;  /* when it is worth looking at */
    _Atomic uintptr_t context; /* of the events; 0: there are none */
    CUevent start, end;
    struct hami_work work;
    int64_t said;     /* what the launch is taken to last, for now */
    int64_t launched; /* when; until the launch returns, when its making began */
    int64_t making;   /* how long that took, with the record of the start */
    int64_t running;  /* when it was first seen to have begun; 0: not yet */
    /* Hints for who settles another one: the stream, whether that is gone, and when this is thought
     * to end, where the queue does not know it: 0 where it does. */
    _Atomic uint64_t stream_key;
    _Atomic bool orphaned;
    _Atomic int64_t ends;
} __attribute__((aligned(64)));

/* Of one process; all zero at first. */
struct hami_samples {
    struct hami_sample all[HAMI_SAMPLES];
};

/* On the stack of a thread that measures a launch. */
struct hami_measuring {
    struct hami_sample *sample; /* NULL: it is not measured after all */
    int64_t begun, recorded;    /* the time before the first record, and after it */
};

/* Record the start, with the launch's own kind of stream handle. False: not possible now. */
bool hami_sample_begin(struct hami_samples *samples, struct hami_compute *compute,
                       struct hami_measuring *measuring, const struct hami_work *work,
                       CUstream stream, bool per_thread);
/* After the launch: record the end, unless the driver refused; then look at what has come in. */
void hami_sample_end(struct hami_samples *samples, struct hami_compute *compute,
                     struct hami_measuring *measuring, CUstream stream, bool per_thread,
                     CUresult result);

/* Look at the measurements that are worth it, those expected first; at up to `most` that have
 * come in, and not on after one that has not. True: some are under way. The caller's capture
 * mode must be relaxed: see hami_samples_poll. */
bool hami_samples_look(struct hami_samples *samples, struct hami_compute *compute, int64_t now,
                       int most);

/* The same from a thread that waits for its turn. */
bool hami_samples_poll(struct hami_samples *samples, struct hami_compute *compute, int64_t now);

/* The stream goes. What was launched on it may go on; its measurement does. */
void hami_samples_forget_stream(struct hami_samples *samples, uint64_t stream_key);

/* The context ends, and its events with it. */
void hami_samples_forget_context(struct hami_samples *samples, CUcontext context);

#endif
