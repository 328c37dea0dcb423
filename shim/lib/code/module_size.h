/* How much device memory an image of code will take when it is loaded, as far as it says so. */
#ifndef HAMI_MODULE_SIZE_H
#define HAMI_MODULE_SIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "code/module_source.h"

struct hami_module_target {
    unsigned int capability; /* of the device: 10 * major + minor */
    bool lazy;               /* functions are loaded when they are first used */
};

/* 0: nothing is known. An image that is cut off or makes no sense is read without harm: its pointer
 * and what it says of itself come from the program. */
uint64_t hami_module_size(const struct hami_module_source *source,
                          const struct hami_module_target *target);

#endif
