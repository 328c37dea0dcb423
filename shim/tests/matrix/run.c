/* Where snippets run. A line is printed for each:
 *
 *     PLACE WAY FUNCTION FILE SYMBOL PREPARE CALL UNDO REACHED OTHERS
 *
 * FILE and SYMBOL: whose function was called. REACHED: how often the call came to the driver's
 * function of that very spelling ("-" of NVML), OTHERS: how often to another spelling of the same
 * name. CALL is "ok" where it is what the snippet expects. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"
#include "matrix.h"

#define THREADS 64
#define MOST_SNIPPETS 256

static const struct snippets *const groups[] = {
    &matrix_memory,  &matrix_pools,  &matrix_physical, &matrix_contexts,
    &matrix_modules, &matrix_graphs, &matrix_streams,  &matrix_nvml,
};

static const struct snippet *snippets[MOST_SNIPPETS];
static size_t snippet_count;
static struct gifts gifts;
static char image[4096];

struct outcome {
    bool ran; /* the way leads to it */
    int prepare, call, undo;
    unsigned long reached, others;
    char owner[96];
};

static bool collect(void)
{
    for (size_t i = 0; i < sizeof(groups) / sizeof(*groups); i++)
        for (size_t k = 0; k < groups[i]->count; k++) {
            if (snippet_count == MOST_SNIPPETS)
                return false;
            snippets[snippet_count++] = &groups[i]->first[k];
        }
    return true;
}

static bool read_image(void)
{
    const char *path = getenv("MATRIX_IMAGE");
    FILE *file = path ? fopen(path, "r") : NULL;
    size_t got = file ? fread(image, 1, sizeof(image) - 1, file) : 0;

    if (file)
        fclose(file);
    return got > 0;
}

static struct stage new_stage(const struct api *api)
{
    return (struct stage){.api = api, .gifts = &gifts, .image = image,
                          .image_path = getenv("MATRIX_IMAGE")};
}

/* ---- One snippet ---- */

static void count_calls(const struct snippet *snippet, unsigned long before, struct outcome *out)
{
    const char *base = matrix_base(snippet->name), *names[SIM_REMEMBERED], *other;
    unsigned long count = hami_sim_calls(names, SIM_REMEMBERED) - before;

    for (unsigned long i = 0; i < count && i < SIM_REMEMBERED; i++) {
        if (strcmp(names[i], snippet->name) == 0)
            out->reached++;
        else if ((other = matrix_base(names[i])) && base && strcmp(other, base) == 0)
            out->others++;
    }
}

static void call(struct stage *stage, const struct snippet *snippet, struct outcome *out)
{
    unsigned long before = hami_sim_calls(NULL, 0);

    out->call = snippet->call(stage);
    count_calls(snippet, before, out);
}

/* The outcome's owner and `ran` are filled in already. */
static void perform(struct stage *stage, const struct snippet *snippet, struct outcome *out)
{
    size_t kept = offsetof(struct stage, address);

    memset((char *)stage + kept, 0, sizeof(*stage) - kept);
    out->prepare = snippet->prepare(stage);
    if (out->prepare != 0)
        return;
    call(stage, snippet, out);
    if (out->call == 0)
        out->undo = snippet->undo(stage);
}

static struct outcome start_of(const struct api *api, const struct way *way,
                               const struct snippet *snippet)
{
    struct outcome out = {.ran = matrix_leads(way, snippet->name)};

    matrix_owner(matrix_pointer(api, snippet->name), out.owner, sizeof(out.owner));
    return out;
}

static void print(const char *place, const char *way, const struct snippet *snippet,
                  const struct outcome *out)
{
    char called[32] = "ok", reached[32] = "-";

    if (!out->ran)
        return;
    if (out->call != snippet->expected)
        snprintf(called, sizeof(called), "%d", out->call);
    if (matrix_base(snippet->name))
        snprintf(reached, sizeof(reached), "%lu", out->reached);
    printf("%s %s %s %s %d %s %d %s %lu\n", place, way, snippet->name, out->owner, out->prepare,
           called, out->undo, reached, out->others);
}

/* ---- In this thread ---- */

static size_t available(void)
{
    size_t bytes = 0, total;

    return cuMemGetInfo_v2(&bytes, &total) == CUDA_SUCCESS ? bytes : 0;
}

static int run_here(const char *place)
{
    static struct api api;
    struct stage stage = new_stage(&api);
    int result = matrix_stage_open(&stage);

    for (size_t i = 0; i < matrix_way_count && result == 0; i++) {
        const struct way *way = &matrix_ways[i];
        size_t before = available();

        if (before == 0)
            result = NOT_SO;
        matrix_fill(&api, way);
        for (size_t k = 0; k < snippet_count; k++) {
            struct outcome out = start_of(&api, way, snippets[k]);

            if (out.ran)
                perform(&stage, snippets[k], &out);
            print(place, way->name, snippets[k], &out);
        }
        /* Nothing may be left of a pass but what the first one loaded lazily. */
        if (i > 0)
            printf("%s %s balance %zu %zu\n", place, way->name, before, available());
    }
    if (result == 0)
        result = matrix_stage_close(&stage);
    if (result != 0)
        printf("%s stage %d\n", place, result);
    fflush(stdout);
    return result != 0;
}

