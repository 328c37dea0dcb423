#include "hooks/allocations/intervals.h"

#include <stddef.h>

/* A node's priority is a hash of its start: addresses are not chosen against it. */
static uint64_t priority(const struct hami_interval *node)
{
    uint64_t mixed = (node->start >> 12) * UINT64_C(0x9e3779b97f4a7c15);

    return mixed ^ (mixed >> 32);
}

/* Into those that start before `start` and the rest. */
static void split(struct hami_interval *tree, uint64_t start, struct hami_interval **before,
                  struct hami_interval **rest)
{
    while (tree) {
        if (tree->start < start) {
            *before = tree;
            before = &tree->right;
            tree = tree->right;
        } else {
            *rest = tree;
            rest = &tree->left;
            tree = tree->left;
        }
    }
    *before = NULL;
    *rest = NULL;
}

/* All of `low` lies before all of `high`. */
static struct hami_interval *join(struct hami_interval *low, struct hami_interval *high)
{
    struct hami_interval *tree, **place = &tree;

    while (low && high) {
        if (priority(low) > priority(high)) {
            *place = low;
            place = &low->right;
            low = low->right;
        } else {
            *place = high;
            place = &high->left;
            high = high->left;
        }
    }
    *place = low ? low : high;
    return tree;
}

void hami_intervals_put(struct hami_intervals *set, struct hami_interval *node)
{
    struct hami_interval **place = &set->root;

    while (*place && priority(*place) >= priority(node))
        place = node->start < (*place)->start ? &(*place)->left : &(*place)->right;
    split(*place, node->start, &node->left, &node->right);
    *place = node;
}

/* The first that ends behind the address. */
static struct hami_interval *next(const struct hami_intervals *set, uint64_t address)
{
    struct hami_interval *node = set->root, *found = NULL;

    while (node) {
        if (node->end > address) {
            found = node;
            node = node->left;
        } else {
            node = node->right;
        }
    }
    return found;
}

static void take_out(struct hami_intervals *set, struct hami_interval *node)
{
    struct hami_interval **place = &set->root;

    while (*place != node)
        place = node->start < (*place)->start ? &(*place)->left : &(*place)->right;
    *place = join(node->left, node->right);
}

struct hami_interval *hami_intervals_find(const struct hami_intervals *set, uint64_t address)
{
    struct hami_interval *node = next(set, address);

    return node && node->start <= address ? node : NULL;
}

struct hami_interval *hami_intervals_first(const struct hami_intervals *set, uint64_t start,
                                           uint64_t end)
{
    struct hami_interval *node = next(set, start);

    return node && node->start < end ? node : NULL;
}

struct hami_interval *hami_intervals_take_within(struct hami_intervals *set, uint64_t start,
                                                 uint64_t end)
{
    struct hami_interval *node = next(set, start);

    if (node && node->start < start)
        node = next(set, node->end);
    if (!node || node->end > end)
        return NULL;
    take_out(set, node);
    return node;
}

struct hami_interval *hami_intervals_take_overlapping(struct hami_intervals *set, uint64_t start,
                                                      uint64_t end)
{
    struct hami_interval *node = hami_intervals_first(set, start, end);

    if (node)
        take_out(set, node);
    return node;
}
