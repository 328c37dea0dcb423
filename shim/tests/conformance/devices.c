/* The driver, its functions by name and version, and devices. */
#include "check.h"

/* ---- Errors and the driver ---- */

static const char *results_have_names_and_descriptions(void)
{
    const char *text = NULL;

    OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
    SO(strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
    OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    SO(strcmp(text, "out of memory") == 0);
    IS(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)12345, &text));
    SO(text == NULL);
    return NULL;
}

static const char *init_takes_no_flags_and_may_be_called_again(void)
{
    IS(CUDA_ERROR_INVALID_VALUE, cuInit(1));
    OK(cuInit(0));
    return NULL;
}

static const char *the_driver_has_a_version(void)
{
    int version = 0;

    OK(cuDriverGetVersion(&version));
    SO(version >= 11000 && version % 10 == 0);
    IS(CUDA_ERROR_INVALID_VALUE, cuDriverGetVersion(NULL));
    return NULL;
}

/* ---- cuGetProcAddress ---- */

static const char *an_address_depends_on_the_version_asked_for(void)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    void *old = NULL, *new = NULL, *stream = NULL;

    OK(cuGetProcAddress_v2("cuMemAlloc", &old, 2000, 0, &status));
    SO(status == CU_GET_PROC_ADDRESS_SUCCESS && old != NULL);
    OK(cuGetProcAddress_v2("cuMemAlloc", &new, 12000, 0, &status));
    SO(new != NULL && new != old);
    OK(cuGetProcAddress_v2("cuLaunchKernel", &old, 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                           &status));
    OK(cuGetProcAddress_v2("cuLaunchKernel", &stream, 12000,
                           CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
    SO(old != NULL && stream != NULL && old != stream);
    OK(cuGetProcAddress_v2("cuLaunchKernel", &stream, 12000, 0, NULL));
    SO(stream == old);
    return NULL;
}

static const char *a_name_without_per_thread_form_has_one_address(void)
{
    void *one = NULL, *other = NULL;

    OK(cuGetProcAddress_v2("cuMemAlloc", &one, 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, NULL));
    OK(cuGetProcAddress_v2("cuMemAlloc", &other, 12000,
                           CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
    SO(one == other && one != NULL);
    return NULL;
}

static const char *an_address_says_why_it_is_not_there(void)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    void *address = &status;

    (void)cuGetProcAddress_v2("cuNoSuchFunction", &address, 12000, 0, &status);
    SO(address == NULL && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    address = &status;
    (void)cuGetProcAddress_v2("cuMemCreate", &address, 10000, 0, &status);
    SO(address == NULL && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    IS(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2(NULL, &address, 12000, 0, NULL));
    IS(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2("cuInit", NULL, 12000, 0, NULL));
    return NULL;
}

/* ---- Devices ---- */

static const char *ordinals_go_from_zero_to_the_count(void)
{
    CUdevice found = -1;
    int count = 0;

    OK(cuDeviceGetCount(&count));
    SO(count >= 1);
    OK(cuDeviceGet(&found, count - 1));
    IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&found, count));
    IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&found, -1));
    IS(CUDA_ERROR_INVALID_VALUE, cuDeviceGet(NULL, 0));
    return NULL;
}

static const char *a_device_is_found_by_its_bus_id(void)
{
    char id[32], name[8];
    CUdevice found = -1;

    OK(cuDeviceGetPCIBusId(id, sizeof(id), device));
    SO(strlen(id) == 12);
    OK(cuDeviceGetByPCIBusId(&found, id));
    SO(found == device);
    OK(cuDeviceGetByPCIBusId(&found, id + 5));
    FAILS(cuDeviceGetByPCIBusId(&found, "ffff:ff:1f.0"));
    OK(cuDeviceGetName(name, sizeof(name), device));
    SO(strlen(name) <= 7);
    return NULL;
}

static const char *a_device_describes_itself(void)
{
    CUuuid one, two;
    int value = 0;

    OK(cuDeviceGetUuid_v2(&one, device));
    OK(cuDeviceGetUuid(&two, device));
    SO(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) > 0);
    SO(attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE) == 32);
    SO(attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK) == 1024);
    SO(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) >= 6);
    SO(attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING) == 1);
    IS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&value, (CUdevice_attribute)9999, device));
    IS(CUDA_ERROR_INVALID_DEVICE,
       cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 99));
    return NULL;
}

static const struct check checks[] = {
    CHECK(results_have_names_and_descriptions),
    CHECK(init_takes_no_flags_and_may_be_called_again),
    CHECK(the_driver_has_a_version),
    CHECK(an_address_depends_on_the_version_asked_for),
    CHECK(a_name_without_per_thread_form_has_one_address),
    CHECK(an_address_says_why_it_is_not_there),
    CHECK(ordinals_go_from_zero_to_the_count),
    CHECK(a_device_is_found_by_its_bus_id),
    CHECK(a_device_describes_itself),
};

CONFORMANCE(checks)