/* ---- In many threads ---- */

struct thread {
    pthread_t id;
    size_t number;
    const struct way *way;
    struct api api;
    int stage;
    struct outcome outcomes[MOST_SNIPPETS];
};

static pthread_rwlock_t cuda; /* held to write by who must be alone */
static pthread_barrier_t all_there;

static void *run_thread(void *argument)
{
    struct thread *self = argument;
    struct stage stage = new_stage(&self->api);

    pthread_barrier_wait(&all_there);
    matrix_fill(&self->api, self->way);
    self->stage = matrix_stage_open(&stage);
    pthread_barrier_wait(&all_there); /* who loads a module may spoil another's capture */
    for (size_t i = 0; i < snippet_count && self->stage == 0; i++) {
        size_t place = (i + self->number * 3) % snippet_count;
        const struct snippet *snippet = snippets[place];
        struct outcome *out = &self->outcomes[place];

        *out = start_of(&self->api, self->way, snippet);
        if (!out->ran)
            continue;
        if (snippet->alone)
            pthread_rwlock_wrlock(&cuda);
        else
            pthread_rwlock_rdlock(&cuda);
        perform(&stage, snippet, out);
        pthread_rwlock_unlock(&cuda);
    }
    pthread_barrier_wait(&all_there);
    if (self->stage == 0)
        self->stage = matrix_stage_close(&stage);
    return NULL;
}

static int run_threads(const char *place)
{
    struct thread *threads = calloc(THREADS, sizeof(*threads));
    pthread_rwlockattr_t writers_first;
    int bad = 0;

    pthread_rwlockattr_init(&writers_first);
    pthread_rwlockattr_setkind_np(&writers_first, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&cuda, &writers_first);
    pthread_barrier_init(&all_there, NULL, THREADS);
    for (size_t i = 0; i < THREADS && threads; i++) {
        threads[i].number = i;
        threads[i].way = &matrix_ways[i % matrix_way_count];
        if (pthread_create(&threads[i].id, NULL, run_thread, &threads[i]) != 0)
            abort(); /* the others would wait for ever */
    }
    for (size_t i = 0; i < THREADS && threads; i++) {
        pthread_join(threads[i].id, NULL);
        if (threads[i].stage != 0)
            bad = printf("%s stage %d\n", place, threads[i].stage);
        for (size_t k = 0; k < snippet_count; k++)
            print(place, threads[i].way->name, snippets[k], &threads[i].outcomes[k]);
    }
    free(threads);
    return bad || !threads;
}

/* ---- In children ---- */

static int wait_for(pid_t child)
{
    int status = -1;

    return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

static int run_forked(void)
{
    pid_t child;
    int status;

    fflush(stdout);
    child = fork();
    if (child == 0)
        _exit(run_here("forked"));
    status = wait_for(child);
    return status != 0 ? printf("forked ended %d\n", status) : run_here("parent");
}

/* Everything is as the snippet wants it when the process forks; the child makes the call. What the
 * child's driver says to it must leave the parent's things, and what they are charged, alone. */
static void run_stale(struct stage *stage, const struct way *way, const struct snippet *snippet,
                      struct outcome *shared)
{
    struct outcome out = start_of(stage->api, way, snippet);
    size_t kept = offsetof(struct stage, address), before;
    pid_t child;
    int status;

    if (!out.ran)
        return;
    memset((char *)stage + kept, 0, sizeof(*stage) - kept);
    out.prepare = snippet->prepare(stage);
    before = available();
    *shared = out;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        call(stage, snippet, shared);
        _exit(0);
    }
    status = wait_for(child);
    printf("child %s %s %s %d %d %lu %lu %s\n", way->name, snippet->name, shared->owner, status,
           shared->call, shared->reached, shared->others, before == available() ? "same" : "other");
    call(stage, snippet, &out);
    if (out.call == 0)
        out.undo = snippet->undo(stage);
    print("after", way->name, snippet, &out);
}

static int run_all_stale(void)
{
    struct outcome *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    static struct api api;
    struct stage stage = new_stage(&api);
    int result = matrix_stage_open(&stage);

    for (size_t k = 0; k < snippet_count && result == 0; k++) {
        const struct way *way = &matrix_ways[k % matrix_way_count];

        matrix_fill(&api, way);
        if (!matrix_leads(way, snippets[k]->name))
            matrix_fill(&api, way = &matrix_ways[0]);
        run_stale(&stage, way, snippets[k], shared);
    }
    if (result == 0)
        result = matrix_stage_close(&stage);
    if (result != 0)
        printf("stale stage %d\n", result);
    return result != 0;
}

int matrix_run(const char *place)
{
    int status = 1;

    if (strcmp(place, "abi") == 0)
        return matrix_print_abi();
    if (!collect() || !read_image() || !matrix_peer_start())
        return 1;
    if (!matrix_peer_gifts(&gifts))
        fprintf(stderr, "matrix: no peer\n");
    else if (strcmp(place, "here") == 0)
        status = run_here(place);
    else if (strcmp(place, "threads") == 0)
        status = run_threads(place);
    else if (strcmp(place, "forked") == 0)
        status = run_forked();
    else if (strcmp(place, "stale") == 0)
        status = run_all_stale();
    matrix_peer_end();
    fflush(stdout);
    return status != 0;
}
