/* cuInit, the driver's version, and the tables that we have none of. */
#include "execution.h"

#define NEWEST_DRIVER 13050

SIM_EXPORT CUresult cuInit(unsigned int flags)
{
    SIM_CALLED(cuInit);
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_connect();
}

int sim_driver_version(void) { return (int)sim_knob("DRIVER_VERSION", NEWEST_DRIVER); }

SIM_EXPORT CUresult cuDriverGetVersion(int *version)
{
    SIM_CALLED(cuDriverGetVersion);
    if (version == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *version = sim_driver_version();
    return CUDA_SUCCESS;
}

/* Undocumented tables of the driver for NVIDIA's own libraries: we know none. */
SIM_EXPORT CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    SIM_CALLED(cuGetExportTable);
    (void)table;
    (void)id;
    return CUDA_ERROR_INVALID_VALUE;
}
