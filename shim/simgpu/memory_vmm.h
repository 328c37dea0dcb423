/* Memory that has no address of its own: what cuda_vmm*.c, cuda_array*.c and cuda_external.c share.
 * The memory lock is held in all of it but what travels. */
#ifndef SIM_MEMORY_VMM_H
#define SIM_MEMORY_VMM_H

#include "memory.h"

struct sim_binding;

/* Memory, or a multicast team (a logical endpoint is one, too). */
struct sim_physical {
    uint64_t id; /* in the ledger; 0: host memory, or a team */
    uint64_t bytes, serial;
    CUdevice ordinal; /* -1: host, or a team */
    CUmemAllocationProp properties;
    struct sim_bytes data;
    unsigned int handles; /* that name it */
    bool team, travels;   /* travels: exported or imported */
    CUmulticastObjectProp team_properties;
    uint32_t team_devices; /* a bit for each that was added */
    struct sim_binding *bindings;
    struct sim_physical *next, *previous;
};

/* A CUmemGenericAllocationHandle's object: it stays while the program holds it, or anything made
 * with it is there. */
struct sim_handle {
    CUmemGenericAllocationHandle value;
    unsigned int held; /* by the program: created, imported, retained */
    unsigned int uses; /* mappings, tiles of arrays, bindings to a team */
    struct sim_physical *physical;
};

/* Of a handle that the program holds; NULL otherwise. */
struct sim_handle *sim_handle_held(CUmemGenericAllocationHandle value);
/* A new handle, held once; NULL: no memory. Counts itself in the physical memory. */
struct sim_handle *sim_handle_new(struct sim_physical *physical);
/* When `held` or `uses` fell: ends what nothing needs any more. */
void sim_handle_check(struct sim_handle *handle);
/* Zeroed, with a serial number; NULL: no memory. One that no handle names is dropped by hand. */
struct sim_physical *sim_physical_new(void);
void sim_physical_drop(struct sim_physical *physical);
struct sim_physical *sim_physical_numbered(uint64_t serial);

/* What is to be bound to a team, and where. */
struct sim_wish {
    CUdevice ordinal; /* -1: the memory's */
    uint64_t offset, memory_offset, bytes;
    unsigned long long flags;
};
/* These refuse a team that is NULL. */
CUresult sim_team_bind_handle(struct sim_physical *team, CUmemGenericAllocationHandle value,
                              const struct sim_wish *wish);
/* Memory of cuMemCreate at an address, or of a pool. */
CUresult sim_team_bind_range(struct sim_physical *team, CUdeviceptr address,
                             const struct sim_wish *given);
CUresult sim_team_unbind(struct sim_physical *team, CUdevice device, uint64_t offset,
                         uint64_t bytes);
/* Everything bound to a team comes loose. */
void sim_team_unbind_all(struct sim_physical *team);

/* The address reservation around an address. */
bool sim_reservation_find(CUdeviceptr address, CUdeviceptr *base, uint64_t *bytes);

/* A buffer of imported external memory is freed. */
void sim_external_unmapped(struct sim_range *range);
/* Arrays go with their context. */
void sim_arrays_context_gone(CUcontext context);

/* ---- What travels between processes in a file descriptor (cuda_ipc_travel.c) ---- */

/* Memory in the ledger travels as a connection of its own to the daemon, which holds a share of it:
 * so a descriptor on its way keeps the memory, and its last close lets it go. `id` becomes the
 * share's. -1: no connection. */
int sim_travel_share(uint64_t *id);
/* Which share a descriptor holds; false: none. */
bool sim_travel_shared(int fd, uint64_t *id);

/* What is not in the ledger travels as a description. */
enum sim_travelling_kind { SIM_TRAVELS_MEMORY = 1, SIM_TRAVELS_TEAM, SIM_TRAVELS_POOL };
struct sim_travelling {
    uint64_t magic;
    enum sim_travelling_kind kind;
    int32_t pid; /* of the exporter, and its number for it */
    uint64_t serial, bytes;
    CUmemAllocationProp properties;
    CUmulticastObjectProp team;
    CUmemPoolProps pool;
};
int sim_travel_send(const struct sim_travelling *what); /* -1: no descriptor */
bool sim_travel_receive(int fd, struct sim_travelling *what);

#endif
