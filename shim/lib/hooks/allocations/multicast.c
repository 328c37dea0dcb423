/* Multicast objects and logical endpoints. One takes no device memory to speak of; what is bound to
 * it stays allocated until it is unbound, or the object goes. */
#include "base/reset.h"
#include "base/slab.h"
#include "driver/real.h"
#include "hooks/allocations/vmm.h"
#include "memory/physical.h"
#include "slice/devices.h"
#include "slice/slice.h"

#define ANY_DEVICE (-1)

/* What memory is bound to. */
struct object {
    struct hami_physical *multicast; /* NULL: a logical endpoint */
    CUlogicalEndpointId endpoint;
};

struct binding {
    struct binding *next;
    struct object object;
    struct hami_physical *memory;
    uint64_t start, end; /* within the object */
    CUdevice device;
};

static struct binding *bindings;
static struct hami_slab slab = HAMI_SLAB(struct binding);

void hami_multicast_reset(void)
{
    bindings = NULL;
    slab.free = NULL;
}

static CUdevice device_of(const struct hami_physical *memory)
{
    while (memory->backing)
        memory = memory->backing;
    return memory->row == HAMI_ROW_NONE ? ANY_DEVICE : hami_ordinal_of_row(memory->row);
}

/* With the lock: a binding that is being made holds both sides. NULL: no memory for it. */
static struct binding *begin(struct object object, struct hami_physical *memory, uint64_t start,
                             uint64_t size, CUdevice device)
{
    struct binding *binding = hami_slab_take(&slab);

    if (!binding)
        return NULL;
    *binding = (struct binding){
        .object = object,
        .memory = memory,
        .start = start,
        .end = start + size,
        .device = device == ANY_DEVICE ? device_of(memory) : device,
    };
    hami_physical_use(memory);
    return binding;
}

/* Those of a list that was made for one call: from now on, or not at all. */
static void finish(struct binding *made, bool bound)
{
    struct binding *next;

    for (; made; made = next) {
        next = made->next;
        if (bound) {
            made->next = bindings;
            bindings = made;
        } else {
            hami_physical_unuse(made->memory);
            hami_slab_give(&slab, made);
        }
    }
}

/* Take out the bindings of an object that lie in a range of it. */
static struct binding *take(struct object object, uint64_t start, uint64_t end, CUdevice device)
{
    struct binding **place = &bindings, *taken = NULL;

    while (*place) {
        struct binding *binding = *place;

        if (binding->object.multicast == object.multicast &&
            binding->object.endpoint == object.endpoint && binding->start >= start &&
            binding->end <= end &&
            (device == ANY_DEVICE || binding->device == ANY_DEVICE || binding->device == device)) {
            *place = binding->next;
            binding->next = taken;
            taken = binding;
        } else {
            place = &binding->next;
        }
    }
    return taken;
}

static void end_bindings(struct hami_physical *multicast)
{
    finish(take((struct object){.multicast = multicast}, 0, UINT64_MAX, ANY_DEVICE), false);
}

