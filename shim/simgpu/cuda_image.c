/* Module images: text that says which kernels there are and how long they take.
 *
 *     hami-sim 1
 *     kernel NAME ns=DURATION [width=THOUSANDTHS] [per_block_ns=N] [code=BYTES] [local=BYTES]
 *     global NAME BYTES
 *
 * `width` is the part of the device's multiprocessors that the kernel fills (1000), `code` what
 * loading it takes (64 KiB), `local` the local memory of each thread. The duration of a kernel
 * whose name contains "dynamic" is its first parameter, a uint64_t of nanoseconds. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "modules.h"

#define HEADER "hami-sim 1"
#define DEFAULT_CODE UINT64_C(65536)
#define MAX_IMAGE ((size_t)16 << 20)

void sim_image_free(struct sim_image *image)
{
    free(image->symbols);
    *image = (struct sim_image){ 0 };
}

static bool number(const char *text, uint64_t *value)
{
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0';
}

static bool option(struct sim_symbol *symbol, char *word)
{
    char *equals = strchr(word, '=');
    uint64_t value;

    if (equals == NULL || !number(equals + 1, &value))
        return false;
    *equals = '\0';
    if (strcmp(word, "ns") == 0)
        symbol->ns = value;
    else if (strcmp(word, "per_block_ns") == 0)
        symbol->per_block_ns = value;
    else if (strcmp(word, "code") == 0)
        symbol->bytes = value;
    else if (strcmp(word, "local") == 0)
        symbol->local = value;
    else if (strcmp(word, "width") == 0 && value >= 1 && value <= 1000)
        symbol->width = (uint32_t)value;
    else
        return false;
    return true;
}

static bool parse_line(char *line, struct sim_symbol *symbol)
{
    char *rest, *kind = strtok_r(line, " \t\r", &rest), *name = strtok_r(NULL, " \t\r", &rest);
    char *word = strtok_r(NULL, " \t\r", &rest);

    if (name == NULL || strlen(name) >= sizeof symbol->name || word == NULL)
        return false;
    memset(symbol, 0, sizeof *symbol);
    memcpy(symbol->name, name, strlen(name) + 1);
    if (strcmp(kind, "global") == 0) {
        symbol->global = true;
        return number(word, &symbol->bytes) && symbol->bytes > 0 &&
               strtok_r(NULL, " \t\r", &rest) == NULL;
    }
    if (strcmp(kind, "kernel") != 0)
        return false;
    symbol->width = 1000;
    symbol->bytes = DEFAULT_CODE;
    symbol->dynamic = strstr(name, "dynamic") != NULL;
    for (; word != NULL; word = strtok_r(NULL, " \t\r", &rest))
        if (!option(symbol, word))
            return false;
    return true;
}

CUresult sim_image_parse(const char *text, struct sim_image *image)
{
    struct sim_image parsed = { 0 };
    char *copy, *line, *rest;
    size_t lines = 0;

    if (text == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (strncmp(text, HEADER, strlen(HEADER)) != 0)
        return CUDA_ERROR_INVALID_IMAGE;
    text += strlen(HEADER);
    if (*text != '\n' && *text != '\0')
        return CUDA_ERROR_INVALID_IMAGE;
    for (const char *at = text; *at != '\0'; at++)
        lines += *at == '\n';
    copy = strdup(text);
    parsed.symbols = calloc(lines + 1, sizeof *parsed.symbols);
    if (copy == NULL || parsed.symbols == NULL) {
        free(copy);
        free(parsed.symbols);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (line = strtok_r(copy, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        if (line[strspn(line, " \t\r")] == '\0' || *line == '#')
            continue;
        if (!parse_line(line, &parsed.symbols[parsed.count++])) {
            free(copy);
            sim_image_free(&parsed);
            return CUDA_ERROR_INVALID_IMAGE;
        }
    }
    free(copy);
    *image = parsed;
    return CUDA_SUCCESS;
}

CUresult sim_image_read(const char *path, char **text)
{
    FILE *file;
    char *content;
    size_t length;

    if (path == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    file = fopen(path, "re");
    if (file == NULL)
        return CUDA_ERROR_FILE_NOT_FOUND;
    content = malloc(MAX_IMAGE + 1);
    if (content == NULL) {
        fclose(file);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    length = fread(content, 1, MAX_IMAGE, file);
    fclose(file);
    content[length] = '\0';
    *text = content;
    return CUDA_SUCCESS;
}
