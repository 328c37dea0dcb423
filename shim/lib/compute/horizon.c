/* The streams of a process: until when each has work, by what was charged for it. */
#include "compute/horizon.h"

#define STREAM_PROBES 16
#define STREAM_GONE UINT64_MAX

static struct hami_stream *stream_at(struct hami_compute *compute, uint64_t key, unsigned int probe)
{
    uint64_t hash = key * UINT64_C(0x9e3779b97f4a7c15) >> 32;

    return &compute->streams[(hash + probe) & (HAMI_STREAMS - 1)];
}

/* A stream is listed for those who need to know of all: where one is that is gone by now, however
 * many come and go; and where more are there at a time than are listed, in turn. */
static void list(struct hami_compute *compute, struct hami_stream *stream)
{
    uint32_t place = atomic_fetch_add_explicit(&compute->listed, 1, memory_order_relaxed);

    for (uint32_t tries = 1; place >= HAMI_STREAMS_LISTED && tries < HAMI_STREAMS_LISTED; tries++) {
        const struct hami_stream *there = atomic_load_explicit(
            &compute->list[place % HAMI_STREAMS_LISTED], memory_order_relaxed);

        if (there && (there == stream || atomic_load_explicit(&there->key, memory_order_relaxed) ==
                                             STREAM_GONE))
            break;
        place++;
    }
    atomic_store_explicit(&stream->end, 0, memory_order_relaxed);
    atomic_store_explicit(&stream->alone, 0, memory_order_relaxed);
    atomic_store_explicit(&compute->list[place % HAMI_STREAMS_LISTED], stream,
                          memory_order_relaxed);
}

struct hami_stream *hami_stream_find(struct hami_compute *compute, uint64_t key, bool make)
{
    struct hami_stream *place = NULL;
    uint64_t found;

    for (unsigned int i = 0; i < STREAM_PROBES; i++) {
        struct hami_stream *stream = stream_at(compute, key, i);

        found = atomic_load_explicit(&stream->key, memory_order_relaxed);
        if (found == key)
            return stream;
        if (!place && (found == 0 || found == STREAM_GONE))
            place = stream;
        if (found == 0)
            break;
    }
    if (!make)
        return NULL;
    if (!place)
        return &compute->crowd;
    found = atomic_load_explicit(&place->key, memory_order_relaxed);
    if ((found == 0 || found == STREAM_GONE) &&
        atomic_compare_exchange_strong_explicit(&place->key, &found, key, memory_order_relaxed,
                                                memory_order_relaxed))
        list(compute, place);
    /* Else somebody else took the place just now: rare enough to share it, in the crowd. */
    return atomic_load_explicit(&place->key, memory_order_relaxed) == key ? place
                                                                          : &compute->crowd;
}

void hami_compute_forget_stream(struct hami_compute *compute, uint64_t key)
{
    struct hami_stream *stream = hami_stream_find(compute, key, false);

    if (stream)
        atomic_store_explicit(&stream->key, STREAM_GONE, memory_order_relaxed);
}

void hami_extend(_Atomic int64_t *end, int64_t since, int64_t time)
{
    int64_t found = atomic_load_explicit(end, memory_order_relaxed);
    int64_t later;

    do
        later = (found > since ? found : since) + time;
    while (!atomic_compare_exchange_weak_explicit(end, &found, later, memory_order_relaxed,
                                                  memory_order_relaxed));
}

/* ---- When they all end ----------------------------------------------------------------------- */

/* The n-th listed stream, if it is of the device that `key` is of. A stream that was forgotten and
 * made again may be listed twice, which does no harm. */
static struct hami_stream *listed(struct hami_compute *compute, unsigned int n, uint64_t key)
{
    struct hami_stream *stream = atomic_load_explicit(&compute->list[n], memory_order_relaxed);
    uint64_t found;

