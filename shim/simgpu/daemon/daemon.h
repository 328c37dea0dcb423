/* simgpud: the truth about simulated cards. One thread, one event loop (main.c); memory in
 * ledger.c, time in schedule.c and unit.c, the clients' rings in rings.c, what clients may read in
 * board.c, messages in clients.c, commands for tests in control.c, MIG and XIDs in nvml*.c. */
#ifndef SIM_DAEMON_H
#define SIM_DAEMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "../protocol.h"

#define NONE UINT16_MAX         /* no item of a pool */
#define NEVER UINT64_MAX        /* no time */
#define GRANULE (UINT64_C(2) << 20)
#define KINDS SIM_BOARD_KINDS
#define KIND_DATA 0             /* enum sim_memory of client.h, which needs CUDA's types */
#define KIND_CONTEXT 1
#define KIND_POOL 3

/* What an event of the loop is about: a client's address, or one of these in its low bits. */
enum {
    ABOUT_CLIENT,
    ABOUT_BELL,
    ABOUT_TIMER,
    ABOUT_SOCKET,
    ABOUT_CONTROL,
    ABOUT_COMMAND, /* the descriptor lies above */
    ABOUT_SIGNAL,
    ABOUT_STDIN
};
#define ABOUT_BITS 3

struct daemon;
struct client;

/* ---- Memory ---- */

struct holding { /* what a tenant has and had of a unit, over all its processes */
    uint64_t bytes[KINDS];
    uint64_t peak; /* the most of data and pool together */
    uint64_t most; /* the most of all together */
    uint64_t wall_ns, sm_work; /* time in which anything ran; thousandths of a unit x ns */
};

struct tenant {
    struct tenant *next;
    char name[SIM_TENANT_SIZE];
    struct holding *units[SIM_MAX_UNITS]; /* NULL: never touched */
};

struct allocation { /* lives until its last reference is given back */
    struct tenant *tenant;
    struct client *taker; /* NULL once that process is gone */
    uint64_t bytes;
    uint32_t references, kind;
    int unit;
};

struct reference { /* an id of a client */
    uint64_t id;
    struct allocation *allocation;
    struct client *client;
    struct reference *next, *previous; /* of the client */
    struct reference *chain;           /* of the id's bucket */
};

/* ---- Time ---- */

struct item {
    uint64_t submitted_ns, number, ticket;
    uint64_t remaining_ns; /* of a hold: when it was released, NEVER until then */
    uint32_t other, mark;
    uint16_t kind, width, next;
};

struct line { /* a client's queue */
    struct client *client;
    struct seat *seat; /* of the unit it is bound to */
    struct line *next, *previous; /* of the seat's lines that have items */
    struct line *touched;         /* of the lines whose waiters may be woken */
    uint32_t place;
    uint16_t first, last;
    bool running, is_touched;
    uint64_t done;
    uint64_t ready_ns; /* when the first item was both submitted and the first */
};

struct seat { /* a client at a unit */
    struct client *client;
    struct holding *holding;
    int unit, row; /* row: on the board, -1: none */
    uint64_t bytes[KINDS];
    uint32_t contexts;
    uint64_t wall_ns, sm_work, sampled_wall_ns;
    uint32_t percent; /* of the last sample, not shown yet */
    /* With work: */
    struct line *lines;
    struct seat *next, *previous; /* of the unit's seats with work */
    uint64_t off_ns;              /* when it had the slice last */
    uint32_t width;               /* of what runs, or is preempted */
    uint32_t running;
};

struct unit {
    struct sim_board_unit *shown; /* on the board */
    uint64_t now_ns;       /* its state holds for this instant; behind the clock when idle */
    uint64_t next_ns;      /* when something happens next, if nothing is submitted */
    struct seat *active;   /* whose time slice it is */
    struct seat *seats;    /* those with work */
    uint64_t slice_ns;     /* when the slice began */
    uint64_t wall_ns, sm_work, sampled_wall_ns;
    uint32_t percent;
    bool dirty; /* next_ns must be found anew */
    bool poked; /* and may be now_ns: something came for an instant that is over */
};

/* ---- Clients ---- */

struct client {
    struct client *next, *previous;
    int fd; /* -1: gone, its memory is freed at free_ns */
    bool greeted;
    uint64_t id, free_ns;
    uint32_t pid;
    struct tenant *tenant;
    struct sim_shared *shared;
    struct reference *references;
    struct seat *seats[SIM_MAX_UNITS];
    /* With queues only: */
    struct line **lines; /* by place */
    struct item *items;
    uint16_t free_item;
    uint64_t tail, retired;
    void *nvml; /* nvml*.c may keep something; nvml_gone() frees it */
};

struct settings {
    uint64_t free_delay_ns, sample_ns, slice_ns, look_ns;
};

struct daemon {
    struct sim_board *board;
    struct unit units[SIM_MAX_UNITS];
    struct client *clients;
    int client_count;
    uint64_t client_serial;
    struct tenant *tenants;
    struct reference **ids; /* buckets, a power of two */
    size_t id_buckets, id_count;
    uint64_t next_id;
    struct line *touched;
    uint64_t foreign_waits; /* items that wait for a queue of another unit */
    uint64_t next_sample_ns;
    uint64_t seen_ns; /* whatever came before was seen */
    int epoll, timer, bell, socket, control;
    bool stop;
    struct settings settings;
};

