/* Who this process is: its mode, its slot and where its limits are. */
#ifndef HAMI_PROCESS_H
#define HAMI_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "hami_slice.h"

enum hami_mode {
    HAMI_MODE_UNKNOWN, /* cuInit has not succeeded here; a forked child starts so again */
    HAMI_MODE_FREE,    /* no slice and no limit in the environment: the library stands aside */
    HAMI_MODE_SLICE,   /* limits hold; a usage slot is held */
    HAMI_MODE_CLOSED,  /* a slice whose limits cannot be read: every request is out of memory */
};

#ifdef __x86_64__
#define HAMI_WHOLE_PAGE 4096
#else
#define HAMI_WHOLE_PAGE 65536 /* the largest page of memory that the architecture knows */
#endif

/* Who this process is. Alone in its page, which the kernel wipes in a forked child, even of a raw
 * clone: there all is zero again, the mode is unknown and no lock is held. */
struct hami_process {
    _Atomic uint32_t mode;    /* enum hami_mode */
    uint32_t slot;            /* in HAMI_MODE_SLICE: the usage slot held */
    uint64_t generation;      /* of that slot */
    int usage_fd;             /* holds the slot's lock */
    const char *usage_path;   /* where it was opened */
    struct hami_usage *usage; /* mapped shared; also of a reader, which holds no slot */
    /* Of slice.c and follow.c alone: */
    struct hami_lock attaching;
    _Atomic uint32_t found;     /* enum hami_mode of what was found; without a slot as yet */
    _Atomic uint32_t following; /* somebody copies a newer revision */
    _Atomic uint32_t bypass;    /* to be shown in the slot */
    _Atomic bool crowded;       /* closed because every slot was held */
    const struct hami_limits_page *page; /* NULL: the limits come from the environment */
    const struct hami_limits *_Atomic limits;
    _Atomic uint64_t heartbeat; /* the monitor's, as last seen */
    _Atomic uint64_t beaten_at; /* when it was seen to change; 0: never */
} __attribute__((aligned(HAMI_WHOLE_PAGE)));
extern struct hami_process hami_process[1];

#endif
