/* The dynamic symbols of a library that is loaded, read from its own tables: our exported dlsym
 * stands before the C library's, and asking it would be asking ourselves. Takes no lock of ours,
 * allocates nothing and leaves dlerror() as it is. */
#ifndef HAMI_IMAGE_H
#define HAMI_IMAGE_H

#include <link.h>
#include <stdbool.h>

/* For what runs whenever anybody resolves any name. A sanitizer's runtime does so before it has
 * started, so nothing of it may be called on that way: no instrumented code, no strcmp. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)
#define HAMI_EARLY __attribute__((no_sanitize_address, no_sanitize_thread))
#else
#define HAMI_EARLY
#endif

struct hami_image {
    ElfW(Addr) base;
    const char *soname; /* NULL: it has none */
    const ElfW(Sym) *symbols;
    const char *strings;
    const uint32_t *gnu_hash;
    const uint32_t *sysv_hash;
    const ElfW(Half) *versions; /* NULL: its symbols have none */
};

/* False: it has no symbol table that we can read. */
bool hami_image_read(const struct link_map *map, struct hami_image *image);
bool hami_image_has_soname(const struct hami_image *image, const char *soname);
/* The address of a function in its default version; NULL: not defined there. Indirect functions
 * (STT_GNU_IFUNC) are not looked for: neither the driver nor dlsym is one. */
void *hami_image_symbol(const struct hami_image *image, const char *name);

/* The loaded library that an address lies in; NULL: in none. */
const struct link_map *hami_image_around(const void *address);
/* Whether an address lies in this library. */
bool hami_image_ours(const void *address);
/* Whether an address lies in a library of the driver, which gets what it asks for. */
bool hami_image_of_driver(const void *address);

#endif
