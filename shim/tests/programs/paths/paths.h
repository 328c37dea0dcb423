/* paths_console: as memory_console, for the ways to device memory beside cuMemAlloc: pools,
 * physical allocations, graphs, modules, memory of others. Each line is answered by one: the
 * CUresult.
 * Things have names of one letter, in a name space of each kind. */
#ifndef HAMI_TESTS_PATHS_H
#define HAMI_TESTS_PATHS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hami_cuda.h"

/* What several files name; each is defined where it is made. */
extern CUdeviceptr addresses[128];
extern CUmemoryPool pools[128];
extern CUstream streams[128];
extern CUmemGenericAllocationHandle handles[128];
extern CUgraph graphs[128];
extern CUgraphExec execs[128];
extern CUcontext context;
extern CUdevice device;

struct words {
    char *word[16];
    int count;
};

static inline size_t number(const struct words *line, int i)
{
    return i < line->count ? strtoull(line->word[i], NULL, 0) : 0;
}

static inline size_t name(const struct words *line, int i)
{
    return i < line->count ? (unsigned char)line->word[i][0] & 127 : 0;
}

static inline int is(const struct words *line, const char *command)
{
    return strcmp(line->word[0], command) == 0;
}

static inline void say(CUresult result)
{
    printf("%d\n", (int)result);
}

/* Each: 0 where the line is not one of its own. */
int do_async(const struct words *line);
int do_pools(const struct words *line);
int do_streams(const struct words *line);
int do_physical(const struct words *line);
int do_bindings(const struct words *line);
int do_endpoints(const struct words *line);
int do_graphs(const struct words *line);
int do_modules(const struct words *line);
int do_others(const struct words *line);
int do_process(const struct words *line);

/* Of a device, or of the host where `where` is negative. */
CUmemAllocationProp properties_of(int where);
/* NULL where no stream is named. */
CUstream stream_of(const struct words *line, int i);

#endif
