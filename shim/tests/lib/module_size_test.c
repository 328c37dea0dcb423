/* What images say of their size. links: lib/code/module_size.c lib/code/module_source.c lib/code/module_text.c lib/code/unpack_lz4.c lib/code/unpack_zstd.c lib/code/unpack_bits.c */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "code/module_size.h"
#include "expect.h"

#define LARGEST 65536

struct image {
    unsigned char bytes[LARGEST];
    size_t size;
};

static const struct hami_module_target eager = {.capability = 90};
static const struct hami_module_target lazy = {.capability = 90, .lazy = true};

static uint64_t size_of(const void *image, const struct hami_module_target *target)
{
    struct hami_module_source source = {.image = image, .file = -1};

    return hami_module_size(&source, target);
}

static void put(struct image *image, const void *bytes, size_t size)
{
    memcpy(image->bytes + image->size, bytes, size);
    image->size += size;
}

/* ---- ELF: code of one architecture, as ptxas lays it out ---- */

static const struct section {
    const char *name;
    uint32_t type;
    uint64_t flags, size;
} sections[] = {
    {"", SHT_NULL, 0, 0},
    {".shstrtab", SHT_STRTAB, 0, 0},
    {".debug_frame", SHT_PROGBITS, 0, 5000},
    {".text.k", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, 384},
    {".nv.constant0.k", SHT_PROGBITS, SHF_ALLOC, 536},
    {".nv.global.init", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, 4},
    {".nv.shared.k", SHT_NOBITS, SHF_ALLOC | SHF_WRITE, 2048},
    {".nv.global", SHT_NOBITS, SHF_ALLOC | SHF_WRITE, 4194304},
};
#define SECTIONS (sizeof(sections) / sizeof(*sections))
#define ALL_OF_IT (384 + 536 + 4 + 4194304)
#define VARIABLES (4 + 4194304)

static void put_elf(struct image *image)
{
    Elf64_Ehdr header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1},
                         .e_shentsize = sizeof(Elf64_Shdr), .e_shnum = SECTIONS, .e_shstrndx = 1};
    Elf64_Shdr table[SECTIONS] = {{0}};
    char names[256] = "";
    uint32_t used = 0;

    for (size_t i = 0; i < SECTIONS; i++) {
        table[i].sh_name = used;
        table[i].sh_type = sections[i].type;
        table[i].sh_flags = sections[i].flags;
        table[i].sh_size = sections[i].size;
        strcpy(names + used, sections[i].name);
        used += (uint32_t)strlen(sections[i].name) + 1;
    }
    table[1].sh_offset = sizeof(header);
    table[1].sh_size = used;
    header.e_shoff = sizeof(header) + sizeof(names);
    put(image, &header, sizeof(header));
    put(image, names, sizeof(names));
    put(image, table, sizeof(table));
}

static void an_elf_file_takes_the_sections_that_occupy_device_memory(void)
{
    static struct image image;

    image.size = 0;
    put_elf(&image);
    EXPECT(size_of(image.bytes, &eager) == ALL_OF_IT);
    EXPECT(size_of(image.bytes, &lazy) == VARIABLES);
}

static void a_file_is_read_like_memory(void)
{
    static struct image image;
    struct hami_module_source source = {.file = memfd_create("image", MFD_CLOEXEC)};

    image.size = 0;
    put_elf(&image);
    EXPECT(write(source.file, image.bytes, image.size) == (ssize_t)image.size);
    EXPECT(hami_module_size(&source, &eager) == ALL_OF_IT);
    EXPECT(ftruncate(source.file, (off_t)image.size - 100) == 0);
    EXPECT(hami_module_size(&source, &eager) == 0);
    EXPECT(ftruncate(source.file, 0) == 0);
    EXPECT(hami_module_size(&source, &eager) == 0);
    EXPECT(ftruncate(source.file, 5000) == 0 && pwrite(source.file, "x", 1, 0) == 1);
    EXPECT(hami_module_size(&source, &eager) == 1);
    close(source.file);
    source.file = -1;
    EXPECT(hami_module_size(&source, &eager) == 0);
}

/* ---- Text ---- */

