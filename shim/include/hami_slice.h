/* The two files through which a node agent, a monitor and the enforcing library speak about one
 * slice: the limits page, which the container maps read-only, and the usage region, which the
 * container writes. This is an ABI: files made by one version are read by another. An offset below
 * never moves within one HAMI_*_ABI; what is reserved is written as zero and not read.
 *
 * Every number is little-endian, every field naturally aligned, every size fixed. The same layout
 * stands in hami/slices/c_layout.py; a test compares the two field by field. */
#ifndef HAMI_SLICE_H
#define HAMI_SLICE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "hami_slice.h is written for little-endian machines"
#endif
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2 &&
                   ATOMIC_SHORT_LOCK_FREE == 2 && ATOMIC_CHAR_LOCK_FREE == 2,
               "words shared between processes must be lock-free");

#define HAMI_LIMITS_MAGIC UINT64_C(0x494d494c494d4148) /* "HAMILIMI" */
#define HAMI_LIMITS_ABI 1u
#define HAMI_USAGE_MAGIC UINT64_C(0x47415355494d4148) /* "HAMIUSAG" */
#define HAMI_USAGE_ABI 1u

#define HAMI_MAX_DEVICES 16 /* devices of one container */
#define HAMI_MAX_SLOTS 256  /* processes of one container that hold device memory */
#define HAMI_UUID_SIZE 64   /* with at least one NUL at the end */

/* ---- Limits page ----------------------------------------------------------------------------
 *
 * Written by the node agent (the copies and the index) and by the monitor (struct hami_observed);
 * nobody else can: the container sees it through a read-only mount.
 *
 * The agent fills the copy that is not in use and then changes `index`, one byte, which cannot
 * tear. A reader loads `index` (acquire), takes the copy it names and compares the checksum. It
 * never waits: an agent that died between its two writes leaves the old copy in use and whole. Only
 * a reader that is overtaken twice while it copies can see a mixture; the checksum tells. */

enum hami_policy {
    HAMI_POLICY_DEFAULT = 0, /* limited to `cores`, and to what others leave idle */
    HAMI_POLICY_FORCE = 1,   /* limited to `cores`, always */
    HAMI_POLICY_DISABLE = 2, /* never limited */
};

struct hami_device_limit {
    char uuid[HAMI_UUID_SIZE];      /* as the driver prints it: GPU-..., MIG-... */
    uint64_t memory_bytes;          /* 0: no limit */
    uint64_t context_reserve_bytes; /* charged before a context is made; 0: none */
    uint32_t cores; /* percent of the device's time that is guaranteed; 0 and 100: no limit */
    /* Percent up to which it may use what others leave idle, where a monitor hands that out and the
     * policy is not HAMI_POLICY_FORCE; 0: all of it. */
    uint32_t cores_limit;
    uint32_t reserved[2];
};

struct hami_limits {
    uint64_t revision;   /* of the page: one more with every change; readers never go back */
    uint64_t checksum;   /* hami_limits_sum of everything else in this copy */
    uint64_t generation; /* of the allocation that these limits come from; 0: unsigned */
    uint32_t device_count;
    uint32_t priority; /* 0 goes before 1 */
    uint32_t policy;   /* enum hami_policy */
    uint32_t reserved[7];
    struct hami_device_limit devices[HAMI_MAX_DEVICES];
};

#define HAMI_LIMITS_WORDS (sizeof(struct hami_limits) / sizeof(uint64_t))
#define HAMI_LIMITS_SUM_WORD 1 /* the checksum itself, left out of the sum */

/* Readers copy word by word with relaxed atomic loads: whoever writes is another process. */
union hami_limits_copy {
    struct hami_limits content;
    uint64_t words[HAMI_LIMITS_WORDS];
};

/* What the monitor sees of this slice from outside. Each word is one aligned store into a mapping
 * of the monitor's own; no two belong together unless it says so. Of no use to a reader that has
 * not seen `heartbeat` change within 10 s of its own clock: clocks are not compared, because a
 * container may have a time namespace of its own. */
enum hami_contention {
    HAMI_CONTENTION_OTHERS = 1, /* another slice is active on the device */
    HAMI_CONTENTION_HIGHER = 2, /* a slice of higher priority is */
};

struct hami_observed_device {
    /* Of the device by this slice in the last second, or since the last heartbeat if that was longer
     * ago; 1/100 percent: 10000 is all of it. */
    _Atomic uint64_t utilisation;
    _Atomic uint64_t contention;  /* bits of enum hami_contention */
};

