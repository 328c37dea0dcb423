/* What this process is allowed: found at its first cuInit (or question to NVML), followed live. */
#ifndef HAMI_SLICE_STATE_H
#define HAMI_SLICE_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "hami_cuda.h"
#include "hami_slice.h"
#include "base/lock.h"

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
 * clone: there all is zero again, the mode is unknown and no lock is held. (A unit test without
 * slice.c defines `struct hami_process hami_process[1];` itself.) */
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

static inline enum hami_mode hami_mode(void)
{
    return (enum hami_mode)atomic_load_explicit(&hami_process->mode, memory_order_acquire);
}

/* Find the slice, map it, take a slot. Called after a successful real cuInit, and by a hook that
 * finds itself in a process whose driver works although we never saw cuInit. Idempotent. */
enum hami_mode hami_attach(void);
/* As hami_attach, without a slot: for a process that only asks NVML. hami_mode() stays as it is. */
enum hami_mode hami_attach_reader(void);
/* Attach if the driver works here although we saw no cuInit; the mode. */
enum hami_mode hami_attach_late(void);

/* The mode that attaching would come to, as far as a look at files and environment tells. */
enum hami_mode hami_mode_expected(void);

/* What a hook asks first: hami_mode(), with a process that got past our cuInit attached. */
static inline enum hami_mode hami_mode_settled(void)
{
    enum hami_mode mode = hami_mode();

    return __builtin_expect(mode != HAMI_MODE_UNKNOWN, 1) ? mode : hami_attach_late();
}

/* The program was given, or refused, a function newer than this library: shown in its slot, now or
 * when it gets one. */
void hami_bypass_seen(void);

/* The limits in force now; never NULL in HAMI_MODE_SLICE. A few loads when nothing changed. What
 * it points to stays whole for the length of one call; ask again after a wait. */
const struct hami_limits *hami_limits(void);
/* The monitor's words, or NULL: without a page, or when its heartbeat was not seen to change within
 * the last 10 s. */
const struct hami_observed *hami_observed(void);
/* The monitor's last heartbeat, however old; 0: without a page. */
uint64_t hami_heartbeat(void);

#define HAMI_ROW_NONE (-1) /* not a device of this slice: nothing may be taken from it */

/* Rows: the devices of the limits page in its order. */
int hami_row_of_ordinal(CUdevice ordinal);
int hami_row_of_uuid(const char *printed); /* GPU-..., MIG-... */
int hami_row_count(void);
CUdevice hami_ordinal_of_row(int row); /* -1: not visible to this process */

/* The row of the device of the current context; the driver's error where there is none. With a
 * single visible device no driver call is made unless `must_ask`. */
CUresult hami_current_row(int *row);

#endif
