/* Any text in the environment is read as what it says or refused. links: lib/slice/env.c */
#include "fuzz.h"
#include "slice/env.h"

/* What a size means, worked out in another way: by 128 bits. */
static int means(const char *text, uint64_t *bytes)
{
    unsigned __int128 value = 0;
    size_t digits = strspn(text, "0123456789"), length = strlen(text);
    const char *rest = text + digits;
    static const struct {
        const char *suffix;
        unsigned shift;
    } suffixes[] = {{"", 0}, {"k", 10}, {"kb", 10}, {"m", 20}, {"mb", 20}, {"g", 30}, {"gb", 30}};

    if (digits == 0 || length > 30 || (digits > 1 && *text == '0'))
        return 0;
    for (size_t i = 0; i < digits; i++)
        value = value * 10 + (unsigned)(text[i] - '0');
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(*suffixes); i++) {
        if (strcasecmp(rest, suffixes[i].suffix) == 0) {
            value <<= suffixes[i].shift;
            *bytes = (uint64_t)value;
            return value <= UINT64_MAX;
        }
    }
    return 0;
}

static const char *input;

static const char *everywhere(const char *name)
{
    (void)name;
    return input;
}

static const char *one_device(const char *name)
{
    return strcmp(name, "CUDA_DEVICE_MEMORY_LIMIT_3") == 0 ? input : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char uuids[HAMI_MAX_DEVICES][HAMI_UUID_SIZE], culprit[64];
    char *text = malloc(size + 1);
    uint64_t bytes = 0, expected = 0;
    int numbers[HAMI_MAX_DEVICES], count;
    uint32_t percent;
    struct hami_env env;
    bool read;

    memcpy(text, data, size);
    text[size] = '\0';
    read = hami_env_size(text, &bytes);
    MUST(read == (means(text, &expected) != 0));
    MUST(!read || bytes == expected);
    if (hami_env_percent(text, &percent))
        MUST(percent <= 100 && strspn(text, "0123456789") == strlen(text));

    input = text;
    MUST(hami_env_read(one_device, &env, culprit) == read);
    if (read)
        MUST(env.memory_bytes[3] == bytes && env.memory_bytes[2] == 0 && env.any == (bytes != 0));
    else
        MUST(strcmp(culprit, "CUDA_DEVICE_MEMORY_LIMIT_3") == 0);
    hami_env_read(everywhere, &env, culprit);

    count = hami_env_uuids(text, uuids);
    MUST(count >= -1 && count <= HAMI_MAX_DEVICES);
    for (int i = 0; i < count; i++)
        MUST(memchr(uuids[i], 0, HAMI_UUID_SIZE) && strlen(uuids[i]) > 4);
    count = hami_env_numbers(text, numbers);
    MUST(count >= -1 && count <= HAMI_MAX_DEVICES);
    for (int i = 0; i < count; i++)
        MUST(numbers[i] >= 0);
    free(text);
    return 0;
}

#ifndef HAMI_LIBFUZZER
int main(void)
{
#define SEED(text) {text, sizeof(text) - 1}
    static const struct fuzz_seed seeds[] = {
        SEED(""),      SEED("3000m"),  SEED("4GB"),    SEED("17179869183g"),
        SEED("100"),   SEED("0"),      SEED("-1g"),    SEED("18446744073709551615"),
        SEED("0,1,2"), SEED("GPU-01234567-89ab-cdef-8000-0123456789ab,MIG-1,GPU-2"),
    };

    return fuzz(seeds, sizeof(seeds) / sizeof(*seeds), 2048, 400000);
}
#endif
