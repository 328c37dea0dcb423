/* Images as compilers write them: PTX, ELF files, fat binaries of both. Made into the simulator's own
 * text: their kernels, which take no time, and their variables, which take what they say. Of a fat
 * binary the code for the nearest architecture is taken, else text. Damaged ones are refused where
 * that is seen; as with a real driver, a length that lies may end the program. */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>

#include "client.h"
#include "modules.h"
#include "code/unpack_lz4.h"
#include "code/unpack_zstd.h"

#define OWN "hami-sim 1"
/* Compared as text, which an image may be that is shorter. */
#define WRAPPER "\xb1\x43\x62\x46"
#define FAT "\x50\xed\x55\xba"

struct fat_header { /* as compilers write it */
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
};

struct fat_entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t packed_bytes, options;
    uint16_t minor, major;
    uint32_t capability, name, name_bytes;
    uint64_t flags, reserved, plain_bytes;
};

/* ---- PTX ---- */

static void without_comments(char *text)
{
    char *to = text;

    for (char *from = text; *from != '\0';) {
        if (strncmp(from, "//", 2) == 0) {
            from += strcspn(from, "\n");
        } else if (strncmp(from, "/*", 2) == 0) {
            char *end = strstr(from + 2, "*/");
            from = end != NULL ? end + 2 : from + strlen(from);
            *to++ = ' ';
        } else {
            *to++ = *from++;
        }
    }
    *to = '\0';
}

/* One statement at a time: what is declared before a ';' or a '{'. */
static void ptx_statement(char *statement, FILE *out)
{
    unsigned long long elements = 1, bits = 0, vector = 1;
    char *rest, *word, *name = NULL, *bracket;
    bool global = false;

    if ((word = strstr(statement, ".entry")) != NULL) {
        char entry[SIM_NAME_SIZE];
        if (sscanf(word + 6, " %127[A-Za-z0-9_$]", entry) == 1)
            fprintf(out, "kernel %s ns=0\n", entry);
        return;
    }
    if (strstr(statement, ".extern") != NULL)
        return;
    for (bracket = strchr(statement, '['); bracket != NULL; bracket = strchr(bracket + 1, '['))
        elements *= strtoull(bracket + 1, NULL, 0);
    statement[strcspn(statement, "[=")] = '\0';
    for (word = strtok_r(statement, " \t\r\n", &rest); word != NULL;
         word = strtok_r(NULL, " \t\r\n", &rest)) {
        global = global || strcmp(word, ".global") == 0;
        if (sscanf(word, ".v%llu", &vector) == 1)
            continue;
        if (sscanf(word, ".%*[busf]%llu", &bits) != 1)
            name = word;
    }
    if (global && name != NULL && bits >= 8)
        fprintf(out, "global %s %llu\n", name, elements * vector * bits / 8);
}

static void ptx(const char *image, FILE *out)
{
    char *text = strdup(image), *at, *end;

    if (text == NULL)
        return;
    without_comments(text);
    for (at = text; (end = strpbrk(at, ";{}")) != NULL; at = end + 1) {
        bool initialised = *end == '{' && memchr(at, '=', (size_t)(end - at)) != NULL;
        char *behind = initialised ? strchr(end, ';') : end;
        *end = '\0';
        ptx_statement(at, out);
        if (behind == NULL)
            break;
        end = behind;
    }
    free(text);
}

/* ---- ELF ---- */

static bool elf(const char *image, FILE *out)
{
    const Elf64_Ehdr *header = (const void *)image;
    const Elf64_Shdr *sections = (const void *)(image + header->e_shoff);
    const char *names;

    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_shentsize != sizeof *sections ||
        header->e_shstrndx >= header->e_shnum)
        return false;
    names = image + sections[header->e_shstrndx].sh_offset;
    for (int i = 0; i < header->e_shnum; i++) {
        const char *name = names + sections[i].sh_name;
        unsigned long long bytes = sections[i].sh_size;
        if (bytes > 0 && strncmp(name, ".nv.global", 10) == 0)
            fprintf(out, "global %s %llu\n", name, bytes);
        else if (strncmp(name, ".text.", 6) == 0)
            fprintf(out, "kernel %s ns=0 code=%llu\n", name + 6, bytes);
    }
    return true;
}

/* ---- Fat binaries ---- */

static bool one(const char *image, FILE *out)
{
    if (strncmp(image, ELFMAG, SELFMAG) == 0)
        return elf(image, out);
    if (strstr(image, ".version") == NULL)
        return false;
    ptx(image, out);
    return true;
}

static bool entry(const struct fat_entry *found, FILE *out)
{
    const uint8_t *content = (const uint8_t *)found + found->header_bytes;
    size_t bytes = found->packed_bytes ? found->plain_bytes : found->bytes, done = bytes;
    char *plain = calloc(1, bytes + 1);
    bool good = false;

    if (plain == NULL)
        return false;
    if (found->packed_bytes == 0)
        memcpy(plain, content, bytes);
    else if (memcmp(content, "\x28\xb5\x2f\xfd", 4) == 0)
        done = hami_unpack_zstd(content, found->packed_bytes, (uint8_t *)plain, bytes);
    else
        done = hami_unpack_lz4(content, found->packed_bytes, (uint8_t *)plain, bytes);
    if (done > 0)
        good = one(plain, out);
    free(plain);
    return good;
}

static bool fat(const char *image, FILE *out)
{
    const struct fat_header *header = (const void *)image;
    const struct sim_device *device = sim_device(0);
    const struct fat_entry *best = NULL;
    unsigned int ours = device != NULL ? (unsigned int)(10 * device->major + device->minor) : 0;

    for (uint64_t at = 0; at < header->bytes;) {
        const struct fat_entry *next = (const void *)(image + header->header_bytes + at);
        bool fits = next->capability <= ours &&
                    (next->kind == 1 || (next->kind == 2 && next->capability / 10 == ours / 10));
        if (fits && (best == NULL || next->kind > best->kind ||
                     (next->kind == best->kind && next->capability > best->capability)))
            best = next;
        at += next->header_bytes + next->bytes;
    }
    return best != NULL && entry(best, out);
}

CUresult sim_image_text(const void *image, char **text)
{
    const struct { uint32_t magic, version; const void *data, *name; } *wrapper = image;
    size_t length;
    bool good;
    FILE *out;

    if (image == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (strncmp(image, OWN, strlen(OWN)) == 0) {
        *text = strdup(image);
        return *text != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    out = open_memstream(text, &length);
    if (out == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fprintf(out, OWN "\n");
    if (strncmp(image, WRAPPER, 4) == 0)
        image = wrapper->data;
    good = strncmp(image, FAT, 4) == 0 ? fat(image, out) : one(image, out);
    if (fclose(out) == 0 && good)
        return CUDA_SUCCESS;
    free(*text);
    return good ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_IMAGE;
}
