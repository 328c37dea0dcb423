/* The device memory this container has, counted across its processes without a lock. */
#ifndef HAMI_ACCOUNT_H
#define HAMI_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

/* Charge what a request may take, if that is within the limit. False: over the limit, also after
 * dead processes' slots were recovered; nothing is charged then. True without counting in
 * HAMI_MODE_FREE, false in HAMI_MODE_CLOSED or for HAMI_ROW_NONE. Requests call hami_charge
 * (charge.h). */
bool hami_reserve(int row, uint64_t bytes);
/* Count what the driver took without asking; the sum may exceed the limit. */
void hami_charge_taken(int row, uint64_t bytes);
/* Give back what this process charged. */
void hami_refund(int row, uint64_t bytes);
/* Of all processes of the container: UINT64_MAX where one's word is no figure. Of this one, as it
 * knows itself. */
uint64_t hami_charged(int row);
uint64_t hami_charged_here(int row);
/* Whether the sum is within the limit now. */
bool hami_within(int row);

/* The range in which the own charge of a row was since the last call, for charge.c. */
struct hami_range {
    uint64_t low, high;
};
struct hami_range hami_charged_range(int row);

#endif
