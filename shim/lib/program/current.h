/* Which context is current in the calling thread, and which device of the slice that has. */
#ifndef HAMI_CURRENT_H
#define HAMI_CURRENT_H

#include "hami_cuda.h"

/* The current context and its device's row. One driver call, two when the context is not the one
 * of last time. The driver's error, or CUDA_ERROR_INVALID_CONTEXT where none is current; in
 * HAMI_MODE_CLOSED no context and HAMI_ROW_NONE. */
CUresult hami_current(CUcontext *context, int *row);
/* The row alone: with a single visible device no driver call is made. */
CUresult hami_current_row(int *row);

/* The driver made `context` current in this thread: what is known holds if it is that one's. */
void hami_current_is(CUcontext context);
/* The driver was told to make another context current in this thread. */
void hami_current_changed(void);
/* A context was destroyed, maybe one that is current elsewhere. */
void hami_current_gone(void);

#endif
