#include "slice/follow.h"

#include <string.h>
#include <time.h>

#include "base/log.h"
#include "slice/page_read.h"
#include "slice/slice.h"

/* A copy that somebody may be reading is written again only after so many more changes. */
#define COPIES 16
#define STALE_NS UINT64_C(10000000000)

static union hami_limits_copy ring[COPIES];
static unsigned newest; /* written by whoever holds hami_process->following */
static _Atomic uint64_t refused; /* a revision that is not for us */

void hami_limits_start(const struct hami_limits_page *page, const union hami_limits_copy *first)
{
    newest = 0;
    atomic_store_explicit(&refused, 0, memory_order_relaxed); /* the first revision is 1 */
    ring[0] = *first;
    hami_process->page = page;
    atomic_store_explicit(&hami_process->limits, &ring[0].content, memory_order_release);
}

/* A row means one device for the life of a process: its charges lie there. */
static bool same_devices(const struct hami_limits *one, const struct hami_limits *other)
{
    if (one->device_count != other->device_count)
        return false;
    for (uint32_t i = 0; i < one->device_count; i++)
        if (strcmp(one->devices[i].uuid, other->devices[i].uuid) != 0)
            return false;
    return true;
}

/* Take over a newer revision, unless another thread is doing so: what we have stays good. */
static const struct hami_limits *follow(const struct hami_limits *now)
{
    union hami_limits_copy *next;

    if (atomic_exchange_explicit(&hami_process->following, 1, memory_order_acquire))
        return now;
    now = atomic_load_explicit(&hami_process->limits, memory_order_relaxed);
    next = &ring[(newest + 1) % COPIES];
    *next = ring[newest % COPIES];
    if (hami_page_read(hami_process->page, next) == HAMI_PAGE_NEWER) {
        if (same_devices(now, &next->content)) {
            newest++;
            now = &next->content;
            atomic_store_explicit(&hami_process->limits, now, memory_order_release);
            hami_log(HAMI_INFO, "limits of revision %llu", (unsigned long long)now->revision);
        } else {
            atomic_store_explicit(&refused, next->content.revision, memory_order_relaxed);
            hami_log(HAMI_ERROR, "revision %llu is of other devices and is ignored",
                     (unsigned long long)next->content.revision);
        }
    }
    atomic_store_explicit(&hami_process->following, 0, memory_order_release);
    return now;
}

const struct hami_limits *hami_limits(void)
{
    const struct hami_limits *now =
        atomic_load_explicit(&hami_process->limits, memory_order_acquire);
    const struct hami_limits_page *page = hami_process->page;
    uint64_t revision;

    if (!page)
        return now;
    revision = hami_page_revision(page);
    if (__builtin_expect(revision == now->revision, 1) ||
        revision == atomic_load_explicit(&refused, memory_order_relaxed))
        return now;
    return follow(now);
}

static uint64_t coarse_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t hami_heartbeat(void)
{
    const struct hami_limits_page *page = hami_process->page;

    return page ? atomic_load_explicit(&page->observed.heartbeat, memory_order_acquire) : 0;
}

/* The heartbeat that is there at the first look may be a dead monitor's last one. */
const struct hami_observed *hami_observed(void)
{
    const struct hami_limits_page *page = hami_process->page;
    uint64_t beat, before, at;

    if (!page)
        return NULL;
    beat = atomic_load_explicit(&page->observed.heartbeat, memory_order_acquire);
    before = atomic_load_explicit(&hami_process->heartbeat, memory_order_relaxed);
    if (beat != before) {
        atomic_store_explicit(&hami_process->heartbeat, beat, memory_order_relaxed);
        if (before)
            atomic_store_explicit(&hami_process->beaten_at, coarse_now(), memory_order_relaxed);
    }
    at = atomic_load_explicit(&hami_process->beaten_at, memory_order_relaxed);
    return at && coarse_now() - at < STALE_NS ? &page->observed : NULL;
}
