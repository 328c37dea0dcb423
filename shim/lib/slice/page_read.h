/* How a process reads its limits page: never waits, never takes a mixture, never goes back. */
#ifndef HAMI_PAGE_READ_H
#define HAMI_PAGE_READ_H

#include <stdbool.h>
#include <string.h>

#include "hami_slice.h"

/* A mixture needs an agent that writes twice while 200 words are copied; so many times in a row
 * only a broken page does. */
#define HAMI_PAGE_TRIES 16

enum hami_page_result {
    HAMI_PAGE_SAME,  /* nothing newer than what the caller has */
    HAMI_PAGE_NEWER, /* the caller's copy was replaced */
    HAMI_PAGE_TORN,  /* no whole copy could be had: the caller keeps what it has */
};

/* 64-bit FNV-1a over words, with a shift so that high bits reach low ones. */
static inline uint64_t hami_limits_sum(const union hami_limits_copy *copy)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < HAMI_LIMITS_WORDS; i++) {
        if (i == HAMI_LIMITS_SUM_WORD)
            continue;
        sum = (sum ^ copy->words[i]) * UINT64_C(0x100000001b3);
        sum ^= sum >> 32;
    }
    return sum;
}

/* Whether a file of `file_size` bytes, mapped at `page`, is a limits page that this code can read. */
static inline bool hami_page_check(const struct hami_limits_page *page, size_t file_size)
{
    return file_size >= sizeof(*page) && page->magic == HAMI_LIMITS_MAGIC &&
           page->abi == HAMI_LIMITS_ABI && page->size == sizeof(*page) &&
           page->copy_size == sizeof(struct hami_limits) &&
           page->device_capacity == HAMI_MAX_DEVICES && page->slot_capacity == HAMI_MAX_SLOTS &&
           page->observed_offset == offsetof(struct hami_limits_page, observed);
}

/* Whether a copy is one that an agent wrote as a whole, and every field is in its range. */
static inline bool hami_limits_check(const union hami_limits_copy *copy)
{
    const struct hami_limits *limits = &copy->content;

    if (limits->checksum != hami_limits_sum(copy) || limits->device_count > HAMI_MAX_DEVICES ||
        limits->policy > HAMI_POLICY_DISABLE)
        return false;
    for (uint32_t i = 0; i < limits->device_count; i++)
        if (limits->devices[i].cores > 100 || limits->devices[i].cores_limit > 100 ||
            !memchr(limits->devices[i].uuid, 0, HAMI_UUID_SIZE))
            return false;
    return true;
}

/* Replace `last` by the copy in use if that is whole and newer; `last` is all zero when there is
 * none yet (a page's first revision is 1). The acquire load of the index pairs with the order in
 * which the agent writes: the copy, then the index. */
static inline enum hami_page_result hami_page_read(const struct hami_limits_page *page,
                                                   union hami_limits_copy *last)
{
    union hami_limits_copy found;

    for (int i = 0; i < HAMI_PAGE_TRIES; i++) {
        uint8_t index = atomic_load_explicit(&page->index, memory_order_acquire);
        const union hami_limits_copy *used = &page->copies[index & 1];

        for (size_t word = 0; word < HAMI_LIMITS_WORDS; word++)
            found.words[word] = __atomic_load_n(&used->words[word], __ATOMIC_RELAXED);
        if (!hami_limits_check(&found))
            continue;
        if (found.content.revision <= last->content.revision)
            return HAMI_PAGE_SAME;
        *last = found;
        return HAMI_PAGE_NEWER;
    }
    return HAMI_PAGE_TORN;
}

#endif
