/* A test names what must be so, goes on after a failure, and ends with how many there were. */
#ifndef HAMI_TESTS_EXPECT_H
#define HAMI_TESTS_EXPECT_H

#include <stdio.h>

static int failures;

#define EXPECT(what)                                                                               \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);                     \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

#endif
