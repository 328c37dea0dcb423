/* Any bytes in the place of a limits page are taken as limits in range or refused. links: lib/slice/devices.c lib/slice/env.c lib/base/log.c */
#include "driver/real.h"
#include "fuzz.h"
#include "sample.h"
#include "slice/devices.h"
#include "slice/slice.h"

const struct hami_real *_Atomic hami_real_found;
const struct hami_real_nvml *_Atomic hami_real_nvml_found;

const struct hami_real *hami_real_load(void)
{
    abort();
}

const struct hami_real_nvml *hami_real_load_nvml(void)
{
    abort();
}

bool hami_real_has(const char *name)
{
    (void)name;
    return false;
}

static unsigned taken, refused;

/* The input is the head of a page and its first copy, all that is read of a page whose index is 0,
 * and one byte that says whether the sum is set right: else no change would ever get past it. */
#define READ (offsetof(struct hami_limits_page, copies) + sizeof(union hami_limits_copy))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct hami_limits_page page;
    union hami_limits_copy copy;

    memset(&page, 0, sizeof(page));
    memcpy(&page, data, size < READ ? size : READ);
    memset(&copy, 0, sizeof(copy));
    if (size && data[size - 1] & 1)
        page.copies[0].content.checksum = hami_limits_sum(&page.copies[0]);
    if (!hami_page_check(&page, size < READ ? size : sizeof(page)) ||
        hami_page_read(&page, &copy) != HAMI_PAGE_NEWER) {
        refused++;
        return 0;
    }
    taken++;
    MUST(copy.content.revision > 0 && copy.content.device_count <= HAMI_MAX_DEVICES);
    MUST(copy.content.policy <= HAMI_POLICY_DISABLE);
    hami_devices_as_rows(&copy.content);
    MUST(hami_row_count() == (int)copy.content.device_count);
    for (uint32_t i = 0; i < copy.content.device_count; i++) {
        const struct hami_device_limit *device = &copy.content.devices[i];
        int row = hami_row_of_uuid(device->uuid);

        MUST(device->cores <= 100 && device->cores_limit <= 100);
        MUST(row >= HAMI_ROW_NONE && row <= (int)i);
        MUST(!device->uuid[0] || row != HAMI_ROW_NONE);
    }
    return 0;
}

#ifndef HAMI_LIBFUZZER
int main(void)
{
    static uint8_t inputs[3][READ + 1];
    static const uint32_t devices[] = {1, 2, 16};
    struct fuzz_seed seeds[3];
    int result;

    for (int i = 0; i < 3; i++) {
        static struct hami_limits_page page;
        struct hami_limits *limits = &page.copies[0].content;

        sample_page(&page, (uint64_t)i + 1, devices[i]);
        snprintf(limits->devices[0].uuid, HAMI_UUID_SIZE, "GPU-01234567-89ab-cdef-8000-%012d", i);
        limits->checksum = hami_limits_sum(&page.copies[0]);
        memcpy(inputs[i], &page, READ);
        inputs[i][READ] = 1;
        seeds[i] = (struct fuzz_seed){inputs[i], sizeof(inputs[i])};
    }
    result = fuzz(seeds, 3, READ + 64, 200000);
    /* Both ways are gone often, or this says nothing. */
    MUST(taken > 10000 && refused > 10000);
    return result;
}
#endif
