#include "memory/request.h"

#include "memory/blocks.h"
#include "memory/reclaim.h"
#include "program/current.h"

CUresult hami_request(enum hami_kind kind, uint64_t bytes, struct hami_entry *entry)
{
    CUcontext context;
    int row;
    CUresult result = hami_current(&context, &row);

    if (result != CUDA_SUCCESS)
        return result;
    *entry = (struct hami_entry){
        .kind = (uint8_t)kind, .row = (int16_t)row, .bytes = bytes, .context = context,
    };
    if (hami_charge_block(row, bytes) ||
        (hami_memory_reclaim(row) && hami_charge_block(row, bytes)))
        return CUDA_SUCCESS;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void hami_request_failed(const struct hami_entry *entry)
{
    hami_refund_block(entry->row, entry->bytes);
}

/* What is given back is refunded after the driver has it: another process may be granted the bytes
 * at once. What the driver does not take back is still there, and stays charged. */
CUresult hami_request_done(struct hami_entry *entry, uint64_t key, uint64_t really,
                           CUresult (*give_back)(uint64_t key))
{
    void (*refund)(const struct hami_entry *entry) = hami_request_failed;
    struct hami_entry old;

    entry->key = key;
    if (hami_resize_block(entry->row, &entry->bytes, really)) {
        /* Before anybody can find the entry, and refund it with its context. */
        if (entry->kind == HAMI_KIND_LINEAR)
            hami_block_placed(entry->row, key, entry->bytes);
        if (hami_map_exchange(entry, &old)) {
            /* The driver gives this out anew: that it took it back escaped us. */
            if (old.kind != HAMI_KIND_NONE)
                hami_entry_refund(&old);
            return CUDA_SUCCESS;
        }
        refund = hami_entry_refund;
    }
    if (give_back(key) == CUDA_SUCCESS)
        refund(entry);
    return CUDA_ERROR_OUT_OF_MEMORY;
}
