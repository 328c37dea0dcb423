/* tenant calibrate MICROSECONDS     an amount of work that takes a kernel so long, alone on the card
 * tenant run AMOUNT WARM_UP SECONDS a steady load of such kernels
 *
 *     amount N NANOSECONDS          what was found, by CUDA's events
 *     ready                         goes on when told to
 *     did COUNT SECONDS             kernels that ended within so long after the warm-up
 *
 * Several kernels are always under way, so that the card waits for nobody. Work is counted, not the
 * time it took: time passes for an interrupted kernel too. */
#include "gpu.h"

#define DEPTH 16
#define TRIES 15

static CUfunction work;
static CUstream stream;
static int blocks;

static CUresult launch(uint64_t amount)
{
    void *parameters[] = {&amount};

    return cuLaunchKernel(work, (unsigned int)blocks, 1, 1, 256, 1, 1, 0, stream, parameters, NULL);
}

static double nanoseconds_of(uint64_t amount)
{
    double times[TRIES];
    CUevent start, end;
    float milliseconds;

    MUST(cuEventCreate(&start, 0));
    MUST(cuEventCreate(&end, 0));
    for (int i = 0; i < TRIES; i++) {
        MUST(cuEventRecord(start, stream));
        MUST(launch(amount));
        MUST(cuEventRecord(end, stream));
        MUST(cuEventSynchronize(end));
        MUST(cuEventElapsedTime(&milliseconds, start, end));
        times[i] = (double)milliseconds * 1e6;
    }
    MUST(cuEventDestroy_v2(start));
    MUST(cuEventDestroy_v2(end));
    return gpu_median(times, TRIES);
}

/* A card takes some time to reach its clock, so the last look counts. */
static void calibrate(double wanted)
{
    double amount = 1000, took = 0;

    for (int i = 0; i < 12; i++) {
        took = nanoseconds_of((uint64_t)amount);
        if (i >= 4 && took > wanted * 0.95 && took < wanted * 1.05)
            break;
        amount *= took > 0 && wanted / took < 100 ? wanted / took : 100;
        if (amount < 1)
            amount = 1;
    }
    printf("amount %llu %.0f\n", (unsigned long long)amount, nanoseconds_of((uint64_t)amount));
}

static void run(uint64_t amount, double warm_up, double seconds)
{
    CUevent ends[DEPTH];
    double start, from, now;
    uint64_t launched = 0, done = 0, before = 0;

    for (int i = 0; i < DEPTH; i++)
        MUST(cuEventCreate(&ends[i], CU_EVENT_DISABLE_TIMING));
    MUST(launch(amount)); /* what the first launch loads is no load */
    MUST(cuStreamSynchronize(stream));
    gpu_wait("ready");
    start = gpu_seconds();
    from = start + warm_up;
    do {
        if (launched >= DEPTH) {
            MUST(cuEventSynchronize(ends[launched % DEPTH]));
            done++;
        }
        MUST(launch(amount));
        MUST(cuEventRecord(ends[launched++ % DEPTH], stream));
        now = gpu_seconds();
        if (before == 0 && now >= from) {
            from = now;
            before = done + 1; /* never 0 */
        }
    } while (now < start + warm_up + seconds);
    printf("did %llu %.6f\n", (unsigned long long)(before ? done + 1 - before : 0), now - from);
    MUST(cuStreamSynchronize(stream));
}

int main(int argc, char **argv)
{
    struct gpu gpu = gpu_open();

    blocks = gpu.blocks;
    MUST(cuModuleGetFunction(&work, gpu_module(), "work_dynamic"));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (argc == 3 && strcmp(argv[1], "calibrate") == 0)
        calibrate(atof(argv[2]) * 1e3);
    else if (argc == 5 && strcmp(argv[1], "run") == 0)
        run(strtoull(argv[2], NULL, 10), atof(argv[3]), atof(argv[4]));
    else
        return 2;
    return 0;
}
