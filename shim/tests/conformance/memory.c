/* Linear, managed and host memory, and what the driver says about it. */
#include "check.h"

/* ---- Taking and giving back ---- */

static const char *an_allocation_is_taken_from_the_card_and_given_back(void)
{
    size_t before = available(), bytes = part_of_free(8);
    CUdeviceptr address;

    OK(cuMemAlloc_v2(&address, bytes));
    SO(available() + bytes <= before);
    SO(available() + bytes + 64 * MIB >= before);
    OK(cuMemFree_v2(address));
    SO(available() == before);
    return NULL;
}

static const char *an_allocation_needs_a_context(void)
{
    CUdeviceptr address;

    OK(cuCtxSetCurrent(NULL));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&address, 1));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuMemFree_v2(0x10000));
    return NULL;
}

static const char *an_allocation_of_nothing_is_invalid(void)
{
    CUdeviceptr address;
    size_t pitch;

    IS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&address, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(NULL, 1));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&address, 0, CU_MEM_ATTACH_GLOBAL));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch_v2(&address, &pitch, 0, 4, 4));
    return NULL;
}

static const char *what_the_card_has_not_is_out_of_memory_and_leaves_all_as_it_was(void)
{
    size_t before = available(), total;
    CUdeviceptr address = 42;

    OK(cuDeviceTotalMem_v2(&total, device));
    IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&address, total + GRANULE));
    IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&address, before + 64 * MIB));
    SO(available() == before);
    return NULL;
}

static const char *small_allocations_share_what_they_take(void)
{
    CUdeviceptr address[1000];
    size_t before = available();

    for (size_t i = 0; i < 1000; i++)
        OK(cuMemAlloc_v2(&address[i], 1000));
    SO(before - available() <= 16 * MIB);
    for (size_t i = 0; i < 1000; i++)
        OK(cuMemFree_v2(address[i]));
    return NULL;
}

static const char *allocations_do_not_overlap_and_are_aligned(void)
{
    static const size_t sizes[] = {1, 255, 4096, 100000, 1048576, 1048577, 3000000};
    CUdeviceptr address[7];

    for (size_t i = 0; i < 7; i++) {
        OK(cuMemAlloc_v2(&address[i], sizes[i]));
        SO(address[i] % 256 == 0);
        for (size_t j = 0; j < i; j++)
            SO(address[j] + sizes[j] <= address[i] || address[i] + sizes[i] <= address[j]);
    }
    for (size_t i = 0; i < 7; i++)
        OK(cuMemFree_v2(address[i]));
    return NULL;
}

static const char *only_the_start_of_a_live_allocation_can_be_freed(void)
{
    CUdeviceptr address;

    OK(cuMemAlloc_v2(&address, GRANULE));
    FAILS(cuMemFree_v2(address + 256));
    OK(cuMemFree_v2(address));
    FAILS(cuMemFree_v2(address));
    return NULL;
}

static const char *a_full_card_is_empty_again_after_freeing(void)
{
    size_t before = available(), bytes = part_of_free(10), count = 0;
    CUdeviceptr address[64];

    while (count < 64 && cuMemAlloc_v2(&address[count], bytes) == CUDA_SUCCESS)
        count++;
    SO(count >= 8 && count <= 10);
    while (count > 0)
        OK(cuMemFree_v2(address[--count]));
    SO(available() == before);
    return NULL;
}

static const char *a_pitch_is_wide_and_aligned_enough(void)
{
    size_t before = available(), pitch = 0, rows = 2000;
    size_t alignment = (size_t)attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT);
    CUdeviceptr address;

    OK(cuMemAllocPitch_v2(&address, &pitch, 5001, rows, 4));
    SO(pitch >= 5001 && alignment && pitch % alignment == 0);
    SO(before - available() >= pitch * rows);
    OK(cuMemFree_v2(address));
    SO(available() == before);
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch_v2(&address, &pitch, 100, 4, 3));
    return NULL;
}

static const char *managed_memory_is_the_hosts_too(void)
{
    CUdeviceptr address;
    unsigned int *words, back[4];

    if (!attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY))
        return SKIP("no managed memory");
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&address, 4096, 0));
    OK(cuMemAllocManaged(&address, 4096, CU_MEM_ATTACH_GLOBAL));
    words = (unsigned int *)(uintptr_t)address;
    OK(cuMemsetD32_v2(address, 0x01020304, 4));
    OK(cuCtxSynchronize());
    SO(words[3] == 0x01020304);
    words[1] = 7;
    OK(cuMemcpyDtoH_v2(back, address, sizeof(back)));
    SO(back[0] == 0x01020304 && back[1] == 7);
    OK(cuMemFree_v2(address));
    return NULL;
}

