/* The two files of a slice, opened with suspicion: other processes of the container can write one
 * of them, and put anything in its place where the container has no slice of ours. */
#ifndef HAMI_FILES_H
#define HAMI_FILES_H

#include <stdbool.h>

#include "hami_slice.h"

/* Map the limits page and check it; NULL: logged why. The mapping is all that remains open. */
const struct hami_limits_page *hami_files_page(const char *path);

struct hami_region {
    struct hami_usage *usage; /* mapped shared and writable */
    int fd;                   /* never 0, 1 or 2; closed by exec */
};

/* Open a file of the container to write it; negative: it cannot be, or is no plain file by name. */
int hami_files_open(const char *path);
/* Open and map a usage region; false: logged why. */
bool hami_files_usage(const char *path, struct hami_region *region);
/* The same, making the file first where there is none: mode 0666, since any user of the container
 * may come second. */
bool hami_files_usage_made(const char *path, struct hami_region *region);
void hami_files_close(struct hami_region *region);

#endif