uint64_t daemon_now(void);
/* One line on stderr, about a client where it is not NULL. */
void daemon_say(const struct client *client, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- config.c ---- */
bool config_default(struct daemon *daemon, int cards);
bool config_read(struct daemon *daemon, const char *file);

/* ---- board.c ---- */
bool board_create(struct daemon *daemon);
/* Around every change of more than one word. They may nest. */
void board_begin(struct daemon *daemon);
void board_end(struct daemon *daemon);
void board_row_take(struct daemon *daemon, struct seat *seat);
void board_row_drop(struct daemon *daemon, struct seat *seat);
/* A MIG instance on a card: its unit, or -1 when the card has seven. Memory and SMs are the
 * instance's own; the uuid is printed (MIG-...). */
int board_add_instance(struct daemon *daemon, int card, const char *name, const char *uuid,
                       uint64_t memory, int sms, int gpu_instance, int compute_instance);
/* False while a process holds memory or has queues there. */
bool board_remove_instance(struct daemon *daemon, int unit);
/* MIG mode of a card: false while a process uses the card or it has instances. */
bool board_set_mig(struct daemon *daemon, int card, bool on);
bool board_unit_in_use(const struct daemon *daemon, int unit);
/* For NVML's event sets: `type` and `data` as NVML has them. */
void board_event(struct daemon *daemon, uint64_t type, uint64_t data, int card, int gpu_instance,
                 int compute_instance);
/* The raw form of a printed uuid; false where it is not one. */
bool board_uuid(const char *printed, uint8_t raw[16]);
void board_sample(struct daemon *daemon, uint64_t now);
void board_sample_anew(struct daemon *daemon, uint64_t now);

/* ---- ledger.c ---- */
struct tenant *ledger_tenant(struct daemon *daemon, const char *name);
struct holding *ledger_holding(struct tenant *tenant, int unit);
uint64_t ledger_sum(const struct holding *holding);
uint32_t ledger_take(struct daemon *daemon, struct client *client, int unit, uint32_t kind,
                     uint64_t bytes, uint64_t *id);
uint32_t ledger_give(struct daemon *daemon, struct client *client, uint64_t id);
uint32_t ledger_share(struct daemon *daemon, struct client *client, uint64_t id, uint64_t *own,
                      int *unit, uint64_t *bytes);
void ledger_client_gone(struct daemon *daemon, struct client *client);

/* ---- clients.c ---- */
bool clients_listen(struct daemon *daemon);
void clients_accept(struct daemon *daemon);
void clients_message(struct daemon *daemon, struct client *client);
/* Closes it and forgets its work at once; its memory goes a little after `gone_ns`. */
void clients_drop(struct daemon *daemon, struct client *client, uint64_t gone_ns);
/* Frees what is due; returns when the next is. */
uint64_t clients_reap(struct daemon *daemon, uint64_t now);
struct seat *clients_seat(struct daemon *daemon, struct client *client, int unit);

/* ---- rings.c ---- */
uint32_t rings_bind(struct daemon *daemon, struct client *client, uint64_t place, int unit);
uint32_t rings_release(struct daemon *daemon, struct client *client, uint64_t place,
                       uint64_t number, uint64_t at_ns);
/* Take in what clients submitted; true when there was anything. */
bool rings_drain(struct daemon *daemon, uint64_t now);
void rings_drain_client(struct daemon *daemon, struct client *client, uint64_t now);
bool rings_waiting(const struct daemon *daemon); /* anything there, without taking it */
void rings_wake(struct daemon *daemon);          /* those whose wish came true */
void rings_client_gone(struct daemon *daemon, struct client *client);
/* The first item of a line is done. */
void rings_complete(struct daemon *daemon, struct line *line, uint64_t at_ns);

/* ---- schedule.c ---- */
void schedule_add(struct daemon *daemon, struct line *line, uint16_t item);
/* Something may go on at the instant that the unit has reached already. */
void schedule_touch(struct daemon *daemon, int unit);
void schedule_advance(struct daemon *daemon, uint64_t until);
/* Count what runs up to now, for whoever reads the totals. */
void schedule_account(struct daemon *daemon, uint64_t now);
void schedule_remove(struct daemon *daemon, struct line *line); /* and all its items */
/* When the loop must look again: the next event, not before `lazy` unless somebody waits for it. */
uint64_t schedule_next(const struct daemon *daemon, uint64_t lazy);

/* ---- control.c ---- */
bool control_listen(struct daemon *daemon);
void control_accept(struct daemon *daemon);
void control_ready(struct daemon *daemon, int fd);

/* ---- nvml*.c (MIG, XIDs, what NVML alone knows) ---- */
bool nvml_start(struct daemon *daemon);
/* A message with op >= SIM_OP_NVML. `body` follows the header; at most *answer_length bytes may be
 * answered, and *answer_length says how many were. Returns the status that the client sees. */
uint32_t nvml_request(struct daemon *daemon, struct client *client, uint32_t op, const void *body,
                      size_t length, void *answer, size_t *answer_length);
/* A control command that control.c does not know ("xid 0 79"); what it prints is the answer's rest.
 * False: nobody knows it. */
bool nvml_command(struct daemon *daemon, int count, char **words, FILE *answer);
void nvml_gone(struct daemon *daemon, struct client *client);

#endif
