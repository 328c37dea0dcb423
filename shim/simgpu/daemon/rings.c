/* Between a client's shared memory and the schedule. What a client writes there is copied, checked,
 * and believed only where it cannot hurt others. */
#include "daemon.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LONGEST_NS (UINT64_C(1000) * 3600 * 1000000000) /* no sum of two overflows */
#define FUTURE_NS UINT64_C(1000000000)

/* ---- Queues ---- */

static bool prepare(struct client *client)
{
    if (client->lines)
        return true;
    client->lines = calloc(SIM_QUEUES, sizeof(*client->lines));
    client->items = calloc(SIM_RING, sizeof(*client->items));
    if (!client->lines || !client->items) {
        free(client->lines);
        free(client->items);
        client->lines = NULL;
        client->items = NULL;
        return false;
    }
    for (uint16_t i = 0; i < SIM_RING; i++)
        client->items[i].next = i + 1 < SIM_RING ? (uint16_t)(i + 1) : NONE;
    return true;
}

uint32_t rings_bind(struct daemon *daemon, struct client *client, uint64_t place, int unit)
{
    struct seat *seat = clients_seat(daemon, client, unit);
    struct line *line;

    if (!seat)
        return SIM_UNKNOWN;
    if (place >= SIM_QUEUES || !prepare(client))
        return SIM_INVALID;
    line = client->lines[place];
    if (!line) {
        line = calloc(1, sizeof(*line));
        if (!line)
            return SIM_FULL;
        line->client = client;
        line->place = (uint32_t)place;
        line->first = line->last = NONE;
        atomic_store(&client->shared->queues[place].wanted, NEVER);
        client->lines[place] = line;
    }
    if (line->first != NONE)
        return SIM_INVALID;
    line->seat = seat;
    return SIM_OK;
}

uint32_t rings_release(struct daemon *daemon, struct client *client, uint64_t place,
                       uint64_t number, uint64_t at_ns)
{
    struct line *line = client->lines && place < SIM_QUEUES ? client->lines[place] : NULL;

    for (uint16_t at = line ? line->first : NONE; at != NONE; at = client->items[at].next) {
        struct item *item = &client->items[at];

        if (item->kind != SIM_ITEM_HOLD || item->number != number)
            continue;
        item->remaining_ns = at_ns;
        schedule_touch(daemon, line->seat->unit);
        return SIM_OK;
    }
    return SIM_UNKNOWN;
}

/* ---- In ---- */

static bool sensible(const struct client *client, const struct sim_entry *entry)
{
    if (entry->queue >= SIM_QUEUES || !client->lines[entry->queue])
        return false;
    switch (entry->kind) {
    case SIM_ITEM_RUN:
        return entry->width >= 1 && entry->width <= SIM_WIDTH_MAX;
    case SIM_ITEM_MARK:
        return entry->mark < SIM_MARKS;
    case SIM_ITEM_WAIT:
        return entry->other < SIM_QUEUES && entry->other != entry->queue &&
               client->lines[entry->other];
    case SIM_ITEM_HOLD:
        return true;
    default:
        return false;
    }
}

static bool take_entry(struct daemon *daemon, struct client *client, uint64_t now)
{
    struct sim_entry entry = client->shared->ring[client->tail % SIM_RING];
    uint16_t at = client->free_item;
    struct item *item;

    if (at == NONE || !sensible(client, &entry))
        return false;
    item = &client->items[at];
    client->free_item = item->next;
    item->submitted_ns = entry.submitted_ns > now + FUTURE_NS ? now : entry.submitted_ns;
    item->remaining_ns = entry.duration_ns < LONGEST_NS ? entry.duration_ns : LONGEST_NS;
    if (entry.kind == SIM_ITEM_HOLD)
        item->remaining_ns = NEVER;
    item->number = entry.number;
    item->ticket = ++client->tail;
    item->other = entry.other;
    item->mark = entry.mark;
    item->kind = entry.kind;
    item->width = entry.width;
    schedule_add(daemon, client->lines[entry.queue], at);
    return true;
}

void rings_drain_client(struct daemon *daemon, struct client *client, uint64_t now)
{
    uint64_t head;

    if (!client->lines)
        return;
    head = atomic_load(&client->shared->head); /* ordered behind "awake" on the board */
    if (head == client->tail)
        return;
    while (client->tail != head) {
        if (head - client->tail > SIM_RING || !take_entry(daemon, client, now)) {
            daemon_say(client, "its ring holds nonsense");
            clients_drop(daemon, client, now);
            return;
        }
    }
    atomic_store_explicit(&client->shared->tail, client->tail, memory_order_release);
}

bool rings_drain(struct daemon *daemon, uint64_t now)
{
    bool any = false;

    for (struct client *client = daemon->clients; client; client = client->next) {
        uint64_t before = client->tail;

        rings_drain_client(daemon, client, now);
        any |= client->tail != before;
    }
    return any;
}

bool rings_waiting(const struct daemon *daemon)
{
    for (const struct client *client = daemon->clients; client; client = client->next)
        if (client->lines && client->tail != atomic_load(&client->shared->head))
            return true;
    return false;
}

/* ---- Out ---- */

void rings_complete(struct daemon *daemon, struct line *line, uint64_t at_ns)
{
    struct client *client = line->client;
    struct sim_channel *channel = &client->shared->queues[line->place];
    uint16_t at = line->first;
    struct item *item = &client->items[at];

    if (item->kind == SIM_ITEM_MARK) {
        struct sim_mark *mark = &client->shared->marks[item->mark];

        /* A marker used anew in another queue may be noted before its older use is. */
        if (atomic_load_explicit(&mark->ticket, memory_order_relaxed) < item->ticket) {
            atomic_store_explicit(&mark->at_ns, at_ns, memory_order_relaxed);
            atomic_store_explicit(&mark->ticket, item->ticket, memory_order_release);
        }
    }
    line->first = item->next;
    if (line->first == NONE)
        line->last = NONE;
    item->next = client->free_item;
    client->free_item = at;
    line->done++;
    client->retired++;
    atomic_store_explicit(&channel->done, line->done, memory_order_release);
    atomic_store_explicit(&client->shared->retired.done, client->retired, memory_order_release);
    if (!line->is_touched) {
        line->is_touched = true;
        line->touched = daemon->touched;
        daemon->touched = line;
    }
}

static void wake(struct sim_channel *channel, uint64_t done)
{
    if (atomic_load(&channel->wanted) > done)
        return;
    atomic_store(&channel->wanted, NEVER);
    atomic_fetch_add(&channel->wake, 1);
    syscall(SYS_futex, &channel->wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Once for all that a look at the clock brought: what was done is stored before wishes are read,
 * and a client wishes before it reads what is done. */
void rings_wake(struct daemon *daemon)
{
    struct line *line = daemon->touched;

    if (line)
        atomic_thread_fence(memory_order_seq_cst);
    daemon->touched = NULL;
    while (line) {
        struct line *next = line->touched;

        line->is_touched = false;
        wake(&line->client->shared->queues[line->place], line->done);
        wake(&line->client->shared->retired, line->client->retired);
        line = next;
    }
}

void rings_client_gone(struct daemon *daemon, struct client *client)
{
    rings_wake(daemon); /* no line of it stays on the list */
    if (!client->lines)
        return;
    for (int i = 0; i < SIM_QUEUES; i++)
        if (client->lines[i])
            schedule_remove(daemon, client->lines[i]);
    for (int i = 0; i < SIM_QUEUES; i++)
        free(client->lines[i]);
    free(client->lines);
    free(client->items);
    client->lines = NULL;
    client->items = NULL;
}
