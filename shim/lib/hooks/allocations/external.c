/* Memory of another API (Vulkan, OpenGL, a DMA buffer). Nobody else counts it, so it is charged to
 * the device it is imported on until the import is destroyed; that a context's end destroys it is
 * not documented, and not relied on. Buffers and arrays mapped from it take nothing of their own;
 * after the import is destroyed a program may not use them any more. */
#include "driver/real.h"
#include "memory/account.h"
#include "memory/blocks.h"
#include "memory/map.h"
#include "memory/reclaim.h"
#include "program/current.h"
#include "slice/slice.h"

HAMI_EXPORT CUresult cuImportExternalMemory(CUexternalMemory *memory,
                                            const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description)
{
    struct hami_entry old, entry = {.kind = HAMI_KIND_EXTERNAL};
    CUexternalMemory made;
    CUcontext context;
    CUresult result;
    int row;

    if (!hami_counting() || !memory || !description)
        return hami_real()->cuImportExternalMemory(memory, description);
    result = hami_current(&context, &row);
    if (result != CUDA_SUCCESS)
        return result;
    entry.row = (int16_t)row;
    entry.bytes = hami_whole_blocks(description->size);
    if (!hami_memory_charge(row, entry.bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = hami_real()->cuImportExternalMemory(&made, description);
    entry.key = (uintptr_t)made;
    if (result == CUDA_SUCCESS && hami_map_exchange(&entry, &old)) {
        if (old.kind != HAMI_KIND_NONE)
            hami_entry_refund(&old);
        *memory = made;
        return CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS) {
        hami_real()->cuDestroyExternalMemory(made);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    hami_refund(row, entry.bytes);
    return result;
}

HAMI_EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    struct hami_entry entry;
    CUresult result;

    if (!hami_counting() || !hami_map_take(HAMI_KIND_EXTERNAL, (uintptr_t)memory, &entry))
        return hami_real()->cuDestroyExternalMemory(memory);
    result = hami_real()->cuDestroyExternalMemory(memory);
    if (result == CUDA_SUCCESS)
        hami_entry_refund(&entry);
    else
        hami_map_put(&entry);
    return result;
}
