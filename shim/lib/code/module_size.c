/* Images come as an ELF file for one architecture, as text to be compiled (PTX), or as a "fat
 * binary": several of both, compressed or not, behind a header of its own, which programs reach
 * through a small wrapper that their compiler made.
 *
 * What an ELF file puts into device memory is the sections that occupy memory: code, constants and
 * variables; shared memory is on the processors. With lazy loading, which is what drivers do unless
 * told otherwise, only variables are there from the beginning: code comes with the functions that
 * are used, of large libraries a small part, and the monitor's figure covers it then. */
#include "code/module_size.h"

#include <elf.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include "code/module_text.h"
#include "code/unpack_lz4.h"
#include "code/unpack_zstd.h"

#define WRAPPER_MAGIC 0x466243b1u
#define FAT_MAGIC 0xba55ed50u
#define FAT_PTX 1
#define FAT_ELF 2
#define MOST_ENTRIES 4096
#define MOST_PLAIN (UINT64_C(2) << 30)
#define ZSTD_MAGIC 0xfd2fb528u

struct wrapper {
    uint32_t magic, version;
    uint64_t data, name;
};

struct fat_header {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes; /* of what follows */
};

struct fat_entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t bytes;            /* of what follows, padded */
    uint32_t compressed_bytes; /* 0: not compressed */
    uint32_t options;
    uint16_t minor, major;
    uint32_t capability;
    uint32_t name, name_bytes;
    uint64_t flags, reserved;
    uint64_t plain_bytes; /* when decompressed */
};
_Static_assert(sizeof(struct fat_entry) == 64, "as compilers write it");

static bool read_all(const struct hami_module_source *source, uint64_t offset, void *buffer,
                     size_t bytes)
{
    return hami_module_read(source, offset, buffer, bytes) == bytes;
}

/* ---- ELF ---- */

static bool is_variable(const char *name)
{
    return strncmp(name, ".nv.global", strlen(".nv.global")) == 0;
}

static uint64_t section_size(const struct hami_module_source *source, const Elf64_Shdr *section,
                             uint64_t names, bool lazy)
{
    char name[16] = "";

    /* Code and constants cannot be written to; only of the others the name decides. */
    if (!(section->sh_flags & SHF_ALLOC))
        return 0;
    if (!(section->sh_flags & SHF_WRITE))
        return lazy ? 0 : section->sh_size;
    hami_module_read(source, names + section->sh_name, name, sizeof(name) - 1);
    return is_variable(name) ? section->sh_size : 0;
}

static uint64_t elf_size(const struct hami_module_source *source, uint64_t base, bool lazy)
{
    Elf64_Shdr sections[32], names;
    Elf64_Ehdr header;
    uint64_t bytes = 0;

    if (!read_all(source, base, &header, sizeof(header)) ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr) ||
        header.e_shoff > INT64_MAX / 4 || header.e_shstrndx >= header.e_shnum ||
        !read_all(source, base + header.e_shoff + header.e_shstrndx * sizeof(names), &names,
                  sizeof(names)) ||
        names.sh_offset > INT64_MAX / 4)
        return 0;
    for (size_t i = 0; i < header.e_shnum; i += 32) {
        size_t count = header.e_shnum - i < 32 ? header.e_shnum - i : 32;

        if (!read_all(source, base + header.e_shoff + i * sizeof(*sections), sections,
                      count * sizeof(*sections)))
            return bytes;
        for (size_t k = 0; k < count; k++)
            bytes = hami_module_sum(bytes, section_size(source, &sections[k], base + names.sh_offset, lazy));
    }
    return bytes;
}

/* ---- Text ---- */

/* What compiling will make of it is not known; code is about as long as its text. */
static uint64_t text_size(const struct hami_module_source *source, bool lazy)
{
    uint64_t length, variables = hami_module_text(source, &length);

    return lazy ? variables : hami_module_sum(variables, length);
}

/* ---- Fat binaries ---- */

/* Code for an architecture runs on later ones of the same generation; text can be compiled for any
 * later one. Code goes before text, the nearest before others. */
static bool is_better(const struct fat_entry *entry, const struct fat_entry *best,
                      unsigned int capability)
{
    if (entry->capability > capability || (entry->kind != FAT_ELF && entry->kind != FAT_PTX) ||
        (entry->kind == FAT_ELF && entry->capability / 10 != capability / 10))
        return false;
    if (entry->kind != best->kind)
        return entry->kind > best->kind;
    return entry->capability > best->capability;
}

