/* links: simgpu/client.c simgpu/queue.c simgpu/cuda_ledger.c simgpu/cuda_visible.c */
/* sim_client: the client half of the simulator by itself, driven by lines on its standard input, so
 * that tests can say exactly what which process does when. One line of answer each: "0" and
 * results, or the number of the error. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client.h"
#include "protocol.h"

#define MANY 4096

static struct sim_queue *queues[MANY];
static struct sim_marker *markers[MANY];
static uint64_t holds[MANY];

static uint64_t number(const char *word)
{
    return word ? strtoull(word, NULL, 0) : 0;
}

static uint64_t place(const char *word)
{
    uint64_t found = number(word);

    if (found >= MANY)
        abort();
    return found;
}

static void say(CUresult result, uint64_t value)
{
    if (result == CUDA_SUCCESS)
        printf("0 %llu\n", (unsigned long long)value);
    else
        printf("%d\n", (int)result);
}

/* devices: how many, then board index, uuid, memory and whether MIG of each */
static void devices(void)
{
    printf("0 %d", sim_device_count());
    for (int i = 0; i < sim_device_count(); i++) {
        const struct sim_device *device = sim_device(i);

        printf(" %d:", device->board);
        for (int byte = 0; byte < 16; byte++)
            printf("%02x", device->uuid[byte]);
        printf(":%llu:%d", (unsigned long long)device->memory_bytes, device->mig);
    }
    printf("\n");
}

/* Keep a queue full for so long: how many were run. */
static void flood(struct sim_queue *queue, const struct sim_work *work, uint64_t for_ms)
{
    uint64_t until = sim_now() + for_ms * 1000000, count = 0;
    CUresult result = CUDA_SUCCESS;

    while (result == CUDA_SUCCESS && sim_now() < until) {
        result = sim_queue_run(queue, work);
        count++;
    }
    say(result, count);
}

/* Wait for each before the next. */
static void loop(struct sim_queue *queue, const struct sim_work *work, uint64_t times)
{
    uint64_t from = sim_now();
    CUresult result = CUDA_SUCCESS;

    for (uint64_t i = 0; i < times && result == CUDA_SUCCESS; i++) {
        result = sim_queue_run(queue, work);
        if (result == CUDA_SUCCESS)
            result = sim_queue_finish(queue);
    }
    say(result, sim_now() - from);
}

/* Picoseconds of a launch that has nothing to do: the best of several rows. */
static void bench(struct sim_queue *queue)
{
    static const struct sim_work nothing = {0, 1};
    uint64_t best = UINT64_MAX, times = 1000000;

    for (int row = 0; row < 10; row++) {
        uint64_t from = sim_now(), took;

        for (uint64_t i = 0; i < times; i++)
            if (sim_ready() != CUDA_SUCCESS || sim_queue_run(queue, &nothing) != CUDA_SUCCESS)
                abort();
        took = (sim_now() - from) * 1000 / times;
        best = took < best ? took : best;
    }
    say(CUDA_SUCCESS, best);
}

struct worker {
    pthread_t thread;
    uint64_t turns;
    struct sim_marker *shared; /* of all workers: whoever recorded it last */
    CUresult result;
};

static CUresult one_turn(struct worker *worker, struct sim_queue *queue, struct sim_marker *marker)
{
    static const struct sim_work work = {20000, 300};
    uint64_t id = 0, at;
    CUresult result = sim_queue_run(queue, &work);

    if (result == CUDA_SUCCESS)
        result = sim_queue_wait_marker(queue, worker->shared);
    if (result == CUDA_SUCCESS)
        result = sim_queue_mark(queue, marker);
    if (result == CUDA_SUCCESS)
        result = sim_queue_mark(queue, worker->shared);
    if (result == CUDA_SUCCESS)
        result = sim_take(0, 1, SIM_MEMORY_DATA, &id);
    if (result == CUDA_SUCCESS)
        result = sim_marker_finish(marker);
    if (result == CUDA_SUCCESS)
        result = sim_marker_query(marker, &at);
    sim_give(id);
    return result == CUDA_SUCCESS && at > sim_now() ? CUDA_ERROR_UNKNOWN : result;
}

static void *work(void *argument)
{
    struct worker *worker = argument;

    for (uint64_t i = 0; i < worker->turns && worker->result == CUDA_SUCCESS; i++) {
        struct sim_marker *marker = sim_marker_create();
        struct sim_queue *queue;

        worker->result = sim_queue_create(0, &queue);
        if (worker->result != CUDA_SUCCESS)
            break;
        worker->result = one_turn(worker, queue, marker);
        if (worker->result == CUDA_SUCCESS && i % 8 == 0)
            worker->result = sim_device_finish(0);
        sim_queue_destroy(queue);
        sim_marker_destroy(marker);
    }
    return NULL;
}

