/* Which device is which: rows of the limits, the driver's ordinals, UUIDs. */
#ifndef HAMI_DEVICES_H
#define HAMI_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

#include "hami_cuda.h"
#include "hami_slice.h"

#define HAMI_ROW_NONE (-1) /* not a device of this slice: nothing may be taken from it */

/* Rows: the devices of the limits page in its order. */
int hami_row_of_ordinal(CUdevice ordinal);
int hami_row_of_uuid(const char *printed); /* GPU-..., MIG-... */
int hami_row_count(void);
CUdevice hami_ordinal_of_row(int row); /* -1: not visible to this process */

/* The 16 bytes of a UUID as the driver prints it, whatever stands before them: GPU-, MIG-. */
bool hami_uuid_parse(const char *printed, uint8_t id[16]);
void hami_uuid_print(const uint8_t id[16], char printed[HAMI_UUID_SIZE]);

/* The devices that limits of the environment mean, in their order: those in NVIDIA_VISIBLE_DEVICES
 * if it has UUIDs, else the container's devices in the order of their PCI addresses, whatever
 * CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER make of them. `driver`: cuInit has succeeded. How
 * many; -1 where nobody can tell. */
int hami_devices_of_container(bool driver, char uuids[HAMI_MAX_DEVICES][HAMI_UUID_SIZE]);

/* Take these devices as the rows. */
void hami_devices_as_rows(const struct hami_limits *limits);
/* Ask the driver which of its ordinals is which row; cuInit has succeeded. */
void hami_devices_learn_ordinals(void);

/* What a request for memory of a device is refused with: what the driver says of a device that it
 * does not know, or else that it is out of memory. */
CUresult hami_device_refused(CUdevice device);

#endif
