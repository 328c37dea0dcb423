/* What goes beside launches: contexts, a parent process, other threads. links: lib/compute/gate.c lib/compute/terms.c lib/program/capture.c lib/hooks/execution/captures.c lib/hooks/execution/launch.c lib/hooks/execution/launch_old.c lib/hooks/execution/streams.c lib/compute/samples.c lib/compute/bucket.c lib/compute/estimate.c lib/compute/correction.c lib/compute/compute.c lib/compute/horizon.c lib/compute/settle.c lib/base/clock.c lib/base/reset.c */
#include "gate_fixture.h"

/* ---- What goes ------------------------------------------------------------------------------- */

static void events_go_with_their_context(void)
{
    int created, destroyed;

    begin(50);
    driver.running = true;
    EXPECT(kernel(STREAM) == CUDA_SUCCESS && kernel(STREAM) == CUDA_SUCCESS);
    created = driver.created;
    destroyed = driver.destroyed;
    EXPECT(created == 4 && destroyed == 0);
    hami_gate_forget_context(CONTEXT);
    EXPECT(driver.destroyed == 0); /* the driver did */
    driver.running = false;
    driver.queries = driver.elapsed = 0;
    EXPECT(kernel(STREAM) == CUDA_SUCCESS);
    EXPECT(driver.created == created + 2);
    EXPECT(driver.elapsed == 1); /* of the new one */
}

static void a_forked_child_begins_anew(void)
{
    pid_t child;
    int status;

    begin(50);
    for (int i = 0; i < 10; i++)
        EXPECT(kernel(STREAM) == CUDA_SUCCESS);
    EXPECT(cuStreamBeginCapture_v2(STREAM, 0) == CUDA_SUCCESS);
    child = fork();
    if (child == 0) {
        driver.capturing = NULL;
        hami_reset_all();
        driver.created = 0;
        if (kernel(STREAM) != CUDA_SUCCESS || driver.created != 2 || hami_captures_open != 0)
            _exit(1);
        _exit(failures != 0);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    EXPECT(hami_captures_open == 1);
}

/* ---- Threads --------------------------------------------------------------------------------- */

static void *launch_many(void *argument)
{
    CUgraph graph;
    CUstream own = (CUstream)(uintptr_t)(0x6000 + 16 * (uintptr_t)argument);

    for (int i = 0; i < 5000; i++) {
        EXPECT(kernel(i % 3 ? own : STREAM) == CUDA_SUCCESS);
        if (i % 500 == 0)
            cuStreamDestroy_v2(own);
        if (i % 700 == 0)
            hami_gate_forget_module();
        if (i % 900 == 0)
            hami_gate_forget_context(CONTEXT);
        if (i % 100 == 0) {
            hami_gate_forget_exec(EXEC);
            EXPECT(cuGraphLaunch(EXEC, own) == CUDA_SUCCESS);
        }
        if (i % 400 == 0)
            EXPECT(cuStreamEndCapture((CUstream)0x8880, &graph) == CUDA_SUCCESS);
    }
    return NULL;
}

static void threads_launch_side_by_side(void)
{
    pthread_t threads[4];

    begin(90);
    driver.milliseconds = 0.001f;
    for (uintptr_t i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, launch_many, (void *)i);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    EXPECT(driver.unsafe == 0 && driver.launches == 4 * 5050);
}

int main(void)
{
    events_go_with_their_context();
    a_forked_child_begins_anew();
    threads_launch_side_by_side();
    return failures != 0;
}
