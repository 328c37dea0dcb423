/* What of memory only the simulator shows: which spelling ran, addresses of 32 bits, a process
 * without cuInit, a forked child, imported memory. Checks as in tests/conformance. */
#include <sys/wait.h>

#include "conformance/check.h"
#include "client.h"

/* Every spelling that the memory half exports, called with arguments that it refuses or that do
 * nothing. `name` ran, and nothing else did. */
#define SPELLINGS(CALL)                                                                            \
    CALL(cuMemGetInfo, (NULL, NULL))                                                               \
    CALL(cuMemGetInfo_v2, (NULL, NULL))                                                            \
    CALL(cuDeviceTotalMem, (NULL, 0))                                                              \
    CALL(cuDeviceTotalMem_v2, (NULL, 0))                                                           \
    CALL(cuMemAlloc, (NULL, 1))                                                                    \
    CALL(cuMemAlloc_v2, (NULL, 1))                                                                 \
    CALL(cuMemAllocPitch, (NULL, NULL, 1, 1, 4))                                                   \
    CALL(cuMemAllocPitch_v2, (NULL, NULL, 1, 1, 4))                                                \
    CALL(cuMemAllocManaged, (NULL, 1, 1))                                                          \
    CALL(cuMemFree, (12345))                                                                       \
    CALL(cuMemFree_v2, (12345))                                                                    \
    CALL(cuMemGetAddressRange, (NULL, NULL, 12345))                                                \
    CALL(cuMemGetAddressRange_v2, (NULL, NULL, 12345))                                             \
    CALL(cuPointerGetAttribute, (NULL, 1, 12345))                                                  \
    CALL(cuPointerGetAttributes, (1, NULL, NULL, 12345))                                           \
    CALL(cuMemAdvise, (12345, 1, 1, 0))                                                            \
    CALL(cuMemAdvise_v2, (12345, 1, 1, nowhere))                                                   \
    CALL(cuMemPrefetchAsync, (12345, 1, 0, NULL))                                                  \
    CALL(cuMemPrefetchAsync_ptsz, (12345, 1, 0, NULL))                                             \
    CALL(cuMemPrefetchAsync_v2, (12345, 1, nowhere, 0, NULL))                                      \
    CALL(cuMemPrefetchAsync_v2_ptsz, (12345, 1, nowhere, 0, NULL))                                 \
    CALL(cuIpcGetMemHandle, (NULL, 12345))                                                         \
    CALL(cuIpcOpenMemHandle, (NULL, handle, 1))                                                    \
    CALL(cuIpcOpenMemHandle_v2, (NULL, handle, 1))                                                 \
    CALL(cuIpcCloseMemHandle, (12345))                                                             \
    CALL(cuImportExternalMemory, (NULL, NULL))                                                     \
    CALL(cuExternalMemoryGetMappedBuffer, (NULL, NULL, NULL))                                      \
    CALL(cuDestroyExternalMemory, (NULL))                                                          \
    CALL(cuMemAllocHost, (NULL, 1))                                                                \
    CALL(cuMemAllocHost_v2, (NULL, 1))                                                             \
    CALL(cuMemHostAlloc, (NULL, 1, 0))                                                             \
    CALL(cuMemFreeHost, (NULL))                                                                    \
    CALL(cuMemHostRegister, (NULL, 1, 0))                                                          \
    CALL(cuMemHostRegister_v2, (NULL, 1, 0))                                                       \
    CALL(cuMemHostUnregister, (NULL))                                                              \
    CALL(cuMemHostGetDevicePointer, (NULL, NULL, 0))                                               \
    CALL(cuMemHostGetDevicePointer_v2, (NULL, NULL, 0))                                            \
    CALL(cuMemcpy, (12345, 12345, 1))                                                              \
    CALL(cuMemcpy_ptds, (12345, 12345, 1))                                                         \
    CALL(cuMemcpyAsync, (12345, 12345, 1, NULL))                                                   \
    CALL(cuMemcpyAsync_ptsz, (12345, 12345, 1, NULL))                                              \
    CALL(cuMemcpyHtoD, (12345, "x", 1))                                                            \
    CALL(cuMemcpyHtoD_v2, (12345, "x", 1))                                                         \
    CALL(cuMemcpyHtoD_v2_ptds, (12345, "x", 1))                                                    \
    CALL(cuMemcpyDtoH, (byte, 12345, 1))                                                           \
    CALL(cuMemcpyDtoH_v2, (byte, 12345, 1))                                                        \
    CALL(cuMemcpyDtoH_v2_ptds, (byte, 12345, 1))                                                   \
    CALL(cuMemcpyDtoD, (12345, 12345, 1))                                                          \
    CALL(cuMemcpyDtoD_v2, (12345, 12345, 1))                                                       \
    CALL(cuMemcpyDtoD_v2_ptds, (12345, 12345, 1))                                                  \
    CALL(cuMemcpyHtoDAsync, (12345, "x", 1, NULL))                                                 \
    CALL(cuMemcpyHtoDAsync_v2, (12345, "x", 1, NULL))                                              \
    CALL(cuMemcpyHtoDAsync_v2_ptsz, (12345, "x", 1, NULL))                                         \
    CALL(cuMemcpyDtoHAsync, (byte, 12345, 1, NULL))                                                \
    CALL(cuMemcpyDtoHAsync_v2, (byte, 12345, 1, NULL))                                             \
    CALL(cuMemcpyDtoHAsync_v2_ptsz, (byte, 12345, 1, NULL))                                        \
    CALL(cuMemcpyDtoDAsync, (12345, 12345, 1, NULL))                                               \
    CALL(cuMemcpyDtoDAsync_v2, (12345, 12345, 1, NULL))                                            \
    CALL(cuMemcpyDtoDAsync_v2_ptsz, (12345, 12345, 1, NULL))                                       \
    CALL(cuMemsetD8, (12345, 0, 1))                                                                \
    CALL(cuMemsetD8_v2, (12345, 0, 1))                                                             \
    CALL(cuMemsetD8_v2_ptds, (12345, 0, 1))                                                        \
    CALL(cuMemsetD32, (12344, 0, 1))                                                               \
    CALL(cuMemsetD32_v2, (12344, 0, 1))                                                            \
    CALL(cuMemsetD32_v2_ptds, (12344, 0, 1))                                                       \
    CALL(cuMemsetD8Async, (12345, 0, 1, NULL))                                                     \
    CALL(cuMemsetD8Async_ptsz, (12345, 0, 1, NULL))                                                \
    CALL(cuMemsetD32Async, (12344, 0, 1, NULL))                                                    \
    CALL(cuMemsetD32Async_ptsz, (12344, 0, 1, NULL))                                               \
    CALL(cuMemAllocAsync, (NULL, 1, NULL))                                                         \
    CALL(cuMemAllocAsync_ptsz, (NULL, 1, NULL))                                                    \
    CALL(cuMemAllocFromPoolAsync, (NULL, 1, NULL, NULL))                                           \
    CALL(cuMemAllocFromPoolAsync_ptsz, (NULL, 1, NULL, NULL))                                      \
    CALL(cuMemFreeAsync, (12345, NULL))                                                            \
    CALL(cuMemFreeAsync_ptsz, (12345, NULL))                                                       \
    CALL(cuMemPoolCreate, (NULL, NULL))                                                            \
    CALL(cuMemPoolDestroy, (NULL))                                                                 \
    CALL(cuMemPoolTrimTo, (NULL, 0))                                                               \
    CALL(cuMemPoolSetAttribute, (NULL, 4, NULL))                                                   \
    CALL(cuMemPoolGetAttribute, (NULL, 4, NULL))                                                   \
    CALL(cuMemPoolSetAccess, (NULL, NULL, 1))                                                      \
    CALL(cuMemPoolGetAccess, (NULL, NULL, NULL))                                                   \
    CALL(cuMemPoolExportToShareableHandle, (NULL, NULL, 1, 0))                                     \
    CALL(cuMemPoolImportFromShareableHandle, (NULL, NULL, 1, 0))                                   \
    CALL(cuMemPoolExportPointer, (NULL, 12345))                                                    \
    CALL(cuMemPoolImportPointer, (NULL, NULL, NULL))                                               \
    CALL(cuDeviceGetDefaultMemPool, (NULL, 0))                                                     \
    CALL(cuDeviceGetMemPool, (NULL, 0))                                                            \
    CALL(cuDeviceSetMemPool, (0, NULL))                                                            \
    CALL(cuMemGetDefaultMemPool, (NULL, &nowhere, 1))                                              \
    CALL(cuMemGetMemPool, (NULL, &nowhere, 1))                                                     \
    CALL(cuMemSetMemPool, (&nowhere, 1, NULL))                                                     \
    CALL(cuDeviceGraphMemTrim, (-1))                                                               \
    CALL(cuDeviceGetGraphMemAttribute, (-1, 0, NULL))                                              \
    CALL(cuDeviceSetGraphMemAttribute, (-1, 0, NULL))                                              \
    CALL(cuMemAddressReserve, (NULL, 0, 0, 0, 0))                                                  \
    CALL(cuMemAddressFree, (12345, 1))                                                             \
    CALL(cuMemCreate, (NULL, 1, NULL, 0))                                                          \
    CALL(cuMemRelease, (12345))                                                                    \
    CALL(cuMemMap, (12345, 1, 0, 12345, 0))                                                        \
    CALL(cuMemUnmap, (12345, 1))                                                                   \
    CALL(cuMemSetAccess, (12345, 1, NULL, 1))                                                      \
    CALL(cuMemGetAccess, (NULL, NULL, 12345))                                                      \
    CALL(cuMemRetainAllocationHandle, (NULL, NULL))                                                \
    CALL(cuMemGetAllocationPropertiesFromHandle, (NULL, 12345))                                    \
    CALL(cuMemGetAllocationGranularity, (NULL, NULL, 0))                                           \
    CALL(cuMemExportToShareableHandle, (NULL, 12345, 1, 0))                                        \
    CALL(cuMemImportFromShareableHandle, (NULL, NULL, 1))                                          \
    CALL(cuMemMapArrayAsync, (NULL, 0, NULL))                                                      \
    CALL(cuMemMapArrayAsync_ptsz, (NULL, 0, NULL))                                                 \
    CALL(cuMulticastCreate, (NULL, NULL))                                                          \
    CALL(cuMulticastAddDevice, (12345, 0))                                                         \
    CALL(cuMulticastBindMem, (12345, 0, 12345, 0, 1, 0))                                           \
    CALL(cuMulticastBindMem_v2, (12345, 0, 0, 12345, 0, 1, 0))                                     \
    CALL(cuMulticastBindAddr, (12345, 0, 12345, 1, 0))                                             \
    CALL(cuMulticastBindAddr_v2, (12345, 0, 0, 12345, 1, 0))                                       \
    CALL(cuMulticastUnbind, (12345, 0, 0, 1))                                                      \
    CALL(cuMulticastGetGranularity, (NULL, NULL, 0))                                               \
    CALL(cuLogicalEndpointIdReserve, (NULL, 1))                                                    \
    CALL(cuLogicalEndpointIdRelease, (12345, 1))                                                   \
    CALL(cuLogicalEndpointCreate, (12345, NULL))                                                   \
    CALL(cuLogicalEndpointDestroy, (12345))                                                        \
    CALL(cuLogicalEndpointQuery, (12345, 1, NULL))                                                 \
    CALL(cuLogicalEndpointBindMem, (12345, 0, 0, 12345, 0, 1, 0))                                  \
    CALL(cuLogicalEndpointBindAddr, (12345, 0, 0, NULL, 1, 0))                                     \
    CALL(cuLogicalEndpointUnbind, (12345, 0, 0, 1))                                                \
    CALL(cuArrayCreate, (NULL, NULL))                                                              \
    CALL(cuArrayCreate_v2, (NULL, NULL))                                                           \
    CALL(cuArrayGetDescriptor, (NULL, NULL))                                                       \
    CALL(cuArrayGetDescriptor_v2, (NULL, NULL))                                                    \
    CALL(cuArray3DCreate, (NULL, NULL))                                                            \
    CALL(cuArray3DCreate_v2, (NULL, NULL))                                                         \
    CALL(cuArray3DGetDescriptor, (NULL, NULL))                                                     \
    CALL(cuArray3DGetDescriptor_v2, (NULL, NULL))                                                  \
    CALL(cuArrayDestroy, (NULL))                                                                   \
    CALL(cuArrayGetMemoryRequirements, (NULL, NULL, 0))                                            \
    CALL(cuMipmappedArrayCreate, (NULL, NULL, 1))                                                  \
    CALL(cuMipmappedArrayGetLevel, (NULL, NULL, 0))                                                \
    CALL(cuMipmappedArrayDestroy, (NULL))                                                          \
    CALL(cuMipmappedArrayGetMemoryRequirements, (NULL, NULL, 0))

