/* DIR/control: what tests ask and change. One line is one command, one line answers it: JSON, or
 * "ok", or "error" and why. */
#include "daemon.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1024
#define WORDS_MAX 16

struct commander { /* by descriptor */
    char line[LINE_MAX_BYTES];
    size_t length;
};

static struct commander *commanders[4096];

bool control_listen(struct daemon *daemon)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "control"};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    unlink("control");
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 64) < 0)
        return false;
    daemon->control = fd;
    return true;
}

void control_accept(struct daemon *daemon)
{
    int fd = accept4(daemon->control, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int room = 4 << 20;
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};

    if (fd < 0)
        return;
    event.data.u64 = (uint64_t)fd << ABOUT_BITS | ABOUT_COMMAND;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    if (fd < (int)(sizeof(commanders) / sizeof(commanders[0])))
        commanders[fd] = calloc(1, sizeof(struct commander));
    if (fd >= (int)(sizeof(commanders) / sizeof(commanders[0])) || !commanders[fd] ||
        epoll_ctl(daemon->epoll, EPOLL_CTL_ADD, fd, &event) < 0)
        close(fd);
}

static void hang_up(int fd)
{
    close(fd);
    free(commanders[fd]);
    commanders[fd] = NULL;
}

/* ---- Answers ---- */

static void print_name(FILE *to, const char *name)
{
    fputc('"', to);
    for (const unsigned char *at = (const unsigned char *)name; *at; at++) {
        if (*at < 0x20 || *at == '"' || *at == '\\')
            fprintf(to, "\\u%04x", *at);
        else
            fputc(*at, to);
    }
    fputc('"', to);
}

static void print_bytes(FILE *to, const uint64_t bytes[KINDS])
{
    static const char *const names[KINDS] = {"data", "context", "code", "pool", "internal"};
    uint64_t sum = 0;

    for (int kind = 0; kind < KINDS; kind++) {
        fprintf(to, "\"%s\": %llu, ", names[kind], (unsigned long long)bytes[kind]);
        sum += bytes[kind];
    }
    fprintf(to, "\"bytes\": %llu", (unsigned long long)sum);
}

static void print_ledger(struct daemon *daemon, FILE *to)
{
    const char *separator = "";

    fprintf(to, "{\"units\": [");
    for (int i = 0; i < SIM_MAX_UNITS; i++) {
        const struct sim_board_unit *unit = &daemon->board->units[i];

        if (unit->kind == SIM_UNIT_ABSENT)
            continue;
        fprintf(to, "%s{\"unit\": %d, \"uuid\": \"%s\", \"memory\": %llu, \"used\": %llu}",
                separator, i, unit->uuid, (unsigned long long)unit->memory,
                (unsigned long long)unit->used);
        separator = ", ";
    }
    fprintf(to, "], \"tenants\": [");
    separator = "";
    for (const struct tenant *tenant = daemon->tenants; tenant; tenant = tenant->next) {
        for (int i = 0; i < SIM_MAX_UNITS; i++) {
            const struct holding *holding = tenant->units[i];

            if (!holding)
                continue;
            fprintf(to, "%s{\"tenant\": ", separator);
            print_name(to, tenant->name);
            fprintf(to, ", \"unit\": %d, \"peak\": %llu, \"most\": %llu, ", i,
                    (unsigned long long)holding->peak, (unsigned long long)holding->most);
            print_bytes(to, holding->bytes);
            fputc('}', to);
            separator = ", ";
        }
    }
    fprintf(to, "]}");
}

