/* Who holds which slot of the usage region, and when a slot is free again. */
#ifndef HAMI_SLOTS_H
#define HAMI_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "slice/process.h"

/* Recover what the dead left, then take a free slot. False: all 256 are held by the living; another
 * time there may be one. */
bool hami_slot_take(struct hami_process *process);
/* Zero what the dead left; tries locks, never waits for others. Some may have died so lately that
 * the driver is still at it: what of the row's bytes will come back for that reason, within 100
 * ms. */
uint64_t hami_slots_recover(int row);
/* The same, if some were found dead earlier and that moment is over. Otherwise one load. */
void hami_slots_expected(void);
/* The same, whether or not any were found dead, but only once in a while. True: it looked. */
bool hami_slots_look(void);

#endif
