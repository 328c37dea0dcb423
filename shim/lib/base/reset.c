#include "base/reset.h"

/* Made by the linker around the section; weak, for a program in which nothing is registered. */
extern void (*const __start_hami_resets[])(void) __attribute__((weak, visibility("hidden")));
extern void (*const __stop_hami_resets[])(void) __attribute__((weak, visibility("hidden")));

void hami_reset_all(void)
{
    for (void (*const *reset)(void) = __start_hami_resets; reset < __stop_hami_resets; reset++)
        (*reset)();
}
