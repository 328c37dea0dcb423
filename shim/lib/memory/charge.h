/* What a request is charged, once the account agrees with what the monitor saw. */
#ifndef HAMI_CHARGE_H
#define HAMI_CHARGE_H

#include <stdbool.h>
#include <stdint.h>

/* Reserve before asking the driver: hami_correct, then hami_reserve (account.h). */
bool hami_charge(int row, uint64_t bytes);

/* Bring the own charge up to what the monitor saw the driver take: loads of a few words unless the
 * monitor wrote since the last call. Whatever else makes the driver take memory, such as launches,
 * may call it too. */
void hami_correct(void);

#endif
