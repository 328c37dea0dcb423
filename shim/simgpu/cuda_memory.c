/* cuMemAlloc and its kin, cuMemFree of whatever lies there, and what ends with a context. */
#include <stdlib.h>
#include <sys/mman.h>

#include "execution.h"
#include "memory_local.h"
#include "memory_pools.h"
#include "memory_vmm.h"

_Thread_local struct sim_calls sim_calls __attribute__((tls_model("initial-exec")));

const char *hami_sim_last_call(void)
{
    return sim_calls.count ? sim_calls.last[(sim_calls.count - 1) % SIM_REMEMBERED] : NULL;
}

unsigned long hami_sim_calls(const char **names, unsigned long room)
{
    for (unsigned long i = 0; i < room; i++)
        names[i] = i < SIM_REMEMBERED && i < sim_calls.count
                       ? sim_calls.last[(sim_calls.count - 1 - i) % SIM_REMEMBERED]
                       : NULL;
    return sim_calls.count;
}

/* ---- Allocating ---- */

static CUresult allocate(CUcontext context, uint64_t bytes, bool low, CUdeviceptr *address)
{
    struct sim_range like = {.bytes = bytes, .kind = SIM_RANGE_LINEAR, .context = context,
                             .ordinal = context->ordinal};
    CUresult result;

    sim_memory_lock();
    result = sim_part_take(context, context->ordinal, bytes, low, &like.part);
    if (result == CUDA_SUCCESS) {
        like.base = like.part.address;
        if (sim_range_add(&like)) {
            *address = like.base;
        } else {
            sim_part_give(&like.part);
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    sim_memory_unlock();
    return result;
}

/* What every allocation of linear memory checks. */
static inline CUresult allowed(CUcontext *context)
{
    CUresult result = sim_context_current(context);

    return SIM_LIKELY(result == CUDA_SUCCESS) ? sim_capture_unsafe() : result;
}

SIM_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    CUcontext context;
    CUresult result;

    SIM_ENTER(cuMemAlloc_v2);
    result = allowed(&context);
    if (SIM_UNLIKELY(result != CUDA_SUCCESS))
        return result;
    if (SIM_UNLIKELY(!sim_pointer(address) || bytes == 0))
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_process->local) {
        CUdeviceptr found = sim_local_alloc(context->ordinal, bytes, false);

        if (!found)
            return CUDA_ERROR_OUT_OF_MEMORY;
        *address = found;
        return CUDA_SUCCESS;
    }
    return allocate(context, bytes, false, address);
}

static CUresult allocate_low(CUdeviceptr_v1 *address, uint64_t bytes)
{
    CUdeviceptr found;
    CUcontext context;
    CUresult result = allowed(&context);

    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_pointer(address) || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    result = allocate(context, bytes, true, &found);
    if (result == CUDA_SUCCESS)
        *address = (CUdeviceptr_v1)found;
    return result;
}

SIM_EXPORT CUresult cuMemAlloc(CUdeviceptr_v1 *address, unsigned int bytes)
{
    SIM_ENTER(cuMemAlloc);
    return allocate_low(address, bytes);
}

static bool pitched(uint64_t width, uint64_t height, unsigned int element, uint64_t *pitch)
{
    if (width == 0 || height == 0 || (element != 4 && element != 8 && element != 16))
        return false;
    *pitch = sim_round_up(width, SIM_PITCH_ALIGNMENT);
    return true;
}

