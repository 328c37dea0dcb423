/* Parameters of graph nodes: from the structures that programs fill to what we keep, and back. */
#include "graphs.h"
#include "memory.h"

/* The context a node runs in: the one given, else the current one. */
static CUresult context_for(CUcontext given, CUcontext *context)
{
    if (given == NULL)
        return sim_context_current(context);
    *context = given;
    return sim_context_known(given) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_params_kernel(const CUDA_KERNEL_NODE_PARAMS *given, struct sim_node_params *params)
{
    CUfunction handle;
    CUcontext context;
    CUresult result;

    if (!sim_pointer(given))
        return CUDA_ERROR_INVALID_VALUE;
    handle = given->func != NULL ? given->func : (CUfunction)given->kern;
    result = context_for(given->ctx, &context);
    /* The kernel node is of the function's own context, unless a kernel of a library leaves it
     * open. */
    if (sim_alive(handle, SIM_FUNCTION) && given->ctx == NULL) {
        if (result != CUDA_SUCCESS || context->root != handle->context)
            context = handle->context;
        result = CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS)
        return result;
    *params = (struct sim_node_params){
        .type = CU_GRAPH_NODE_TYPE_KERNEL,
        .context = context,
        .launch = { .grid = { given->gridDimX, given->gridDimY, given->gridDimZ },
                    .block = { given->blockDimX, given->blockDimY, given->blockDimZ },
                    .shared = given->sharedMemBytes },
    };
    result = sim_function_resolve(handle, context, &params->launch.function);
    if (result != CUDA_SUCCESS)
        return result == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE : result;
    if (params->launch.function->context != context->root)
        return CUDA_ERROR_INVALID_VALUE;
    if (handle != params->launch.function)
        params->kernel = (CUkernel)handle;
    result = sim_launch_parameter(&params->launch, given->kernelParams, given->extra);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_launch_work(&params->launch, context, &params->work);
}

CUresult sim_params_kernel_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *given,
                              struct sim_node_params *params)
{
    CUDA_KERNEL_NODE_PARAMS full = { 0 };

    /* It names a function, and has no room for a kernel of a library: a program that fills the
     * newer structure with `kern` and calls this finds out here. */
    if (!sim_pointer(given) || given->func == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&full, given, sizeof *given);
    return sim_params_kernel(&full, params);
}

CUresult sim_params_memset(const CUDA_MEMSET_NODE_PARAMS *given, CUcontext context,
                           struct sim_node_params *params)
{
    CUresult result;

    if (!sim_pointer(given) || given->dst == 0 || given->width == 0 || given->height == 0 ||
        (given->elementSize != 1 && given->elementSize != 2 && given->elementSize != 4))
        return CUDA_ERROR_INVALID_VALUE;
    *params = (struct sim_node_params){ .type = CU_GRAPH_NODE_TYPE_MEMSET, .memset = *given };
    result = context_for(context, &params->context);
    if (result == CUDA_SUCCESS)
        params->work = sim_fill_work((uint64_t)given->width * given->elementSize * given->height);
    return result;
}

static bool side_plausible(CUmemorytype type, const void *host, CUdeviceptr device, CUarray array)
{
    switch ((int)type) {
    case CU_MEMORYTYPE_HOST: return host != NULL;
    case CU_MEMORYTYPE_DEVICE: return device != 0;
    case CU_MEMORYTYPE_ARRAY: return array != NULL;
    case CU_MEMORYTYPE_UNIFIED: return device != 0;
    default: return false;
    }
}

CUresult sim_params_memcpy(const CUDA_MEMCPY3D *given, CUcontext context,
                           struct sim_node_params *params)
{
    uint64_t bytes;
    CUresult result;

