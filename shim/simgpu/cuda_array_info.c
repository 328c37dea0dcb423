/* What programs ask of arrays. */
#include "execution.h"
#include "memory_array.h"

/* The shape, or why there is none. */
static CUresult shape_of(CUarray array, CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    CUcontext context;
    CUresult here = sim_context_current(&context);

    if (here != CUDA_SUCCESS)
        return here;
    sim_memory_lock();
    if (sim_array_known(array)) {
        *shape = array->texture.shape;
        result = CUDA_SUCCESS;
    }
    sim_memory_unlock();
    return result;
}

SIM_EXPORT CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *descriptor, CUarray array)
{
    CUDA_ARRAY3D_DESCRIPTOR shape;
    CUresult result;

    SIM_ENTER(cuArrayGetDescriptor_v2);
    if (!sim_pointer(descriptor))
        return CUDA_ERROR_INVALID_VALUE;
    result = shape_of(array, &shape);
    if (result == CUDA_SUCCESS)
        *descriptor = (CUDA_ARRAY_DESCRIPTOR){.Width = shape.Width, .Height = shape.Height,
                                              .Format = shape.Format,
                                              .NumChannels = shape.NumChannels};
    return result;
}

SIM_EXPORT CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1 *descriptor, CUarray array)
{
    CUDA_ARRAY3D_DESCRIPTOR shape;
    CUresult result;

    SIM_ENTER(cuArrayGetDescriptor);
    if (!sim_pointer(descriptor))
        return CUDA_ERROR_INVALID_VALUE;
    result = shape_of(array, &shape);
    if (result == CUDA_SUCCESS)
        *descriptor = (CUDA_ARRAY_DESCRIPTOR_v1){.Width = (unsigned int)shape.Width,
                                                 .Height = (unsigned int)shape.Height,
                                                 .Format = shape.Format,
                                                 .NumChannels = shape.NumChannels};
    return result;
}

SIM_EXPORT CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *descriptor, CUarray array)
{
    CUDA_ARRAY3D_DESCRIPTOR shape;
    CUresult result;

    SIM_ENTER(cuArray3DGetDescriptor_v2);
    if (!sim_pointer(descriptor))
        return CUDA_ERROR_INVALID_VALUE;
    result = shape_of(array, &shape);
    if (result == CUDA_SUCCESS)
        *descriptor = shape;
    return result;
}

SIM_EXPORT CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor, CUarray array)
{
    CUDA_ARRAY3D_DESCRIPTOR shape;
    CUresult result;

    SIM_ENTER(cuArray3DGetDescriptor);
    if (!sim_pointer(descriptor))
        return CUDA_ERROR_INVALID_VALUE;
    result = shape_of(array, &shape);
    if (result == CUDA_SUCCESS)
        *descriptor = (CUDA_ARRAY3D_DESCRIPTOR_v1){.Width = (unsigned int)shape.Width,
                                                   .Height = (unsigned int)shape.Height,
                                                   .Depth = (unsigned int)shape.Depth,
                                                   .Format = shape.Format,
                                                   .NumChannels = shape.NumChannels,
                                                   .Flags = shape.Flags};
    return result;
}

/* Answered only where memory is to be mapped later, as documented. */
static CUresult requirements_of(const struct sim_texture *texture,
                                CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements)
{
    if (!texture || !(texture->shape.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING))
        return CUDA_ERROR_INVALID_VALUE;
    *requirements = (CUDA_ARRAY_MEMORY_REQUIREMENTS){
        .size = sim_round_up(texture->bytes, SIM_TILE), .alignment = SIM_TILE};
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements,
                                                 CUarray array, CUdevice device)
{
    CUresult result;

    SIM_ENTER(cuArrayGetMemoryRequirements);
    if (!sim_pointer(requirements))
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_memory_lock();
    result = requirements_of(sim_array_known(array) ? &array->texture : NULL, requirements);
    sim_memory_unlock();
    return result;
}

SIM_EXPORT CUresult cuMipmappedArrayGetMemoryRequirements(
    CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements, CUmipmappedArray array, CUdevice device)
{
    CUresult result;

    SIM_ENTER(cuMipmappedArrayGetMemoryRequirements);
    if (!sim_pointer(requirements))
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_memory_lock();
    result = requirements_of(sim_mipmap_known(array) ? &array->texture : NULL, requirements);
    sim_memory_unlock();
    return result;
}

SIM_EXPORT CUresult cuMipmappedArrayGetLevel(CUarray *level_array, CUmipmappedArray array,
                                             unsigned int level)
{
    CUresult result = CUDA_ERROR_INVALID_HANDLE;

    SIM_ENTER(cuMipmappedArrayGetLevel);
    if (!sim_pointer(level_array))
        return CUDA_ERROR_INVALID_VALUE;
    sim_memory_lock();
    if (sim_mipmap_known(array)) {
        result = CUDA_ERROR_INVALID_VALUE;
        if (level < array->texture.levels) {
            *level_array = array->level[level];
            result = CUDA_SUCCESS;
        }
    }
    sim_memory_unlock();
    return result;
}
