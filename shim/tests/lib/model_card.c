#include <assert.h>
#include <stddef.h>

#include "model_card.h"

#define TURN 2000000

static struct model_item *head(struct model_stream *stream)
{
    return stream->head == stream->tail ? NULL : &stream->items[stream->head % MODEL_QUEUE];
}

void model_submit(struct model_process *process, int stream, struct model_item item)
{
    struct model_stream *to = &process->streams[stream];

    assert(to->tail - to->head < MODEL_QUEUE);
    if (process->used <= stream)
        process->used = stream + 1;
    to->items[to->tail++ % MODEL_QUEUE] = item;
    if (item.mark)
        *item.mark = (struct model_mark){.recorded = true};
    else
        process->outstanding++;
}

/* Marks take no time and no turn: they are done as soon as what is before them is. */
static void pass_marks(struct model_stream *stream, int64_t now)
{
    struct model_item *item;

    while ((item = head(stream)) != NULL && item->mark && item->ready <= now) {
        item->mark->done = true;
        item->mark->at = now;
        stream->head++;
    }
}

static void pass_all_marks(struct model_card *card)
{
    for (int i = 0; i < card->count; i++)
        for (int s = 0; s < card->processes[i]->used; s++)
            pass_marks(&card->processes[i]->streams[s], card->now);
}

static bool has_work(struct model_process *process, int64_t now)
{
    for (int s = 0; s < process->used; s++) {
        const struct model_item *item = head(&process->streams[s]);

        if (item && !item->mark && item->ready <= now)
            return true;
    }
    return false;
}

static bool choose(struct model_card *card)
{
    for (int i = 1; i <= card->count; i++) {
        int next = (card->current + i + card->count) % card->count;

        if (has_work(card->processes[next], card->now)) {
            card->current = next;
            card->turn_ends = card->now + TURN;
            return true;
        }
    }
    return false;
}

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* When something is submitted that could start, or a mark be passed. */
static int64_t next_ready(struct model_card *card, int64_t otherwise)
{
    for (int i = 0; i < card->count; i++)
        for (int s = 0; s < card->processes[i]->used; s++) {
            const struct model_item *item = head(&card->processes[i]->streams[s]);

            if (item && item->ready > card->now)
                otherwise = sooner(otherwise, item->ready);
        }
    return otherwise;
}

/* First come, first served: what does not fit beside the rest keeps what came later waiting. */
static struct model_item *oldest_waiting(struct model_process *process, int64_t now)
{
    struct model_item *oldest = NULL;

    for (int s = 0; s < process->used; s++) {
        struct model_item *item = head(&process->streams[s]);

        if (item && !item->mark && !item->running && item->ready <= now &&
            (!oldest || item->ready < oldest->ready))
            oldest = item;
    }
    return oldest;
}

static int64_t start_work(struct model_process *process, int64_t now, int64_t until)
{
    struct model_item *item;

    while ((item = oldest_waiting(process, now)) != NULL &&
           process->width_used + item->width <= 1000) {
        item->running = true;
        process->width_used += item->width;
    }
    for (int s = 0; s < process->used; s++) {
        item = head(&process->streams[s]);
        if (item && !item->mark && item->running)
            until = sooner(until, now + item->left);
    }
    return until;
}

static void advance(struct model_process *process, int64_t time, int64_t now)
{
    process->busy += time;
    for (int s = 0; s < process->used; s++) {
        struct model_stream *stream = &process->streams[s];
        struct model_item *item = head(stream);

        if (!item || item->mark || !item->running)
            continue;
        item->left -= time;
        if (item->left > 0)
            continue;
        process->width_used -= item->width;
        process->outstanding--;
        process->kernels++;
        stream->head++;
        pass_marks(stream, now);
    }
}

void model_run(struct model_card *card, int64_t to)
{
    while (card->now < to) {
        struct model_process *process = card->current < 0 ? NULL : card->processes[card->current];
        int64_t ready = next_ready(card, to);
        int64_t until;

        pass_all_marks(card);
        if (!process || card->now >= card->turn_ends || !has_work(process, card->now)) {
            if (!choose(card)) {
                card->now = ready;
                pass_all_marks(card);
                continue;
            }
            process = card->processes[card->current];
        }
        until = start_work(process, card->now, sooner(ready, card->turn_ends));
        if (until > card->now) {
            int64_t time = until - card->now;

            card->now = until;
            advance(process, time, until);
        }
    }
}