static void text_takes_about_its_length_unless_loading_is_lazy(void)
{
    static char text[20000];
    char *pages;

    memset(text, 'x', sizeof(text) - 1);
    EXPECT(size_of(text, &eager) == sizeof(text) - 1);
    EXPECT(size_of(text + 19998, &eager) == 1);
    EXPECT(size_of(text, &lazy) == 0);
    /* Up to the last byte of what can be read. */
    pages = mmap(NULL, 12288, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(munmap(pages + 8192, 4096) == 0);
    memset(pages, 'x', 8192);
    EXPECT(size_of(pages + 100, &eager) == 8092); /* without an end */
    pages[8191] = 0;
    EXPECT(size_of(pages + 100, &eager) == 8091);
    munmap(pages, 8192);
}

#define KIB UINT64_C(1024)

static void of_text_the_variables_are_counted(void)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } all[] = {
        {".global .b8 a[1024];", KIB},
        {".visible .global .align 16 .f32 a[4][256];", 4 * KIB},
        {".weak .global .v4 .f32 a[256];", 4 * KIB},
        {".common .global .u64 a;", 8},
        {".global .b32 a, b[2], c;", 16},
        {".global .b8 a[0x400];.global .b8 b[02000]; .global .b8 c[0b10000000000U];", 3 * KIB},
        {".global .b8 a[4*256];", KIB},
        {".global .u16 a[] = {1, 2, 3};", 6},
        {".global .u16 a[][2] = {{1, 2}, {3, 4}}, b;", 10},
        {".global .s32 a = 5;", 4},
        {".global .u64 table[2] = {f, generic(a)+8};", 16},
        {".global .attribute(.managed) .align 8 .b8 a[1024];", KIB},
        {".global .attribute(.managed, .unified(19,95)) .b8 a[1024];", KIB},
        {".global .b128 a[2]; .global .f16x2 b[2]; .global .bf16 c[2];", 32 + 8 + 4},
        {".global .texref t; .global .surfref s;", 16},
        {".global .b8 name<3>;", 3},
        {".extern .global .b8 a[1024];", 0},
        {"// .global .b8 a[1024];\n", 0},
        {"/* .global .b8 a[1024]; */ /**/ .global .b8 b;", 1},
        {".file 1 \"a \\\".global .b8 a[1024];\"\n.global .b8 b;", 1},
        {".shared .b8 a[1024]; .const .b8 b[1024]; .local .b8 c[1024];", 0},
        {".entry k(.param .u64 .ptr .global .align 4 p, .param .u64 .ptr .global q) {"
         "ld.global.u32 %r1, [p]; cvta.to.global.u64 %rd1, %rd2;}", 0},
        {".global .b8 a[18446744073709551615];", UINT64_MAX},
        {".global .b64 a[4294967296][4294967296];", UINT64_MAX},
        {".global .b8 a[(1 << 20)];", UINT64_MAX}, /* not a number: nothing is granted */
        {".global .b8 a[", UINT64_MAX},
        {".global .b8", 1},
        {".global", UINT64_MAX},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        uint64_t bytes = size_of(all[i].text, &lazy);

        if (bytes != all[i].bytes)
            fprintf(stderr, "%s: %llu\n", all[i].text, (unsigned long long)bytes);
        EXPECT(bytes == all[i].bytes);
    }
}

/* A page of memory ends between any two letters of it. */
static void a_declaration_may_lie_anywhere(void)
{
    static const char declaration[] = "/* text */ .global .align 4 .b8 name[1024]; // end";
    static char text[3 * 4096];

    for (size_t at = 4096 - sizeof(declaration); at <= 4096; at++) {
        memset(text, ' ', sizeof(text) - 1);
        memcpy(text + at, declaration, sizeof(declaration) - 1);
        EXPECT(size_of(text, &lazy) == 1024);
        EXPECT(size_of(text + at, &lazy) == 1024);
    }
}

/* ---- Fat binaries ---- */

struct entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t compressed_bytes, options;
    uint16_t minor, major;
    uint32_t capability, name, name_bytes;
    uint64_t flags, reserved, plain_bytes;
};

static size_t begin_fat(struct image *image)
{
    struct {
        uint32_t magic;
        uint16_t version, header_bytes;
        uint64_t bytes;
    } header = {0xba55ed50, 1, 16, 0};

    put(image, &header, sizeof(header));
    return image->size;
}

static void end_fat(struct image *image, size_t begun)
{
    uint64_t bytes = image->size - begun;

    memcpy(image->bytes + begun - sizeof(bytes), &bytes, sizeof(bytes));
}