/* So many threads that make, use and destroy queues and markers at once. */
static void threads(uint64_t count, uint64_t turns)
{
    struct worker workers[64];
    CUresult result = CUDA_SUCCESS;
    struct sim_marker *shared = sim_marker_create();

    for (uint64_t i = 0; i < count && i < 64; i++) {
        workers[i] = (struct worker){.turns = turns, .shared = shared};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            abort();
    }
    for (uint64_t i = 0; i < count && i < 64; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].result != CUDA_SUCCESS)
            result = workers[i].result;
    }
    say(result, 0);
}

/* What a hostile client may do to the memory it shares: the ring's head, an entry, everything. */
static void scribble(uint64_t how)
{
    struct sim_shared *shared = sim_process->shared;
    struct sim_entry *next = &shared->ring[shared->head % SIM_RING];
    static const struct sim_entry bad[] = {
        {.kind = SIM_ITEM_RUN, .queue = SIM_QUEUES, .width = 1},
        {.kind = SIM_ITEM_RUN, .queue = 77, .width = 1},
        {.kind = SIM_ITEM_RUN, .width = 0},
        {.kind = SIM_ITEM_RUN, .width = 1001},
        {.kind = SIM_ITEM_MARK, .mark = SIM_MARKS},
        {.kind = SIM_ITEM_WAIT, .other = SIM_QUEUES},
        {.kind = SIM_ITEM_WAIT, .other = 0},
        {.kind = 0},
        {.kind = 9},
    };

    if (how < sizeof(bad) / sizeof(bad[0])) {
        *next = bad[how];
        atomic_fetch_add(&shared->head, 1);
    } else if (how == 9) {
        atomic_fetch_add(&shared->head, 5000);
    } else if (how == 10) {
        atomic_fetch_sub(&shared->head, 1);
    } else if (how == 11) { /* far in the future, without end: only its own loss */
        *next = (struct sim_entry){.submitted_ns = UINT64_MAX,
                                   .duration_ns = UINT64_MAX,
                                   .kind = SIM_ITEM_RUN,
                                   .width = 1};
        atomic_fetch_add(&shared->head, 1);
    } else {
        memset((void *)shared, 0xff, sizeof(*shared));
    }
    say(CUDA_SUCCESS, 0);
}

/* fork, or a raw clone that no handler of the C library sees: what the child is told, while the
 * parent goes on. The child stays for so many milliseconds and holds the connection. */
static void child(bool raw, uint64_t for_ms)
{
    int told[2], answers[4] = {-1, -1, -1, -1};
    long pid;

    if (pipe(told) < 0)
        abort();
    pid = raw ? syscall(SYS_clone, 17l /* SIGCHLD */, 0l, 0l, 0l, 0l) : fork();
    if (pid == 0) {
        uint64_t id;
        uint32_t status;

        answers[0] = (int)sim_ready();
        answers[1] = (int)sim_connect();
        answers[2] = (int)sim_take(0, 1, SIM_MEMORY_DATA, &id);
        /* Watching works in a child, through a connection of its own. */
        answers[3] = (int)sim_watch();
        if (answers[3] == 0 && sim_request(99999, NULL, 0, &status, NULL, NULL) != CUDA_SUCCESS)
            answers[3] = -2;
        if (write(told[1], answers, sizeof(answers)) < 0)
            abort();
        close(STDOUT_FILENO); /* who reads it waits for the parent alone */
        usleep((useconds_t)for_ms * 1000);
        _exit(0);
    }
    close(told[1]);
    if (read(told[0], answers, sizeof(answers)) != sizeof(answers))
        abort();
    close(told[0]);
    printf("0 %d %d %d %d\n", answers[0], answers[1], answers[2], answers[3]);
}

static void memory(const char *command, char **words)
{
    uint64_t id = 0, bytes = 0;
    CUdevice ordinal = 0;
    CUresult result;

    if (strcmp(command, "take") == 0) {
        result = sim_take((CUdevice)number(words[0]), number(words[1]),
                          (enum sim_memory)number(words[2]), &id);
        say(result, id);
    } else if (strcmp(command, "give") == 0) {
        sim_give(number(words[0]));
        say(CUDA_SUCCESS, 0);
    } else if (strcmp(command, "share") == 0) {
        result = sim_share(number(words[0]), &id, &ordinal, &bytes);
        if (result == CUDA_SUCCESS)
            printf("0 %llu %d %llu\n", (unsigned long long)id, ordinal, (unsigned long long)bytes);
        else
            say(result, 0);
    } else {
        say(CUDA_SUCCESS, sim_memory_free((CUdevice)number(words[0])));
    }
}

