/* Where a process starts to be one that uses a device. */
#include "driver/real.h"
#include "slice/slice.h"

HAMI_EXPORT CUresult cuInit(unsigned int flags)
{
    CUresult result = hami_real()->cuInit(flags);

    if (result == CUDA_SUCCESS)
        hami_attach();
    return result;
}