static void put_entry(struct image *image, uint16_t kind, uint32_t capability, uint64_t plain_bytes)
{
    struct entry entry = {.kind = kind, .version = 0x101, .header_bytes = sizeof(entry),
                          .bytes = 512, .compressed_bytes = 500, .capability = capability,
                          .plain_bytes = plain_bytes};
    char payload[512] = {0};

    put(image, &entry, sizeof(entry));
    put(image, payload, sizeof(payload));
}

static void of_a_fat_binary_counts_what_this_device_would_load(void)
{
    static struct image image;
    struct hami_module_target other = {.capability = 75};
    size_t begun;

    image.size = 0;
    begun = begin_fat(&image);
    put_entry(&image, 2, 80, 80000);
    put_entry(&image, 2, 86, 86000);
    put_entry(&image, 2, 90, 90000);
    put_entry(&image, 2, 100, 100000);
    put_entry(&image, 1, 60, 6000);
    put_entry(&image, 1, 70, 7000);
    put_entry(&image, 1, 80, 8000);
    end_fat(&image, begun);
    EXPECT(size_of(image.bytes, &eager) == 90000);
    EXPECT(size_of(image.bytes, &lazy) == 0); /* damaged: its variables cannot be seen */
    EXPECT(size_of(image.bytes, &other) == 7000); /* the newest text that can be compiled for it */
    other.capability = 89;
    EXPECT(size_of(image.bytes, &other) == 86000);
    other.capability = 110; /* code of another generation does not run */
    EXPECT(size_of(image.bytes, &other) == 8000);
    other.capability = 50;
    EXPECT(size_of(image.bytes, &other) == 0);
}

static void code_in_a_fat_binary_that_is_not_compressed_is_read(void)
{
    static struct image image;
    struct entry entry = {.kind = 2, .version = 0x101, .header_bytes = sizeof(entry),
                          .capability = 90};
    struct {
        uint32_t magic, version;
        const void *data, *name;
    } wrapper = {0x466243b1, 1, image.bytes, NULL};
    size_t begun, at;

    image.size = 0;
    begun = begin_fat(&image);
    put_entry(&image, 2, 80, 80000);
    at = image.size;
    put(&image, &entry, sizeof(entry));
    put_elf(&image);
    entry.bytes = image.size - at - sizeof(entry);
    memcpy(image.bytes + at, &entry, sizeof(entry));
    end_fat(&image, begun);
    EXPECT(size_of(image.bytes, &eager) == ALL_OF_IT);
    EXPECT(size_of(image.bytes, &lazy) == VARIABLES);
    EXPECT(size_of(&wrapper, &eager) == ALL_OF_IT); /* as compilers wrap it for the runtime */
}

/* ---- Nonsense ---- */

static void a_wild_pointer_is_no_image(void)
{
    struct {
        uint32_t magic, version;
        const void *data, *name;
    } wrapper = {0x466243b1, 1, NULL, NULL};

    EXPECT(size_of((const void *)0x10, &eager) == 0);
    EXPECT(size_of((const void *)(uintptr_t)0x7fffffffffff, &eager) == 0);
    EXPECT(size_of((const void *)UINTPTR_MAX, &eager) == 0);
    EXPECT(size_of(&wrapper, &eager) == 0);
    wrapper.data = (const void *)0xdead;
    EXPECT(size_of(&wrapper, &eager) == 0);
}

/* No image, however damaged, is more than an answer. */
static void damaged_images_are_read_without_harm(void)
{
    static struct image image, damaged;
    uint64_t state = 7;
    size_t begun, first;

    image.size = 0;
    begun = begin_fat(&image);
    put_entry(&image, 2, 80, 80000);
    first = image.size;
    put_elf(&image);
    end_fat(&image, begun);
    for (int i = 0; i < 100000; i++) {
        damaged = image;
        for (int k = 0; k < 3; k++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
            damaged.bytes[(state >> 40) % image.size] = (unsigned char)(state >> 32);
        }
        size_of(damaged.bytes, &eager);
        size_of(damaged.bytes + first, &lazy);
    }
}

int main(void)
{
    an_elf_file_takes_the_sections_that_occupy_device_memory();
    a_file_is_read_like_memory();
    text_takes_about_its_length_unless_loading_is_lazy();
    of_text_the_variables_are_counted();
    a_declaration_may_lie_anywhere();
    of_a_fat_binary_counts_what_this_device_would_load();
    code_in_a_fat_binary_that_is_not_compressed_is_read();
    a_wild_pointer_is_no_image();
    damaged_images_are_read_without_harm();
    return failures != 0;
}
