/* What this process is allowed: found at its first cuInit (or question to NVML), followed live. */
#ifndef HAMI_SLICE_STATE_H
#define HAMI_SLICE_STATE_H

#include "slice/process.h"

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

/* Whether requests of this process are counted, or refused: what every hook asks first. False: the
 * hook is a plain call of the driver. */
static inline bool hami_counting(void)
{
    enum hami_mode mode = hami_mode_settled();

    return mode == HAMI_MODE_SLICE || mode == HAMI_MODE_CLOSED;
}

/* The revision of the limits in use, for a caller that only wants to know whether to look closer:
 * two loads. It may be wrong for an instant while the agent writes, never for longer. */
static inline uint64_t hami_page_revision(const struct hami_limits_page *page)
{
    uint8_t index = atomic_load_explicit(&page->index, memory_order_acquire);

    return __atomic_load_n(&page->copies[index & 1].words[0], __ATOMIC_RELAXED);
}

/* The program was given, or refused, a function newer than this library: shown in its slot, now or
 * when it gets one. */
void hami_bypass_seen(void);

#endif
