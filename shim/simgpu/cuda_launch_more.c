/* Cooperative launches, launches on several devices, and the launches of before CUDA 4.0. */
#include "modules.h"

static CUresult cooperative(CUfunction function, const unsigned int grid[3],
                            const unsigned int block[3], unsigned int shared, CUstream stream,
                            bool per_thread, void **parameters)
{
    CUresult result = sim_launch_fits(stream, per_thread, (uint64_t)grid[0] * grid[1] * grid[2],
                                      block[0] * block[1] * block[2]);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_launch(function, grid, block, shared, stream, per_thread, parameters, NULL);
}

SIM_EXPORT CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x,
                                              unsigned int grid_y, unsigned int grid_z,
                                              unsigned int block_x, unsigned int block_y,
                                              unsigned int block_z, unsigned int shared_bytes,
                                              CUstream stream, void **parameters)
{
    SIM_ENTER(cuLaunchCooperativeKernel);
    return cooperative(function, (unsigned int[]){ grid_x, grid_y, grid_z },
                       (unsigned int[]){ block_x, block_y, block_z }, shared_bytes, stream, false,
                       parameters);
}

SIM_EXPORT CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int grid_x,
                                                   unsigned int grid_y, unsigned int grid_z,
                                                   unsigned int block_x, unsigned int block_y,
                                                   unsigned int block_z, unsigned int shared_bytes,
                                                   CUstream stream, void **parameters)
{
    SIM_ENTER(cuLaunchCooperativeKernel_ptsz);
    return cooperative(function, (unsigned int[]){ grid_x, grid_y, grid_z },
                       (unsigned int[]){ block_x, block_y, block_z }, shared_bytes, stream, true,
                       parameters);
}

/* One launch on each of several devices, in streams that the program made. */
SIM_EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches,
                                                         unsigned int count, unsigned int flags)
{
    SIM_ENTER(cuLaunchCooperativeKernelMultiDevice);
    CUresult result = CUDA_SUCCESS;
    uint32_t devices = 0;

    if (!sim_pointer(launches) || count == 0 || count > (unsigned int)sim_device_count() ||
        flags > 3)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned int i = 0; i < count && result == CUDA_SUCCESS; i++) {
        const CUDA_LAUNCH_PARAMS *each = &launches[i];
        uint32_t bit;
        if (!sim_alive(each->hStream, SIM_STREAM))
            return CUDA_ERROR_INVALID_HANDLE;
        bit = UINT32_C(1) << each->hStream->context->ordinal;
        if (devices & bit)
            return CUDA_ERROR_INVALID_DEVICE;
        devices |= bit;
        result = sim_launch_fits(each->hStream, false,
                                 (uint64_t)each->gridDimX * each->gridDimY * each->gridDimZ,
                                 each->blockDimX * each->blockDimY * each->blockDimZ);
    }
    for (unsigned int i = 0; i < count && result == CUDA_SUCCESS; i++) {
        const CUDA_LAUNCH_PARAMS *each = &launches[i];
        result = sim_launch(each->function, SIM_GRID(each), SIM_BLOCK(each), each->sharedMemBytes,
                            each->hStream, false, each->kernelParams, NULL);
    }
    return result;
}

/* Before CUDA 4.0 a function carried its block shape and its parameters. */
static CUresult launch_old(CUfunction handle, int grid_x, int grid_y, CUstream stream)
{
    CUcontext context;
    CUfunction function;
    CUresult result = sim_context_current(&context);
    void *parameters[1];

    if (result == CUDA_SUCCESS)
        result = sim_function_resolve(handle, context, &function);
    if (result != CUDA_SUCCESS)
        return result;
    if (grid_x <= 0 || grid_y <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    parameters[0] = &function->parameter;
    return sim_launch(function, (unsigned int[]){ (unsigned int)grid_x, (unsigned int)grid_y, 1 },
                      function->block, 0, stream, false, parameters, NULL);
}

SIM_EXPORT CUresult cuLaunch(CUfunction function)
{
    SIM_ENTER(cuLaunch);
    return launch_old(function, 1, 1, NULL);
}

SIM_EXPORT CUresult cuLaunchGrid(CUfunction function, int grid_x, int grid_y)
{
    SIM_ENTER(cuLaunchGrid);
    return launch_old(function, grid_x, grid_y, NULL);
}

SIM_EXPORT CUresult cuLaunchGridAsync(CUfunction function, int grid_x, int grid_y, CUstream stream)
{
    SIM_ENTER(cuLaunchGridAsync);
    return launch_old(function, grid_x, grid_y, stream);
}