static CUmemLocation nowhere = {.type = CU_MEM_LOCATION_TYPE_INVISIBLE};
static CUipcMemHandle handle;
static char byte[4];

/* Each answers `expected`, or (CUDA_SUCCESS) anything but success. */
static const char *call_all(CUresult expected)
{
    CUresult result;

#define CALL(name, arguments)                                                                      \
    result = name arguments;                                                                       \
    if (expected == CUDA_SUCCESS ? result == CUDA_SUCCESS : result != expected)                    \
        return told(#name ": %d", (int)result);                                                    \
    if (strcmp(hami_sim_last_call(), #name) != 0)                                                  \
        return told(#name ": ran %s", hami_sim_last_call());
    SPELLINGS(CALL)
#undef CALL
    return NULL;
}

static const char *every_spelling_runs_itself_and_refuses_nonsense(void)
{
    return call_all(CUDA_SUCCESS);
}

static const char *nothing_works_in_a_forked_child(void)
{
    CUdeviceptr address;
    int status = -1;
    pid_t child = fork();

    if (child == 0)
        _exit(call_all(CUDA_ERROR_NOT_INITIALIZED) != NULL);
    SO(waitpid(child, &status, 0) == child && status == 0);
    OK(cuMemAlloc_v2(&address, 1));
    OK(cuMemFree_v2(address));
    return NULL;
}

/* ---- Before CUDA 3.2 ---- */

static const char *old_spellings_have_addresses_of_32_bits(void)
{
    CUdeviceptr_v1 address[3], base;
    unsigned int size, pitch;
    size_t before = available();
    char out[8] = {0};

    for (int i = 0; i < 3; i++)
        OK(cuMemAlloc(&address[i], 3 << 20));
    SO(address[0] && address[1] && address[0] != address[1] && address[1] != address[2]);
    OK(cuMemcpyHtoD(address[1] + 100, "written", 8));
    OK(cuMemsetD8(address[1] + 100, 'W', 1));
    OK(cuMemcpyDtoH(out, address[1] + 100, 8));
    OK(cuMemGetAddressRange(&base, &size, address[1] + 5000));
    SO(base == address[1] && size == 3 << 20);
    SO(before - available() == 3 * 4 * MIB);
    for (int i = 0; i < 3; i++)
        OK(cuMemFree(address[i]));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemFree(address[0]));
    OK(cuMemAllocPitch(&address[0], &pitch, 1000, 1000, 4));
    SO(pitch == 1024);
    OK(cuMemFree(address[0]));
    SO(available() == before);
    return NULL;
}

static const char *old_spellings_saturate(void)
{
    unsigned int free_now, total, whole;
    size_t real;

    OK(cuDeviceTotalMem_v2(&real, device));
    OK(cuDeviceTotalMem(&whole, device));
    OK(cuMemGetInfo(&free_now, &total));
    SO(real > UINT32_MAX && whole == UINT32_MAX && total == UINT32_MAX);
    SO(free_now <= total && free_now > 0);
    return NULL;
}

static const char *old_arrays_are_arrays(void)
{
    CUDA_ARRAY3D_DESCRIPTOR_v1 wanted = {.Width = 64, .Height = 32, .Depth = 8, .NumChannels = 2,
                                         .Format = CU_AD_FORMAT_HALF}, found;
    CUDA_ARRAY_DESCRIPTOR_v1 flat = {.Width = 64, .Height = 32, .NumChannels = 1,
                                     .Format = CU_AD_FORMAT_UNSIGNED_INT8}, told_flat;
    CUarray array;

    OK(cuArray3DCreate(&array, &wanted));
    OK(cuArray3DGetDescriptor(&found, array));
    SO(memcmp(&wanted, &found, sizeof(found)) == 0);
    OK(cuArrayDestroy(array));
    OK(cuArrayCreate(&array, &flat));
    OK(cuArrayGetDescriptor(&told_flat, array));
    SO(memcmp(&flat, &told_flat, sizeof(flat)) == 0);
    OK(cuArrayDestroy(array));
    IS(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(array));
    return NULL;
}

/* ---- From elsewhere ---- */

static const char *external_memory_is_taken_until_its_last_buffer_is_freed(void)
{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC wanted = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
                                               .size = 64 * MIB};
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC part = {.offset = 32 * MIB, .size = 32 * MIB};
    size_t before = available();
    CUexternalMemory memory;
    CUdeviceptr address;
    int fd = dup(1);

    wanted.handle.fd = -1;
    IS(CUDA_ERROR_INVALID_HANDLE, cuImportExternalMemory(&memory, &wanted));
    wanted.handle.fd = fd;
    OK(cuImportExternalMemory(&memory, &wanted));
    SO(dup(fd) < 0); /* it is the driver's now, which needs it no longer */
    SO(before - available() == 64 * MIB);
    OK(cuExternalMemoryGetMappedBuffer(&address, memory, &part));
    part.size = 33 * MIB;
    IS(CUDA_ERROR_INVALID_VALUE, cuExternalMemoryGetMappedBuffer(&address, memory, &part));
    OK(cuDestroyExternalMemory(memory));
    IS(CUDA_ERROR_INVALID_HANDLE, cuDestroyExternalMemory(memory));
    SO(before - available() == 64 * MIB);
    OK(cuMemFree_v2(address));
    SO(available() == before);
    return NULL;
}

static const char *exported_memory_imported_as_external_is_the_same_memory(void)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes =
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC wanted = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
                                               .size = 64 * MIB};
    CUmemGenericAllocationHandle created;
    size_t before = available();
    CUexternalMemory memory;

    OK(cuMemCreate(&created, 64 * MIB, &properties, 0));
    OK(cuMemExportToShareableHandle(&wanted.handle.fd, created,
                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuImportExternalMemory(&memory, &wanted));
    SO(before - available() == 64 * MIB);
    OK(cuMemRelease(created));
    SO(before - available() == 64 * MIB);
    OK(cuDestroyExternalMemory(memory));
    for (int i = 0; i < 1000 && available() != before; i++) /* the descriptor's share goes later */
        usleep(1000);
    SO(available() == before);
    return NULL;
}

/* ---- Amounts ---- */

static const char *a_pool_grows_in_steps_and_a_full_card_by_what_is_needed(void)
{
    CUdeviceptr first, second, rest;
    cuuint64_t reserved = 0;
    CUmemoryPool pool;
    size_t before = available();

    OK(cuDeviceGetDefaultMemPool(&pool, device));
    OK(cuMemAllocAsync(&first, 100, NULL));
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    SO(reserved == 32 * MIB && before - available() == 32 * MIB);
    OK(cuMemAlloc_v2(&rest, available() - 8 * MIB));
    OK(cuMemAllocAsync(&second, 36 * MIB, NULL));
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    SO(reserved == 38 * MIB);
    OK(cuMemFreeAsync(first, NULL));
    OK(cuMemFreeAsync(second, NULL));
    OK(cuMemFree_v2(rest));
    OK(cuCtxSynchronize());
    SO(available() == before);
    return NULL;
}

static const char *addresses_are_given_out_again(void)
{
    CUdeviceptr first, again;
    CUstream stream;

    OK(cuMemAlloc_v2(&first, 6 * MIB));
    OK(cuMemFree_v2(first));
    OK(cuMemAlloc_v2(&again, 6 * MIB));
    SO(first == again);
    OK(cuMemFree_v2(again));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocAsync(&first, 5000, stream));
    OK(cuMemFreeAsync(first, stream));
    OK(cuMemAllocAsync(&again, 5000, stream));
    SO(first == again);
    OK(cuMemFreeAsync(again, stream));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static const struct check checks[] = {
    CHECK(every_spelling_runs_itself_and_refuses_nonsense),
    CHECK(nothing_works_in_a_forked_child),
    CHECK(old_spellings_have_addresses_of_32_bits),
    CHECK(old_spellings_saturate),
    CHECK(old_arrays_are_arrays),
    CHECK(external_memory_is_taken_until_its_last_buffer_is_freed),
    CHECK(exported_memory_imported_as_external_is_the_same_memory),
    CHECK(a_pool_grows_in_steps_and_a_full_card_by_what_is_needed),
    CHECK(addresses_are_given_out_again),
};

/* `hold`: some of each kind, until the standard input ends; a test reads the ledger meanwhile. */
static const char *hold(void)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = 1024, .Height = 1024, .NumChannels = 4,
                                     .Format = CU_AD_FORMAT_FLOAT};
    CUmemGenericAllocationHandle created;
    CUdeviceptr address;
    CUarray array;
    size_t pitch;

    OK(cuMemAlloc_v2(&address, 10 * MIB));
    OK(cuMemAllocManaged(&address, 6 * MIB, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAllocPitch_v2(&address, &pitch, 600, 4096, 4)); /* 1024 * 4096 */
    OK(cuMemCreate(&created, 8 * MIB, &properties, 0));
    OK(cuArray3DCreate_v2(&array, &shape)); /* 16 MiB */
    shape.Flags = CUDA_ARRAY3D_SPARSE;
    OK(cuArray3DCreate_v2(&array, &shape));
    OK(cuMemAllocAsync(&address, 33 * MIB, NULL)); /* two steps of 32 MiB */
    printf("held\n");
    fflush(stdout);
    SO(getchar() == EOF);
    return NULL;
}

static const struct check holding[] = {CHECK(hold)};

/* `uninitialised`: before any cuInit, nothing works and nothing connects. */
int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "hold") == 0)
        return run_checks(holding, 1, argc, argv);
    if (argc == 2 && strcmp(argv[1], "uninitialised") == 0) {
        const char *answer = call_all(CUDA_ERROR_NOT_INITIALIZED);

        printf("%s - uninitialised%s%s\n", answer ? "not ok" : "ok", answer ? " # " : "",
               answer ? answer : "");
        return answer != NULL;
    }
    return run_checks(checks, sizeof(checks) / sizeof(checks[0]), argc, argv);
}
