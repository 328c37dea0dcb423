/* What the fake driver does with physical allocations, by the rules of the CUDA documentation:
 * memory lives while anything refers to it. The lowest free handle is given out again at once. */
#ifndef HAMI_TESTS_FAKE_VMM_H
#define HAMI_TESTS_FAKE_VMM_H

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_driver.h"

#define OBJECTS 64
#define MAPPINGS 256

static struct object {
    int handles, uses, device;
    uint64_t bytes;
    ino_t exported; /* inode of the file it was exported as; 0: none */
    int fd;
} objects[OBJECTS];
static struct {
    uint64_t start, end;
    int object;
} mapped[MAPPINGS];
static int alias_of[OBJECTS]; /* 1 + the object that this handle is an import of */
static bool refuse_next;
static bool same_handle_for_imports;

static bool descriptor_open(const struct object *object)
{
    struct stat now;

    return object->exported && fstat(object->fd, &now) == 0 && now.st_ino == object->exported;
}

/* What the device holds, by the driver's rules. */
static uint64_t given(int device)
{
    uint64_t bytes = 0;

    for (int i = 0; i < OBJECTS; i++) {
        bool held = objects[i].handles > 0 || objects[i].uses > 0 || descriptor_open(&objects[i]);

        for (int k = 0; k < OBJECTS; k++)
            if (alias_of[k] == i + 1 && (objects[k].handles > 0 || objects[k].uses > 0))
                held = true;
        if (held && objects[i].device == device)
            bytes += objects[i].bytes;
    }
    return bytes;
}

static bool object_free(int i)
{
    for (int k = 0; k < OBJECTS; k++)
        if (alias_of[k] == i + 1 && (objects[k].handles > 0 || objects[k].uses > 0))
            return false;
    return objects[i].handles == 0 && objects[i].uses == 0 && !descriptor_open(&objects[i]);
}

static CUresult taken_or(CUresult otherwise)
{
    if (!refuse_next)
        return otherwise;
    refuse_next = false;
    return CUDA_ERROR_ILLEGAL_STATE;
}

/* The lowest handle that is free: given out again at once. */
static int new_object(int device, uint64_t bytes)
{
    for (int i = 0; i < OBJECTS; i++) {
        if (!object_free(i))
            continue;
        objects[i] = (struct object){.handles = 1, .device = device, .bytes = bytes};
        alias_of[i] = 0;
        return i;
    }
    abort();
}

