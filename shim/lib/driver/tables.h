/* struct hami_real and struct hami_real_nvml as what they are: tables of pointers. */
#ifndef HAMI_TABLES_H
#define HAMI_TABLES_H

#include <stdbool.h>
#include <stddef.h>

/* The table, if the library is loaded in this process; NULL: it is not, and is not loaded now. */
const void *hami_table_cuda(void);
const void *hami_table_nvml(void);

/* Whether the library has the function at a place of its table; false where there is no table. */
bool hami_table_has(const void *table, size_t place);

/* The C library's functions of these names, which our own stand before; NULL: not found. */
void *hami_libc_dlsym(void);
void *hami_libc_dlvsym(void);

#endif
