/* When a launch waits, and when that ends. links: lib/compute/gate.c lib/compute/terms.c lib/program/capture.c lib/hooks/execution/captures.c lib/hooks/execution/launch.c lib/hooks/execution/launch_old.c lib/hooks/execution/streams.c lib/compute/samples.c lib/compute/bucket.c lib/compute/estimate.c lib/compute/correction.c lib/compute/compute.c lib/compute/horizon.c lib/compute/settle.c lib/base/clock.c lib/base/reset.c */
#include "gate_fixture.h"

/* ---- Waiting --------------------------------------------------------------------------------- */

static _Atomic bool returned;

static void *launch_waiting(void *argument)
{
    (void)argument;
    EXPECT(kernel(STREAM) == CUDA_SUCCESS);
    atomic_store(&returned, true);
    return NULL;
}

static int64_t until_returned(int64_t longest)
{
    int64_t from = hami_now();

    while (!atomic_load(&returned) && hami_now() - from < longest)
        hami_sleep(MS / 2);
    return hami_now() - from;
}

/* A thread that waits for its turn; `change` lets it go. */
static void a_wait_ends_by(void (*change)(void))
{
    pthread_t thread;

    atomic_store(&returned, false);
    pthread_create(&thread, NULL, launch_waiting, NULL);
    EXPECT(until_returned(60 * MS) >= 60 * MS); /* it does wait */
    change();
    EXPECT(until_returned(2 * HAMI_SECOND) < HAMI_SECOND); /* else it would be many seconds */
    pthread_join(thread, NULL);
}

static void lift(void)
{
    change_limits(0, HAMI_POLICY_FORCE, 0);
}

static void disable(void)
{
    change_limits(1, HAMI_POLICY_DISABLE, 1);
}

static void leave_the_device_alone(void)
{
    page.observed.devices[0].contention = 0;
}

static void lose_the_monitor(void)
{
    atomic_store(&monitored, false);
}

static void waits_end_when_their_reason_does(void)
{
    begin(1);
    usage.buckets[0].refilled_at = (uint64_t)hami_now();
    usage.buckets[0].level = -HAMI_BUCKET_DEBT;
    a_wait_ends_by(lift);

    begin(1);
    usage.buckets[0].refilled_at = (uint64_t)hami_now();
    usage.buckets[0].level = -HAMI_BUCKET_DEBT;
    a_wait_ends_by(disable);

    /* By the default policy the device must be shared; alone on it, a slice waits for nobody. */
    begin(1);
    change_limits(1, HAMI_POLICY_DEFAULT, 0);
    atomic_store(&monitored, true);
    page.observed.devices[0].contention = HAMI_CONTENTION_OTHERS;
    usage.buckets[0].refilled_at = (uint64_t)hami_now();
    usage.buckets[0].level = -HAMI_BUCKET_DEBT;
    a_wait_ends_by(leave_the_device_alone);

    /* Priority, with a compute limit and without one. */
    for (uint32_t cores = 0; cores < 100; cores += 50) {
        begin(cores);
        change_limits(cores, HAMI_POLICY_DEFAULT, 1);
        atomic_store(&monitored, true);
        page.observed.devices[0].contention = HAMI_CONTENTION_OTHERS | HAMI_CONTENTION_HIGHER;
        a_wait_ends_by(leave_the_device_alone);
        page.observed.devices[0].contention = HAMI_CONTENTION_OTHERS | HAMI_CONTENTION_HIGHER;
        a_wait_ends_by(lose_the_monitor);
    }
    begin(0);
    atomic_store(&monitored, true);
    page.observed.devices[0].contention = HAMI_CONTENTION_HIGHER;
    EXPECT(kernel(STREAM) == CUDA_SUCCESS); /* of priority 0 itself */
}

/* ---- By a share that a monitor hands out ------------------------------------------------------ */

static void hand_out(uint16_t share)
{
    page.observed.share[0] = share;
    page.observed.share_revision = atomic_load(&limits)->revision;
}

static void hold_at(uint16_t share)
{
    hand_out(share);
    usage.buckets[0].refilled_at = (uint64_t)hami_now();
    usage.buckets[0].level = -HAMI_BUCKET_DEBT;
}

static void hand_out_all(void)
{
    hand_out(HAMI_WHOLE);
    usage.buckets[0].level = HAMI_BUCKET_OPEN;
}

static void hand_out_nothing(void)
{
    hand_out(0);
}

/* With a limit of its own, without one, and where no device has one. */
static void begin_held(uint32_t cores, uint32_t devices)
{
    begin(cores);
    atomic_load(&limits)->device_count = devices;
    atomic_store(&monitored, true);
    hold_at(1);
}

static void a_share_holds_until_another_is_handed_out(void)
{
    for (uint32_t devices = 1; devices <= 2; devices++) {
        begin_held(0, devices);
        a_wait_ends_by(hand_out_all);
        EXPECT(charged(0) > 0);
        hold_at(1);
        a_wait_ends_by(hand_out_nothing);
        hold_at(1);
        a_wait_ends_by(lose_the_monitor);
        begin_held(0, devices);
        hand_out_nothing();
        EXPECT(kernel(STREAM) == CUDA_SUCCESS && charged(0) == 0 && event_calls() == 0);
    }
    /* Without its words, the page says again what holds. */
    begin_held(50, 1);
    change_limits(50, HAMI_POLICY_DEFAULT, 1);
    hold_at(1);
    a_wait_ends_by(hand_out_nothing); /* and nobody else is there */
}

/* A slice that a share was handed out to does not stop for one of higher priority. */
static void a_share_is_a_floor(void)
{
    begin(50);
    change_limits(50, HAMI_POLICY_FORCE, 1);
    atomic_store(&monitored, true);
    page.observed.devices[0].contention = HAMI_CONTENTION_OTHERS | HAMI_CONTENTION_HIGHER;
    hand_out(500);
    EXPECT(kernel(STREAM) == CUDA_SUCCESS && charged(0) > 0);
}

/* The sum over threads, which may be more than the time that passes. */
static void what_threads_wait_is_counted(void)
{
    pthread_t threads[2];
    int64_t waited;

    begin_held(0, 1);
    EXPECT(usage.buckets[0].waited == 0);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, launch_waiting, NULL);
    hami_sleep(100 * MS);
    waited = (int64_t)usage.buckets[0].waited;
    EXPECT(waited > 20 * MS); /* while they still wait */
    hand_out_nothing();
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    EXPECT((int64_t)usage.buckets[0].waited >= waited && usage.buckets[1].waited == 0);
    waited = (int64_t)usage.buckets[0].waited;
    EXPECT(kernel(STREAM) == CUDA_SUCCESS && (int64_t)usage.buckets[0].waited == waited);
}

/* A kernel that runs for ever, because it waits for one that comes after it, must not be waited
 * for. */
static void nobody_waits_for_the_end_of_work(void)
{
    int64_t from;

    begin(20);
    driver.running = true;
    from = hami_now();
    for (int i = 0; i < 6; i++)
        EXPECT(kernel((CUstream)(uintptr_t)(0x6000 + 16 * i)) == CUDA_SUCCESS);
    EXPECT(hami_now() - from < 5 * HAMI_SECOND && driver.launches == 6);
}

int main(void)
{
    waits_end_when_their_reason_does();
    a_share_holds_until_another_is_handed_out();
    a_share_is_a_floor();
    what_threads_wait_is_counted();
    nobody_waits_for_the_end_of_work();
    return failures != 0;
}
