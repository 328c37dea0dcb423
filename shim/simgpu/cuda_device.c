/* Devices: what a program may ask of one before it has a context. */
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "execution.h"

SIM_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    SIM_ENTER(cuDeviceGet);
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device(ordinal) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDeviceGetCount(int *count)
{
    SIM_ENTER(cuDeviceGetCount);
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *count = sim_device_count();
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    SIM_ENTER(cuDeviceGetName);
    const struct sim_device *found = sim_device(device);
    if (name == NULL || size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (found == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)size, "%s", found->name);
    return CUDA_SUCCESS;
}

static CUresult uuid_of(CUuuid *uuid, CUdevice device, bool of_instance)
{
    const struct sim_device *found = sim_device(device);
    const struct sim_board *board = sim_board();
    const uint8_t *bytes;

    if (uuid == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (found == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    bytes = found->uuid;
    if (!of_instance && found->mig && board != NULL)
        bytes = board->units[board->units[found->board].card].bytes;
    memcpy(uuid->bytes, bytes, sizeof uuid->bytes);
    return CUDA_SUCCESS;
}

/* The first spelling gives the card's id even where the device is a MIG instance of it. */
SIM_EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    SIM_ENTER(cuDeviceGetUuid);
    return uuid_of(uuid, device, false);
}

SIM_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    SIM_ENTER(cuDeviceGetUuid_v2);
    return uuid_of(uuid, device, true);
}

static void pci_of(const struct sim_device *device, unsigned int *domain, unsigned int *bus,
                   unsigned int *slot, unsigned int *function)
{
    if (sscanf(device->pci, "%x:%x:%x.%x", domain, bus, slot, function) != 4)
        *domain = *bus = *slot = *function = 0;
}

SIM_EXPORT CUresult cuDeviceGetPCIBusId(char *bus_id, int size, CUdevice device)
{
    SIM_ENTER(cuDeviceGetPCIBusId);
    const struct sim_device *found = sim_device(device);
    unsigned int domain, bus, slot, function;

    if (bus_id == NULL || size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (found == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    pci_of(found, &domain, &bus, &slot, &function);
    snprintf(bus_id, (size_t)size, "%04x:%02x:%02x.%x", domain, bus, slot, function);
    return CUDA_SUCCESS;
}

/* domain:bus:device.function, or without the domain, or without the function, in hexadecimal */
static bool parse_pci(const char *text, unsigned int where[4])
{
    int end = 0;
    where[0] = where[3] = 0;
    if (sscanf(text, "%x:%x:%x.%x%n", &where[0], &where[1], &where[2], &where[3], &end) == 4)
        return text[end] == '\0';
    where[0] = where[3] = 0;
    if (sscanf(text, "%x:%x.%x%n", &where[1], &where[2], &where[3], &end) == 3)
        return text[end] == '\0';
    where[3] = 0;
    return sscanf(text, "%x:%x:%x%n", &where[0], &where[1], &where[2], &end) == 3 &&
           text[end] == '\0';
}

SIM_EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *bus_id)
{
    SIM_ENTER(cuDeviceGetByPCIBusId);
    unsigned int wanted[4], has[4];

    if (device == NULL || bus_id == NULL || !parse_pci(bus_id, wanted))
        return CUDA_ERROR_INVALID_VALUE;
    for (CUdevice i = 0; i < sim_device_count(); i++) {
        pci_of(sim_device(i), &has[0], &has[1], &has[2], &has[3]);
        if (memcmp(wanted, has, sizeof has) == 0) {
            *device = i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

/* What is the same for every simulated device: about an H100's figures. */
static const struct {
    CUdevice_attribute attribute;
    int value;
} constants[] = {
    { CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024 },
    { CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024 },
    { CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024 },
    { CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64 },
    { CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647 },
    { CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535 },
    { CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535 },
    { CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152 },
    { CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536 },
    { CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32 },
    { CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647 },
    { CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536 },
    { CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000 },
    { CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512 },
    { CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, 0 },
    { CU_DEVICE_ATTRIBUTE_INTEGRATED, 0 },
    { CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1 },
    { CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_COMPUTEMODE_DEFAULT },
    { CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1 },
    { CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1 },
    { CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 2619000 },
    { CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120 },
    { CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 52428800 },
    { CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3 },
    { CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1 },
    { CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32 },
    { CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1 },
    { CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472 },
    { CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536 },
    { CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1 },
    { CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD, 0 },
    { CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0 },
    { CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1 },
    { CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1 },
    { CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1 },
    { CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH, 1 },
    { CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448 },
    { CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1 },
    { CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1 },
    { CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1 },
    { CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32 },
    { CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1 },
    { CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED, 1 },
    { CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1 },
    { CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR },
    { CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1 },
    { CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED, 1 },
    { CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1 },
    { CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0 },
    { CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 0 },
    { CU_DEVICE_ATTRIBUTE_NUMA_CONFIG, 0 },
    { CU_DEVICE_ATTRIBUTE_NUMA_ID, -1 },
    { CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 1 },
    { CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 0 },
};

SIM_EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    SIM_ENTER(cuDeviceGetAttribute);
    const struct sim_device *found = sim_device(device);
    const struct sim_board *board = sim_board();
    unsigned int domain, bus, slot, function;

    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (found == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    pci_of(found, &domain, &bus, &slot, &function);
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = found->sms; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
        *value = (int)sim_resident_threads(found->major, found->minor);
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = found->major; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = found->minor; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: *value = (int)domain; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *value = (int)bus; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: *value = (int)slot; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
        *value = board != NULL ? board->units[found->board].numa : -1;
        return CUDA_SUCCESS;
    default: break;
    }
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++) {
        if (constants[i].attribute == attribute) {
            *value = constants[i].value;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuDeviceCanAccessPeer(int *possible, CUdevice device, CUdevice peer)
{
    SIM_ENTER(cuDeviceCanAccessPeer);
    const struct sim_device *one = sim_device(device), *other = sim_device(peer);

    if (possible == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (one == NULL || other == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    /* MIG instances reach nobody; whole cards each other, over NVLink or PCI. */
    *possible = device != peer && !one->mig && !other->mig;
    return CUDA_SUCCESS;
}
