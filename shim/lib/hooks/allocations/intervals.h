/* Address ranges that do not overlap, in order: which mapping an address lies in, which mappings a
 * range spans. A treap: a driver may have tens of thousands of mappings of 2 MiB. */
#ifndef HAMI_INTERVALS_H
#define HAMI_INTERVALS_H

#include <stdint.h>

struct hami_interval {
    uint64_t start, end; /* [start, end) */
    void *value;
    struct hami_interval *left, *right;
};

struct hami_intervals {
    struct hami_interval *root;
};

/* The caller owns the nodes and holds a lock. Nothing in the set may overlap the node. */
void hami_intervals_put(struct hami_intervals *set, struct hami_interval *node);
/* The one that contains the address, or NULL. */
struct hami_interval *hami_intervals_find(const struct hami_intervals *set, uint64_t address);
/* Take out the first that lies within [start, end), or that overlaps it. NULL: there is none. */
struct hami_interval *hami_intervals_take_within(struct hami_intervals *set, uint64_t start,
                                                 uint64_t end);
struct hami_interval *hami_intervals_take_overlapping(struct hami_intervals *set, uint64_t start,
                                                      uint64_t end);
/* The first that overlaps [start, end), left where it is. */
struct hami_interval *hami_intervals_first(const struct hami_intervals *set, uint64_t start,
                                           uint64_t end);

#endif
