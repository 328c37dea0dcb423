/* The words of one slot, and the file that they are in. */
#ifndef HAMI_SLOT_WORDS_H
#define HAMI_SLOT_WORDS_H

#include "slice/alive.h"
#include "slice/process.h"

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
/* Put right what the monitor knows this process by, where it was written over. */
void hami_slot_assert(void);
/* Or `flags` (enum hami_slot_flags) into the own slot, or take them back. */
void hami_slot_flag(uint32_t flags);
void hami_slot_unflag(uint32_t flags);

/* The region's file, by which its descriptor is known again: a program may close every descriptor
 * that it does not know, and the number be another file's by then. */
bool hami_slots_learn_file(int fd);
bool hami_slots_is_file(int fd);
/* The region's descriptor; negative where the program closed it. */
int hami_slots_file(void);

#endif
