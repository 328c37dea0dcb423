/* What lies at which address: a tree for looking up addresses, a list for going through all. */
#include <pthread.h>
#include <search.h>
#include <stdlib.h>

#include "memory.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *tree;
static struct sim_range *first;
static uint64_t buffers;

void sim_memory_lock(void)
{
    pthread_mutex_lock(&lock);
}

void sim_memory_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

uint64_t sim_buffer_number(void)
{
    return ++buffers;
}

/* Ranges in the tree never overlap, so "touches" may stand for "equal": a search for one byte finds
 * the range around it, a search for many finds one of those that they touch. */
static int compare(const void *left, const void *right)
{
    const struct sim_range *a = left, *b = right;

    if (a->base + (a->bytes - 1) < b->base)
        return -1;
    return a->base > b->base + (b->bytes - 1);
}

struct sim_range *sim_range_touching(CUdeviceptr base, uint64_t bytes)
{
    struct sim_range key = {.base = base, .bytes = bytes};
    void *found;

    if (bytes == 0 || base + (bytes - 1) < base)
        return NULL;
    found = tfind(&key, &tree, compare);
    return found ? *(struct sim_range **)found : NULL;
}

struct sim_range *sim_range_find(CUdeviceptr address)
{
    return sim_range_touching(address, 1);
}

struct sim_range *sim_range_at(CUdeviceptr base)
{
    struct sim_range *range = sim_range_find(base);

    return range && range->base == base ? range : NULL;
}

struct sim_range *sim_range_add(const struct sim_range *like)
{
    struct sim_range *range;
    void *place;

    if (like->bytes == 0 || like->base + (like->bytes - 1) < like->base)
        return NULL;
    range = malloc(sizeof(*range));
    if (!range)
        return NULL;
    *range = *like;
    if (!range->data) {
        range->data = &range->own;
        range->own.size = range->bytes;
    }
    range->buffer = sim_buffer_number();
    place = tsearch(range, &tree, compare);
    if (!place || *(struct sim_range **)place != range) {
        free(range);
        return NULL;
    }
    range->previous = NULL;
    range->next = first;
    if (first)
        first->previous = range;
    first = range;
    return range;
}

void sim_range_remove(struct sim_range *range)
{
    tdelete(range, &tree, compare);
    if (range->previous)
        range->previous->next = range->next;
    else
        first = range->next;
    if (range->next)
        range->next->previous = range->previous;
    sim_bytes_free(&range->own);
    free(range);
}

struct sim_range *sim_range_first(void)
{
    return first;
}

/* Reading what was never written needs no memory; nor does a large allocation, which keeps none. */
uint8_t *sim_range_data(struct sim_range *range, CUdeviceptr address, bool write)
{
    struct sim_bytes *bytes = range->data;

    if (!bytes->data && write && bytes->size <= SIM_BYTES_KEPT)
        bytes->data = calloc(1, bytes->size);
    return bytes->data ? bytes->data + range->data_offset + (address - range->base) : NULL;
}

void sim_bytes_free(struct sim_bytes *bytes)
{
    if (!bytes->real)
        free(bytes->data);
    bytes->data = NULL;
}