static uint64_t plain_size(const struct hami_module_source *source, unsigned int kind, bool lazy)
{
    return kind == FAT_ELF ? elf_size(source, 0, lazy) : text_size(source, lazy);
}

static void *room_for(uint64_t bytes)
{
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return room == MAP_FAILED ? NULL : room;
}

/* One byte more than comes out: text ends with a zero. */
static uint64_t unpacked_size(const struct fat_entry *entry, const uint8_t *packed, bool lazy)
{
    struct hami_module_source plain = {.file = -1};
    uint64_t room = entry->plain_bytes + 1, size = 0;
    size_t done;
    uint32_t magic;
    uint8_t *to = room_for(room);

    if (!to)
        return UINT64_MAX;
    memcpy(&magic, packed, sizeof(magic));
    done = magic == ZSTD_MAGIC
               ? hami_unpack_zstd(packed, entry->compressed_bytes, to, entry->plain_bytes)
               : hami_unpack_lz4(packed, entry->compressed_bytes, to, entry->plain_bytes);
    plain.image = to;
    if (done > 0)
        size = plain_size(&plain, entry->kind, lazy);
    munmap(to, room);
    return size;
}

/* Unpacking takes as long as it takes the driver. Where it fails, by what the entry says of itself:
 * a driver that can make something of it is one that this library does not know. */
static uint64_t packed_size(const struct hami_module_source *source, const struct fat_entry *entry,
                            uint64_t at, bool lazy)
{
    uint64_t bytes = entry->compressed_bytes, size = 0;
    uint8_t *packed;

    if (bytes < sizeof(uint32_t) || bytes > entry->bytes || entry->plain_bytes > MOST_PLAIN)
        return lazy ? 0 : entry->plain_bytes;
    packed = room_for(bytes);
    if (!packed)
        return UINT64_MAX;
    if (read_all(source, at, packed, bytes))
        size = unpacked_size(entry, packed, lazy);
    munmap(packed, bytes);
    return size == 0 && !lazy ? entry->plain_bytes : size;
}

/* Text in a file of several has no end of its own. */
static uint64_t entry_size(const struct hami_module_source *source, const struct fat_entry *entry,
                           uint64_t at, bool lazy)
{
    struct hami_module_source part = {.file = -1};
    uint8_t *copy;
    uint64_t size;

    at += entry->header_bytes;
    if (entry->compressed_bytes)
        return packed_size(source, entry, at, lazy);
    if (entry->kind == FAT_ELF)
        return elf_size(source, at, lazy);
    if (entry->bytes > MOST_PLAIN)
        return UINT64_MAX;
    copy = room_for(entry->bytes + 1);
    if (!copy)
        return UINT64_MAX;
    hami_module_read(source, at, copy, entry->bytes);
    part.image = copy;
    size = text_size(&part, lazy);
    munmap(copy, entry->bytes + 1);
    return size;
}

static uint64_t fat_size(const struct hami_module_source *source,
                         const struct hami_module_target *target)
{
    struct fat_header header;
    struct fat_entry entry, best = {.kind = 0};
    uint64_t at, end, best_at = 0;

    if (!read_all(source, 0, &header, sizeof(header)) || header.bytes > INT64_MAX / 4)
        return 0;
    at = header.header_bytes;
    end = at + header.bytes;
    for (int i = 0; i < MOST_ENTRIES && at < end; i++) {
        if (!read_all(source, at, &entry, sizeof(entry)) || entry.header_bytes < sizeof(entry) ||
            entry.bytes > INT64_MAX / 4)
            break;
        if (is_better(&entry, &best, target->capability)) {
            best = entry;
            best_at = at;
        }
        at += entry.header_bytes + entry.bytes;
    }
    return best.kind ? entry_size(source, &best, best_at, target->lazy) : 0;
}

uint64_t hami_module_size(const struct hami_module_source *source,
                          const struct hami_module_target *target)
{
    struct hami_module_source inner = *source;
    struct wrapper wrapper;
    uint32_t magic;

    if (source->image && read_all(source, 0, &wrapper, sizeof(wrapper)) &&
        wrapper.magic == WRAPPER_MAGIC)
        inner.image = (const void *)(uintptr_t)wrapper.data;
    if (!read_all(&inner, 0, &magic, sizeof(magic)) || (source->image && !inner.image))
        return 0;
    if (magic == FAT_MAGIC)
        return fat_size(&inner, target);
    if (memcmp(&magic, ELFMAG, SELFMAG) == 0)
        return elf_size(&inner, 0, target->lazy);
    return text_size(&inner, target->lazy);
}
