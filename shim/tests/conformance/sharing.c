/* Memory of one process in another: by handle, by address, by pool. */
#include "other.h"

/* Larger than what a second process's context takes. */
static size_t much(void)
{
    return part_of_free(4);
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes =
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

    properties.location.id = device;
    return cuMemCreate(handle, bytes, &properties, 0);
}

static CUresult export_handle(int *fd, CUmemGenericAllocationHandle handle)
{
    return cuMemExportToShareableHandle(fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static CUresult import_handle(CUmemGenericAllocationHandle *handle, int fd)
{
    return cuMemImportFromShareableHandle(handle, (void *)(intptr_t)fd,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

static CUresult a_shared_pool(CUmemoryPool *pool)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

    properties.location.id = device;
    return cuMemPoolCreate(pool, &properties);
}

/* ---- What the other process does ---- */

static CUresult imports(struct message *message, int fd)
{
    static CUmemGenericAllocationHandle handle;
    static CUdeviceptr address;
    size_t bytes = message->size;
    CUresult result;

    if (fd < 0) {
        result = cuMemUnmap(address, bytes);
        return result == CUDA_SUCCESS ? cuMemAddressFree(address, bytes) : result;
    }
    result = import_handle(&handle, fd);
    if (result == CUDA_SUCCESS)
        result = cuMemAddressReserve(&address, bytes, 0, 0, 0);
    if (result == CUDA_SUCCESS)
        result = cuMemMap(address, bytes, 0, handle, 0);
    return result == CUDA_SUCCESS ? cuMemRelease(handle) : result;
}

static CUresult opens(struct message *message)
{
    CUdeviceptr first, second;
    CUipcMemHandle handle;
    CUresult result;

    memcpy(&handle, message->bytes, sizeof(handle));
    result = cuIpcOpenMemHandle_v2(&first, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (result == CUDA_SUCCESS)
        result = cuIpcOpenMemHandle_v2(&second, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (result == CUDA_SUCCESS && first != second)
        result = CUDA_ERROR_UNKNOWN;
    if (result == CUDA_SUCCESS && cuMemFree_v2(first) == CUDA_SUCCESS)
        result = CUDA_ERROR_UNKNOWN;
    if (result == CUDA_SUCCESS)
        result = cuIpcCloseMemHandle(first);
    if (result == CUDA_SUCCESS)
        result = cuIpcCloseMemHandle(first);
    if (result == CUDA_SUCCESS && cuIpcCloseMemHandle(first) == CUDA_SUCCESS)
        result = CUDA_ERROR_UNKNOWN;
    return result;
}

static CUresult imports_pool(struct message *message, int fd)
{
    CUmemPoolPtrExportData data;
    CUdeviceptr address;
    CUmemoryPool pool;
    CUresult result;

    memcpy(&data, message->bytes, sizeof(data));
    result = cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result == CUDA_SUCCESS &&
        cuMemAllocFromPoolAsync(&address, GRANULE, pool, NULL) == CUDA_SUCCESS)
        result = CUDA_ERROR_UNKNOWN; /* nothing new may come out of it */
    if (result == CUDA_SUCCESS)
        result = cuMemPoolImportPointer(&address, pool, &data);
    if (result == CUDA_SUCCESS)
        result = cuMemFree_v2(address);
    return result == CUDA_SUCCESS ? cuMemPoolDestroy(pool) : result;
}

static CUresult exports(struct message *message, int *fd)
{
    CUmemGenericAllocationHandle handle;
    CUresult result = create(&handle, message->size);

    return result == CUDA_SUCCESS ? export_handle(fd, handle) : result;
}

static CUresult gives(struct message *message)
{
    CUdeviceptr address;
    CUipcMemHandle handle;
    CUresult result = cuMemAlloc_v2(&address, message->size);

    if (result == CUDA_SUCCESS)
        result = cuIpcGetMemHandle(&handle, address);
    memcpy(message->bytes, &handle, sizeof(handle));
    return result;
}

static int be_the_other(const char *kind, int socket)
{
    struct message message;
    CUcontext context;
    int fd;

    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS ||
        cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS)
        return 1;
    while (receive_message(socket, &message, &fd)) {
        int answer = -1;

        if (strcmp(kind, "imports") == 0)
            message.result = imports(&message, fd);
        else if (strcmp(kind, "opens") == 0)
            message.result = opens(&message);
        else if (strcmp(kind, "imports pool") == 0)
            message.result = imports_pool(&message, fd);
        else if (strcmp(kind, "exports") == 0)
            message.result = exports(&message, &answer);
        else
            message.result = gives(&message);
        if (fd >= 0)
            close(fd);
        if (!send_message(socket, &message, answer))
            return 1;
        if (answer >= 0)
            close(answer);
    }
    return 0;
}

/* ---- By handle ---- */

static const char *imported_memory_outlives_its_exporters_handle(void)
{
    size_t bytes = much(), before = available();
    CUmemGenericAllocationHandle handle;
    struct message message = {.size = bytes};
    struct other other;
    int fd;

    SO(start_other("imports", &other));
    OK(create(&handle, bytes));
    OK(export_handle(&fd, handle));
    IS(CUDA_SUCCESS, (CUresult)ask_other(&other, &message, fd, NULL));
    SO(before - available() < 2 * bytes);
    OK(cuMemRelease(handle));
    close(fd);
    SO(before - available() >= bytes);
    IS(CUDA_SUCCESS, (CUresult)ask_other(&other, &message, -1, NULL));
    SO(comes_back(before - bytes + 1));
    end_other(&other, 0);
    SO(comes_back(before));
    return NULL;
}

static const char *imported_memory_outlives_its_exporter(void)
{
    size_t bytes = much(), before = available();
    CUmemGenericAllocationHandle handle;
    struct message message = {.size = bytes};
    struct other other;
    int fd = -1;

    SO(start_other("exports", &other));
    IS(CUDA_SUCCESS, (CUresult)ask_other(&other, &message, -1, &fd));
    SO(fd >= 0);
    OK(import_handle(&handle, fd));
    close(fd);
    end_other(&other, SIGKILL);
    SO(before - available() >= bytes && before - available() < bytes + 256 * MIB);
    OK(cuMemRelease(handle));
    SO(comes_back(before));
    return NULL;
}

static const char *a_descriptor_keeps_the_memory_it_stands_for(void)
{
    size_t bytes = much(), before = available();
    CUmemGenericAllocationHandle handle;
    int fd;

    OK(create(&handle, bytes));
    OK(export_handle(&fd, handle));
    OK(cuMemRelease(handle));
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    SO(before - available() >= bytes);
    OK(import_handle(&handle, fd));
    close(fd);
    SO(before - available() >= bytes);
    OK(cuMemRelease(handle));
    SO(comes_back(before));
    return NULL;
}

static const char *memory_that_comes_back_to_its_process_is_taken_once(void)
{
    size_t bytes = much(), before = available();
    CUmemGenericAllocationHandle handle, again;
    int fd;

    OK(create(&handle, bytes));
    OK(export_handle(&fd, handle));
    OK(import_handle(&again, fd));
    SO(before - available() < bytes + 64 * MIB);
    OK(cuMemRelease(handle));
    SO(before - available() >= bytes);
    OK(cuMemRelease(again));
    close(fd);
    SO(comes_back(before));
    return NULL;
}

static const char *memory_that_comes_back_to_its_process_is_the_same(void)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle, again;
    unsigned int word = 0xabcdef01, back = 0;
    CUdeviceptr address;
    int fd;

    access.location.id = device;
    OK(create(&handle, GRANULE));
    OK(export_handle(&fd, handle));
    OK(import_handle(&again, fd));
    close(fd);
    OK(cuMemAddressReserve(&address, 2 * GRANULE, 0, 0, 0));
    OK(cuMemMap(address, GRANULE, 0, handle, 0));
    OK(cuMemMap(address + GRANULE, GRANULE, 0, again, 0));
    OK(cuMemRelease(handle));
    OK(cuMemRelease(again));
    OK(cuMemSetAccess(address, 2 * GRANULE, &access, 1));
    OK(cuMemcpyHtoD_v2(address + 400, &word, 4));
    OK(cuMemcpyDtoH_v2(&back, address + GRANULE + 400, 4));
    SO(back == word);
    OK(cuMemUnmap(address, 2 * GRANULE));
    OK(cuMemAddressFree(address, 2 * GRANULE));
    return NULL;
}

static const char *only_what_was_made_for_it_is_exported(void)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    int fd;

    properties.location.id = device;
    OK(cuMemCreate(&handle, GRANULE, &properties, 0));
    FAILS(export_handle(&fd, handle));
    OK(cuMemRelease(handle));
    fd = dup(0);
    FAILS(import_handle(&handle, fd));
    close(fd);
    FAILS(import_handle(&handle, -1));
    return NULL;
}

/* ---- By address ---- */

static const char *a_process_opens_anothers_memory_and_not_its_own(void)
{
    struct message message = {.size = 0};
    CUdeviceptr address, opened;
    CUipcMemHandle handle;
    struct other other;

    OK(cuMemAlloc_v2(&address, 4 * GRANULE));
    OK(cuIpcGetMemHandle(&handle, address));
    FAILS(cuIpcOpenMemHandle_v2(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    memcpy(message.bytes, &handle, sizeof(handle));
    SO(start_other("opens", &other));
    IS(CUDA_SUCCESS, (CUresult)ask_other(&other, &message, -1, NULL));
    end_other(&other, 0);
    OK(cuMemFree_v2(address));
    FAILS(cuIpcGetMemHandle(&handle, address));
    FAILS(cuIpcCloseMemHandle(address));
    return NULL;
}

static const char *opened_memory_outlives_its_process(void)
{
    size_t bytes = much(), before = available();
    struct message message = {.size = bytes};
    CUipcMemHandle handle;
    CUdeviceptr address;
    struct other other;

    SO(start_other("gives", &other));
    IS(CUDA_SUCCESS, (CUresult)ask_other(&other, &message, -1, NULL));
    memcpy(&handle, message.bytes, sizeof(handle));
    IS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&address, handle, 0));
    OK(cuIpcOpenMemHandle_v2(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    end_other(&other, SIGKILL);
    SO(before - available() >= bytes);
    OK(cuIpcCloseMemHandle(address));
    SO(comes_back(before));
    return NULL;
}

/* ---- By pool ---- */

static const char *a_pools_allocation_is_used_by_another_process(void)
{
    struct message message = {.size = 0};
    CUmemPoolPtrExportData data;
    CUdeviceptr address;
    struct other other;
    CUmemoryPool pool;
    int fd;

    if (!(attribute(CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES) &
          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return SKIP("pools are not shared");
    OK(a_shared_pool(&pool));
    OK(cuMemAllocFromPoolAsync(&address, 4 * GRANULE, pool, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemPoolExportPointer(&data, address));
    memcpy(message.bytes, &data, sizeof(data));
    SO(start_other("imports pool", &other));
    IS(CUDA_SUCCESS, (CUresult)ask_other(&other, &message, fd, NULL));
    end_other(&other, 0);
    close(fd);
    OK(cuMemFreeAsync(address, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemPoolDestroy(pool));
    return NULL;
}

static const char *a_pool_for_itself_is_not_exported(void)
{
    CUmemPoolPtrExportData data;
    CUdeviceptr address;
    CUmemoryPool pool;
    int fd;

    OK(cuDeviceGetDefaultMemPool(&pool, device));
    FAILS(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemAllocAsync(&address, 4096, NULL));
    FAILS(cuMemPoolExportPointer(&data, address));
    OK(cuMemFreeAsync(address, NULL));
    OK(cuCtxSynchronize());
    return NULL;
}

static const struct check checks[] = {
    CHECK(imported_memory_outlives_its_exporters_handle),
    CHECK(imported_memory_outlives_its_exporter),
    CHECK(a_descriptor_keeps_the_memory_it_stands_for),
    CHECK(memory_that_comes_back_to_its_process_is_taken_once),
    CHECK(memory_that_comes_back_to_its_process_is_the_same),
    CHECK(only_what_was_made_for_it_is_exported),
    CHECK(a_process_opens_anothers_memory_and_not_its_own),
    CHECK(opened_memory_outlives_its_process),
    CHECK(a_pools_allocation_is_used_by_another_process),
    CHECK(a_pool_for_itself_is_not_exported),
};

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--other") == 0)
        return be_the_other(argv[2], atoi(argv[3]));
    return run_checks(checks, sizeof(checks) / sizeof(checks[0]), argc, argv);
}
