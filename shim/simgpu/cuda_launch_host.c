/* Functions of the program, called in stream order. */
#include "graphs.h"

/* A function pointer in a void pointer and back: POSIX says that holds. */
static void *pack(CUhostFn function)
{
    void *packed;
    memcpy(&packed, &function, sizeof packed);
    return packed;
}

static void call_host(void *packed, CUstream stream, void *data)
{
    CUhostFn function;
    (void)stream;
    memcpy(&function, &packed, sizeof function);
    function(data);
}

static void call_back(void *packed, CUstream stream, void *data)
{
    CUstreamCallback function;
    memcpy(&function, &packed, sizeof function);
    function(stream, CUDA_SUCCESS, data);
}

CUresult sim_host_function(CUstream stream, CUhostFn function, void *data)
{
    return sim_host(stream, call_host, pack(function), data);
}

static CUresult launch(CUstream handle, CUhostFn function, void *data, bool per_thread)
{
    struct sim_node_params node = {
        .type = CU_GRAPH_NODE_TYPE_HOST,
        .host = function,
        .host_data = data,
    };
    CUstream stream;
    CUresult result;
    bool captured = false;

    if (function == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_stream_resolve(handle, per_thread, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    node.context = stream->context;
    if (atomic_load(&stream->attention) & SIM_ATTENTION_CAPTURE)
        result = sim_capture_try(stream, &node, &captured);
    if (result != CUDA_SUCCESS || captured)
        return result;
    return sim_host_function(stream, function, data);
}

SIM_EXPORT CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
    SIM_ENTER(cuLaunchHostFunc);
    return launch(stream, function, data, false);
}

SIM_EXPORT CUresult cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn function, void *data)
{
    SIM_ENTER(cuLaunchHostFunc_ptsz);
    return launch(stream, function, data, true);
}

/* `sync_mode` says how the function's end is noticed: 0 as ever, 1 by spinning. */
SIM_EXPORT CUresult cuLaunchHostFunc_v2(CUstream stream, CUhostFn function, void *data,
                                        unsigned int sync_mode)
{
    SIM_ENTER(cuLaunchHostFunc_v2);
    return sync_mode > 1 ? CUDA_ERROR_INVALID_VALUE : launch(stream, function, data, false);
}

SIM_EXPORT CUresult cuLaunchHostFunc_v2_ptsz(CUstream stream, CUhostFn function, void *data,
                                             unsigned int sync_mode)
{
    SIM_ENTER(cuLaunchHostFunc_v2_ptsz);
    return sync_mode > 1 ? CUDA_ERROR_INVALID_VALUE : launch(stream, function, data, true);
}

/* Cannot be captured. */
static CUresult add_callback(CUstream handle, CUstreamCallback function, void *data,
                             unsigned int flags, bool per_thread)
{
    CUstream stream;
    CUresult result;
    void *packed;

    if (function == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_stream_resolve(handle, per_thread, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (atomic_load(&stream->attention) & SIM_ATTENTION_CAPTURE)
        return sim_capture_refuse(stream);
    memcpy(&packed, &function, sizeof packed);
    return sim_host(stream, call_back, packed, data);
}

SIM_EXPORT CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *data,
                                        unsigned int flags)
{
    SIM_ENTER(cuStreamAddCallback);
    return add_callback(stream, callback, data, flags, false);
}

SIM_EXPORT CUresult cuStreamAddCallback_ptsz(CUstream stream, CUstreamCallback callback, void *data,
                                             unsigned int flags)
{
    SIM_ENTER(cuStreamAddCallback_ptsz);
    return add_callback(stream, callback, data, flags, true);
}
