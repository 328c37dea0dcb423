/* The hooks of everything that starts work on a device (gate.h). Without a limit each is a few
 * loads and a jump to the driver's own. */
#include "compute/gate.h"
#include "driver/real.h"
#include "memory/graph_memory.h"
#include "slice/slice.h"

/* ---- Kernels --------------------------------------------------------------------------------- */

/* The gated half is a function of its own, so that the other one needs no stack. */
#define KERNEL(name, per_thread)                                                                   \
    static __attribute__((noinline)) CUresult gated_##name(                                        \
        uint64_t rows, CUfunction function, unsigned int grid_x, unsigned int grid_y,              \
        unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z,     \
        unsigned int shared_bytes, CUstream stream, void **parameters, void **extra)               \
    {                                                                                              \
        uint32_t size = hami_grid_size(grid_x, grid_y, grid_z);                                    \
        struct hami_gate gate;                                                                     \
        CUresult result = hami_gate_enter(&gate, rows, function, size, stream, per_thread);        \
                                                                                                   \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        result = hami_real()->name(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,    \
                                   shared_bytes, stream, parameters, extra);                       \
        hami_gate_leave(&gate, result);                                                            \
        return result;                                                                             \
    }                                                                                              \
                                                                                                   \
    HAMI_EXPORT CUresult name(CUfunction function, unsigned int grid_x, unsigned int grid_y,       \
                              unsigned int grid_z, unsigned int block_x, unsigned int block_y,     \
                              unsigned int block_z, unsigned int shared_bytes, CUstream stream,    \
                              void **parameters, void **extra)                                     \
    {                                                                                              \
        uint64_t rows;                                                                             \
                                                                                                   \
        if (!hami_gate_absent(&rows))                                                              \
            return gated_##name(rows, function, grid_x, grid_y, grid_z, block_x, block_y, block_z, \
                                shared_bytes, stream, parameters, extra);                          \
        return hami_real()->name(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,      \
                                 shared_bytes, stream, parameters, extra);                         \
    }

KERNEL(cuLaunchKernel, false)
KERNEL(cuLaunchKernel_ptsz, true)

#define COOPERATIVE(name, per_thread)                                                              \
    HAMI_EXPORT CUresult name(CUfunction function, unsigned int grid_x, unsigned int grid_y,       \
                              unsigned int grid_z, unsigned int block_x, unsigned int block_y,     \
                              unsigned int block_z, unsigned int shared_bytes, CUstream stream,    \
                              void **parameters)                                                   \
    {                                                                                              \
        uint32_t size = hami_grid_size(grid_x, grid_y, grid_z);                                    \
        struct hami_gate gate;                                                                     \
        CUresult result;                                                                           \
        uint64_t rows;                                                                             \
                                                                                                   \
        if (hami_gate_absent(&rows))                                                               \
            return hami_real()->name(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,  \
                                     shared_bytes, stream, parameters);                            \
        result = hami_gate_enter(&gate, rows, function, size, stream, per_thread);                 \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        result = hami_real()->name(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,    \
                                   shared_bytes, stream, parameters);                              \
        hami_gate_leave(&gate, result);                                                            \
        return result;                                                                             \
    }

COOPERATIVE(cuLaunchCooperativeKernel, false)
COOPERATIVE(cuLaunchCooperativeKernel_ptsz, true)

/* Also a kernel that may begin before the one before it ends (programmatic serialization), and one
 * that records an event of the program's: our events keep a measured one apart from its neighbours,
 * which a program must expect anyway. */
#define KERNEL_EX(name, per_thread)                                                                \
    HAMI_EXPORT CUresult name(const CUlaunchConfig *config, CUfunction function,                   \
                              void **parameters, void **extra)                                     \
    {                                                                                              \
        struct hami_gate gate;                                                                     \
        CUresult result;                                                                           \
        uint64_t rows;                                                                             \
        uint32_t size;                                                                             \
                                                                                                   \
        if (hami_gate_absent(&rows) || !config)                                                    \
            return hami_real()->name(config, function, parameters, extra);                         \
        size = hami_grid_size(config->gridDimX, config->gridDimY, config->gridDimZ);               \
        result = hami_gate_enter(&gate, rows, function, size, config->hStream, per_thread);        \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        result = hami_real()->name(config, function, parameters, extra);                           \
        hami_gate_leave(&gate, result);                                                            \
        return result;                                                                             \
    }

KERNEL_EX(cuLaunchKernelEx, false)
KERNEL_EX(cuLaunchKernelEx_ptsz, true)

/* ---- Graphs ---------------------------------------------------------------------------------- */

/* A graph's memory is charged before its turn comes, so that it is refused at once. */
#define GRAPH(name, per_thread)                                                                    \
    HAMI_EXPORT CUresult name(CUgraphExec exec, CUstream stream)                                   \
    {                                                                                              \
        struct hami_gate gate = {.state = HAMI_GATE_UNCOUNTED};                                    \
        struct hami_graph_launch memory;                                                           \
        CUresult result;                                                                           \
        uint64_t rows;                                                                             \
                                                                                                   \
        if (!hami_counting())                                                                      \
            return hami_real()->name(exec, stream);                                                \
        result = hami_graph_before_launch(&memory, exec, stream, per_thread);                      \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        if (!hami_gate_absent(&rows))                                                              \
            result = hami_gate_enter(&gate, rows, exec, HAMI_ESTIMATE_GRAPH, stream, per_thread);  \
        if (result == CUDA_SUCCESS) {                                                              \
            result = hami_real()->name(exec, stream);                                              \
            hami_gate_leave(&gate, result);                                                        \
        }                                                                                          \
        hami_graph_after_launch(&memory, result);                                                  \
        return result;                                                                             \
    }

GRAPH(cuGraphLaunch, false)
GRAPH(cuGraphLaunch_ptsz, true)
