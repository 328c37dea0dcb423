/* The list of what we stand in front of (hooks.def), for finding a hook by name or by what it
 * stands before. */
#ifndef HAMI_HOOKS_H
#define HAMI_HOOKS_H

#include <stdbool.h>
#include <stdint.h>

enum hami_hook_kind {
    HAMI_HOOK_init,
    HAMI_HOOK_proc,
    HAMI_HOOK_memory,
    HAMI_HOOK_info,
    HAMI_HOOK_context,
    HAMI_HOOK_module,
    HAMI_HOOK_graph,
    HAMI_HOOK_capture,
    HAMI_HOOK_stream,
    HAMI_HOOK_launch,
    HAMI_HOOK_nvml,
};

struct hami_hook {
    const char *name;
    const char *base; /* NULL: of NVML */
    void *hook;
    uint16_t from;  /* CUDA version */
    uint16_t place; /* of the real one in its table (struct hami_real, hami_real_nvml) */
    uint8_t length; /* of the name */
    uint8_t base_length;
    uint8_t stream; /* 1: of the per-thread default stream */
    uint8_t kind;
};

/* The hook of an exported spelling; NULL: we have none. */
const struct hami_hook *hami_hook_named(const char *name);

/* The hook that stands before a function of the real driver; NULL: none. Where the driver exports
 * one function under several names, the one that answers a request for `base` at `version`. */
const struct hami_hook *hami_hook_before(const void *real, const char *base, int version,
                                         bool per_thread);

/* The hook of the spelling that is `base`'s ABI at a CUDA version; NULL: none at that version, or
 * the driver in this process lacks it. */
const struct hami_hook *hami_hook_for(const char *base, int version, bool per_thread);

/* What kind of function `base` is to us; false: none. */
bool hami_hook_kind_of(const char *base, enum hami_hook_kind *kind);

/* Whether the real library is in this process and has the function; loads nothing. */
bool hami_hook_is_there(const struct hami_hook *hook);
/* The function that a hook stands before, which is there. */
void *hami_hook_real(const struct hami_hook *hook);

#endif
