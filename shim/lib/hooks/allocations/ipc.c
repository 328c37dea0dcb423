/* Memory of cuMemAlloc shared between processes: charged to the one that allocated it, for as long
 * as that one lives. Both slots say so: another may have the memory still when that one is gone. */
#include "driver/real.h"
#include "memory/imports.h"
#include "slice/slice.h"
#include "slice/slot_words.h"

HAMI_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    CUresult result = hami_real()->cuIpcGetMemHandle(handle, address);

    if (result == CUDA_SUCCESS && hami_counting())
        hami_slot_flag(HAMI_SLOT_EXPORTS);
    return result;
}

typedef CUresult opening(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags);

static CUresult opened(opening *open, CUdeviceptr *address, CUipcMemHandle handle,
                       unsigned int flags)
{
    CUresult result;

    if (!hami_counting())
        return open(address, handle, flags);
    hami_import_begins();
    result = open(address, handle, flags);
    if (result != CUDA_SUCCESS)
        hami_import_ends();
    return result;
}

HAMI_EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle,
                                        unsigned int flags)
{
    return opened(hami_real()->cuIpcOpenMemHandle, address, handle, flags);
}

HAMI_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle,
                                           unsigned int flags)
{
    return opened(hami_real()->cuIpcOpenMemHandle_v2, address, handle, flags);
}

HAMI_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    CUresult result = hami_real()->cuIpcCloseMemHandle(address);

    if (result == CUDA_SUCCESS && hami_counting())
        hami_import_ends();
    return result;
}
