/* Names and descriptions of results, in our own words where a program only prints them. */
#include "execution.h"

struct text {
    CUresult result;
    const char *name, *description;
};

#define TEXT(name, description) { name, #name, description }

static const struct text texts[] = {
    TEXT(CUDA_SUCCESS, "no error"),
    TEXT(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    TEXT(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    TEXT(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    TEXT(CUDA_ERROR_DEINITIALIZED, "deinitialized"),
    TEXT(CUDA_ERROR_PROFILER_DISABLED, "profiler disabled"),
    TEXT(CUDA_ERROR_PROFILER_NOT_INITIALIZED, "profiler not initialized"),
    TEXT(CUDA_ERROR_PROFILER_ALREADY_STARTED, "profiler already started"),
    TEXT(CUDA_ERROR_PROFILER_ALREADY_STOPPED, "profiler already stopped"),
    TEXT(CUDA_ERROR_STUB_LIBRARY, "stub library"),
    TEXT(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, "call requires newer driver"),
    TEXT(CUDA_ERROR_DEVICE_UNAVAILABLE, "device unavailable"),
    TEXT(CUDA_ERROR_MULTICAST_RESOURCE_FULL, "multicast resource full"),
    TEXT(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    TEXT(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    TEXT(CUDA_ERROR_DEVICE_NOT_LICENSED, "device not licensed"),
    TEXT(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    TEXT(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    TEXT(CUDA_ERROR_CONTEXT_ALREADY_CURRENT, "context already current"),
    TEXT(CUDA_ERROR_MAP_FAILED, "map failed"),
    TEXT(CUDA_ERROR_UNMAP_FAILED, "unmap failed"),
    TEXT(CUDA_ERROR_ARRAY_IS_MAPPED, "array is mapped"),
    TEXT(CUDA_ERROR_ALREADY_MAPPED, "already mapped"),
    TEXT(CUDA_ERROR_NO_BINARY_FOR_GPU, "no binary for gpu"),
    TEXT(CUDA_ERROR_ALREADY_ACQUIRED, "already acquired"),
    TEXT(CUDA_ERROR_NOT_MAPPED, "not mapped"),
    TEXT(CUDA_ERROR_NOT_MAPPED_AS_ARRAY, "not mapped as array"),
    TEXT(CUDA_ERROR_NOT_MAPPED_AS_POINTER, "not mapped as pointer"),
    TEXT(CUDA_ERROR_ECC_UNCORRECTABLE, "ecc uncorrectable"),
    TEXT(CUDA_ERROR_UNSUPPORTED_LIMIT, "unsupported limit"),
    TEXT(CUDA_ERROR_CONTEXT_ALREADY_IN_USE, "context already in use"),
    TEXT(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access unsupported"),
    TEXT(CUDA_ERROR_INVALID_PTX, "invalid ptx"),
    TEXT(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT, "invalid graphics context"),
    TEXT(CUDA_ERROR_NVLINK_UNCORRECTABLE, "nvlink uncorrectable"),
    TEXT(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "jit compiler not found"),
    TEXT(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "unsupported ptx version"),
    TEXT(CUDA_ERROR_JIT_COMPILATION_DISABLED, "jit compilation disabled"),
    TEXT(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "unsupported exec affinity"),
    TEXT(CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC, "unsupported devside sync"),
    TEXT(CUDA_ERROR_CONTAINED, "contained"),
    TEXT(CUDA_ERROR_INSUFFICIENT_LOADER_VERSION, "insufficient loader version"),
    TEXT(CUDA_ERROR_INVALID_SOURCE, "invalid source"),
    TEXT(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    TEXT(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, "shared object symbol not found"),
    TEXT(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, "shared object init failed"),
    TEXT(CUDA_ERROR_OPERATING_SYSTEM, "operating system"),
    TEXT(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    TEXT(CUDA_ERROR_ILLEGAL_STATE, "illegal state"),
    TEXT(CUDA_ERROR_LOSSY_QUERY, "lossy query"),
    TEXT(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    TEXT(CUDA_ERROR_NOT_READY, "device not ready"),
    TEXT(CUDA_ERROR_ILLEGAL_ADDRESS, "illegal address"),
    TEXT(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "launch out of resources"),
    TEXT(CUDA_ERROR_LAUNCH_TIMEOUT, "launch timeout"),
    TEXT(CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING, "launch incompatible texturing"),
    TEXT(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access already enabled"),
    TEXT(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access not enabled"),
    TEXT(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "primary context active"),
    TEXT(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    TEXT(CUDA_ERROR_ASSERT, "assert"),
    TEXT(CUDA_ERROR_TOO_MANY_PEERS, "too many peers"),
    TEXT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "host memory already registered"),
    TEXT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "host memory not registered"),
    TEXT(CUDA_ERROR_HARDWARE_STACK_ERROR, "hardware stack error"),
    TEXT(CUDA_ERROR_ILLEGAL_INSTRUCTION, "illegal instruction"),
    TEXT(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    TEXT(CUDA_ERROR_INVALID_ADDRESS_SPACE, "invalid address space"),
    TEXT(CUDA_ERROR_INVALID_PC, "invalid pc"),
    TEXT(CUDA_ERROR_LAUNCH_FAILED, "launch failed"),
    TEXT(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "cooperative launch too large"),
    TEXT(CUDA_ERROR_TENSOR_MEMORY_LEAK, "tensor memory leak"),
    TEXT(CUDA_ERROR_NOT_PERMITTED, "not permitted"),
    TEXT(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    TEXT(CUDA_ERROR_SYSTEM_NOT_READY, "system not ready"),
    TEXT(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system driver mismatch"),
    TEXT(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, "compat not supported on device"),
    TEXT(CUDA_ERROR_MPS_CONNECTION_FAILED, "mps connection failed"),
    TEXT(CUDA_ERROR_MPS_RPC_FAILURE, "mps rpc failure"),
    TEXT(CUDA_ERROR_MPS_SERVER_NOT_READY, "mps server not ready"),
    TEXT(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, "mps max clients reached"),
    TEXT(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED, "mps max connections reached"),
    TEXT(CUDA_ERROR_MPS_CLIENT_TERMINATED, "mps client terminated"),
    TEXT(CUDA_ERROR_CDP_NOT_SUPPORTED, "cdp not supported"),
    TEXT(CUDA_ERROR_CDP_VERSION_MISMATCH, "cdp version mismatch"),
    TEXT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "stream capture unsupported"),
    TEXT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "stream capture invalidated"),
    TEXT(CUDA_ERROR_STREAM_CAPTURE_MERGE, "stream capture merge"),
    TEXT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "stream capture unmatched"),
    TEXT(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "stream capture unjoined"),
    TEXT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "stream capture isolation"),
    TEXT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "stream capture implicit"),
    TEXT(CUDA_ERROR_CAPTURED_EVENT, "captured event"),
    TEXT(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "stream capture wrong thread"),
    TEXT(CUDA_ERROR_TIMEOUT, "timeout"),
    TEXT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "graph exec update failure"),
    TEXT(CUDA_ERROR_EXTERNAL_DEVICE, "external device"),
    TEXT(CUDA_ERROR_INVALID_CLUSTER_SIZE, "invalid cluster size"),
    TEXT(CUDA_ERROR_FUNCTION_NOT_LOADED, "function not loaded"),
    TEXT(CUDA_ERROR_INVALID_RESOURCE_TYPE, "invalid resource type"),
    TEXT(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "invalid resource configuration"),
    TEXT(CUDA_ERROR_KEY_ROTATION, "key rotation"),
    TEXT(CUDA_ERROR_STREAM_DETACHED, "stream detached"),
    TEXT(CUDA_ERROR_GRAPH_RECAPTURE_FAILURE, "graph recapture failure"),
    TEXT(CUDA_ERROR_FABRIC_NOT_READY, "fabric not ready"),
    TEXT(CUDA_ERROR_UNKNOWN, "unknown error"),
};

static const struct text *find(CUresult result)
{
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (texts[i].result == result)
            return &texts[i];
    return NULL;
}

SIM_EXPORT CUresult cuGetErrorName(CUresult error, const char **text)
{
    SIM_CALLED(cuGetErrorName);
    const struct text *found = find(error);
    if (text == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *text = found != NULL ? found->name : NULL;
    return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuGetErrorString(CUresult error, const char **text)
{
    SIM_CALLED(cuGetErrorString);
    const struct text *found = find(error);
    if (text == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *text = found != NULL ? found->description : NULL;
    return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
