/* libmatrix.so: the matrix while the library is loaded, before the program's main, or inside of its
 * dlopen, while the dynamic linker's lock is held. */
#include <stdio.h>
#include <stdlib.h>

#include "matrix.h"

__attribute__((constructor)) static void run(void)
{
    const char *place = getenv("MATRIX_CONSTRUCTOR");
    int status;

    if (!place)
        return;
    unsetenv("MATRIX_CONSTRUCTOR");
    status = matrix_run(place);
    printf("constructed %d\n", status);
    fflush(stdout);
}
