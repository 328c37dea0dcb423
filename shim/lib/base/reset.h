/* What a process starts anew with. A forked child finds the tables, counts and held locks of its
 * parent in its memory, and none of that is true of the child. Every file that keeps such state
 * registers the function that empties it; nobody else needs to know which files those are. */
#ifndef HAMI_RESET_H
#define HAMI_RESET_H

/* Once in a file, outside of functions. The linker collects the entries of all files that are
 * linked, so a unit test resets what it is made of. The functions run in no order that can be
 * relied on: each may touch nothing but its own file's state. */
#define HAMI_RESET(function)                                                                       \
    static void (*const reset_of_this_file)(void)                                                  \
        __attribute__((used, section("hami_resets"))) = (function)

/* Run them all. Only while no other thread is in the library: before the first slot is taken. */
void hami_reset_all(void);

#endif
