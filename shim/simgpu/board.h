/* DIR/board: what every client may read without asking. The daemon alone writes it.
 *
 * A unit is what work runs on and memory lies in: a card, or a MIG instance of one. Units 0..15 are
 * the cards in PCI order; MIG instances have the places from SIM_MAX_CARDS on and come and go.
 * Numbers that change while work runs are single words. Everything with several words (names, the
 * existence of instances, process rows) changes under `revision`: odd while the daemon writes. */
#ifndef SIM_BOARD_H
#define SIM_BOARD_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_BOARD_MAGIC UINT64_C(0x3164726f616d6973)
#define SIM_BOARD_VERSION 1

#define SIM_MAX_CARDS 16
#define SIM_CARD_INSTANCES 7
#define SIM_MAX_UNITS (SIM_MAX_CARDS + SIM_MAX_CARDS * SIM_CARD_INSTANCES)
#define SIM_MAX_LINKS 18
#define SIM_LINK_SWITCH (-2) /* an NVLink that ends in a switch */
#define SIM_LINK_NONE (-1)
#define SIM_MAX_ROWS 1024
#define SIM_BOARD_EVENTS 64
#define SIM_BOARD_SAMPLES 64 /* of utilisation, kept as a driver keeps its last ones */
#define SIM_BOARD_KINDS 5 /* enum sim_memory of client.h */

enum sim_unit_kind { SIM_UNIT_ABSENT, SIM_UNIT_CARD, SIM_UNIT_INSTANCE };

struct sim_board_unit {
    uint32_t kind;  /* enum sim_unit_kind */
    int32_t card;   /* an instance's card; its own place for a card */
    char name[96];
    char uuid[48];      /* GPU-... or MIG-..., printed */
    uint8_t bytes[16];  /* the same, raw */
    char pci[32];       /* 00000000:3B:00.0; an instance has its card's */
    _Atomic uint64_t memory; /* bytes in all */
    _Atomic uint64_t used;   /* in the ledger now */
    int32_t sms, major, minor, numa;
    uint32_t mig;        /* a card: MIG mode is on. Only its instances run work then */
    int32_t gpu_instance, compute_instance; /* ids of a MIG instance */
    int32_t links[SIM_MAX_LINKS];           /* a card: the card at the other end, or SIM_LINK_* */
    /* Percent of the sample before last in which anything ran, as NVML shows it. */
    _Atomic uint32_t utilisation;
    uint32_t spare;
};

struct sim_board_row { /* what one process has of one unit */
    uint32_t pid;      /* in the daemon's pid namespace; 0: the row is free */
    int32_t unit;
    char tenant[64];
    _Atomic uint64_t bytes[SIM_BOARD_KINDS];
    _Atomic uint32_t utilisation; /* percent, as above */
    _Atomic uint32_t contexts;    /* allocations of kind context it holds there */
    uint8_t samples[SIM_BOARD_SAMPLES]; /* percent of the last samples; 0 before it began */
};

struct sim_board_event { /* as NVML's event sets deliver them */
    uint64_t type, data; /* data: the XID */
    int32_t unit;        /* a card */
    int32_t gpu_instance, compute_instance; /* -1: the whole card */
    uint32_t spare;
    uint64_t at_ns;
};

struct sim_board {
    uint64_t magic;
    uint32_t version, size;
    int32_t cards;
    uint32_t daemon_pid;
    _Atomic uint64_t revision;

    /* When the daemon will look at the rings without being called: 0 while it is awake,
     * UINT64_MAX: not before somebody calls. `sleep` counts its sleeps, so that a process calls once
     * per sleep. */
    _Alignas(64) _Atomic uint64_t looks_at;
    _Atomic uint64_t sleep;

    _Alignas(64) _Atomic uint64_t sampled_ns; /* end of the sample that `utilisation` shows */
    _Atomic uint64_t sample_period_ns;
    /* Samples shown so far: number n is at n modulo SIM_BOARD_SAMPLES, here its time and in each row
     * its percent. Both change under `revision`. */
    struct sim_board_samples {
        uint64_t count;
        uint64_t ends_ns[SIM_BOARD_SAMPLES];
    } samples;

    /* Events delivered so far; the last SIM_BOARD_EVENTS lie in the ring, number n at n modulo its
     * size. `event_wake` is its low half, a futex word that readers wait on. */
    _Alignas(64) _Atomic uint64_t event_count;
    _Atomic uint32_t event_wake;
    struct sim_board_event events[SIM_BOARD_EVENTS];

    struct sim_board_unit units[SIM_MAX_UNITS];
    struct sim_board_row rows[SIM_MAX_ROWS];
};

#endif
