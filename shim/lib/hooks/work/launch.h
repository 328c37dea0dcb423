/* The compute share: who may start work now, and what it is charged. */
#ifndef HAMI_LAUNCH_H
#define HAMI_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "hami_cuda.h"

/* Whether a stream captures now. While no capture is open in the process this is one load. */
bool hami_capturing(CUstream stream, bool per_thread);

/* The program has waited for the device. What was measured is charged now: no launch may follow. */
void hami_launch_settle(void);

/* A module or library (which one makes no difference), a graph exec, a stream, a context goes:
 * forget what was measured. */
void hami_launch_forget_module(void);
void hami_launch_forget_exec(CUgraphExec exec);
void hami_launch_forget_stream(CUstream stream);
void hami_launch_forget_context(CUcontext context);
/* A forked child attached anew. */
void hami_launch_reset(void);

/* After cuGraphLaunch and at synchronising calls: what graphs and pools hold is read anew
 * (settle.c). Cheap when the process has neither pools nor graph memory. */
void hami_memory_settle(int row);

#endif
