/* Initialises CUDA and ends: what a process's start costs is measured from outside. */
#include "hami_cuda.h"

int main(void)
{
    return cuInit(0) != CUDA_SUCCESS;
}
