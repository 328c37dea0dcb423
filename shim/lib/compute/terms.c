#include "compute/terms.h"

#include <string.h>

/* NVML has no figures per process on a MIG device, which is a share of a card by itself. */
static bool is_whole_card(const struct hami_limits *limits, unsigned int row)
{
    return strncmp(limits->devices[row].uuid, "MIG-", 4) != 0;
}

bool hami_is_limited(const struct hami_limits *limits, unsigned int row)
{
    uint32_t cores = limits->devices[row].cores;

    return limits->policy != HAMI_POLICY_DISABLE && cores > 0 && cores < 100 &&
           is_whole_card(limits, row);
}

bool hami_may_be_held(const struct hami_limits *limits, unsigned int row)
{
    return limits->policy != HAMI_POLICY_DISABLE && is_whole_card(limits, row);
}

/* What the monitor hands out under these limits; 0: nothing, or it has not seen them yet, and what it
 * handed out under others must not outlive them. */
static uint32_t share_of(const struct hami_limits *limits, const struct hami_observed *observed,
                         unsigned int row)
{
    uint64_t revision = atomic_load_explicit(&observed->share_revision, memory_order_relaxed);

    if (revision != limits->revision)
        return 0;
    return atomic_load_explicit(&observed->share[row], memory_order_relaxed);
}

/* The most that a monitor may hand out. */
static uint32_t limit_of(const struct hami_limits *limits, unsigned int row)
{
    const struct hami_device_limit *device = &limits->devices[row];

    if (limits->policy == HAMI_POLICY_FORCE && device->cores > 0)
        return device->cores;
    if (device->cores_limit == 0)
        return 100;
    return device->cores > device->cores_limit ? device->cores : device->cores_limit;
}

struct hami_terms hami_terms_of(const struct hami_limits *limits,
                                const struct hami_observed *observed, unsigned int row)
{
    struct hami_terms now = {.rate = limits->devices[row].cores * 100,
                             .counted = hami_is_limited(limits, row),
                             .watched = observed != NULL};
    uint64_t contention;
    uint32_t share;

    now.limited = now.counted;
    if (!observed || !hami_may_be_held(limits, row))
        return now;
    share = share_of(limits, observed, row);
    if (share > 0) {
        now.rate = limit_of(limits, row) * 100;
        now.rate = share < now.rate ? share : now.rate;
        now.counted = now.limited = true;
        return now;
    }
    /* A monitor that hands out nothing says who else is there. Where nobody says whether the device
     * is shared, it is. */
    contention = atomic_load_explicit(&observed->devices[row].contention, memory_order_relaxed);
    now.limited = now.counted &&
                  (limits->policy == HAMI_POLICY_FORCE || contention & HAMI_CONTENTION_OTHERS);
    now.yields = limits->priority > 0 && contention & HAMI_CONTENTION_HIGHER;
    return now;
}
