/* A card in virtual time, for bucket_model_test.c: processes take turns of 2 ms on it, the
 * streams of one process run side by side as far as their widths fit, and a process that has
 * nothing to do costs nobody a turn. Deterministic, and some millions of kernels a second. */
#ifndef MODEL_CARD_H
#define MODEL_CARD_H

#include <stdbool.h>
#include <stdint.h>

#define MODEL_PROCESSES 8
#define MODEL_STREAMS 16
#define MODEL_QUEUE 4096       /* kernels and marks that a stream can hold */
#define MODEL_OUTSTANDING 1024 /* kernels that a process can have launched and not done */

struct model_mark {
    bool recorded, done;
    int64_t at;
};

struct model_item {
    struct model_mark *mark; /* NULL: a kernel */
    int64_t ready;           /* when it was submitted */
    int64_t left;            /* of a kernel's time */
    int width;               /* thousandths of the card */
    bool running;
};

struct model_stream {
    struct model_item items[MODEL_QUEUE];
    unsigned int head, tail;
};

struct model_process {
    struct model_stream streams[MODEL_STREAMS];
    int used;         /* streams */
    int width_used;   /* of what runs */
    int outstanding;  /* kernels not done */
    int64_t kernels;  /* done */
    int64_t busy;     /* time on the card */
};

struct model_card {
    struct model_process *processes[MODEL_PROCESSES];
    int count;
    int64_t now;
    int current; /* whose turn it is; -1: nobody's */
    int64_t turn_ends;
};

void model_submit(struct model_process *process, int stream, struct model_item item);
/* Let the card run until `to`. */
void model_run(struct model_card *card, int64_t to);

#endif
