/* What a reader of the limits page takes and what it leaves. */
#include <stdlib.h>

#include "expect.h"
#include "sample.h"
#include "slice/slice.h"

static struct hami_limits_page page;
static union hami_limits_copy last;

static void start(uint64_t revision)
{
    sample_page(&page, revision, 3);
    memset(&last, 0, sizeof(last));
}

static void flip_to(uint64_t revision)
{
    uint8_t idle = !atomic_load(&page.index);

    sample_fill(&page.copies[idle], revision, 3);
    atomic_store_explicit(&page.index, idle, memory_order_release);
}

static void a_reader_follows_the_flips(void)
{
    start(1);
    EXPECT(hami_page_check(&page, sizeof(page)));
    EXPECT(hami_page_read(&page, &last) == HAMI_PAGE_NEWER);
    EXPECT(last.content.revision == 1 && sample_is_whole(&last));
    EXPECT(hami_page_read(&page, &last) == HAMI_PAGE_SAME);
    for (uint64_t revision = 2; revision < 6; revision++) {
        flip_to(revision);
        EXPECT(hami_page_revision(&page) == revision);
        EXPECT(hami_page_read(&page, &last) == HAMI_PAGE_NEWER);
        EXPECT(last.content.revision == revision && sample_is_whole(&last));
    }
}

static void a_half_filled_idle_copy_is_nothing_to_a_reader(void)
{
    start(4);
    EXPECT(hami_page_read(&page, &last) == HAMI_PAGE_NEWER);
    memset(&page.copies[1], 0xff, sizeof(page.copies[1]) / 2);
    EXPECT(hami_page_revision(&page) == 4);
    EXPECT(hami_page_read(&page, &last) == HAMI_PAGE_SAME);
    EXPECT(last.content.revision == 4);
}

static void a_mixture_is_never_taken(void)
{
    union hami_limits_copy newer;

    sample_fill(&newer, 6, 3);
    for (size_t words = 0; words <= HAMI_LIMITS_WORDS; words++) {
        bool touched = false;

        start(5);
        EXPECT(hami_page_read(&page, &last) == HAMI_PAGE_NEWER);
        for (size_t i = 0; i < words; i++) {
            touched = touched || page.copies[0].words[i] != newer.words[i];
            page.copies[0].words[i] = newer.words[i];
        }
        switch (hami_page_read(&page, &last)) {
        case HAMI_PAGE_SAME:
            EXPECT(!touched);
            break;
        case HAMI_PAGE_NEWER:
            EXPECT(memcmp(&page.copies[0], &newer, sizeof(newer)) == 0);
            break;
        case HAMI_PAGE_TORN:
            EXPECT(last.content.revision == 5 && sample_is_whole(&last));
            break;
        }
    }
}

static void no_changed_bit_is_overlooked(void)
{
    uint8_t *bytes = (uint8_t *)&page.copies[0];

    start(7);
    for (size_t bit = 0; bit < sizeof(page.copies[0]) * 8; bit++) {
        uint8_t mask = (uint8_t)(1u << (bit % 8));

        bytes[bit / 8] ^= mask;
        EXPECT(!hami_limits_check(&page.copies[0]));
        bytes[bit / 8] ^= mask;
    }
    EXPECT(hami_limits_check(&page.copies[0]));
}

static void a_reader_never_goes_back(void)
{
    start(9);
    EXPECT(hami_page_read(&page, &last) == HAMI_PAGE_NEWER);
    flip_to(8);
    EXPECT(hami_page_read(&page, &last) == HAMI_PAGE_SAME);
    EXPECT(last.content.revision == 9);
}

/* A sum that is right does not make a field right. */
static void a_field_out_of_range_is_refused(void)
{
    struct hami_limits *limits = &page.copies[0].content;

#define REFUSED(change)                                                                            \
    do {                                                                                           \
        start(3);                                                                                  \
        change;                                                                                    \
        limits->checksum = hami_limits_sum(&page.copies[0]);                                       \
        EXPECT(hami_page_read(&page, &last) == HAMI_PAGE_TORN);                                    \
    } while (0)
    REFUSED(limits->device_count = HAMI_MAX_DEVICES + 1);
    REFUSED(limits->device_count = UINT32_MAX);
    REFUSED(limits->policy = HAMI_POLICY_DISABLE + 1);
    REFUSED(limits->devices[2].cores = 101);
    REFUSED(limits->devices[2].cores_limit = 101);
    REFUSED(memset(limits->devices[0].uuid, 'x', HAMI_UUID_SIZE));
#undef REFUSED
}

static void what_is_no_page_of_ours_is_refused(void)
{
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        start(1);                                                                                  \
        change;                                                                                    \
        EXPECT(!hami_page_check(&page, sizeof(page)));                                             \
    } while (0)
    REFUSED(page.magic = 0);
    REFUSED(page.abi = HAMI_LIMITS_ABI + 1);
    REFUSED(page.size = 0);
    REFUSED(page.copy_size--);
    REFUSED(page.device_capacity = HAMI_MAX_DEVICES * 2);
    REFUSED(page.slot_capacity = 0);
    REFUSED(page.observed_offset = 0);
#undef REFUSED
    start(1);
    EXPECT(!hami_page_check(&page, sizeof(page) - 1));
    memset(&page, 0, sizeof(page));
    EXPECT(hami_page_read(&page, &last) == HAMI_PAGE_TORN);
}

int main(void)
{
    a_reader_follows_the_flips();
    a_half_filled_idle_copy_is_nothing_to_a_reader();
    a_mixture_is_never_taken();
    no_changed_bit_is_overlooked();
    a_reader_never_goes_back();
    a_field_out_of_range_is_refused();
    what_is_no_page_of_ours_is_refused();
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