static const char *a_context_takes_its_memory_with_it(void)
{
    size_t before = available(), bytes = part_of_free(8);
    CUdeviceptr address, other;
    CUcontext context;

    OK(cuMemAlloc_v2(&other, GRANULE));
    OK(cuCtxCreate_v2(&context, 0, device));
    OK(cuMemAlloc_v2(&address, bytes));
    OK(cuCtxDestroy_v2(context));
    OK(cuCtxSetCurrent(primary));
    SO(available() + GRANULE <= before && available() + bytes > before);
    FAILS(cuMemFree_v2(address));
    OK(cuMemFree_v2(other));
    return NULL;
}

/* ---- What is said about it ---- */

static const char *amounts_need_somewhere_to_go_and_a_context(void)
{
    size_t free_now, total, whole;

    OK(cuMemGetInfo_v2(&free_now, &total));
    OK(cuDeviceTotalMem_v2(&whole, device));
    SO(free_now > 0 && free_now < total);
    SO(total <= whole + 1024 * MIB && whole <= total + 1024 * MIB);
    FAILS(cuDeviceTotalMem_v2(NULL, device));
    IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceTotalMem_v2(&whole, 1000));
    OK(cuCtxSetCurrent(NULL));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuMemGetInfo_v2(&free_now, &total));
    return NULL;
}

static const char *any_address_inside_tells_its_allocation(void)
{
    CUdeviceptr address, base;
    size_t size;

    OK(cuMemAlloc_v2(&address, 5 * MIB));
    OK(cuMemGetAddressRange_v2(&base, &size, address + 4 * MIB));
    SO(base == address && size >= 5 * MIB);
    OK(cuMemGetAddressRange_v2(NULL, NULL, address));
    OK(cuMemFree_v2(address));
    FAILS(cuMemGetAddressRange_v2(&base, &size, address + 4 * MIB));
    return NULL;
}

static const char *a_pointer_tells_what_it_points_to(void)
{
    unsigned int type = 0, managed = 1;
    unsigned long long first = 0, second = 0;
    CUdeviceptr address, again = 0;
    CUcontext context = NULL;
    int ordinal = -1;
    void *host;

    OK(cuMemAlloc_v2(&address, 4096));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 100));
    OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
    OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address));
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    OK(cuPointerGetAttribute(&again, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address + 100));
    OK(cuPointerGetAttribute(&first, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
    SO(type == CU_MEMORYTYPE_DEVICE && !managed && context == primary && ordinal == device);
    SO(again == address + 100);
    IS(CUDA_ERROR_INVALID_VALUE,
       cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address));
    OK(cuMemFree_v2(address));
    IS(CUDA_ERROR_INVALID_VALUE,
       cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    OK(cuMemAlloc_v2(&address, 4096));
    OK(cuPointerGetAttribute(&second, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
    SO(first != second);
    OK(cuMemFree_v2(address));
    OK(cuMemAllocHost_v2(&host, 4096));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                             (CUdeviceptr)(uintptr_t)host));
    SO(type == CU_MEMORYTYPE_HOST);
    OK(cuMemFreeHost(host));
    return NULL;
}

static const char *many_attributes_of_a_foreign_pointer_are_zero_and_no_error(void)
{
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_CONTEXT};
    unsigned int type = 77;
    CUcontext context = primary;
    void *answers[] = {&type, &context};

    OK(cuPointerGetAttributes(2, asked, answers, (CUdeviceptr)(uintptr_t)&type));
    SO(type == 0 && context == NULL);
    return NULL;
}

/* ---- Bytes ---- */

static const char *what_is_copied_in_comes_out(void)
{
    unsigned char in[1000], out[1000];
    CUdeviceptr address, other;

    for (size_t i = 0; i < sizeof(in); i++)
        in[i] = (unsigned char)(i * 7);
    OK(cuMemAlloc_v2(&address, 4096));
    OK(cuMemAlloc_v2(&other, 4096));
    OK(cuMemcpyHtoD_v2(address + 96, in, sizeof(in)));
    OK(cuMemcpyDtoD_v2(other, address + 96, sizeof(in)));
    memset(out, 0, sizeof(out));
    OK(cuMemcpyDtoH_v2(out, other, sizeof(out)));
    SO(memcmp(in, out, sizeof(in)) == 0);
    memset(out, 0, sizeof(out));
    OK(cuMemcpy((CUdeviceptr)(uintptr_t)out, address + 96, sizeof(out)));
    SO(memcmp(in, out, sizeof(in)) == 0);
    OK(cuMemsetD8_v2(address + 100, 0xee, 10));
    OK(cuMemcpyDtoH_v2(out, address + 96, sizeof(out)));
    SO(out[3] == in[3] && out[4] == 0xee && out[13] == 0xee && out[14] == in[14]);
    OK(cuMemFree_v2(address));
    OK(cuMemFree_v2(other));
    return NULL;
}

