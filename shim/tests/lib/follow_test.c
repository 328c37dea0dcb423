/* Limits that change under a process, and a monitor's heartbeat. links: lib/slice/follow.c lib/base/log.c */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "expect.h"
#include "sample.h"
#include "slice/follow.h"
#include "slice/slice.h"

struct hami_process hami_process[1];
static struct hami_limits_page page;
static _Atomic int64_t seconds = 1000;

/* Instead of the C library's: this program defines it first, so the time is the test's. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    *now = (struct timespec){.tv_sec = atomic_load(&seconds)};
    return 0;
}

/* As sample_fill, with devices whose names do not follow from the revision. */
static void fill(union hami_limits_copy *copy, uint64_t revision, const char *uuid)
{
    sample_fill(copy, revision, 2);
    for (int i = 0; i < 2; i++) {
        memset(copy->content.devices[i].uuid, 0, HAMI_UUID_SIZE);
        snprintf(copy->content.devices[i].uuid, HAMI_UUID_SIZE, "%s-%d", uuid, i);
    }
    copy->content.checksum = hami_limits_sum(copy);
}

static void start(uint64_t revision)
{
    union hami_limits_copy first;

    memset(hami_process, 0, sizeof(hami_process));
    sample_page(&page, revision, 2);
    fill(&page.copies[0], revision, "GPU");
    first = page.copies[0];
    hami_limits_start(&page, &first);
}

/* As the node agent writes. */
static void change(uint64_t revision, const char *uuid)
{
    uint8_t idle = !atomic_load(&page.index);
    union hami_limits_copy copy;

    fill(&copy, revision, uuid);
    for (size_t i = 0; i < HAMI_LIMITS_WORDS; i++)
        __atomic_store_n(&page.copies[idle].words[i], copy.words[i], __ATOMIC_RELAXED);
    atomic_store_explicit(&page.index, idle, memory_order_release);
}

static void a_change_is_seen_at_the_next_look(void)
{
    const struct hami_limits *first, *then;

    start(1);
    first = hami_limits();
    EXPECT(first->revision == 1 && first->devices[1].memory_bytes == 1001);
    EXPECT(hami_limits() == first);
    change(2, "GPU");
    then = hami_limits();
    EXPECT(then->revision == 2 && then->devices[1].memory_bytes == 2001);
    EXPECT(first->revision == 1); /* whoever still reads the old one reads it whole */
    change(7, "GPU");
    EXPECT(hami_limits()->revision == 7);
    for (uint64_t revision = 8; revision < 100; revision++) {
        change(revision, "GPU");
        EXPECT(hami_limits()->devices[0].memory_bytes == revision * 1000);
    }
}

static void an_older_revision_is_not_taken(void)
{
    start(5);
    change(4, "GPU");
    EXPECT(hami_limits()->revision == 5);
}

/* Charges lie in rows: a page that gives them to other devices is not for this process. */
static void other_devices_are_refused(void)
{
    start(1);
    change(2, "MIG");
    EXPECT(hami_limits()->revision == 1);
    EXPECT(hami_limits()->revision == 1);
    change(3, "GPU");
    EXPECT(hami_limits()->revision == 3);
}

static void a_broken_copy_changes_nothing(void)
{
    start(1);
    change(2, "GPU");
    page.copies[atomic_load(&page.index)].content.devices[0].memory_bytes = 0;
    EXPECT(hami_limits()->revision == 1);
    EXPECT(hami_limits()->devices[0].memory_bytes == 1000);
}

static void limits_of_the_environment_stay(void)
{
    union hami_limits_copy first;

    memset(hami_process, 0, sizeof(hami_process));
    EXPECT(hami_limits() == NULL);
    fill(&first, 1, "GPU");
    hami_limits_start(NULL, &first);
    EXPECT(hami_limits()->revision == 1 && hami_limits() != &first.content);
    EXPECT(hami_observed() == NULL);
}

static void beat(uint64_t heartbeat)
{
    atomic_store(&page.observed.heartbeat, heartbeat);
}

static void a_monitor_is_believed_while_it_beats(void)
{
    start(1);
    EXPECT(!hami_observed());
    beat(41); /* perhaps the last one of a monitor that died long ago */
    EXPECT(!hami_observed());
    seconds += 1;
    EXPECT(!hami_observed());
    beat(42);
    EXPECT(hami_observed() == &page.observed);
    seconds += 9;
    EXPECT(hami_observed() == &page.observed);
    seconds += 1;
    EXPECT(!hami_observed());
    beat(43);
    EXPECT(hami_observed() == &page.observed);
    /* Not asked for long: what counts is when a beat was seen. */
    seconds += 3600;
    EXPECT(!hami_observed());
    beat(44);
    EXPECT(hami_observed());
    /* A monitor that starts anew. */
    seconds += 11;
    EXPECT(!hami_observed());
    beat(1);
    EXPECT(hami_observed());
}

enum { READERS = 3, LAST = 1000, LEAD = 8 };
static _Atomic uint64_t reached[READERS];

static void *reader(void *own)
{
    _Atomic uint64_t *at = own;
    uint64_t before = 0;

    while (before < LAST) {
        const struct hami_limits *limits = hami_limits();
        uint64_t revision = limits->revision;

        if (revision < before || limits->devices[0].memory_bytes != revision * 1000)
            exit(1);
        before = revision;
        atomic_store(at, before);
        (void)hami_observed();
    }
    return NULL;
}

/* Readers in several threads see each revision whole and never go back. The agent runs ahead of the
 * slowest by no more than a copy's life allows: 16 changes during one look. */
static void many_threads_follow(void)
{
    pthread_t threads[READERS];

    start(1);
    for (int i = 0; i < READERS; i++)
        EXPECT(pthread_create(&threads[i], NULL, reader, &reached[i]) == 0);
    for (uint64_t revision = 2; revision <= LAST; revision++) {
        change(revision, "GPU");
        beat(revision);
        for (int i = 0; i < READERS; i++)
            while (atomic_load(&reached[i]) + LEAD < revision)
                sched_yield();
    }
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    EXPECT(hami_limits()->revision == LAST);
}

int main(void)
{
    a_change_is_seen_at_the_next_look();
    an_older_revision_is_not_taken();
    other_devices_are_refused();
    a_broken_copy_changes_nothing();
    limits_of_the_environment_stay();
    a_monitor_is_believed_while_it_beats();
    many_threads_follow();
    return failures != 0;
}