static CUresult fake_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                                 const CUmemAllocationProp *properties, unsigned long long flags)
{
    (void)flags;
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        *handle = 0x100 + (uint64_t)new_object(-1, size);
    else if (taken_or(CUDA_SUCCESS) != CUDA_SUCCESS)
        return CUDA_ERROR_ILLEGAL_STATE;
    else
        *handle = 0x100 + (uint64_t)new_object(properties->location.id, size);
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct object *object = &objects[handle - 0x100];

    if (object->handles == 0 || taken_or(CUDA_SUCCESS) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    object->handles--;
    let_others();
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemMap(CUdeviceptr address, size_t size, size_t offset,
                              CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    (void)offset;
    (void)flags;
    if (taken_or(CUDA_SUCCESS) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < MAPPINGS; i++) {
        if (mapped[i].end != 0)
            continue;
        mapped[i].start = address;
        mapped[i].end = address + size;
        mapped[i].object = (int)(handle - 0x100);
        objects[mapped[i].object].uses++;
        return CUDA_SUCCESS;
    }
    abort();
}

static CUresult fake_cuMemUnmap(CUdeviceptr address, size_t size)
{
    if (taken_or(CUDA_SUCCESS) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < MAPPINGS; i++) {
        if (mapped[i].end == 0 || mapped[i].start < address || mapped[i].end > address + size)
            continue;
        objects[mapped[i].object].uses--;
        mapped[i].end = 0;
    }
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle,
                                                 void *address)
{
    for (int i = 0; i < MAPPINGS; i++) {
        if (mapped[i].start > (uintptr_t)address || mapped[i].end <= (uintptr_t)address)
            continue;
        *handle = 0x100 + (uint64_t)mapped[i].object;
        objects[mapped[i].object].handles++;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_cuMemExportToShareableHandle(void *shareable,
                                                  CUmemGenericAllocationHandle handle,
                                                  CUmemAllocationHandleType type,
                                                  unsigned long long flags)
{
    struct object *object = &objects[handle - 0x100];
    struct stat made;

    (void)flags;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
        memset(shareable, (int)(handle & 0xff), 64);
        return CUDA_SUCCESS;
    }
    object->fd = memfd_create("exported", MFD_CLOEXEC);
    if (object->fd < 0 || fstat(object->fd, &made) != 0)
        abort();
    object->exported = made.st_ino;
    *(int *)shareable = object->fd;
    return CUDA_SUCCESS;
}

/* All descriptors alike but for their numbers. */
static inline CUresult fake_export_as_device(void *shareable, CUmemGenericAllocationHandle handle,
                                             CUmemAllocationHandleType type,
                                             unsigned long long flags)
{
    (void)handle;
    (void)type;
    (void)flags;
    *(int *)shareable = open("/dev/null", O_RDWR | O_CLOEXEC);
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                                    void *shareable,
                                                    CUmemAllocationHandleType type)
{
    int source = -1, made;

    for (int i = 0; i < OBJECTS; i++)
        if (type == CU_MEM_HANDLE_TYPE_FABRIC
                ? (*(unsigned char *)shareable == i)
                : (descriptor_open(&objects[i]) && objects[i].fd == (int)(intptr_t)shareable))
            source = i;
    if (source >= 0 && same_handle_for_imports) {
        objects[source].handles++;
        *handle = 0x100 + (uint64_t)source;
        return CUDA_SUCCESS;
    }
    made = new_object(-1, 0); /* of another process: nothing of ours */
    if (source >= 0)
        alias_of[made] = source + 1;
    *handle = 0x100 + (uint64_t)made;
    return CUDA_SUCCESS;
}

/* ---- Multicast and sparse arrays: what is bound or mapped is used ---- */

static struct {
    int multicast, object;
    size_t start, end;
    bool used;
} bindings[32];

static CUresult fake_cuMulticastCreate(CUmemGenericAllocationHandle *multicast,
                                       const CUmulticastObjectProp *properties)
{
    (void)properties;
    *multicast = 0x100 + (uint64_t)new_object(-1, 0);
    return CUDA_SUCCESS;
}

static CUresult fake_cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t start,
                                        CUmemGenericAllocationHandle memory, size_t memory_offset,
                                        size_t size, unsigned long long flags)
{
    (void)memory_offset;
    (void)flags;
    if (taken_or(CUDA_SUCCESS) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < 32; i++) {
        if (bindings[i].used)
            continue;
        bindings[i].used = true;
        bindings[i].multicast = (int)(multicast - 0x100);
        bindings[i].object = (int)(memory - 0x100);
        bindings[i].start = start;
        bindings[i].end = start + size;
        objects[bindings[i].object].uses++;
        return CUDA_SUCCESS;
    }
    abort();
}

static CUresult fake_cuMulticastBindAddr_v2(CUmemGenericAllocationHandle multicast, CUdevice device,
                                            size_t start, CUdeviceptr address, size_t size,
                                            unsigned long long flags)
{
    (void)device;
    for (int i = 0; i < MAPPINGS; i++)
        if (mapped[i].end != 0 && mapped[i].start < address + size && mapped[i].end > address)
            fake_cuMulticastBindMem(multicast, start, 0x100 + (uint64_t)mapped[i].object, 0, size,
                                    flags);
    return CUDA_SUCCESS;
}

static CUresult fake_cuMulticastUnbind(CUmemGenericAllocationHandle multicast, CUdevice device,
                                       size_t start, size_t size)
{
    (void)device;
    for (int i = 0; i < 32; i++) {
        if (!bindings[i].used || bindings[i].multicast != (int)(multicast - 0x100) ||
            bindings[i].start < start || bindings[i].end > start + size)
            continue;
        bindings[i].used = false;
        objects[bindings[i].object].uses--;
    }
    return CUDA_SUCCESS;
}

/* An endpoint's bindings, beside those of multicast objects. */
#define FAKE_ENDPOINT(id) (UINT64_C(0x10000) + (id))

static CUresult fake_cuLogicalEndpointBindMem(CUlogicalEndpointId id, CUdevice device,
                                              cuuint64_t start, CUmemGenericAllocationHandle memory,
                                              cuuint64_t memory_offset, cuuint64_t size,
                                              unsigned long long flags)
{
    (void)device;
    return fake_cuMulticastBindMem(FAKE_ENDPOINT(id), start, memory, memory_offset, size, flags);
}

static CUresult fake_cuLogicalEndpointBindAddr(CUlogicalEndpointId id, CUdevice device,
                                               cuuint64_t start, void *address, cuuint64_t size,
                                               unsigned long long flags)
{
    return fake_cuMulticastBindAddr_v2(FAKE_ENDPOINT(id), device, start, (uintptr_t)address, size,
                                       flags);
}

static CUresult fake_cuLogicalEndpointUnbind(CUlogicalEndpointId id, CUdevice device,
                                             cuuint64_t start, cuuint64_t size)
{
    if (taken_or(CUDA_SUCCESS) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    return fake_cuMulticastUnbind(FAKE_ENDPOINT(id), device, start, size);
}

static CUresult fake_cuLogicalEndpointDestroy(CUlogicalEndpointId id)
{
    return fake_cuLogicalEndpointUnbind(id, 0, 0, SIZE_MAX);
}

static CUresult fake_cuMemMapArrayAsync(CUarrayMapInfo *maps, unsigned int count, CUstream stream)
{
    (void)maps;
    (void)count;
    (void)stream;
    return taken_or(CUDA_SUCCESS) == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static inline void fake_vmm_start(uint64_t limit)
{
    fake_start(limit);
    memset(objects, 0, sizeof(objects));
    memset(mapped, 0, sizeof(mapped));
    memset(alias_of, 0, sizeof(alias_of));
    memset(bindings, 0, sizeof(bindings));
    refuse_next = false;
    same_handle_for_imports = false;
    fake_real.cuMemCreate = fake_cuMemCreate;
    fake_real.cuMemRelease = fake_cuMemRelease;
    fake_real.cuMemMap = fake_cuMemMap;
    fake_real.cuMemUnmap = fake_cuMemUnmap;
    fake_real.cuMemRetainAllocationHandle = fake_cuMemRetainAllocationHandle;
    fake_real.cuMemExportToShareableHandle = fake_cuMemExportToShareableHandle;
    fake_real.cuMemImportFromShareableHandle = fake_cuMemImportFromShareableHandle;
    fake_real.cuMulticastCreate = fake_cuMulticastCreate;
    fake_real.cuMulticastBindMem = fake_cuMulticastBindMem;
    fake_real.cuMulticastBindAddr_v2 = fake_cuMulticastBindAddr_v2;
    fake_real.cuMulticastUnbind = fake_cuMulticastUnbind;
    fake_real.cuLogicalEndpointBindMem = fake_cuLogicalEndpointBindMem;
    fake_real.cuLogicalEndpointBindAddr = fake_cuLogicalEndpointBindAddr;
    fake_real.cuLogicalEndpointUnbind = fake_cuLogicalEndpointUnbind;
    fake_real.cuLogicalEndpointDestroy = fake_cuLogicalEndpointDestroy;
    fake_real.cuMemMapArrayAsync = fake_cuMemMapArrayAsync;
    fake_real.cuMemMapArrayAsync_ptsz = fake_cuMemMapArrayAsync;
}

#endif
