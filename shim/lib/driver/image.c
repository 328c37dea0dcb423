#include "driver/image.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Where this library begins and ends: symbols of the linker. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

HAMI_EARLY static bool same(const char *one, const char *other)
{
    while (*one && *one == *other) {
        one++;
        other++;
    }
    return *one == *other;
}

/* The dynamic linker has added the base to the addresses in a dynamic section, but not where the
 * section is read-only, as the kernel's vdso has it. */
HAMI_EARLY static const void *located(const struct link_map *map, ElfW(Addr) address)
{
    return (const void *)(address < map->l_addr ? map->l_addr + address : address);
}

HAMI_EARLY bool hami_image_read(const struct link_map *map, struct hami_image *image)
{
    const ElfW(Dyn) *soname = NULL;

    *image = (struct hami_image){.base = map->l_addr};
    if (!map->l_ld)
        return false;
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        switch (entry->d_tag) {
        case DT_SYMTAB:
            image->symbols = located(map, entry->d_un.d_ptr);
            break;
        case DT_STRTAB:
            image->strings = located(map, entry->d_un.d_ptr);
            break;
        case DT_GNU_HASH:
            image->gnu_hash = located(map, entry->d_un.d_ptr);
            break;
        case DT_HASH:
            image->sysv_hash = located(map, entry->d_un.d_ptr);
            break;
        case DT_VERSYM:
            image->versions = located(map, entry->d_un.d_ptr);
            break;
        case DT_SONAME:
            soname = entry;
            break;
        default:
            break;
        }
    }
    if (!image->symbols || !image->strings || (!image->gnu_hash && !image->sysv_hash))
        return false;
    if (soname)
        image->soname = image->strings + soname->d_un.d_val;
    return true;
}

HAMI_EARLY static bool is_it(const struct hami_image *image, uint32_t index, const char *name)
{
    const ElfW(Sym) *symbol = &image->symbols[index];
    unsigned type = symbol->st_info & 0xf;

    return symbol->st_shndx != SHN_UNDEF && (type == STT_FUNC || type == STT_NOTYPE) &&
           !(image->versions && image->versions[index] & 0x8000) && /* not the default version */
           same(image->strings + symbol->st_name, name);
}

HAMI_EARLY static uint32_t by_gnu_hash(const struct hami_image *image, const char *name)
{
    const uint32_t *table = image->gnu_hash;
    uint32_t buckets = table[0], first = table[1], bloom_words = table[2];
    const uint32_t *bucket = table + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = bucket + buckets;
    uint32_t hash = 5381;

    for (const char *at = name; *at; at++)
        hash = hash * 33 + (uint8_t)*at;
    if (buckets == 0 || bucket[hash % buckets] < first)
        return STN_UNDEF;
    /* The lowest bit of a chain's word says that it is the last one. */
    for (uint32_t index = bucket[hash % buckets];; index++) {
        uint32_t word = chain[index - first];

        if ((word | 1) == (hash | 1) && is_it(image, index, name))
            return index;
        if (word & 1)
            return STN_UNDEF;
    }
}

HAMI_EARLY static uint32_t by_sysv_hash(const struct hami_image *image, const char *name)
{
    const uint32_t *table = image->sysv_hash;
    uint32_t buckets = table[0];
    const uint32_t *bucket = table + 2, *chain = bucket + buckets;
    uint32_t hash = 0;

    for (const char *at = name; *at; at++) {
        hash = (hash << 4) + (uint8_t)*at;
        hash = (hash ^ ((hash & 0xf0000000) >> 24)) & 0x0fffffff;
    }
    if (buckets == 0)
        return STN_UNDEF;
    for (uint32_t index = bucket[hash % buckets]; index != STN_UNDEF; index = chain[index])
        if (is_it(image, index, name))
            return index;
    return STN_UNDEF;
}

HAMI_EARLY void *hami_image_symbol(const struct hami_image *image, const char *name)
{
    uint32_t index =
        image->gnu_hash ? by_gnu_hash(image, name) : by_sysv_hash(image, name);

    return index == STN_UNDEF ? NULL : (void *)(image->base + image->symbols[index].st_value);
}

HAMI_EARLY const struct link_map *hami_image_around(const void *address)
{
    struct link_map *map = NULL;
    Dl_info info;

    if (!dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP))
        return NULL;
    return map;
}

HAMI_EARLY bool hami_image_has_soname(const struct hami_image *image, const char *soname)
{
    return image->soname && same(image->soname, soname);
}

bool hami_image_ours(const void *address)
{
    return (uintptr_t)address >= (uintptr_t)__ehdr_start && (uintptr_t)address < (uintptr_t)_end;
}

/* libcudart, libcublas and all that are programs to us: what comes with the driver is meant. */
static bool named_as_driver(const char *name)
{
    static const char *const starts[] = {"libcuda.so", "libcudadebugger.so", "libnvidia-"};

    for (size_t i = 0; i < sizeof(starts) / sizeof(*starts); i++)
        if (strncmp(name, starts[i], strlen(starts[i])) == 0)
            return true;
    return false;
}

bool hami_image_of_driver(const void *address)
{
    const struct link_map *map = hami_image_around(address);
    const char *slash;

    if (!map || !map->l_name)
        return false;
    slash = strrchr(map->l_name, '/');
    return named_as_driver(slash ? slash + 1 : map->l_name);
}
