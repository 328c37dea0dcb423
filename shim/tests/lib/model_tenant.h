/* Processes of tenants in virtual time, for bucket_model_test.c: programs that launch, through the
 * library's own code for the compute share, on a card of model_card.h. */
#ifndef MODEL_TENANT_H
#define MODEL_TENANT_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/compute.h"
#include "compute/samples.h"
#include "model_card.h"

#define US INT64_C(1000)
#define MS INT64_C(1000000)
#define S INT64_C(1000000000)

enum style {
    BACKLOGGED, /* launches as fast as it may */
    WAITING,    /* waits for each launch's end */
    BURSTY,     /* works `on`, then pauses `off` */
};

/* What a program of the container writes over its bucket, all the time. */
enum scribble {
    NOTHING,
    LEVEL,    /* there is always more time */
    WORTH,    /* what is charged is worth little */
    COUNTS,   /* ever more was charged, and somebody has seen to it */
    ALL,      /* all of it, and that it was filled long ago */
    NOISE,    /* anything anywhere */
    AT_TIMES, /* all of it for three seconds, then nothing for as long */
};

struct tenant {
    uint32_t percent;
    enum style style;
    int64_t kernel; /* how long one runs alone */
    int width;      /* of it, in thousandths; 0: all of the card */
    int streams;    /* 0: one */
    int functions;  /* with times from kernel / 2 to kernel * 3 / 2; 0: one */
    int spread;     /* a kernel's time varies by up to so many percent */
    int graph;      /* kernels launched together as a graph; 0: none */
    int64_t on, off;
    int processes; /* of the container; 0: one */
    bool in_turn;  /* each of them begins its `on` where that of the one before ends */
    enum hami_policy policy;
    enum scribble scribble;
    int64_t starts;
    int64_t strange; /* not 0: from then on each launch is of a new function and fills the card */
    uint32_t percent_later; /* not 0: what `percent` becomes at `later` */
    int64_t sways;          /* not 0: it becomes that and again `percent`, so long each */
    int64_t later;
    /* What is expected of it; 0: its cap. */
    double share;
    double least; /* lowest share that is right where `share` is an upper bound; 0: as `share` */
};

struct container {
    struct hami_bucket bucket;
    uint64_t heartbeat; /* the monitor's words for it */
    uint64_t utilisation, contention;
};

struct host {
    struct hami_compute compute;
    struct hami_samples samples;
    struct hami_launcher launcher;
    struct model_process device;
    const struct tenant *tenant;
    struct container *container;
    int64_t wakes; /* when its next step is */
    bool asked;    /* a launch waits for its turn */
    struct hami_work work;
    int64_t time; /* that what it launches next will take */
    int stream;
    uint64_t launched;
    uint32_t random;
    int64_t since; /* when it began the first `on` */
};

/* One step of the program, at host->wakes; sets when the next one is. */
void model_step(struct host *host, struct model_card *card);
/* Give back what the driver of this host holds. */
void model_end(struct host *host);

#endif
