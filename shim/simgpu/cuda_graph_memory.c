/* Memory that graphs allocate. An allocation node's address is known when the node is made; memory
 * is there from a launch on, until a free node, cuMemFree or cuMemFreeAsync. */
#include <stdlib.h>

#include "execution.h"

struct live {
    CUdeviceptr address;
    uint64_t bytes;
    CUdevice ordinal;
    struct live *next;
};

static struct live *lives;
static pthread_mutex_t lives_lock = PTHREAD_MUTEX_INITIALIZER;

bool sim_graph_memory_live(CUdeviceptr address)
{
    bool found = false;

    pthread_mutex_lock(&lives_lock);
    for (struct live *each = lives; each != NULL && !found; each = each->next)
        found = each->address == address;
    pthread_mutex_unlock(&lives_lock);
    return found;
}

CUresult sim_graph_memory_take(CUcontext context, CUdeviceptr address, uint64_t bytes)
{
    struct live *live = malloc(sizeof *live);
    CUresult result;

    if (live == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = sim_memory_adopt(context, address, bytes);
    if (result != CUDA_SUCCESS) {
        free(live);
        return result;
    }
    *live = (struct live){ .address = address, .bytes = bytes, .ordinal = context->ordinal };
    sim_graph_use(live->ordinal, (int64_t)bytes);
    pthread_mutex_lock(&lives_lock);
    live->next = lives;
    lives = live;
    pthread_mutex_unlock(&lives_lock);
    return CUDA_SUCCESS;
}

bool sim_graph_memory_free(CUdeviceptr address)
{
    struct live *found = NULL;

    pthread_mutex_lock(&lives_lock);
    for (struct live **each = &lives; *each != NULL; each = &(*each)->next) {
        if ((*each)->address == address) {
            found = *each;
            *each = found->next;
            break;
        }
    }
    pthread_mutex_unlock(&lives_lock);
    if (found == NULL)
        return false;
    sim_memory_forget(address);
    sim_graph_use(found->ordinal, -(int64_t)found->bytes);
    free(found);
    return true;
}