SIM_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width_bytes,
                                       size_t height, unsigned int element_bytes)
{
    uint64_t row, bytes;
    CUcontext context;
    CUresult result;

    SIM_ENTER(cuMemAllocPitch_v2);
    result = allowed(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_pointer(address) || !sim_pointer(pitch) ||
        !pitched(width_bytes, height, element_bytes, &row))
        return CUDA_ERROR_INVALID_VALUE;
    if (__builtin_mul_overflow(row, height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = allocate(context, bytes, false, address);
    if (result == CUDA_SUCCESS)
        *pitch = row;
    return result;
}

SIM_EXPORT CUresult cuMemAllocPitch(CUdeviceptr_v1 *address, unsigned int *pitch,
                                    unsigned int width_bytes, unsigned int height,
                                    unsigned int element_bytes)
{
    CUresult result;
    uint64_t row;

    SIM_ENTER(cuMemAllocPitch);
    if (!sim_pointer(pitch) || !pitched(width_bytes, height, element_bytes, &row))
        return CUDA_ERROR_INVALID_VALUE;
    result = allocate_low(address, row * height);
    if (result == CUDA_SUCCESS)
        *pitch = (unsigned int)row;
    return result;
}

/* Whole granules: no two allocations lie in one, as they take one each. */
static void *map_managed(uint64_t bytes)
{
    uint64_t whole = sim_round_up(bytes, SIM_GRANULE), before;
    char *at = mmap(NULL, whole + SIM_GRANULE, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (at == MAP_FAILED)
        return MAP_FAILED;
    before = (SIM_GRANULE - (uintptr_t)at % SIM_GRANULE) % SIM_GRANULE;
    if (before)
        munmap(at, before);
    munmap(at + before + whole, SIM_GRANULE - before);
    return at + before;
}

static void unmap_managed(void *at, uint64_t bytes)
{
    munmap(at, sim_round_up(bytes, SIM_GRANULE));
}

/* Managed memory is the host's too, so its address is real. It counts in full on the device from
 * the start, as where a card cannot take pages at their first use. */
SIM_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
    struct sim_range like = {.bytes = bytes, .kind = SIM_RANGE_MANAGED};
    CUresult result;
    void *real;

    SIM_ENTER(cuMemAllocManaged);
    result = allowed(&like.context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_pointer(address) || bytes == 0 ||
        (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    like.ordinal = like.context->ordinal;
    if (bytes > sim_device(like.ordinal)->memory_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = sim_take(like.ordinal, bytes, SIM_MEMORY_DATA, &like.part.id);
    if (result != CUDA_SUCCESS)
        return result;
    real = map_managed(bytes);
    if (real == MAP_FAILED) {
        sim_give(like.part.id);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    like.base = (CUdeviceptr)(uintptr_t)real;
    like.own = (struct sim_bytes){.data = real, .real = true};
    sim_memory_lock();
    result = sim_range_add(&like) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    sim_memory_unlock();
    if (result == CUDA_SUCCESS) {
        *address = like.base;
    } else {
        unmap_managed(real, bytes);
        sim_give(like.part.id);
    }
    return result;
}

/* ---- Freeing ---- */

CUresult sim_range_free(struct sim_range *range)
{
    struct sim_part part = range->part;

    switch (range->kind) {
    case SIM_RANGE_LINEAR:
        break;
    case SIM_RANGE_MANAGED:
        unmap_managed((void *)(uintptr_t)range->base, range->bytes);
        break;
    case SIM_RANGE_ASYNC:
        sim_pool_freed(range);
        return CUDA_SUCCESS;
    case SIM_RANGE_EXTERNAL:
        sim_external_unmapped(range);
        return CUDA_SUCCESS;
    case SIM_RANGE_IPC: /* only when its context goes: cuMemFree refuses it */
        break;
    case SIM_RANGE_HOST:
        free((void *)(uintptr_t)range->base);
        break;
    case SIM_RANGE_REGISTERED:
        break;
    case SIM_RANGE_MAPPED:
    case SIM_RANGE_ADOPTED:
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_range_remove(range);
    sim_part_give(&part);
    return CUDA_SUCCESS;
}

/* The part alone is kept, under the address of nothing. */
static struct later {
    struct sim_part part;
    CUdevice ordinal;
    CUcontext context;
    struct later *next;
} *later;

void sim_range_free_later(struct sim_range *range)
{
    struct later *one = malloc(sizeof(*one));

    if (!one) {
        sim_range_free(range);
        return;
    }
    *one = (struct later){range->part, range->ordinal, range->context, later};
    later = one;
    atomic_store_explicit(&sim_settles, true, memory_order_release);
    sim_range_remove(range);
}

static void reap(CUdevice ordinal, CUcontext context)
{
    for (struct later **place = &later, *one; (one = *place) != NULL;) {
        if (one->ordinal != ordinal && one->context != context) {
            place = &one->next;
            continue;
        }
        *place = one->next;
        sim_part_give(&one->part);
        free(one);
    }
}

void sim_ranges_reap(CUdevice ordinal)
{
    reap(ordinal, NULL);
}

static bool freeable(const struct sim_range *range)
{
    switch (range->kind) {
    case SIM_RANGE_LINEAR:
    case SIM_RANGE_MANAGED:
    case SIM_RANGE_ASYNC:
    case SIM_RANGE_EXTERNAL:
        return true;
    default:
        return false;
    }
}

static CUresult release(CUdeviceptr address)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct sim_range *range;

    if (address == 0)
        return CUDA_SUCCESS;
    sim_memory_lock();
    range = sim_range_at(address);
    if (range && freeable(range))
        result = sim_range_free(range);
    sim_memory_unlock();
    if (result == CUDA_ERROR_INVALID_VALUE && sim_graph_memory_free(address))
        return CUDA_SUCCESS;
    return result;
}

SIM_EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
    CUcontext context;
    CUresult result;

    SIM_ENTER(cuMemFree_v2);
    result = allowed(&context);
    if (SIM_UNLIKELY(result != CUDA_SUCCESS))
        return result;
    if (sim_process->local && sim_local_free(address))
        return CUDA_SUCCESS;
    return release(address);
}

SIM_EXPORT CUresult cuMemFree(CUdeviceptr_v1 address)
{
    CUcontext context;
    CUresult result;

    SIM_ENTER(cuMemFree);
    result = allowed(&context);
    return result == CUDA_SUCCESS ? release(address) : result;
}

/* ---- For the execution half ---- */

/* Linear, managed and page-locked memory and what was opened from other processes go with their
 * context; what cuMemCreate and pools gave does not. */
void sim_memory_context_gone(CUcontext context)
{
    struct sim_range *range, *next;

    sim_memory_lock();
    for (range = sim_range_first(); range; range = next) {
        next = range->next;
        if (range->context == context && range->kind != SIM_RANGE_ASYNC &&
            range->kind != SIM_RANGE_MAPPED && range->kind != SIM_RANGE_ADOPTED)
            sim_range_free(range);
    }
    reap(-1, context);
    sim_arrays_context_gone(context);
    sim_memory_unlock();
}

CUresult sim_memory_adopt(CUcontext context, CUdeviceptr address, uint64_t bytes)
{
    struct sim_range like = {.base = address, .bytes = bytes, .kind = SIM_RANGE_ADOPTED,
                             .context = context, .ordinal = context ? context->ordinal : 0};
    CUresult result;

    sim_memory_lock();
    result = sim_range_add(&like) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    sim_memory_unlock();
    return result;
}

void sim_memory_forget(CUdeviceptr address)
{
    struct sim_range *range;

    sim_memory_lock();
    range = sim_range_at(address);
    if (range && range->kind == SIM_RANGE_ADOPTED)
        sim_range_remove(range);
    sim_memory_unlock();
}
