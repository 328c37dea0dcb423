/* A page as the node agent would write it, for tests: everything follows from the revision. */
#ifndef HAMI_TESTS_SAMPLE_H
#define HAMI_TESTS_SAMPLE_H

#include <stdio.h>

#include "slice/page_read.h"

static inline void sample_fill(union hami_limits_copy *copy, uint64_t revision, uint32_t devices)
{
    struct hami_limits *limits = &copy->content;

    memset(copy, 0, sizeof(*copy));
    limits->revision = revision;
    limits->generation = revision * 2;
    limits->device_count = devices;
    limits->priority = (uint32_t)(revision % 2);
    limits->policy = (uint32_t)(revision % 3);
    for (uint32_t i = 0; i < devices; i++) {
        struct hami_device_limit *device = &limits->devices[i];

        snprintf(device->uuid, sizeof(device->uuid), "GPU-%llu-%u", (unsigned long long)revision, i);
        device->memory_bytes = revision * 1000 + i;
        device->context_reserve_bytes = revision * 7 + i;
        device->cores = (uint32_t)((revision + i) % 101);
    }
    limits->checksum = hami_limits_sum(copy);
}

/* A page whose copy 0 is in use and says `revision`. */
static inline void sample_page(struct hami_limits_page *page, uint64_t revision, uint32_t devices)
{
    memset(page, 0, sizeof(*page));
    page->magic = HAMI_LIMITS_MAGIC;
    page->abi = HAMI_LIMITS_ABI;
    page->size = sizeof(*page);
    page->copy_size = sizeof(struct hami_limits);
    page->device_capacity = HAMI_MAX_DEVICES;
    page->slot_capacity = HAMI_MAX_SLOTS;
    page->observed_offset = offsetof(struct hami_limits_page, observed);
    sample_fill(&page->copies[0], revision, devices);
}

/* Whether a copy is what sample_fill makes of its revision: not a word of another one. */
static inline bool sample_is_whole(const union hami_limits_copy *copy)
{
    union hami_limits_copy expected;

    sample_fill(&expected, copy->content.revision, copy->content.device_count);
    return memcmp(&expected, copy, sizeof(expected)) == 0;
}

#endif
