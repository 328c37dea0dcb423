/* Whose memory is whose. Nothing here asks a client what it thinks it has. */
#include "daemon.h"

#include <stdlib.h>
#include <string.h>

struct tenant *ledger_tenant(struct daemon *daemon, const char *name)
{
    struct tenant *tenant = daemon->tenants;

    while (tenant && strcmp(tenant->name, name) != 0)
        tenant = tenant->next;
    if (tenant)
        return tenant;
    tenant = calloc(1, sizeof(*tenant));
    if (!tenant)
        return NULL;
    snprintf(tenant->name, sizeof(tenant->name), "%s", name);
    tenant->next = daemon->tenants;
    daemon->tenants = tenant;
    return tenant;
}

struct holding *ledger_holding(struct tenant *tenant, int unit)
{
    if (!tenant->units[unit])
        tenant->units[unit] = calloc(1, sizeof(struct holding));
    return tenant->units[unit];
}

/* ---- Ids ---- */

static struct reference **bucket(const struct daemon *daemon, uint64_t id)
{
    return &daemon->ids[(id * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (daemon->id_buckets - 1)];
}

/* Twice as many buckets as soon as there are as many ids. */
static bool grow_ids(struct daemon *daemon)
{
    struct daemon larger = {.id_buckets = daemon->id_buckets ? daemon->id_buckets * 2 : 1024};

    if (daemon->id_count < daemon->id_buckets)
        return true;
    larger.ids = calloc(larger.id_buckets, sizeof(struct reference *));
    if (!larger.ids)
        return false;
    for (size_t i = 0; i < daemon->id_buckets; i++) {
        struct reference *next, *reference = daemon->ids[i];

        for (; reference; reference = next) {
            struct reference **into = bucket(&larger, reference->id);

            next = reference->chain;
            reference->chain = *into;
            *into = reference;
        }
    }
    free(daemon->ids);
    daemon->ids = larger.ids;
    daemon->id_buckets = larger.id_buckets;
    return true;
}

static struct reference *find(const struct daemon *daemon, uint64_t id)
{
    struct reference *found = daemon->id_buckets ? *bucket(daemon, id) : NULL;

    while (found && found->id != id)
        found = found->chain;
    return found;
}

static struct reference *refer(struct daemon *daemon, struct client *client,
                               struct allocation *allocation)
{
    struct reference *made = grow_ids(daemon) ? calloc(1, sizeof(*made)) : NULL;
    struct reference **into;

    if (!made)
        return NULL;
    made->id = ++daemon->next_id;
    made->allocation = allocation;
    made->client = client;
    made->next = client->references;
    if (made->next)
        made->next->previous = made;
    client->references = made;
    into = bucket(daemon, made->id);
    made->chain = *into;
    *into = made;
    daemon->id_count++;
    allocation->references++;
    return made;
}

/* ---- Counting ---- */

uint64_t ledger_sum(const struct holding *holding)
{
    uint64_t sum = 0;

    for (int kind = 0; kind < KINDS; kind++)
        sum += holding->bytes[kind];
    return sum;
}

static void count(struct daemon *daemon, const struct allocation *allocation, bool taken)
{
    struct holding *holding = allocation->tenant->units[allocation->unit];
    struct seat *seat = allocation->taker ? allocation->taker->seats[allocation->unit] : NULL;
    uint64_t change = taken ? allocation->bytes : -allocation->bytes, asked_for;

    daemon->board->units[allocation->unit].used += change;
    holding->bytes[allocation->kind] += change;
    asked_for = holding->bytes[KIND_DATA] + holding->bytes[KIND_POOL];
    if (asked_for > holding->peak)
        holding->peak = asked_for;
    if (ledger_sum(holding) > holding->most)
        holding->most = ledger_sum(holding);
    if (!seat)
        return;
    seat->bytes[allocation->kind] += change;
    if (allocation->kind == KIND_CONTEXT)
        seat->contexts += taken ? 1u : -1u;
    if (seat->row >= 0) {
        struct sim_board_row *row = &daemon->board->rows[seat->row];

        row->bytes[allocation->kind] = seat->bytes[allocation->kind];
        row->contexts = seat->contexts;
    }
}

static void drop(struct daemon *daemon, struct reference *reference)
{
    struct reference **at = bucket(daemon, reference->id);
    struct allocation *allocation = reference->allocation;

    while (*at != reference)
        at = &(*at)->chain;
    *at = reference->chain;
    daemon->id_count--;
    if (reference->previous)
        reference->previous->next = reference->next;
    else
        reference->client->references = reference->next;
    if (reference->next)
        reference->next->previous = reference->previous;
    free(reference);
    if (--allocation->references == 0) {
        count(daemon, allocation, false);
        free(allocation);
    }
}

/* ---- What clients ask ---- */

uint32_t ledger_take(struct daemon *daemon, struct client *client, int unit, uint32_t kind,
                     uint64_t bytes, uint64_t *id)
{
    struct seat *seat = clients_seat(daemon, client, unit);
    const struct sim_board_unit *shown;
    struct allocation *made;
    struct reference *reference;
    uint64_t rounded = (bytes + GRANULE - 1) / GRANULE * GRANULE;

    if (!seat)
        return SIM_UNKNOWN;
    if (kind >= KINDS || bytes == 0)
        return SIM_INVALID;
    shown = &daemon->board->units[unit];
    /* Memory may have been made smaller than what is used: `used` above `memory` is possible. */
    if (bytes > shown->memory || shown->used > shown->memory ||
        rounded > shown->memory - shown->used)
        return SIM_FULL;
    made = calloc(1, sizeof(*made));
    if (!made)
        return SIM_FULL;
    made->tenant = client->tenant;
    made->taker = client;
    made->bytes = rounded;
    made->kind = kind;
    made->unit = unit;
    reference = refer(daemon, client, made);
    if (!reference) {
        free(made);
        return SIM_FULL;
    }
    count(daemon, made, true);
    *id = reference->id;
    return SIM_OK;
}

uint32_t ledger_give(struct daemon *daemon, struct client *client, uint64_t id)
{
    struct reference *reference = find(daemon, id);

    if (!reference || reference->client != client)
        return SIM_UNKNOWN;
    drop(daemon, reference);
    return SIM_OK;
}

uint32_t ledger_share(struct daemon *daemon, struct client *client, uint64_t id, uint64_t *own,
                      int *unit, uint64_t *bytes)
{
    struct reference *reference = find(daemon, id), *made;

    if (!reference)
        return SIM_UNKNOWN;
    made = refer(daemon, client, reference->allocation);
    if (!made)
        return SIM_FULL;
    *own = made->id;
    *unit = made->allocation->unit;
    *bytes = made->allocation->bytes;
    return SIM_OK;
}

/* What others still refer to outlives its taker, in the tenant's name. */
void ledger_client_gone(struct daemon *daemon, struct client *client)
{
    while (client->references)
        drop(daemon, client->references);
    for (size_t i = 0; i < daemon->id_buckets; i++)
        for (struct reference *other = daemon->ids[i]; other; other = other->chain)
            if (other->allocation->taker == client)
                other->allocation->taker = NULL;
}
