#include "base/reset.h"

#include <stddef.h>

/* Weak: this file needs none of the others, and a unit test starts anew what it is linked with. */
#define HAMI_RESET(function) extern void function(void) __attribute__((weak));
#include "resets.def"

void hami_reset_all(void)
{
#define HAMI_RESET(function)                                                                       \
    if (function)                                                                                  \
        function();
#include "resets.def"
}