struct hami_observed {
    _Atomic uint64_t heartbeat; /* one more after each round of writes; 0: no monitor ever ran */
    /* What this slice may have of each device's time until the next heartbeat, 1/100 percent: its
     * guarantee, and what others leave idle; less while it waits for a slice of higher priority. 0:
     * none is handed out, `cores` and `contention` say what holds. */
    _Atomic uint16_t share[HAMI_MAX_DEVICES];
    _Atomic uint64_t share_revision; /* of the limits that `share` was divided by; it is of no other */
    uint64_t reserved[2];
    struct hami_observed_device devices[HAMI_MAX_DEVICES];
    /* Bytes that the driver accounts to the process in a usage slot, and the `generation` of the
     * slot they were seen for: written as 0, then the bytes, then the generation. A process whose
     * own generation differs reads a predecessor's figure and ignores it. */
    _Atomic uint64_t slot_generation[HAMI_MAX_SLOTS];
    _Atomic uint64_t bytes[HAMI_MAX_DEVICES][HAMI_MAX_SLOTS];
};

struct hami_limits_page {
    uint64_t magic;
    uint32_t abi;
    uint32_t size;      /* of this struct */
    uint32_t copy_size; /* of struct hami_limits */
    uint32_t device_capacity;
    uint32_t slot_capacity;
    uint32_t observed_offset;
    _Atomic uint8_t index; /* which of the copies is in use: 0 or 1 */
    uint8_t reserved[31];
    union hami_limits_copy copies[2];
    uint8_t padding[832]; /* the copies fill one page of memory, the observations the next ones */
    struct hami_observed observed;
    uint8_t tail[1728];
};

/* ---- Usage region ---------------------------------------------------------------------------
 *
 * Written by the processes of the container, so hostile input for everyone else: agent and monitor
 * use bounded reads and never map it. The agent makes it, header and zeroes, and then leaves it.
 *
 * Slot i belongs to whoever holds the open-file-description write lock (F_OFD_SETLK) on byte i of
 * the file. The lock lives as long as the device memory does: a forked child keeps it, exec and any
 * death release it. A new holder zeroes the slot's words in every device before it uses them, and
 * writes `generation` (one more than it found) last, with release. */

enum hami_slot_flags {
    HAMI_SLOT_BYPASS = 1,  /* the program got a memory or launch function that we do not stand before */
    HAMI_SLOT_EXPORTS = 2, /* it exported memory: not recovered while a live slot imports */
    HAMI_SLOT_IMPORTS = 4, /* it imported memory of another process */
};

/* Written by the slot's holder alone, relaxed but for `generation`; `found_dead_at` by whoever holds
 * its lock after that. */
struct hami_slot {
    _Atomic uint32_t pid;           /* in the holder's pid namespace; 0: never used */
    _Atomic uint32_t flags;         /* bits of enum hami_slot_flags */
    _Atomic uint64_t start_time;    /* of the process, as /proc/<pid>/stat says (field 22) */
    _Atomic uint64_t pid_namespace; /* inode of /proc/self/ns/pid: pids of another cannot be compared */
    _Atomic uint64_t generation;    /* of the slot: one more with every holder */
    /* CLOCK_MONOTONIC of the container, in nanoseconds: when the holder was first found dead. The
     * driver may take a moment to take its memory back, so its charge stays as long. 0: alive. */
    _Atomic uint64_t found_dead_at;
    uint64_t reserved[3];
};

/* One token bucket per device, shared by all processes of the container; compare-and-swap on each
 * word, relaxed: a lost update costs accuracy and nothing else. Times are CLOCK_MONOTONIC of the
 * container, in nanoseconds. */
struct hami_bucket {
    _Atomic int64_t level;        /* nanoseconds of device time left; negative: debt */
    _Atomic uint64_t refilled_at; /* when `level` was last filled */
    _Atomic uint64_t charged;     /* all device time ever charged */
    _Atomic uint64_t observed;    /* `charged` when the monitor's heartbeat was last used */
    _Atomic uint64_t correction;  /* observed share / charged share, 1/65536; 0: not known yet */
    _Atomic uint64_t settled;     /* when `level` was last put right by the monitor's figures */
    _Atomic uint64_t waited;      /* for how long threads have waited for their turn, summed */
    uint64_t reserved[1];
};

struct hami_usage {
    uint64_t magic;
    uint32_t abi;
    uint32_t size; /* of this struct */
    uint32_t device_capacity;
    uint32_t slot_capacity;
    uint32_t slots_offset;
    uint32_t charged_offset;
    uint32_t buckets_offset;
    uint8_t reserved[4060];
    struct hami_slot slots[HAMI_MAX_SLOTS];
    /* Bytes charged, a dense row per device (the devices of the limits page, in its order). A word
     * is written by the slot's holder alone: reserve is an addition followed by loads of the whole
     * row, all seq_cst, so that of two that race at least one sees the other; giving back is a
     * relaxed subtraction. Nobody subtracts for another. */
    _Atomic uint64_t charged[HAMI_MAX_DEVICES][HAMI_MAX_SLOTS];
    struct hami_bucket buckets[HAMI_MAX_DEVICES];
    uint8_t tail[3072];
};

