/* An image of code as a program hands it over: read without trust in it. */
#ifndef HAMI_MODULE_SOURCE_H
#define HAMI_MODULE_SOURCE_H

#include <stddef.h>
#include <stdint.h>

/* In memory, or, where `image` is NULL, in a file. */
struct hami_module_source {
    const void *image;
    int file;
};

/* Bytes at an offset; fewer than asked for where the file or the readable memory ends. */
size_t hami_module_read(const struct hami_module_source *source, uint64_t offset, void *buffer,
                        size_t bytes);

#endif
