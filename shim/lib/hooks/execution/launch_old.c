/* The launches of the driver API's first versions, and the one that starts work on several devices
 * (gate.h). */
#include "compute/gate.h"
#include "driver/real.h"
#include "program/capture.h"
#include "slice/devices.h"
#include "slice/slice.h"

/* ---- One kernel at a time, its arguments set before ------------------------------------------ */

HAMI_EXPORT CUresult cuLaunch(CUfunction function)
{
    struct hami_gate gate;
    uint64_t rows;
    CUresult result;

    if (hami_gate_absent(&rows))
        return hami_real()->cuLaunch(function);
    result = hami_gate_enter(&gate, rows, function, 0, NULL, false);
    if (result != CUDA_SUCCESS)
        return result;
    result = hami_real()->cuLaunch(function);
    hami_gate_leave(&gate, result);
    return result;
}

static uint32_t plane(int x, int y)
{
    return x > 0 && y > 0 ? hami_grid_size((unsigned int)x, (unsigned int)y, 1) : 0;
}

HAMI_EXPORT CUresult cuLaunchGrid(CUfunction function, int grid_x, int grid_y)
{
    struct hami_gate gate;
    uint64_t rows;
    CUresult result;

    if (hami_gate_absent(&rows))
        return hami_real()->cuLaunchGrid(function, grid_x, grid_y);
    result = hami_gate_enter(&gate, rows, function, plane(grid_x, grid_y), NULL, false);
    if (result != CUDA_SUCCESS)
        return result;
    result = hami_real()->cuLaunchGrid(function, grid_x, grid_y);
    hami_gate_leave(&gate, result);
    return result;
}

HAMI_EXPORT CUresult cuLaunchGridAsync(CUfunction function, int grid_x, int grid_y, CUstream stream)
{
    struct hami_gate gate;
    uint64_t rows;
    CUresult result;

    if (hami_gate_absent(&rows))
        return hami_real()->cuLaunchGridAsync(function, grid_x, grid_y, stream);
    result = hami_gate_enter(&gate, rows, function, plane(grid_x, grid_y), stream, false);
    if (result != CUDA_SUCCESS)
        return result;
    result = hami_real()->cuLaunchGridAsync(function, grid_x, grid_y, stream);
    hami_gate_leave(&gate, result);
    return result;
}

/* ---- One kernel on several devices ----------------------------------------------------------- */

/* The row of the device of a stream, which is not the current context's; HAMI_ROW_NONE if
 * unknown. */
static int row_of(CUstream stream)
{
    const struct hami_real *real = hami_real();
    int row = HAMI_ROW_NONE;
    CUcontext context, current;
    CUdevice device;

    if (real->cuStreamGetCtx(stream, &context) != CUDA_SUCCESS ||
        real->cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return HAMI_ROW_NONE;
    if (real->cuCtxGetDevice(&device) == CUDA_SUCCESS)
        row = hami_row_of_ordinal(device);
    real->cuCtxPopCurrent_v2(&current);
    return row;
}

static CUresult enter(struct hami_gate *gate, const CUDA_LAUNCH_PARAMS *launch)
{
    uint32_t size = hami_grid_size(launch->gridDimX, launch->gridDimY, launch->gridDimZ);
    int row = hami_capturing(launch->hStream, false) ? HAMI_ROW_NONE : row_of(launch->hStream);

    gate->state = HAMI_GATE_UNCOUNTED;
    if (row < 0)
        return CUDA_SUCCESS;
    return hami_gate_enter_row(gate, (unsigned int)row, launch->function, size, launch->hStream,
                               false);
}

HAMI_EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches,
                                                          unsigned int count, unsigned int flags)
{
    struct hami_gate gates[HAMI_MAX_DEVICES];
    unsigned int entered = 0;
    uint64_t rows;
    CUresult result = CUDA_SUCCESS;

    if (hami_mode_settled() == HAMI_MODE_CLOSED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* Each on a device of its own, of which a slice has fewer: the driver refuses more itself. */
    if (hami_gate_absent(&rows) || !launches || count > HAMI_MAX_DEVICES)
        return hami_real()->cuLaunchCooperativeKernelMultiDevice(launches, count, flags);
    while (hami_mode() == HAMI_MODE_SLICE && entered < count) {
        result = enter(&gates[entered], &launches[entered]);
        if (result != CUDA_SUCCESS)
            break;
        entered++;
    }
    if (result == CUDA_SUCCESS)
        result = hami_real()->cuLaunchCooperativeKernelMultiDevice(launches, count, flags);
    while (entered > 0)
        hami_gate_leave(&gates[--entered], result);
    return result;
}
