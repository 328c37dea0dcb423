/* links: simgpu/daemon/schedule.c simgpu/daemon/unit.c simgpu/daemon/rings.c */
/* The simulated clock by itself. Random work is played again and again: looked at often, seldom and
 * once, which must change nothing; and by a plain reference that goes through time microsecond by
 * microsecond, which must agree to the nanosecond. schedule_test FROM TO plays those seeds. */
#include <stdlib.h>
#include <string.h>

#include "daemon/daemon.h"

#define CLIENTS 3
#define QUEUES 4
#define ENTRIES 120 /* of each client */
#define UNITS 2
#define US UINT64_C(1000)
#define START (UINT64_C(1000000) * US)
#define SLICE (2000 * US)

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so (seed %llu): %s\n", __FILE__, __LINE__,                 \
                    (unsigned long long)seed, #condition);                                         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static uint64_t seed, dice_state;

static uint64_t dice(uint64_t sides)
{
    dice_state ^= dice_state << 13;
    dice_state ^= dice_state >> 7;
    dice_state ^= dice_state << 17;
    return dice_state % sides;
}

/* ---- The work ---- */

struct plan { /* what one client submits, in order; entry i is mark i where it is a mark */
    struct sim_entry entries[ENTRIES];
    uint64_t release_ns[ENTRIES]; /* of a hold */
};

struct result {
    uint64_t at[CLIENTS][ENTRIES];
    uint64_t wall[CLIENTS][UNITS], work[CLIENTS][UNITS];
};

static int unit_of(uint32_t queue, bool two_units)
{
    return two_units ? (int)queue % UNITS : 0;
}

/* Runs, marks behind about every second, waits for what was submitted before, and holds. */
static void make_plan(struct plan *plan, bool holds)
{
    uint64_t at = START, count[QUEUES] = {0};

    memset(plan, 0, sizeof(*plan));
    for (int i = 0; i < ENTRIES; i++) {
        struct sim_entry *entry = &plan->entries[i];
        uint64_t kind = dice(16);

        at += dice(3) ? dice(4) * US : dice(1500) * US;
        entry->submitted_ns = at;
        entry->queue = (uint32_t)dice(QUEUES);
        entry->other = (uint32_t)dice(QUEUES);
        entry->width = (uint16_t)(dice(3) ? 1 + dice(1000) : 1000);
        count[entry->queue]++;
        entry->mark = (uint32_t)i;
        if (kind < 8) {
            entry->kind = SIM_ITEM_RUN;
            entry->duration_ns = (dice(4) ? dice(200) : dice(5000)) * US;
        } else if (kind == 15 && holds) {
            entry->kind = SIM_ITEM_HOLD;
            entry->number = count[entry->queue];
            plan->release_ns[i] = at + dice(3000) * US;
        } else if (kind > 12 && entry->other != entry->queue && count[entry->other] > 0) {
            entry->kind = SIM_ITEM_WAIT;
            entry->number = 1 + dice(count[entry->other]);
        } else {
            entry->kind = SIM_ITEM_MARK;
        }
    }
}

/* ---- What the schedule needs of the rest of the daemon ---- */

static struct holding holdings[CLIENTS][UNITS];

struct seat *clients_seat(struct daemon *daemon, struct client *client, int unit)
{
    struct seat *seat = client->seats[unit];

    (void)daemon;
    if (!seat) {
        seat = client->seats[unit] = calloc(1, sizeof(*seat));
        seat->client = client;
        seat->unit = unit;
        seat->holding = &holdings[client->id - 1][unit];
    }
    return seat;
}

void clients_drop(struct daemon *daemon, struct client *client, uint64_t gone_ns)
{
    (void)daemon;
    (void)gone_ns;
    CHECK(!client);
}

void daemon_say(const struct client *client, const char *format, ...)
{
    CHECK(!client && !format);
}

/* ---- Played by the daemon's schedule ---- */

static void begin(struct daemon *daemon, struct client *clients, struct sim_shared **shared,
                  bool two_units)
{
    memset(daemon, 0, sizeof(*daemon));
    memset(clients, 0, CLIENTS * sizeof(*clients));
    memset(holdings, 0, sizeof(holdings));
    daemon->settings.slice_ns = SLICE;
    for (int i = 0; i < SIM_MAX_UNITS; i++) {
        daemon->units[i].now_ns = START;
        daemon->units[i].next_ns = NEVER;
    }
    for (int i = 0; i < CLIENTS; i++) {
        struct client *client = &clients[i];

        client->id = (uint64_t)i + 1;
        client->shared = shared[i] = calloc(1, sizeof(struct sim_shared));
        client->shared->retired.wanted = NEVER;
        client->next = daemon->clients;
        if (client->next)
            client->next->previous = client;
        daemon->clients = client;
        for (uint32_t queue = 0; queue < QUEUES; queue++)
            CHECK(rings_bind(daemon, client, queue, unit_of(queue, two_units)) == SIM_OK);
    }
}

