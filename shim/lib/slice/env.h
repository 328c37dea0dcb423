/* The limits in the environment, as HAMi's own device plugin sets them. Pure: what is read is what
 * the caller's `get` answers. */
#ifndef HAMI_ENV_H
#define HAMI_ENV_H

#include <stdbool.h>
#include <stdint.h>

#include "hami_slice.h"

typedef const char *hami_env_get(const char *name);

struct hami_env {
    bool any; /* of memory or cores; else the container has no slice */
    uint64_t memory_bytes[HAMI_MAX_DEVICES]; /* 0: no limit */
    uint32_t cores[HAMI_MAX_DEVICES];        /* 0 and 100: no limit */
    uint32_t priority;
    uint32_t policy; /* enum hami_policy */
};

/* Bytes: decimal digits, then nothing or one of g, m, k in either case, with a b behind it or not;
 * powers of 1024. False for anything else and for what does not fit 64 bits. */
bool hami_env_size(const char *text, uint64_t *bytes);
/* 0 to 100. */
bool hami_env_percent(const char *text, uint32_t *percent);

/* False: a limit is there and cannot be read; `culprit` is then its name. */
bool hami_env_read(hami_env_get *get, struct hami_env *env, char culprit[64]);

/* The devices in NVIDIA_VISIBLE_DEVICES: how many; 0 where it names none by UUID (all, none, void,
 * indices); -1 where it is a list of UUIDs that cannot be right. */
int hami_env_uuids(const char *text, char uuids[HAMI_MAX_DEVICES][HAMI_UUID_SIZE]);

/* The numbers in CUDA_VISIBLE_DEVICES, as the driver reads them: up to the first that is none or
 * that was there already. -1: it names devices in another way. */
int hami_env_numbers(const char *text, int numbers[HAMI_MAX_DEVICES]);

#endif
