/* matrix PLACE           the matrix, in this program
 * matrix open LIBRARY    in the constructor of a library that is opened now (constructor.c)
 * matrix idle            nothing: for a library that is loaded with the program */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "matrix.h"

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    if (strcmp(argv[1], "open") == 0 && argc == 3 && !dlopen(argv[2], RTLD_NOW | RTLD_LOCAL)) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    if (strcmp(argv[1], "open") == 0 || strcmp(argv[1], "idle") == 0) {
        printf("main\n");
        return 0;
    }
    return matrix_run(argv[1]);
}
