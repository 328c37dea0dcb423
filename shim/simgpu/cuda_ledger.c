/* A process's memory in the daemon's ledger, its device addresses, and what its calls cost. */
#include <stdatomic.h>

#include "connection.h"

#define LEDGER_GRANULE (UINT64_C(2) << 20)
/* With the ledger kept here an id carries what it stands for: a device and a number of granules. */
#define LOCAL_DEVICE_SHIFT 56
/* Beyond what a pointer of the host can be, so that nothing here is mistaken for host memory. */
#define FIRST_ADDRESS (UINT64_C(1) << 48)

static _Atomic uint64_t local_used[SIM_MAX_DEVICES];
static _Atomic uint64_t next_address = FIRST_ADDRESS;

static CUresult take_here(CUdevice ordinal, uint64_t bytes, uint64_t *id)
{
    uint64_t granules = (bytes + LEDGER_GRANULE - 1) / LEDGER_GRANULE;
    uint64_t taken = granules * LEDGER_GRANULE;

    if (bytes > sim_device(ordinal)->memory_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (atomic_fetch_add(&local_used[ordinal], taken) + taken > sim_device(ordinal)->memory_bytes) {
        atomic_fetch_sub(&local_used[ordinal], taken);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *id = ((uint64_t)(ordinal + 1) << LOCAL_DEVICE_SHIFT) | granules;
    return CUDA_SUCCESS;
}

CUresult sim_take(CUdevice ordinal, uint64_t bytes, enum sim_memory kind, uint64_t *id)
{
    const struct sim_device *device = sim_device(ordinal);
    struct sim_ask ask = {.header = {.op = SIM_OP_TAKE}, .kind = kind, .bytes = bytes};
    struct sim_reply reply;
    CUresult result;

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (sim_process->local)
        return take_here(ordinal, bytes, id);
    ask.unit = device->board;
    result = sim_ask(&ask, &reply);
    if (result == CUDA_SUCCESS)
        *id = reply.id;
    return result;
}

void sim_give(uint64_t id)
{
    struct sim_ask ask = {.header = {.op = SIM_OP_GIVE}, .id = id};
    struct sim_reply reply;

    if (id == 0)
        return;
    if (sim_process->local) {
        uint64_t granules = id & ((UINT64_C(1) << LOCAL_DEVICE_SHIFT) - 1);

        atomic_fetch_sub(&local_used[(id >> LOCAL_DEVICE_SHIFT) - 1], granules * LEDGER_GRANULE);
        return;
    }
    (void)sim_ask(&ask, &reply); /* a daemon that is gone holds nothing any more */
}

CUresult sim_share(uint64_t id, uint64_t *own_id, CUdevice *ordinal, uint64_t *bytes)
{
    struct sim_ask ask = {.header = {.op = SIM_OP_SHARE}, .id = id};
    struct sim_reply reply;
    CUresult result;

    if (sim_process->local)
        return CUDA_ERROR_NOT_SUPPORTED;
    result = sim_ask(&ask, &reply);
    if (result != CUDA_SUCCESS)
        return result;
    for (int i = 0; i < sim_device_count(); i++) {
        if (sim_device(i)->board == reply.unit) {
            *own_id = reply.id;
            *ordinal = i;
            *bytes = reply.bytes;
            return CUDA_SUCCESS;
        }
    }
    sim_give(reply.id); /* on a device that this process does not see */
    return CUDA_ERROR_INVALID_DEVICE;
}

uint64_t sim_memory_free(CUdevice ordinal)
{
    const struct sim_device *device = sim_device(ordinal);
    uint64_t used, total;

    if (!device)
        return 0;
    if (sim_process->local) {
        used = atomic_load_explicit(&local_used[ordinal], memory_order_relaxed);
        total = device->memory_bytes;
    } else {
        const struct sim_board_unit *unit = &sim_board()->units[device->board];

        used = atomic_load_explicit(&unit->used, memory_order_relaxed);
        total = atomic_load_explicit(&unit->memory, memory_order_relaxed);
    }
    return used < total ? total - used : 0;
}

CUdeviceptr sim_address(uint64_t bytes, uint64_t alignment)
{
    uint64_t at = atomic_load_explicit(&next_address, memory_order_relaxed), found;

    if (alignment == 0)
        alignment = 1;
    do
        found = (at + alignment - 1) / alignment * alignment;
    while (!atomic_compare_exchange_weak(&next_address, &at, found + (bytes ? bytes : 1)));
    return found;
}

void sim_spend(enum sim_cost what)
{
    /* One above the value, so that zero is "not asked yet". */
    static _Atomic uint64_t costs[SIM_COSTS];
    uint64_t cost = atomic_load_explicit(&costs[what], memory_order_relaxed), until;

    if (__builtin_expect(cost == 0, 0)) {
        cost = sim_knob(what == SIM_COST_LAUNCH ? "LAUNCH_NS" : "EVENT_NS", 0) + 1;
        atomic_store_explicit(&costs[what], cost, memory_order_relaxed);
    }
    if (__builtin_expect(cost == 1, 1))
        return;
    until = sim_now() + cost - 1;
    while (sim_now() < until)
        ;
}