    if (!sim_pointer(given) || given->reserved0 != NULL || given->reserved1 != NULL ||
        given->srcLOD != 0 || given->dstLOD != 0 ||
        !side_plausible(given->srcMemoryType, given->srcHost, given->srcDevice, given->srcArray) ||
        !side_plausible(given->dstMemoryType, given->dstHost, given->dstDevice, given->dstArray) ||
        given->WidthInBytes == 0 || given->Height == 0 || given->Depth == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *params = (struct sim_node_params){ .type = CU_GRAPH_NODE_TYPE_MEMCPY, .memcpy = *given };
    result = context_for(context, &params->context);
    if (result != CUDA_SUCCESS)
        return result;
    bytes = (uint64_t)given->WidthInBytes * given->Height * given->Depth;
    params->work = sim_copy_work(
        given->dstMemoryType == CU_MEMORYTYPE_HOST ? (CUdeviceptr)(uintptr_t)given->dstHost
                                                   : given->dstDevice,
        given->srcMemoryType == CU_MEMORYTYPE_HOST ? (CUdeviceptr)(uintptr_t)given->srcHost
                                                   : given->srcDevice,
        bytes);
    return CUDA_SUCCESS;
}

CUresult sim_params_alloc(const CUDA_MEM_ALLOC_NODE_PARAMS *given, struct sim_node_params *params)
{
    const CUmemPoolProps *pool;

    if (!sim_pointer(given) || given->bytesize == 0 ||
        (given->accessDescCount > 0 && !sim_pointer(given->accessDescs)))
        return CUDA_ERROR_INVALID_VALUE;
    pool = &given->poolProps;
    if (pool->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        pool->handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
        pool->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device(pool->location.id) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    *params = (struct sim_node_params){ .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, .alloc = *given };
    params->alloc.accessDescs = NULL; /* the program's list; any device may use what we allocate */
    params->alloc.accessDescCount = 0;
    params->alloc.dptr = sim_address(given->bytesize, 512);
    return sim_context_current(&params->context);
}

static bool all_zero(const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (((const unsigned char *)bytes)[i] != 0)
            return false;
    return true;
}

static CUresult params_child(const CUDA_CHILD_GRAPH_NODE_PARAMS *given,
                             struct sim_node_params *params)
{
    if (!sim_alive(given->graph, SIM_GRAPH) || given->graph->capturing != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (given->graph->memory_nodes)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (given->ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE)
        return CUDA_ERROR_NOT_SUPPORTED;
    *params = (struct sim_node_params){ .type = CU_GRAPH_NODE_TYPE_GRAPH, .child = given->graph };
    return CUDA_SUCCESS;
}

CUresult sim_params_any(const CUgraphNodeParams *given, struct sim_node_params *params)
{
    CUDA_MEMSET_NODE_PARAMS fill;

    if (!sim_pointer(given) || !all_zero(given->reserved0, sizeof given->reserved0) ||
        given->reserved2 != 0)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)given->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return sim_params_kernel(&given->kernel, params);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        memcpy(&fill, &given->memset, sizeof fill);
        return sim_params_memset(&fill, given->memset.ctx, params);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        if (given->memcpy.flags != 0 || given->memcpy.reserved != 0)
            return CUDA_ERROR_INVALID_VALUE;
        return sim_params_memcpy(&given->memcpy.copyParams, given->memcpy.copyCtx, params);
    case CU_GRAPH_NODE_TYPE_HOST:
        if (given->host.fn == NULL)
            return CUDA_ERROR_INVALID_VALUE;
        *params = (struct sim_node_params){ .type = CU_GRAPH_NODE_TYPE_HOST,
                                            .host = given->host.fn,
                                            .host_data = given->host.userData };
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_GRAPH: return params_child(&given->graph, params);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        *params = (struct sim_node_params){ .type = CU_GRAPH_NODE_TYPE_EMPTY };
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: return sim_params_alloc(&given->alloc, params);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        *params = (struct sim_node_params){ .type = CU_GRAPH_NODE_TYPE_MEM_FREE,
                                            .free = given->free.dptr };
        return given->free.dptr != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return CUDA_ERROR_NOT_SUPPORTED;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}

void sim_params_show(const struct sim_node_params *params, void **parameters,
                     CUDA_KERNEL_NODE_PARAMS *shown)
{
    const struct sim_launch *launch = &params->launch;

    *shown = (CUDA_KERNEL_NODE_PARAMS){
        .func = params->kernel == NULL ? launch->function : NULL,
        .kern = params->kernel,
        .ctx = params->context,
        .gridDimX = launch->grid[0],
        .gridDimY = launch->grid[1],
        .gridDimZ = launch->grid[2],
        .blockDimX = launch->block[0],
        .blockDimY = launch->block[1],
        .blockDimZ = launch->block[2],
        .sharedMemBytes = launch->shared,
        .kernelParams = launch->function->dynamic ? parameters : NULL,
    };
}

void sim_params_show_any(const struct sim_node_params *params, void **parameters,
                         CUgraphNodeParams *shown)
{
    memset(shown, 0, sizeof *shown);
    shown->type = params->type;
    switch ((int)params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: sim_params_show(params, parameters, &shown->kernel); break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        memcpy(&shown->memset, &params->memset, sizeof params->memset);
        shown->memset.ctx = params->context;
        break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        shown->memcpy.copyParams = params->memcpy;
        shown->memcpy.copyCtx = params->context;
        break;
    case CU_GRAPH_NODE_TYPE_HOST:
        shown->host.fn = params->host;
        shown->host.userData = params->host_data;
        break;
    case CU_GRAPH_NODE_TYPE_GRAPH: shown->graph.graph = params->child; break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: shown->alloc = params->alloc; break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE: shown->free.dptr = params->free; break;
    default: break;
    }
}