static void end(struct daemon *daemon, struct client *clients, struct result *result)
{
    for (int i = 0; i < CLIENTS; i++) {
        CHECK(clients[i].retired == ENTRIES);
        for (int entry = 0; entry < ENTRIES; entry++)
            result->at[i][entry] = clients[i].shared->marks[entry].at_ns;
        for (int unit = 0; unit < UNITS; unit++) {
            result->wall[i][unit] = holdings[i][unit].wall_ns;
            result->work[i][unit] = holdings[i][unit].sm_work;
        }
        rings_client_gone(daemon, &clients[i]);
        for (int unit = 0; unit < UNITS; unit++)
            free(clients[i].seats[unit]);
        free(clients[i].shared);
    }
    CHECK(daemon->foreign_waits == 0);
    for (int unit = 0; unit < UNITS; unit++)
        CHECK(!daemon->units[unit].seats && !daemon->units[unit].active);
}

static bool all_retired(const struct client *clients)
{
    for (int i = 0; i < CLIENTS; i++)
        if (clients[i].retired < ENTRIES)
            return false;
    return true;
}

/* Looks come at most `pause` apart; 0: once, when all is over. */
static void play(const struct plan *plans, bool two_units, uint64_t pause, struct result *result)
{
    static struct daemon daemon;
    struct client clients[CLIENTS];
    struct sim_shared *shared[CLIENTS];
    uint64_t seen[CLIENTS] = {0}, over = START + 1000000 * US, now = START;

    begin(&daemon, clients, shared, two_units);
    while (now < over) {
        uint64_t before = now;

        now = pause && !all_retired(clients) ? now + 1 + dice(pause) : over;
        for (int i = 0; i < CLIENTS; i++) {
            const struct sim_entry *entries = plans[i].entries;

            for (; seen[i] < ENTRIES && entries[seen[i]].submitted_ns <= now; seen[i]++)
                shared[i]->ring[seen[i]] = entries[seen[i]];
            shared[i]->head = seen[i];
        }
        rings_drain(&daemon, now);
        for (int i = 0; i < CLIENTS; i++)
            for (int entry = 0; entry < ENTRIES; entry++)
                if (plans[i].release_ns[entry] > before && plans[i].release_ns[entry] <= now)
                    rings_release(&daemon, &clients[i], plans[i].entries[entry].queue,
                                  plans[i].entries[entry].number, plans[i].release_ns[entry]);
        /* Whoever reads the totals makes the schedule stop in between. */
        if (dice(4) == 0)
            schedule_account(&daemon, now);
        else
            schedule_advance(&daemon, now);
        rings_wake(&daemon);
    }
    end(&daemon, clients, result);
}

/* ---- Played microsecond by microsecond, one unit, without holds ---- */

struct by_tick {
    const struct plan *plans;
    int at[CLIENTS][QUEUES][ENTRIES], length[CLIENTS][QUEUES], done[CLIENTS][QUEUES];
    uint64_t ready[CLIENTS][QUEUES], left[CLIENTS][QUEUES], off[CLIENTS], slice;
    bool running[CLIENTS][QUEUES];
    int active;
    struct result *result;
};

static const struct sim_entry *head_of(const struct by_tick *all, int client, int queue)
{
    int done = all->done[client][queue];

    return done < all->length[client][queue]
               ? &all->plans[client].entries[all->at[client][queue][done]]
               : NULL;
}

static bool can_go(const struct by_tick *all, int client, int queue, uint64_t now)
{
    const struct sim_entry *entry = head_of(all, client, queue);

    return entry && all->ready[client][queue] <= now &&
           (entry->kind != SIM_ITEM_WAIT ||
            (uint64_t)all->done[client][entry->other] >= entry->number);
}

static void next_of(struct by_tick *all, int client, int queue, uint64_t now)
{
    const struct sim_entry *entry;

    all->running[client][queue] = false;
    all->done[client][queue]++;
    entry = head_of(all, client, queue);
    if (entry)
        all->ready[client][queue] = entry->submitted_ns > now ? entry->submitted_ns : now;
}

static uint64_t waits_since(const struct by_tick *all, int client, uint64_t now)
{
    uint64_t since = NEVER;

    for (int queue = 0; queue < QUEUES; queue++) {
        const struct sim_entry *entry = head_of(all, client, queue);

        if (all->running[client][queue])
            return all->off[client];
        if (entry && entry->kind != SIM_ITEM_WAIT && can_go(all, client, queue, now) &&
            all->ready[client][queue] < since)
            since = all->ready[client][queue];
    }
    return since != NEVER && since < all->off[client] ? all->off[client] : since;
}

static void choose(struct by_tick *all, uint64_t now)
{
    uint64_t longest = NEVER;
    bool others = false;

    for (int client = 0; client < CLIENTS; client++)
        others |= client != all->active && waits_since(all, client, now) != NEVER;
    if (all->active >= 0 &&
        (waits_since(all, all->active, now) == NEVER || (now - all->slice >= SLICE && others))) {
        all->off[all->active] = now;
        all->active = -1;
    }
    if (all->active >= 0 && now - all->slice >= SLICE)
        all->slice = now; /* uncontested: it begins anew */
    if (all->active >= 0)
        return;
    for (int client = 0; client < CLIENTS; client++) {
        uint64_t since = waits_since(all, client, now);

        if (since < longest) {
            longest = since;
            all->active = client;
        }
    }
    all->slice = now;
}

