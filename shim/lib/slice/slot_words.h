/* The words of one slot. */
#ifndef HAMI_SLOT_WORDS_H
#define HAMI_SLOT_WORDS_H

#include "alive.h"
#include "slice.h"

static inline struct hami_identity hami_slot_recorded(struct hami_slot *slot)
{
    return (struct hami_identity){
        .pid = atomic_load_explicit(&slot->pid, memory_order_relaxed),
        .start_time = atomic_load_explicit(&slot->start_time, memory_order_relaxed),
        .pid_namespace = atomic_load_explicit(&slot->pid_namespace, memory_order_relaxed),
    };
}

static inline uint32_t hami_slot_flags(struct hami_slot *slot)
{
    return atomic_load_explicit(&slot->flags, memory_order_relaxed);
}

/* A new holder: this process. */
void hami_slot_own(struct hami_process *process, uint32_t slot);
void hami_slot_zero(struct hami_usage *usage, uint32_t slot);

#endif