static const char *asynchronous_copies_are_done_when_the_stream_is(void)
{
    unsigned int *host, back[8];
    CUdeviceptr address;
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocHost_v2((void **)&host, 4096));
    OK(cuMemAlloc_v2(&address, 4096));
    for (unsigned int i = 0; i < 8; i++)
        host[i] = i * 3;
    OK(cuMemcpyHtoDAsync_v2(address, host, 32, stream));
    OK(cuMemsetD32Async(address + 8, 99, 2, stream));
    OK(cuMemcpyDtoHAsync_v2(host + 100, address, 32, stream));
    OK(cuStreamSynchronize(stream));
    SO(host[101] == 3 && host[102] == 99 && host[103] == 99 && host[104] == 12);
    OK(cuMemcpyDtoH_v2(back, address, 32));
    SO(memcmp(back, host + 100, 32) == 0);
    OK(cuMemFree_v2(address));
    OK(cuMemFreeHost(host));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static const char *copies_beyond_an_allocation_are_invalid(void)
{
    static char buffer[8 * 1048576];
    CUdeviceptr address;

    OK(cuMemAlloc_v2(&address, 4 * MIB));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(address, buffer, 8 * MIB));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(buffer, address + 2 * MIB, 4 * MIB));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(address, 0, 8 * MIB));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(address + 1, 0, 1));
    OK(cuMemcpyHtoD_v2(address, buffer, 0));
    FAILS(cuMemcpyHtoD_v2((CUdeviceptr)(uintptr_t)buffer, buffer + 4096, 100));
    OK(cuMemFree_v2(address));
    FAILS(cuMemcpyHtoD_v2(address, buffer, 100));
    return NULL;
}

/* ---- Of the host ---- */

static const char *host_memory_is_page_locked_until_it_is_freed(void)
{
    size_t before = available();
    CUdeviceptr address;
    void *host;

    OK(cuMemAllocHost_v2(&host, 64 * MIB));
    memset(host, 1, 64 * MIB);
    SO(before - available() < 16 * MIB);
    OK(cuMemHostGetDevicePointer_v2(&address, host, 0));
    OK(cuMemFreeHost(host));
    FAILS(cuMemFreeHost(host));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc(&host, 0, 0));
    return NULL;
}

static const char *memory_is_registered_once_at_a_time(void)
{
    char *host = aligned_alloc(4096, 1048576);

    SO(host);
    memset(host, 0, 1048576);
    OK(cuMemHostRegister_v2(host, 1048576, 0));
    IS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(host, 1048576, 0));
    OK(cuMemHostUnregister(host));
    IS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(host));
    free(host);
    return NULL;
}

/* ---- In a capture ---- */

static const char *an_allocation_breaks_a_global_capture(void)
{
    CUdeviceptr address;
    CUstream stream;
    CUgraph graph = NULL;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc_v2(&address, 4096));
    IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
    SO(graph == NULL);
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemAlloc_v2(&address, 4096));
    OK(cuMemFree_v2(address));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static const struct check checks[] = {
    CHECK(an_allocation_is_taken_from_the_card_and_given_back),
    CHECK(an_allocation_needs_a_context),
    CHECK(an_allocation_of_nothing_is_invalid),
    CHECK(what_the_card_has_not_is_out_of_memory_and_leaves_all_as_it_was),
    CHECK(small_allocations_share_what_they_take),
    CHECK(allocations_do_not_overlap_and_are_aligned),
    CHECK(only_the_start_of_a_live_allocation_can_be_freed),
    CHECK(a_full_card_is_empty_again_after_freeing),
    CHECK(a_pitch_is_wide_and_aligned_enough),
    CHECK(managed_memory_is_the_hosts_too),
    CHECK(a_context_takes_its_memory_with_it),
    CHECK(amounts_need_somewhere_to_go_and_a_context),
    CHECK(any_address_inside_tells_its_allocation),
    CHECK(a_pointer_tells_what_it_points_to),
    CHECK(many_attributes_of_a_foreign_pointer_are_zero_and_no_error),
    CHECK(what_is_copied_in_comes_out),
    CHECK(asynchronous_copies_are_done_when_the_stream_is),
    CHECK(copies_beyond_an_allocation_are_invalid),
    CHECK(host_memory_is_page_locked_until_it_is_freed),
    CHECK(memory_is_registered_once_at_a_time),
    CHECK(an_allocation_breaks_a_global_capture),
};

CONFORMANCE(checks)