/* ---- The layout, once more, for the compiler ------------------------------------------------ */

#define HAMI_AT(type, field, offset)                                                               \
    _Static_assert(offsetof(struct type, field) == (offset), #type "." #field " moved")
#define HAMI_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), "size of " #type)

HAMI_AT(hami_device_limit, uuid, 0);
HAMI_AT(hami_device_limit, memory_bytes, 64);
HAMI_AT(hami_device_limit, context_reserve_bytes, 72);
HAMI_AT(hami_device_limit, cores, 80);
HAMI_AT(hami_device_limit, cores_limit, 84);
HAMI_AT(hami_device_limit, reserved, 88);
HAMI_SIZE(hami_device_limit, 96);

HAMI_AT(hami_limits, revision, 0);
HAMI_AT(hami_limits, checksum, HAMI_LIMITS_SUM_WORD * 8);
HAMI_AT(hami_limits, generation, 16);
HAMI_AT(hami_limits, device_count, 24);
HAMI_AT(hami_limits, priority, 28);
HAMI_AT(hami_limits, policy, 32);
HAMI_AT(hami_limits, reserved, 36);
HAMI_AT(hami_limits, devices, 64);
HAMI_SIZE(hami_limits, 1600);

HAMI_AT(hami_observed_device, utilisation, 0);
HAMI_AT(hami_observed_device, contention, 8);
HAMI_SIZE(hami_observed_device, 16);

HAMI_AT(hami_observed, heartbeat, 0);
HAMI_AT(hami_observed, share, 8);
HAMI_AT(hami_observed, share_revision, 40);
HAMI_AT(hami_observed, reserved, 48);
HAMI_AT(hami_observed, devices, 64);
HAMI_AT(hami_observed, slot_generation, 320);
HAMI_AT(hami_observed, bytes, 2368);
HAMI_SIZE(hami_observed, 35136);

HAMI_AT(hami_limits_page, magic, 0);
HAMI_AT(hami_limits_page, abi, 8);
HAMI_AT(hami_limits_page, size, 12);
HAMI_AT(hami_limits_page, copy_size, 16);
HAMI_AT(hami_limits_page, device_capacity, 20);
HAMI_AT(hami_limits_page, slot_capacity, 24);
HAMI_AT(hami_limits_page, observed_offset, 28);
HAMI_AT(hami_limits_page, index, 32);
HAMI_AT(hami_limits_page, reserved, 33);
HAMI_AT(hami_limits_page, copies, 64);
HAMI_AT(hami_limits_page, padding, 3264);
HAMI_AT(hami_limits_page, observed, 4096);
HAMI_AT(hami_limits_page, tail, 39232);
HAMI_SIZE(hami_limits_page, 40960);

HAMI_AT(hami_slot, pid, 0);
HAMI_AT(hami_slot, flags, 4);
HAMI_AT(hami_slot, start_time, 8);
HAMI_AT(hami_slot, pid_namespace, 16);
HAMI_AT(hami_slot, generation, 24);
HAMI_AT(hami_slot, found_dead_at, 32);
HAMI_AT(hami_slot, reserved, 40);
HAMI_SIZE(hami_slot, 64);

HAMI_AT(hami_bucket, level, 0);
HAMI_AT(hami_bucket, refilled_at, 8);
HAMI_AT(hami_bucket, charged, 16);
HAMI_AT(hami_bucket, observed, 24);
HAMI_AT(hami_bucket, correction, 32);
HAMI_AT(hami_bucket, settled, 40);
HAMI_AT(hami_bucket, waited, 48);
HAMI_AT(hami_bucket, reserved, 56);
HAMI_SIZE(hami_bucket, 64);

HAMI_AT(hami_usage, magic, 0);
HAMI_AT(hami_usage, abi, 8);
HAMI_AT(hami_usage, size, 12);
HAMI_AT(hami_usage, device_capacity, 16);
HAMI_AT(hami_usage, slot_capacity, 20);
HAMI_AT(hami_usage, slots_offset, 24);
HAMI_AT(hami_usage, charged_offset, 28);
HAMI_AT(hami_usage, buckets_offset, 32);
HAMI_AT(hami_usage, reserved, 36);
HAMI_AT(hami_usage, slots, 4096);
HAMI_AT(hami_usage, charged, 20480);
HAMI_AT(hami_usage, buckets, 53248);
HAMI_AT(hami_usage, tail, 54272);
HAMI_SIZE(hami_usage, 57344);

#undef HAMI_AT
#undef HAMI_SIZE

#endif
