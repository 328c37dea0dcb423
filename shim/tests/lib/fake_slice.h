/* The slice that tests of accounting stand in: a usage region that every process opens for itself,
 * as in a container, and limits that a test sets. What slice.c would answer is answered here. */
#ifndef HAMI_TESTS_FAKE_SLICE_H
#define HAMI_TESTS_FAKE_SLICE_H

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/reset.h"
#include "expect.h"
#include "memory/account.h"
#include "memory/blocks.h"
#include "memory/charge.h"
#include "slice/devices.h"
#include "slice/files.h"
#include "slice/follow.h"
#include "slice/slice.h"
#include "slice/slot_words.h"
#include "slice/slots.h"

#define MIB (UINT64_C(1) << 20)

struct hami_process hami_process[1];
static struct hami_limits fake_limits;
static const struct hami_observed *fake_observed;
static int fake_region = -1; /* never locked through this one: each process opens its own */

const struct hami_limits *hami_limits(void)
{
    return &fake_limits;
}

const struct hami_observed *hami_observed(void)
{
    return fake_observed;
}

uint64_t hami_heartbeat(void)
{
    return fake_observed ? atomic_load(&fake_observed->heartbeat) : 0;
}

int hami_row_count(void)
{
    return (int)fake_limits.device_count;
}

enum hami_mode hami_attach_late(void)
{
    return HAMI_MODE_UNKNOWN;
}

void hami_log(enum hami_level level, const char *format, ...)
{
    (void)level;
    (void)format;
}

static void need(bool what, const char *name)
{
    if (!what) {
        perror(name);
        exit(2);
    }
}

static char fake_path[64]; /* of the region, in every process */

/* What files.c would open, which follows no links. */
int hami_files_open(const char *path)
{
    return open(path, O_RDWR | O_CLOEXEC);
}

static int fake_open(void)
{
    int fd;

    snprintf(fake_path, sizeof(fake_path), "/proc/self/fd/%d", fake_region);
    fd = hami_files_open(fake_path);
    need(fd >= 0, "usage region");
    hami_process->usage_path = fake_path;
    return fd;
}

static inline struct hami_usage *fake_map(void)
{
    struct hami_usage *usage = mmap(NULL, sizeof(struct hami_usage), PROT_READ | PROT_WRITE,
                                    MAP_SHARED, fake_region, 0);

    need(usage != MAP_FAILED, "mmap");
    return usage;
}

/* A new container with one limit for all of its devices. */
static inline void fake_container(uint32_t devices, uint64_t memory_bytes)
{
    if (fake_region >= 0)
        close(fake_region);
    fake_region = memfd_create("usage", MFD_CLOEXEC);
    need(fake_region >= 0 && ftruncate(fake_region, sizeof(struct hami_usage)) == 0, "a region");
    memset(&fake_limits, 0, sizeof(fake_limits));
    fake_limits.device_count = devices;
    for (uint32_t i = 0; i < devices; i++)
        fake_limits.devices[i].memory_bytes = memory_bytes;
    fake_observed = NULL;
    memset(hami_process, 0, sizeof(hami_process[0]));
}

/* What hami_attach does: the calling process takes a slot. */
static inline bool fake_attach(void)
{
    hami_process->usage_fd = fake_open();
    hami_process->usage = fake_map();
    hami_reset_all();
    if (!hami_slot_take(hami_process))
        return false;
    atomic_store(&hami_process->mode, HAMI_MODE_SLICE);
    return true;
}

/* The slot stays charged until somebody recovers it, as after a death. */
static inline void fake_detach(void)
{
    close(hami_process->usage_fd);
    munmap(hami_process->usage, sizeof(struct hami_usage));
    memset(hami_process, 0, sizeof(hami_process[0]));
}

static inline int report(void)
{
    if (failures)
        fprintf(stderr, "%d expectations failed\n", failures);
    return failures != 0;
}

#endif