    if (!stream)
        return NULL;
    found = atomic_load_explicit(&stream->key, memory_order_relaxed);
    return found != STREAM_GONE && (found & HAMI_ROW_OF_KEY) == (key & HAMI_ROW_OF_KEY) ? stream
                                                                                       : NULL;
}

/* When all work of the device is done, as far as is known. */
static int64_t last_end(struct hami_compute *compute, const struct hami_work *work, int64_t others)
{
    int64_t last = atomic_load_explicit(&work->share->queue, memory_order_relaxed);

    if (last < others)
        last = others;
    for (unsigned int n = 0; n < HAMI_STREAMS_LISTED; n++) {
        const struct hami_stream *stream = listed(compute, n, work->stream_key);
        int64_t end = stream ? atomic_load_explicit(&stream->end, memory_order_relaxed) : last;

        if (end > last)
            last = end;
    }
    return last;
}

/* The last of all ends moves no further than any one of them. Beyond that it was other threads,
 * which make and forget streams and launch meanwhile, and pay for that themselves. */
static int64_t caused(int64_t moved, int64_t one, int64_t other)
{
    int64_t least = one < other ? one : other;
    int64_t most = one < other ? other : one;

    least = least < 0 ? least : 0;
    most = most > 0 ? most : 0;
    return moved < least ? least : moved > most ? most : moved;
}

int64_t hami_restate(struct hami_compute *compute, const struct hami_work *work, int64_t others,
                     int64_t later, int64_t unforeseen)
{
    int64_t before = last_end(compute, work, others);

    if (hami_stream_lives(work)) {
        atomic_fetch_add_explicit(&work->stream->end, later, memory_order_relaxed);
        if (work->lasts <= work->estimate)
            atomic_fetch_add_explicit(&work->stream->alone, later, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&work->share->queue, unforeseen, memory_order_relaxed);
    atomic_fetch_add_explicit(&work->share->restated, unforeseen, memory_order_relaxed);
    return caused(last_end(compute, work, others) - before, later, unforeseen);
}

static int64_t scaled(int64_t end, int64_t now, int64_t part, int64_t of)
{
    return end > now ? now + (int64_t)((__int128)(end - now) * part / of) : end;
}

int64_t hami_rescale(struct hami_compute *compute, const struct hami_work *work, int64_t others,
                     int64_t now, int64_t part, int64_t of)
{
    int64_t before = last_end(compute, work, others);
    int64_t queue = atomic_load_explicit(&work->share->queue, memory_order_relaxed);
    int64_t moved = scaled(queue, now, part, of) - queue;

    atomic_fetch_add_explicit(&work->share->queue, moved, memory_order_relaxed);
    for (unsigned int n = 0; n < HAMI_STREAMS_LISTED; n++) {
        struct hami_stream *stream = listed(compute, n, work->stream_key);
        int64_t end, alone;

        if (!stream)
            continue;
        end = scaled(atomic_load_explicit(&stream->end, memory_order_relaxed), now, part, of);
        alone = atomic_load_explicit(&stream->alone, memory_order_relaxed);
        atomic_store_explicit(&stream->end, end > alone ? end : alone, memory_order_relaxed);
    }
    return caused(last_end(compute, work, others) - before,
                  scaled(before, now, part, of) - before, 0);
}

static void put_off(_Atomic int64_t *end, int64_t now, int64_t later)
{
    int64_t found = atomic_load_explicit(end, memory_order_relaxed);

    if (found > now)
        atomic_store_explicit(end, found + later > now ? found + later : now, memory_order_relaxed);
}

void hami_restate_all(struct hami_compute *compute, const struct hami_work *work, int64_t now,
                      int64_t later)
{
    put_off(&work->share->queue, now, later);
    for (unsigned int n = 0; n < HAMI_STREAMS_LISTED; n++) {
        struct hami_stream *stream = listed(compute, n, work->stream_key);

        if (stream) {
            put_off(&stream->end, now, later);
            put_off(&stream->alone, now, later);
        }
    }
}