HAMI_EXPORT CUresult cuMulticastCreate(CUmemGenericAllocationHandle *multicast,
                                       const CUmulticastObjectProp *properties)
{
    CUmemGenericAllocationHandle made;
    struct hami_physical *added;
    CUresult result;

    if (!hami_counting() || !multicast)
        return hami_real()->cuMulticastCreate(multicast, properties);
    result = hami_real()->cuMulticastCreate(&made, properties);
    if (result != CUDA_SUCCESS)
        return result;
    hami_physical_lock();
    added = hami_physical_add(made, HAMI_ROW_NONE, 0);
    if (added)
        added->gone = end_bindings;
    hami_physical_unlock();
    if (!added) {
        hami_real()->cuMemRelease(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *multicast = made;
    return CUDA_SUCCESS;
}

HAMI_EXPORT CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle multicast, CUdevice device)
{
    return hami_real()->cuMulticastAddDevice(multicast, device);
}

struct call {
    struct object object;
    bool ours; /* false: a multicast object that was not seen being made */
    struct binding *made;
    bool complete; /* false: no memory for a record */
};

/* A multicast object keeps a handle of its own here while a call is under way. */
static void begin_multicast(struct call *call, CUmemGenericAllocationHandle handle)
{
    struct hami_physical *multicast;

    hami_physical_lock();
    multicast = hami_physical_of(handle);
    *call = (struct call){
        .object = {.multicast = multicast}, .ours = multicast != NULL, .complete = true};
    if (multicast)
        hami_physical_use(multicast);
    hami_physical_unlock();
}

static void begin_endpoint(struct call *call, CUlogicalEndpointId id)
{
    *call = (struct call){.object = {.endpoint = id}, .ours = true, .complete = true};
}

static void end_call(struct call *call, bool bound)
{
    hami_physical_lock();
    finish(call->made, bound);
    if (call->object.multicast)
        hami_physical_unuse(call->object.multicast);
    hami_physical_unlock();
}

/* With the lock. */
static void add(struct call *call, struct hami_physical *memory, uint64_t start, uint64_t size,
                CUdevice device)
{
    struct binding *binding;

    if (!call->ours || !memory)
        return;
    binding = begin(call->object, memory, start, size, device);
    if (!binding) {
        call->complete = false;
        return;
    }
    binding->next = call->made;
    call->made = binding;
}

static void add_memory(struct call *call, uint64_t start, CUmemGenericAllocationHandle memory,
                       uint64_t size, CUdevice device)
{
    hami_physical_lock();
    add(call, hami_physical_of(memory), start, size, device);
    hami_physical_unlock();
}

/* The range may lie in several mappings: each of their allocations is bound. */
static void add_address(struct call *call, uint64_t start, CUdeviceptr address, uint64_t size,
                        CUdevice device)
{
    struct hami_physical *memory;
    uint64_t from = address;

    hami_physical_lock();
    while ((memory = hami_mapped_in(&from, address + size)) != NULL)
        add(call, memory, start, size, device);
    hami_physical_unlock();
}

HAMI_EXPORT CUresult cuMulticastBindMem(CUmemGenericAllocationHandle multicast,
                                        size_t multicast_offset,
                                        CUmemGenericAllocationHandle memory, size_t memory_offset,
                                        size_t size, unsigned long long flags)
{
    struct call call;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (!hami_counting())
        return hami_real()->cuMulticastBindMem(multicast, multicast_offset, memory, memory_offset,
                                               size, flags);
    begin_multicast(&call, multicast);
    add_memory(&call, multicast_offset, memory, size, ANY_DEVICE);
    if (call.complete)
        result = hami_real()->cuMulticastBindMem(multicast, multicast_offset, memory, memory_offset,
                                                 size, flags);
    end_call(&call, result == CUDA_SUCCESS);
    return result;
}

HAMI_EXPORT CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle multicast, CUdevice device,
                                           size_t multicast_offset,
                                           CUmemGenericAllocationHandle memory,
                                           size_t memory_offset, size_t size,
                                           unsigned long long flags)
{
    struct call call;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (!hami_counting())
        return hami_real()->cuMulticastBindMem_v2(multicast, device, multicast_offset, memory,
                                                  memory_offset, size, flags);
    begin_multicast(&call, multicast);
    add_memory(&call, multicast_offset, memory, size, device);
    if (call.complete)
        result = hami_real()->cuMulticastBindMem_v2(multicast, device, multicast_offset, memory,
                                                    memory_offset, size, flags);
    end_call(&call, result == CUDA_SUCCESS);
    return result;
}

HAMI_EXPORT CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle multicast,
                                         size_t multicast_offset, CUdeviceptr address, size_t size,
                                         unsigned long long flags)
{
    struct call call;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (!hami_counting())
        return hami_real()->cuMulticastBindAddr(multicast, multicast_offset, address, size, flags);
    begin_multicast(&call, multicast);
    add_address(&call, multicast_offset, address, size, ANY_DEVICE);
    if (call.complete)
        result = hami_real()->cuMulticastBindAddr(multicast, multicast_offset, address, size,
                                                  flags);
    end_call(&call, result == CUDA_SUCCESS);
    return result;
}