static void streams(const char *command, char **words)
{
    uint64_t at = place(words[0]), value = 0;
    struct sim_queue *queue = queues[at];
    struct sim_work work = {number(words[1]), (uint32_t)number(words[2])};

    if (strcmp(command, "queue") == 0) {
        say(sim_queue_create((CUdevice)number(words[1]), &queues[at]), at);
    } else if (strcmp(command, "destroy") == 0) {
        sim_queue_destroy(queue);
        say(CUDA_SUCCESS, 0);
    } else if (strcmp(command, "run") == 0) {
        CUresult result = CUDA_SUCCESS;
        uint64_t times = words[3] ? number(words[3]) : 1, from = sim_now();

        for (uint64_t i = 0; i < times && result == CUDA_SUCCESS; i++)
            result = sim_queue_run(queue, &work);
        say(result, sim_now() - from);
    } else if (strcmp(command, "flood") == 0) {
        flood(queue, &work, number(words[3]));
    } else if (strcmp(command, "loop") == 0) {
        loop(queue, &work, number(words[3]));
    } else if (strcmp(command, "bench") == 0) {
        bench(queue);
    } else if (strcmp(command, "hold") == 0) {
        say(sim_queue_hold(queue, &holds[at]), 0);
    } else if (strcmp(command, "release") == 0) {
        say(sim_queue_release(queue, holds[at]), 0);
    } else if (strcmp(command, "idle") == 0) {
        say(CUDA_SUCCESS, sim_queue_idle(queue));
    } else if (strcmp(command, "finish") == 0) {
        value = sim_now();
        say(sim_queue_finish(queue), sim_now() - value);
    } else {
        printf("unknown\n");
    }
}

/* Words: the marker, then the queue. */
static void events(const char *command, char **words)
{
    uint64_t at = place(words[0]), when = 0;
    CUresult result;

    if (!markers[at])
        markers[at] = sim_marker_create();
    if (strcmp(command, "mark") == 0) {
        say(sim_queue_mark(queues[place(words[1])], markers[at]), 0);
    } else if (strcmp(command, "wait") == 0) {
        say(sim_queue_wait_marker(queues[place(words[1])], markers[at]), 0);
    } else if (strcmp(command, "drop") == 0) {
        sim_marker_destroy(markers[at]);
        markers[at] = NULL;
        say(CUDA_SUCCESS, 0);
    } else if (strcmp(command, "query") == 0) {
        result = sim_marker_query(markers[at], &when);
        say(result, when);
    } else { /* when */
        result = sim_marker_finish(markers[at]);
        if (result == CUDA_SUCCESS)
            result = sim_marker_query(markers[at], &when);
        say(result, when);
    }
}

static bool is_one_of(const char *word, const char *words)
{
    const char *found = strstr(words, word);
    size_t length = strlen(word);

    return found && (found == words || found[-1] == ' ') &&
           (found[length] == ' ' || found[length] == '\0');
}

static void obey(char *line)
{
    char *words[8] = {NULL}, *rest = line;
    int count = 0;

    line[strcspn(line, "\n")] = '\0';
    while (count < 7 && (words[count] = strsep(&rest, " ")) != NULL)
        count++;
    if (!words[0])
        return;
    if (strcmp(words[0], "connect") == 0)
        say(sim_connect(), 0);
    else if (strcmp(words[0], "ready") == 0)
        say(sim_ready(), 0);
    else if (strcmp(words[0], "watch") == 0)
        say(sim_watch(), 0);
    else if (strcmp(words[0], "devices") == 0)
        devices();
    else if (strcmp(words[0], "fork") == 0 || strcmp(words[0], "clone") == 0)
        child(words[0][0] == 'c', number(words[1]));
    else if (strcmp(words[0], "threads") == 0)
        threads(number(words[1]), number(words[2]));
    else if (strcmp(words[0], "scribble") == 0)
        scribble(number(words[1]));
    else if (is_one_of(words[0], "take give share free"))
        memory(words[0], words + 1);
    else if (is_one_of(words[0], "mark wait drop query when"))
        events(words[0], words + 1);
    else
        streams(words[0], words + 1);
}

int main(void)
{
    char line[256];

    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof(line), stdin))
        obey(line);
    return 0;
}