static void print_busy(struct daemon *daemon, FILE *to)
{
    uint64_t now = daemon_now();
    const char *separator = "";

    rings_drain(daemon, now);
    schedule_account(daemon, now);
    fprintf(to, "{\"now_ns\": %llu, \"units\": [", (unsigned long long)now);
    for (int i = 0; i < SIM_MAX_UNITS; i++) {
        const struct unit *unit = &daemon->units[i];

        if (unit->shown->kind == SIM_UNIT_ABSENT)
            continue;
        fprintf(to, "%s{\"unit\": %d, \"wall_ns\": %llu, \"sm_ns\": %llu}", separator, i,
                (unsigned long long)unit->wall_ns,
                (unsigned long long)(unit->sm_work / SIM_WIDTH_MAX));
        separator = ", ";
    }
    fprintf(to, "], \"tenants\": [");
    separator = "";
    for (const struct tenant *tenant = daemon->tenants; tenant; tenant = tenant->next) {
        for (int i = 0; i < SIM_MAX_UNITS; i++) {
            const struct holding *holding = tenant->units[i];

            if (!holding)
                continue;
            fprintf(to, "%s{\"tenant\": ", separator);
            print_name(to, tenant->name);
            fprintf(to, ", \"unit\": %d, \"wall_ns\": %llu, \"sm_ns\": %llu}", i,
                    (unsigned long long)holding->wall_ns,
                    (unsigned long long)(holding->sm_work / SIM_WIDTH_MAX));
            separator = ", ";
        }
    }
    fprintf(to, "]}");
}

/* What clients read without asking, as it stands. */
static void print_board(struct daemon *daemon, FILE *to)
{
    const struct sim_board *board = daemon->board;
    const char *separator = "";

    fprintf(to, "{\"sampled_ns\": %llu, \"units\": [", (unsigned long long)board->sampled_ns);
    for (int i = 0; i < SIM_MAX_UNITS; i++) {
        const struct sim_board_unit *unit = &board->units[i];

        if (unit->kind == SIM_UNIT_ABSENT)
            continue;
        fprintf(to, "%s{\"unit\": %d, \"card\": %d, \"uuid\": \"%s\", \"mig\": %u, ", separator, i,
                unit->card, unit->uuid, unit->mig);
        fprintf(to, "\"utilisation\": %u}", unit->utilisation);
        separator = ", ";
    }
    fprintf(to, "], \"rows\": [");
    separator = "";
    for (int i = 0; i < SIM_MAX_ROWS; i++) {
        const struct sim_board_row *row = &board->rows[i];

        if (row->pid == 0)
            continue;
        fprintf(to, "%s{\"pid\": %u, \"unit\": %d, \"tenant\": ", separator, row->pid, row->unit);
        print_name(to, row->tenant);
        fprintf(to, ", \"utilisation\": %u, \"contexts\": %u}", row->utilisation, row->contexts);
        separator = ", ";
    }
    fprintf(to, "]}");
}

static void print_clients(struct daemon *daemon, FILE *to)
{
    const char *separator = "";

    fputc('[', to);
    for (const struct client *client = daemon->clients; client; client = client->next) {
        if (!client->tenant)
            continue;
        fprintf(to, "%s{\"client\": %llu, \"pid\": %u, \"gone\": %s, \"outstanding\": %llu, ",
                separator, (unsigned long long)client->id, client->pid,
                client->fd < 0 ? "true" : "false",
                (unsigned long long)(client->tail - client->retired));
        fprintf(to, "\"tenant\": ");
        print_name(to, client->tenant->name);
        fprintf(to, ", \"units\": [");
        separator = "";
        for (int i = 0; i < SIM_MAX_UNITS; i++) {
            const struct seat *seat = client->seats[i];

            if (!seat)
                continue;
            fprintf(to, "%s{\"unit\": %d, \"wall_ns\": %llu, \"sm_ns\": %llu, ", separator, i,
                    (unsigned long long)seat->wall_ns,
                    (unsigned long long)(seat->sm_work / SIM_WIDTH_MAX));
            print_bytes(to, seat->bytes);
            fputc('}', to);
            separator = ", ";
        }
        fprintf(to, "]}");
        separator = ", ";
    }
    fputc(']', to);
}

/* ---- Commands ---- */

static bool whole(const char *text, uint64_t low, uint64_t high, uint64_t *value)
{
    char *end;

    errno = 0;
    *value = strtoull(text, &end, 10);
    return end != text && *end == '\0' && errno == 0 && *value >= low && *value <= high;
}

