/* layout: every field of hami_slice.h as "struct.field offset size", every constant as "NAME value".
 * layout page REVISION DEVICES: a sample page, as bytes. */
#include <stdlib.h>

#include "sample.h"

#define FIELD(type, field)                                                                         \
    printf("%s.%s %zu %zu\n", #type, #field, offsetof(struct type, field),                         \
           sizeof(((struct type *)0)->field))
#define SIZE(type) printf("%s - %zu\n", #type, sizeof(struct type))
#define CONSTANT(name) printf("%s %llu\n", #name, (unsigned long long)(name))

static void print_limits(void)
{
    FIELD(hami_device_limit, uuid);
    FIELD(hami_device_limit, memory_bytes);
    FIELD(hami_device_limit, context_reserve_bytes);
    FIELD(hami_device_limit, cores);
    FIELD(hami_device_limit, cores_limit);
    FIELD(hami_device_limit, reserved);
    SIZE(hami_device_limit);
    FIELD(hami_limits, revision);
    FIELD(hami_limits, checksum);
    FIELD(hami_limits, generation);
    FIELD(hami_limits, device_count);
    FIELD(hami_limits, priority);
    FIELD(hami_limits, policy);
    FIELD(hami_limits, reserved);
    FIELD(hami_limits, devices);
    SIZE(hami_limits);
    FIELD(hami_observed_device, utilisation);
    FIELD(hami_observed_device, contention);
    SIZE(hami_observed_device);
    FIELD(hami_observed, heartbeat);
    FIELD(hami_observed, share);
    FIELD(hami_observed, share_revision);
    FIELD(hami_observed, reserved);
    FIELD(hami_observed, devices);
    FIELD(hami_observed, slot_generation);
    FIELD(hami_observed, bytes);
    SIZE(hami_observed);
    FIELD(hami_limits_page, magic);
    FIELD(hami_limits_page, abi);
    FIELD(hami_limits_page, size);
    FIELD(hami_limits_page, copy_size);
    FIELD(hami_limits_page, device_capacity);
    FIELD(hami_limits_page, slot_capacity);
    FIELD(hami_limits_page, observed_offset);
    FIELD(hami_limits_page, index);
    FIELD(hami_limits_page, reserved);
    FIELD(hami_limits_page, copies);
    FIELD(hami_limits_page, padding);
    FIELD(hami_limits_page, observed);
    FIELD(hami_limits_page, tail);
    SIZE(hami_limits_page);
}

static void print_usage(void)
{
    FIELD(hami_slot, pid);
    FIELD(hami_slot, flags);
    FIELD(hami_slot, start_time);
    FIELD(hami_slot, pid_namespace);
    FIELD(hami_slot, generation);
    FIELD(hami_slot, found_dead_at);
    FIELD(hami_slot, reserved);
    SIZE(hami_slot);
    FIELD(hami_bucket, level);
    FIELD(hami_bucket, refilled_at);
    FIELD(hami_bucket, charged);
    FIELD(hami_bucket, observed);
    FIELD(hami_bucket, correction);
    FIELD(hami_bucket, settled);
    FIELD(hami_bucket, waited);
    FIELD(hami_bucket, reserved);
    SIZE(hami_bucket);
    FIELD(hami_usage, magic);
    FIELD(hami_usage, abi);
    FIELD(hami_usage, size);
    FIELD(hami_usage, device_capacity);
    FIELD(hami_usage, slot_capacity);
    FIELD(hami_usage, slots_offset);
    FIELD(hami_usage, charged_offset);
    FIELD(hami_usage, buckets_offset);
    FIELD(hami_usage, reserved);
    FIELD(hami_usage, slots);
    FIELD(hami_usage, charged);
    FIELD(hami_usage, buckets);
    FIELD(hami_usage, tail);
    SIZE(hami_usage);
}

static void print_constants(void)
{
    CONSTANT(HAMI_LIMITS_MAGIC);
    CONSTANT(HAMI_LIMITS_ABI);
    CONSTANT(HAMI_LIMITS_SUM_WORD);
    CONSTANT(HAMI_USAGE_MAGIC);
    CONSTANT(HAMI_USAGE_ABI);
    CONSTANT(HAMI_MAX_DEVICES);
    CONSTANT(HAMI_MAX_SLOTS);
    CONSTANT(HAMI_UUID_SIZE);
    CONSTANT(HAMI_POLICY_DEFAULT);
    CONSTANT(HAMI_POLICY_FORCE);
    CONSTANT(HAMI_POLICY_DISABLE);
    CONSTANT(HAMI_SLOT_BYPASS);
    CONSTANT(HAMI_SLOT_EXPORTS);
    CONSTANT(HAMI_SLOT_IMPORTS);
}

int main(int count, char **arguments)
{
    static struct hami_limits_page page;

    if (count == 4 && strcmp(arguments[1], "page") == 0) {
        sample_page(&page, strtoull(arguments[2], NULL, 10),
                    (uint32_t)strtoul(arguments[3], NULL, 10));
        return fwrite(&page, sizeof(page), 1, stdout) == 1 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    print_limits();
    print_usage();
    print_constants();
    return EXIT_SUCCESS;
}