HAMI_EXPORT CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle multicast, CUdevice device,
                                            size_t multicast_offset, CUdeviceptr address,
                                            size_t size, unsigned long long flags)
{
    struct call call;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (!hami_counting())
        return hami_real()->cuMulticastBindAddr_v2(multicast, device, multicast_offset, address,
                                                   size, flags);
    begin_multicast(&call, multicast);
    add_address(&call, multicast_offset, address, size, device);
    if (call.complete)
        result = hami_real()->cuMulticastBindAddr_v2(multicast, device, multicast_offset, address,
                                                     size, flags);
    end_call(&call, result == CUDA_SUCCESS);
    return result;
}

HAMI_EXPORT CUresult cuMulticastUnbind(CUmemGenericAllocationHandle multicast, CUdevice device,
                                       size_t multicast_offset, size_t size)
{
    CUresult result = hami_real()->cuMulticastUnbind(multicast, device, multicast_offset, size);
    struct object object;

    if (result != CUDA_SUCCESS || !hami_counting())
        return result;
    hami_physical_lock();
    object = (struct object){.multicast = hami_physical_of(multicast)};
    if (object.multicast)
        finish(take(object, multicast_offset, multicast_offset + size, device), false);
    hami_physical_unlock();
    return result;
}

/* ---- Logical endpoints ---- */

HAMI_EXPORT CUresult cuLogicalEndpointBindMem(CUlogicalEndpointId id, CUdevice device,
                                              cuuint64_t offset,
                                              CUmemGenericAllocationHandle memory,
                                              cuuint64_t memory_offset, cuuint64_t size,
                                              unsigned long long flags)
{
    struct call call;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (!hami_counting())
        return hami_real()->cuLogicalEndpointBindMem(id, device, offset, memory, memory_offset,
                                                     size, flags);
    begin_endpoint(&call, id);
    add_memory(&call, offset, memory, size, device);
    if (call.complete)
        result = hami_real()->cuLogicalEndpointBindMem(id, device, offset, memory, memory_offset,
                                                       size, flags);
    end_call(&call, result == CUDA_SUCCESS);
    return result;
}

HAMI_EXPORT CUresult cuLogicalEndpointBindAddr(CUlogicalEndpointId id, CUdevice device,
                                               cuuint64_t offset, void *address, cuuint64_t size,
                                               unsigned long long flags)
{
    struct call call;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (!hami_counting())
        return hami_real()->cuLogicalEndpointBindAddr(id, device, offset, address, size, flags);
    begin_endpoint(&call, id);
    add_address(&call, offset, (uintptr_t)address, size, device);
    if (call.complete)
        result = hami_real()->cuLogicalEndpointBindAddr(id, device, offset, address, size, flags);
    end_call(&call, result == CUDA_SUCCESS);
    return result;
}

/* Bindings are out of the list while the driver ends them: once it has, another thread may bind to
 * the same place, or make another endpoint of the same number. */
static struct binding *take_of_endpoint(CUlogicalEndpointId id, uint64_t start, uint64_t end,
                                        CUdevice device)
{
    struct binding *taken;

    hami_physical_lock();
    taken = take((struct object){.endpoint = id}, start, end, device);
    hami_physical_unlock();
    return taken;
}

static void ended(struct binding *taken, CUresult result)
{
    hami_physical_lock();
    finish(taken, result != CUDA_SUCCESS);
    hami_physical_unlock();
}

HAMI_EXPORT CUresult cuLogicalEndpointUnbind(CUlogicalEndpointId id, CUdevice device,
                                             cuuint64_t offset, cuuint64_t size)
{
    struct binding *taken;
    CUresult result;

    if (!hami_counting())
        return hami_real()->cuLogicalEndpointUnbind(id, device, offset, size);
    taken = take_of_endpoint(id, offset, offset + size, device);
    result = hami_real()->cuLogicalEndpointUnbind(id, device, offset, size);
    ended(taken, result);
    return result;
}

/* The driver unbinds all that this process bound to it. */
HAMI_EXPORT CUresult cuLogicalEndpointDestroy(CUlogicalEndpointId id)
{
    struct binding *taken;
    CUresult result;

    if (!hami_counting())
        return hami_real()->cuLogicalEndpointDestroy(id);
    taken = take_of_endpoint(id, 0, UINT64_MAX, ANY_DEVICE);
    result = hami_real()->cuLogicalEndpointDestroy(id);
    ended(taken, result);
    return result;
}
