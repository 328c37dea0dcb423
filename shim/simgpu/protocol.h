/* What client and daemon say to each other.
 *
 * DIR/socket, SOCK_SEQPACKET: one packet is one message; a client asks, the daemon answers each
 * question in order. The answer to SIM_OP_HELLO carries two descriptors: the memory that this
 * client and the daemon share (struct sim_shared), and the bell, an eventfd that wakes the daemon.
 * Work does not go through the socket but through a ring in the shared memory.
 *
 * The daemon trusts nothing in the shared memory: it copies each entry out, checks it, and drops a
 * client whose entries make no sense. */
#ifndef SIM_PROTOCOL_H
#define SIM_PROTOCOL_H

#include <stdatomic.h>
#include <stdint.h>

#include "board.h"

#define SIM_PROTOCOL 1
#define SIM_MESSAGE_MAX 8192
#define SIM_TENANT_SIZE 64

enum sim_op {
    SIM_OP_HELLO = 1, /* struct sim_hello; answer: struct sim_welcome */
    SIM_OP_TAKE,      /* struct sim_ask: unit, kind, bytes; answer: id */
    SIM_OP_GIVE,      /* id */
    SIM_OP_SHARE,     /* id; answer: own id, unit, bytes */
    SIM_OP_QUEUE,     /* unit, id: place of the queue; binds an idle place to a unit */
    SIM_OP_RELEASE,   /* id: place of the queue, bytes: number of the hold, at_ns */
    SIM_OP_NVML = 100 /* and above: nvml_request() answers */
};

enum sim_status {
    SIM_OK,
    SIM_FULL,     /* no memory left on the unit */
    SIM_UNKNOWN,  /* no such id, unit or request */
    SIM_INVALID,  /* the arguments make no sense */
};

struct sim_header { /* every message of a client begins with it */
    uint32_t op, serial;
};

struct sim_answer { /* every answer begins with it; `serial` is the question's */
    uint32_t status, serial;
};

struct sim_hello {
    struct sim_header header;
    uint32_t protocol, spare;
    char tenant[SIM_TENANT_SIZE];
};

struct sim_welcome {
    struct sim_answer answer;
    uint32_t protocol, shared_size;
    uint64_t client;
};

struct sim_ask {
    struct sim_header header;
    int32_t unit;
    uint32_t kind;
    uint64_t id, bytes, at_ns;
};

struct sim_reply {
    struct sim_answer answer;
    int32_t unit;
    uint32_t spare;
    uint64_t id, bytes;
};

/* ---- Shared memory of a client and the daemon ---- */

#define SIM_RING 1024         /* entries; also how many may be outstanding */
#define SIM_QUEUES 4096       /* places for queues */
#define SIM_MARKS 65536       /* places for markers */
#define SIM_NO_MARK UINT32_MAX
#define SIM_WIDTH_MAX 1000    /* thousandths of a unit's SMs */

enum sim_item_kind {
    SIM_ITEM_RUN = 1, /* occupies `width` of the unit for `duration_ns` */
    SIM_ITEM_MARK,    /* notes the time in marks[mark] */
    SIM_ITEM_WAIT,    /* until queue `other` has done `number` items */
    SIM_ITEM_HOLD     /* until SIM_OP_RELEASE names it */
};

struct sim_entry {
    uint64_t submitted_ns, duration_ns, number;
    uint32_t queue, other, mark;
    uint16_t kind, width;
};

/* Something that counts up and can be waited for. A waiter reads `wake`, lowers `wanted` to what it
 * waits for, looks at `done` again and sleeps on `wake`; the daemon raises `done`, and where that
 * reached `wanted`, clears `wanted`, raises `wake` and wakes all, who ask again. */
struct sim_channel {
    _Alignas(64) _Atomic uint64_t done;
    _Atomic uint64_t wanted; /* UINT64_MAX: nobody waits */
    _Atomic uint32_t wake;
};

struct sim_mark {
    _Atomic uint64_t at_ns;
    _Atomic uint64_t ticket; /* position in the ring of the mark noted last */
};

struct sim_shared {
    _Alignas(64) _Atomic uint64_t head; /* entries written, by the client */
    _Alignas(64) _Atomic uint64_t tail; /* entries taken out, by the daemon */
    struct sim_channel retired;         /* entries completed, in whatever order */
    _Alignas(64) struct sim_entry ring[SIM_RING];
    struct sim_channel queues[SIM_QUEUES];
    struct sim_mark marks[SIM_MARKS];
};

#endif
