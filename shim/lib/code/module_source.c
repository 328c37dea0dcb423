#include "code/module_source.h"

#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* Memory is read by the kernel: a wild address is an answer, not a crash. Where that is not allowed,
 * nothing is known of the image. */
size_t hami_module_read(const struct hami_module_source *source, uint64_t offset, void *buffer,
                        size_t bytes)
{
    struct iovec to = {.iov_base = buffer, .iov_len = bytes};
    struct iovec from = {.iov_base = (void *)((uintptr_t)source->image + offset), .iov_len = bytes};
    ssize_t got;

    if (offset > INT64_MAX / 2)
        return 0;
    got = source->image ? process_vm_readv(getpid(), &to, 1, &from, 1, 0)
                        : pread(source->file, buffer, bytes, (off_t)offset);
    return got < 0 ? 0 : (size_t)got;
}
