/* The connection inside one copy of the client: what client.c, cuda_visible.c, cuda_ledger.c and
 * queue.c share and the rest of the simulator does not see. */
#ifndef SIM_CONNECTION_H
#define SIM_CONNECTION_H

#include <pthread.h>

#include "client.h"
#include "protocol.h"

/* The page behind sim_process. Everything on it, locks included, is zero in a forked child, and
 * all-zero is an unlocked mutex. */
struct sim_page {
    struct sim_process process;
    pthread_mutex_t connecting, asking, submitting;
    int bell;
    bool broken; /* the daemon is gone or does not answer */
    uint64_t rung; /* the daemon's sleep that this process ended last */
    uint64_t submitted;
};

struct sim_page *sim_page(void);

/* With `connecting` held: CUDA_ERROR_NO_DEVICE where nobody listens. */
CUresult sim_open(struct sim_page *page);
/* One question and its answer. False: the daemon is gone. `*size` is what fits, then what came. */
bool sim_exchange(struct sim_page *page, struct sim_header *question, size_t length, void *answer,
                  size_t *size);
/* The same for struct sim_ask. */
CUresult sim_ask(struct sim_ask *ask, struct sim_reply *reply);
/* Whether the daemon still lives: asks the socket, which costs a system call. */
bool sim_alive(struct sim_page *page);

#endif
