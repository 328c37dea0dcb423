/* Starting anew: see resets.def, which has one line for each file with state of a process. */
#ifndef HAMI_RESET_H
#define HAMI_RESET_H

#define HAMI_RESET(function) void function(void);
#include "resets.def"

/* Call them all. Only while no other thread is in the library: before the first slot is taken. */
void hami_reset_all(void);

#endif
