/* The streams of a process: until when each has work, by what was charged for it. */
#include "compute_parts.h"

#define STREAM_PROBES 16
#define STREAM_GONE UINT64_MAX

static struct hami_stream *stream_at(struct hami_compute *compute, uint64_t key, unsigned int probe)
{
    uint64_t hash = key * UINT64_C(0x9e3779b97f4a7c15) >> 32;

    return &compute->streams[(hash + probe) & (HAMI_STREAMS - 1)];
}

/* The last few streams that were made are listed, for those who need to know of all. */
static void list(struct hami_compute *compute, struct hami_stream *stream)
{
    uint32_t place = atomic_fetch_add_explicit(&compute->listed, 1, memory_order_relaxed);

    atomic_store_explicit(&stream->end, 0, memory_order_relaxed);
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

void hami_stream_extend(struct hami_stream *stream, int64_t since, int64_t time)
{
    int64_t found = atomic_load_explicit(&stream->end, memory_order_relaxed);
    int64_t end;

    do
        end = (found > since ? found : since) + time;
    while (!atomic_compare_exchange_weak_explicit(&stream->end, &found, end, memory_order_relaxed,
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

#define NO_END INT64_MIN /* no stream of the device is listed */

static int64_t last_end(struct hami_compute *compute, uint64_t key)
{
    int64_t last = NO_END;

    for (unsigned int n = 0; n < HAMI_STREAMS_LISTED; n++) {
        const struct hami_stream *stream = listed(compute, n, key);
        int64_t end = stream ? atomic_load_explicit(&stream->end, memory_order_relaxed) : last;

        if (end > last)
            last = end;
    }
    return last;
}

static int64_t in_proportion(const struct hami_work *work, int64_t later)
{
    return (int64_t)((__int128)later * work->charged / work->estimate);
}

int64_t hami_stream_restate(struct hami_compute *compute, const struct hami_work *work,
                            int64_t later)
{
    int64_t before, after, moved;

    if (atomic_load_explicit(&work->stream->key, memory_order_relaxed) != work->stream_key)
        return in_proportion(work, later);
    before = last_end(compute, work->stream_key);
    atomic_fetch_add_explicit(&work->stream->end, later, memory_order_relaxed);
    after = last_end(compute, work->stream_key);
    if (before == NO_END || after == NO_END) /* another thread destroyed it meanwhile */
        return in_proportion(work, later);
    moved = after - before;
    /* Other threads launch meanwhile, and pay for that themselves. */
    if (later < 0)
        return moved < later ? later : moved < 0 ? moved : 0;
    return moved > later ? later : moved > 0 ? moved : 0;
}

void hami_streams_restate(struct hami_compute *compute, const struct hami_work *work, int64_t now,
                          int64_t later)
{
    for (unsigned int n = 0; n < HAMI_STREAMS_LISTED; n++) {
        struct hami_stream *stream = listed(compute, n, work->stream_key);
        int64_t end = stream ? atomic_load_explicit(&stream->end, memory_order_relaxed) : 0;

        if (stream && end > now)
            atomic_store_explicit(&stream->end, end + later > now ? end + later : now,
                                  memory_order_relaxed);
    }
}
