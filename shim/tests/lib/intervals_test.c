/* The ordered map of mappings, against an array. links: lib/hooks/allocations/intervals.c */
#include <stdbool.h>
#include <stdint.h>

#include "expect.h"
#include "hooks/allocations/intervals.h"

#define PLACES 512
#define PAGE 0x200000

/* start of place i: i * PAGE; what the array says lies there, and how long it is */
static struct hami_interval nodes[PLACES];
static unsigned int length[PLACES];
static struct hami_intervals set;
static uint64_t state = 42;

static unsigned int below(unsigned int bound)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (unsigned int)(state >> 33) % bound;
}

static uint64_t at(unsigned int place)
{
    return UINT64_C(0x700000000000) + (uint64_t)place * PAGE;
}

static bool is_free(unsigned int place, unsigned int pages)
{
    for (unsigned int i = 0; i < place + pages && i < PLACES; i++)
        if (length[i] && i + length[i] > place)
            return false;
    return place + pages <= PLACES;
}

static void put(unsigned int place, unsigned int pages)
{
    if (!is_free(place, pages))
        return;
    nodes[place] = (struct hami_interval){.start = at(place), .end = at(place + pages),
                                          .value = &length[place]};
    length[place] = pages;
    hami_intervals_put(&set, &nodes[place]);
}

/* The first of the array that lies within, or that overlaps. */
static struct hami_interval *expected(unsigned int place, unsigned int pages, bool within)
{
    for (unsigned int i = 0; i < PLACES; i++) {
        if (!length[i] || i + length[i] <= place || i >= place + pages)
            continue;
        if (!within || (i >= place && i + length[i] <= place + pages))
            return &nodes[i];
        if (i + length[i] > place + pages)
            return NULL;
    }
    return NULL;
}

static void take(unsigned int place, unsigned int pages, bool within)
{
    for (;;) {
        struct hami_interval *wanted = expected(place, pages, within);
        struct hami_interval *got =
            within ? hami_intervals_take_within(&set, at(place), at(place + pages))
                   : hami_intervals_take_overlapping(&set, at(place), at(place + pages));

        EXPECT(got == wanted);
        if (!got || got != wanted)
            return;
        length[got - nodes] = 0;
    }
}

static void find(unsigned int place)
{
    struct hami_interval *wanted = expected(place, 1, false);

    EXPECT(hami_intervals_find(&set, at(place)) == wanted);
    EXPECT(hami_intervals_find(&set, at(place) + PAGE - 1) == wanted);
    EXPECT(hami_intervals_first(&set, at(place), at(place + 7)) == expected(place, 7, false));
}

static unsigned int depth(const struct hami_interval *tree)
{
    unsigned int left, right;

    if (!tree)
        return 0;
    left = depth(tree->left);
    right = depth(tree->right);
    return 1 + (left > right ? left : right);
}

static void mappings_in_a_row_make_no_list(void)
{
    static struct hami_interval many[1 << 16];
    struct hami_intervals row = {0};

    for (uint64_t i = 0; i < 1 << 16; i++) {
        many[i] = (struct hami_interval){.start = i * PAGE, .end = (i + 1) * PAGE};
        hami_intervals_put(&row, &many[i]);
    }
    EXPECT(depth(row.root) < 64);
    for (uint64_t i = 0; i < 1 << 16; i++)
        EXPECT(hami_intervals_take_within(&row, 0, UINT64_MAX) == &many[i]);
    EXPECT(!row.root);
}

int main(void)
{
    for (int i = 0; i < 200000 && !failures; i++) {
        unsigned int place = below(PLACES), pages = 1 + below(12);

        switch (below(8)) {
        case 0:
            take(place, pages, true);
            break;
        case 1:
            take(place, 1 + below(3), false);
            break;
        case 2:
            find(place);
            break;
        default:
            put(place, pages);
        }
    }
    mappings_in_a_row_make_no_list();
    return failures != 0;
}