/* set free_delay_ms|sample_ms|slice_us|look_us VALUE; set memory UNIT MIB */
static bool set(struct daemon *daemon, int count, char **words)
{
    struct settings *settings = &daemon->settings;
    uint64_t value, unit;

    if (count == 4 && strcmp(words[1], "memory") == 0) {
        if (!whole(words[2], 0, SIM_MAX_UNITS - 1, &unit) ||
            !whole(words[3], 1, UINT64_C(16) << 20, &value) ||
            daemon->board->units[unit].kind == SIM_UNIT_ABSENT)
            return false;
        daemon->board->units[unit].memory = value << 20;
        return true;
    }
    if (count != 3 || !whole(words[2], 0, 86400000, &value))
        return false;
    if (strcmp(words[1], "free_delay_ms") == 0) {
        settings->free_delay_ns = value * 1000000;
        return true;
    }
    if (value == 0)
        return false;
    if (strcmp(words[1], "sample_ms") == 0) {
        settings->sample_ns = value * 1000000;
        board_sample_anew(daemon, daemon_now());
    } else if (strcmp(words[1], "slice_us") == 0) {
        settings->slice_ns = value * 1000;
    } else if (strcmp(words[1], "look_us") == 0) {
        settings->look_ns = value * 1000;
    } else {
        return false;
    }
    return true;
}

static const char *reset_peaks(struct daemon *daemon)
{
    for (struct tenant *tenant = daemon->tenants; tenant; tenant = tenant->next)
        for (int i = 0; i < SIM_MAX_UNITS; i++) {
            struct holding *holding = tenant->units[i];

            if (!holding)
                continue;
            holding->peak = holding->bytes[KIND_DATA] + holding->bytes[KIND_POOL];
            holding->most = ledger_sum(holding);
        }
    return "ok";
}

static const char *quit(struct daemon *daemon)
{
    daemon->stop = true;
    return "ok";
}

static void obey(struct daemon *daemon, char *line, FILE *to)
{
    char *words[WORDS_MAX + 1], *rest = line;
    int count = 0;

    while (count < WORDS_MAX && (words[count] = strsep(&rest, " \t\r")) != NULL)
        if (*words[count])
            count++;
    words[count] = NULL;
    if (count == 0)
        fprintf(to, "error: no command");
    else if (strcmp(words[0], "ledger") == 0)
        print_ledger(daemon, to);
    else if (strcmp(words[0], "busy") == 0)
        print_busy(daemon, to);
    else if (strcmp(words[0], "clients") == 0)
        print_clients(daemon, to);
    else if (strcmp(words[0], "board") == 0)
        print_board(daemon, to);
    else if (strcmp(words[0], "reset-peaks") == 0)
        fprintf(to, "%s", reset_peaks(daemon));
    else if (strcmp(words[0], "quit") == 0)
        fprintf(to, "%s", quit(daemon));
    else if (strcmp(words[0], "set") == 0)
        fprintf(to, "%s", set(daemon, count, words) ? "ok" : "error: no such setting or value");
    else if (!nvml_command(daemon, count, words, to))
        fprintf(to, "error: unknown command %s", words[0]);
}

static bool answer(struct daemon *daemon, int fd, char *line)
{
    char *text = NULL;
    size_t length = 0, sent = 0;
    FILE *to = open_memstream(&text, &length);

    if (!to)
        return false;
    obey(daemon, line, to);
    fputc('\n', to);
    fclose(to);
    while (sent < length) {
        ssize_t part = send(fd, text + sent, length - sent, MSG_NOSIGNAL);

        if (part < 0 && errno == EINTR)
            continue;
        if (part <= 0)
            break;
        sent += (size_t)part;
    }
    free(text);
    return sent == length;
}

void control_ready(struct daemon *daemon, int fd)
{
    struct commander *commander = commanders[fd];
    ssize_t got;
    char *end;

    if (!commander)
        return;
    got = recv(fd, commander->line + commander->length, LINE_MAX_BYTES - commander->length - 1, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        hang_up(fd);
        return;
    }
    commander->length += (size_t)got;
    commander->line[commander->length] = '\0';
    while ((end = strchr(commander->line, '\n')) != NULL) {
        size_t used = (size_t)(end - commander->line) + 1;

        *end = '\0';
        if (!answer(daemon, fd, commander->line)) {
            hang_up(fd);
            return;
        }
        commander->length -= used;
        memmove(commander->line, commander->line + used, commander->length + 1);
    }
    if (commander->length + 1 >= LINE_MAX_BYTES || strlen(commander->line) != commander->length) {
        daemon_say(NULL, "a command that is no line of text");
        hang_up(fd);
    }
}
