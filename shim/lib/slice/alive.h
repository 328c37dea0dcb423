/* Whether the process that a usage slot records still lives in the image that took the slot. */
#ifndef HAMI_ALIVE_H
#define HAMI_ALIVE_H

#include <stdbool.h>
#include <stdint.h>

struct hami_identity {
    uint32_t pid;           /* in its pid namespace */
    uint64_t start_time;    /* /proc/<pid>/stat, field 22; 0: unknown */
    uint64_t pid_namespace; /* inode of /proc/self/ns/pid; 0: unknown */
};

/* Of the calling process. */
struct hami_identity hami_identity(void);
/* `region` is where the usage region is mapped here: whoever took a slot has it mapped as long as
 * it runs that image. In doubt true, except for a process of another pid namespace, which cannot be
 * looked for. */
bool hami_is_alive(const struct hami_identity *who, const void *region);

#endif