/* One thing that happens at `now`, false when there is none left. */
static bool happens(struct by_tick *all, uint64_t now)
{
    const struct plan *plan;
    int oldest = -1, width = 0, client;

    for (client = 0; client < CLIENTS; client++) {
        for (int queue = 0; queue < QUEUES; queue++) {
            const struct sim_entry *entry = head_of(all, client, queue);

            if (all->running[client][queue] && all->left[client][queue] == 0)
                return next_of(all, client, queue, now), true;
            if (entry && entry->kind == SIM_ITEM_WAIT && can_go(all, client, queue, now))
                return next_of(all, client, queue, now), true;
        }
    }
    choose(all, now);
    client = all->active;
    if (client < 0)
        return false;
    plan = &all->plans[client];
    for (int queue = 0; queue < QUEUES; queue++) {
        const struct sim_entry *entry = head_of(all, client, queue);

        if (!entry || entry->kind == SIM_ITEM_WAIT || !can_go(all, client, queue, now))
            continue;
        if (entry->kind == SIM_ITEM_MARK) {
            all->result->at[client][entry - plan->entries] = now;
            return next_of(all, client, queue, now), true;
        }
        if (all->running[client][queue])
            width += entry->width;
        else if (oldest < 0 || all->ready[client][queue] < all->ready[client][oldest] ||
                 (all->ready[client][queue] == all->ready[client][oldest] &&
                  entry < head_of(all, client, oldest)))
            oldest = queue;
    }
    if (oldest < 0 || width + head_of(all, client, oldest)->width > SIM_WIDTH_MAX)
        return false;
    all->running[client][oldest] = true;
    all->left[client][oldest] = head_of(all, client, oldest)->duration_ns;
    return true;
}

static bool all_done(const struct by_tick *all)
{
    for (int client = 0; client < CLIENTS; client++)
        for (int queue = 0; queue < QUEUES; queue++)
            if (head_of(all, client, queue))
                return false;
    return true;
}

static void refer(const struct plan *plans, struct result *result)
{
    static struct by_tick all;

    memset(&all, 0, sizeof(all));
    memset(result, 0, sizeof(*result));
    all.plans = plans;
    all.result = result;
    all.active = -1;
    for (int client = 0; client < CLIENTS; client++) {
        for (int i = ENTRIES - 1; i >= 0; i--) {
            const struct sim_entry *entry = &plans[client].entries[i];

            all.ready[client][entry->queue] = entry->submitted_ns;
        }
        for (int i = 0; i < ENTRIES; i++) {
            uint32_t queue = plans[client].entries[i].queue;

            all.at[client][queue][all.length[client][queue]++] = i;
        }
    }
    for (uint64_t now = START; now < START + 1000000 * US; now += US) {
        int client, width = 0;

        while (happens(&all, now))
            ;
        client = all.active;
        if (client < 0 && all_done(&all))
            return;
        for (int queue = 0; client >= 0 && queue < QUEUES; queue++) {
            if (!all.running[client][queue])
                continue;
            all.left[client][queue] -= US;
            width += head_of(&all, client, queue)->width;
        }
        if (width > 0) {
            result->wall[client][0] += US;
            result->work[client][0] += US * (uint64_t)width;
        }
    }
}

/* ---- The tests ---- */

static void looking_changes_nothing(void)
{
    static const uint64_t pauses[] = {3 * US, 50 * US, 700 * US, 5000 * US, 100000 * US};
    static struct plan plans[CLIENTS];
    static struct result once, often;

    for (int i = 0; i < CLIENTS; i++)
        make_plan(&plans[i], true);
    play(plans, true, 0, &once);
    for (size_t i = 0; i < sizeof(pauses) / sizeof(pauses[0]); i++) {
        play(plans, true, pauses[i], &often);
        CHECK(memcmp(&once, &often, sizeof(once)) == 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        uint64_t asked = 0;

        for (int entry = 0; entry < ENTRIES; entry++)
            if (plans[i].entries[entry].kind == SIM_ITEM_RUN)
                asked += plans[i].entries[entry].duration_ns * plans[i].entries[entry].width;
        CHECK(once.work[i][0] + once.work[i][1] == asked);
    }
}

static void the_reference_agrees(void)
{
    static struct plan plans[CLIENTS];
    static struct result played, expected;

    for (int i = 0; i < CLIENTS; i++)
        make_plan(&plans[i], false);
    play(plans, false, dice(2) ? 80 * US : 0, &played);
    refer(plans, &expected);
    CHECK(memcmp(&played, &expected, sizeof(played)) == 0);
}

int main(int count, char **arguments)
{
    uint64_t from = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    uint64_t to = count > 2 ? strtoull(arguments[2], NULL, 10) : from + 7;

    for (seed = from; seed <= to; seed++) {
        dice_state = seed * UINT64_C(0x9e3779b97f4a7c15);
        looking_changes_nothing();
        the_reference_agrees();
    }
    printf("schedule_test: ok\n");
    return 0;
}
