/* What clients may read without asking: units, processes, utilisation, events. */
#include "daemon.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Made aside and renamed: who opens DIR/board finds a whole one or none. */
bool board_create(struct daemon *daemon)
{
    int fd = open("board.new", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    void *found = MAP_FAILED;

    if (fd >= 0 && ftruncate(fd, sizeof(struct sim_board)) == 0)
        found = mmap(NULL, sizeof(struct sim_board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (found == MAP_FAILED)
        return false;
    daemon->board = found;
    daemon->board->version = SIM_BOARD_VERSION;
    daemon->board->size = sizeof(struct sim_board);
    daemon->board->daemon_pid = (uint32_t)getpid();
    daemon->board->magic = SIM_BOARD_MAGIC;
    for (int i = 0; i < SIM_MAX_UNITS; i++)
        daemon->units[i].shown = &daemon->board->units[i];
    return true;
}

static int depth;

void board_begin(struct daemon *daemon)
{
    if (depth++ == 0) {
        atomic_fetch_add_explicit(&daemon->board->revision, 1, memory_order_relaxed);
        atomic_thread_fence(memory_order_release);
    }
}

void board_end(struct daemon *daemon)
{
    if (--depth == 0)
        atomic_fetch_add_explicit(&daemon->board->revision, 1, memory_order_release);
}

/* ---- Rows ---- */

void board_row_take(struct daemon *daemon, struct seat *seat)
{
    seat->row = -1;
    for (int i = 0; i < SIM_MAX_ROWS; i++) {
        struct sim_board_row *row = &daemon->board->rows[i];

        if (row->pid != 0)
            continue;
        board_begin(daemon);
        memset(row, 0, sizeof(*row));
        row->unit = seat->unit;
        memcpy(row->tenant, seat->client->tenant->name, sizeof(row->tenant));
        row->pid = seat->client->pid;
        board_end(daemon);
        seat->row = i;
        return;
    }
}

void board_row_drop(struct daemon *daemon, struct seat *seat)
{
    if (seat->row < 0)
        return;
    board_begin(daemon);
    memset(&daemon->board->rows[seat->row], 0, sizeof(daemon->board->rows[0]));
    board_end(daemon);
    seat->row = -1;
}

/* ---- Units that come and go ---- */

bool board_uuid(const char *printed, uint8_t raw[16])
{
    const char *at = printed + 4;
    int digits = 0;

    if (strncmp(printed, "GPU-", 4) != 0 && strncmp(printed, "MIG-", 4) != 0)
        return false;
    memset(raw, 0, 16);
    for (; *at; at++) {
        static const char hexadecimal[] = "0123456789abcdef";
        const char *found = strchr(hexadecimal, *at);

        if (*at == '-' && (digits == 8 || digits == 12 || digits == 16 || digits == 20))
            continue;
        if (!found || digits == 32)
            return false;
        raw[digits / 2] = (uint8_t)(raw[digits / 2] << 4 | (found - hexadecimal));
        digits++;
    }
    return digits == 32;
}

int board_add_instance(struct daemon *daemon, int card, const char *name, const char *uuid,
                       uint64_t memory, int sms, int gpu_instance, int compute_instance)
{
    const struct sim_board_unit *parent = &daemon->board->units[card];
    struct sim_board_unit made;
    int at = SIM_MAX_CARDS + card * SIM_CARD_INSTANCES, end = at + SIM_CARD_INSTANCES;

    while (at < end && daemon->board->units[at].kind != SIM_UNIT_ABSENT)
        at++;
    if (at == end || !parent->mig)
        return -1;
    memset(&made, 0, sizeof(made));
    if (!board_uuid(uuid, made.bytes))
        return -1;
    made.kind = SIM_UNIT_INSTANCE;
    made.card = card;
    snprintf(made.name, sizeof(made.name), "%s", name);
    snprintf(made.uuid, sizeof(made.uuid), "%s", uuid);
    memcpy(made.pci, parent->pci, sizeof(made.pci));
    made.memory = memory;
    made.sms = sms;
    made.major = parent->major;
    made.minor = parent->minor;
    made.numa = parent->numa;
    made.gpu_instance = gpu_instance;
    made.compute_instance = compute_instance;
    for (int i = 0; i < SIM_MAX_LINKS; i++)
        made.links[i] = SIM_LINK_NONE;
    board_begin(daemon);
    memcpy(&daemon->board->units[at], &made, sizeof(made));
    board_end(daemon);
    return at;
}

bool board_unit_in_use(const struct daemon *daemon, int unit)
{
    if (daemon->board->units[unit].used > 0)
        return true;
    for (const struct client *client = daemon->clients; client; client = client->next)
        if (client->seats[unit])
            return true;
    return false;
}

bool board_remove_instance(struct daemon *daemon, int unit)
{
    if (unit < SIM_MAX_CARDS || unit >= SIM_MAX_UNITS || board_unit_in_use(daemon, unit))
        return false;
    board_begin(daemon);
    memset(&daemon->board->units[unit], 0, sizeof(daemon->board->units[unit]));
    board_end(daemon);
    return true;
}

bool board_set_mig(struct daemon *daemon, int card, bool on)
{
    if (board_unit_in_use(daemon, card))
        return false;
    for (int i = 0; i < SIM_CARD_INSTANCES; i++)
        if (daemon->board->units[SIM_MAX_CARDS + card * SIM_CARD_INSTANCES + i].kind !=
            SIM_UNIT_ABSENT)
            return false;
    board_begin(daemon);
    daemon->board->units[card].mig = on;
    board_end(daemon);
    return true;
}

/* ---- Events ---- */

void board_event(struct daemon *daemon, uint64_t type, uint64_t data, int card, int gpu_instance,
                 int compute_instance)
{
    struct sim_board *board = daemon->board;
    uint64_t count = board->event_count;
    struct sim_board_event *event = &board->events[count % SIM_BOARD_EVENTS];

    board_begin(daemon);
    event->type = type;
    event->data = data;
    event->unit = card;
    event->gpu_instance = gpu_instance;
    event->compute_instance = compute_instance;
    event->at_ns = daemon_now();
    atomic_store(&board->event_count, count + 1);
    board_end(daemon);
    atomic_store(&board->event_wake, (uint32_t)(count + 1));
    syscall(SYS_futex, &board->event_wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- Utilisation ---- */

static uint32_t percent_of(uint64_t busy_ns, uint64_t period_ns)
{
    return busy_ns >= period_ns ? 100 : (uint32_t)(busy_ns * 100 / period_ns);
}

/* A sample of another length begins now. */
void board_sample_anew(struct daemon *daemon, uint64_t now)
{
    schedule_account(daemon, now);
    for (int i = 0; i < SIM_MAX_UNITS; i++)
        daemon->units[i].sampled_wall_ns = daemon->units[i].wall_ns;
    for (struct client *client = daemon->clients; client; client = client->next)
        for (int i = 0; i < SIM_MAX_UNITS; i++)
            if (client->seats[i])
                client->seats[i]->sampled_wall_ns = client->seats[i]->wall_ns;
    daemon->next_sample_ns = now + daemon->settings.sample_ns;
}

/* NVML shows what was, not what is: a sample becomes visible when the next one is taken. */
void board_sample(struct daemon *daemon, uint64_t now)
{
    struct sim_board *board = daemon->board;
    uint64_t period = daemon->settings.sample_ns;
    size_t at = board->samples.count % SIM_BOARD_SAMPLES;

    board_begin(daemon);
    for (int i = 0; i < SIM_MAX_UNITS; i++) {
        struct unit *unit = &daemon->units[i];

        unit->shown->utilisation = unit->percent;
        unit->percent = percent_of(unit->wall_ns - unit->sampled_wall_ns, period);
        unit->sampled_wall_ns = unit->wall_ns;
    }
    for (struct client *client = daemon->clients; client; client = client->next) {
        for (int i = 0; i < SIM_MAX_UNITS; i++) {
            struct seat *seat = client->seats[i];

            if (!seat)
                continue;
            if (seat->row >= 0) {
                board->rows[seat->row].utilisation = seat->percent;
                board->rows[seat->row].samples[at] = (uint8_t)seat->percent;
            }
            seat->percent = percent_of(seat->wall_ns - seat->sampled_wall_ns, period);
            seat->sampled_wall_ns = seat->wall_ns;
        }
    }
    board->sample_period_ns = period;
    board->sampled_ns = now;
    board->samples.ends_ns[at] = now;
    board->samples.count++;
    board_end(daemon);
}
