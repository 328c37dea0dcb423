/* PTX, the text that drivers compile: how much memory the variables in it take. What is declared
 * "extern" is another module's. Sizes are numbers, as compilers write them; of an array without one
 * the values that it begins with are counted. */
#ifndef HAMI_MODULE_TEXT_H
#define HAMI_MODULE_TEXT_H

#include <stdint.h>

#include "code/module_source.h"

/* What the variables of a text take, and how long it is. UINT64_MAX: a size cannot be read. */
uint64_t hami_module_text(const struct hami_module_source *source, uint64_t *length);

static inline uint64_t hami_module_sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

#endif
