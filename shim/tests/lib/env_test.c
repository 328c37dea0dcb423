/* What the environment may say, and how it is understood. links: lib/slice/env.c */
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "slice/env.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static void sizes(void)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } read[] = {
        {"0", 0},
        {"0m", 0},
        {"0G", 0},
        {"1", 1},
        {"2048", 2048},
        {"3000m", 3000 * MIB},
        {"3000M", 3000 * MIB},
        {"1g", GIB},
        {"1G", GIB},
        {"4gb", 4 * GIB},
        {"4GB", 4 * GIB},
        {"4mB", 4 * MIB},
        {"7k", 7 * KIB},
        {"7Kb", 7 * KIB},
        {"18446744073709551615", UINT64_MAX},
        {"17179869183g", 17179869183 * GIB},
        {"18014398509481983k", 18014398509481983 * KIB},
    };
    /* What HAMi's parser turns into no limit or into something else, and what is simply no size. */
    static const char *const refused[] = {
        "",        "-1g",   "-1",       "20000000000g", "17179869184g", "18446744073709551616",
        "99999999999999999999999999", "1.5g", "1,5g",   "g",            "m",
        "b",       "1b",    "1t",       "1gi",          "1GiB",         "1gbb",
        "1 g",     " 1g",   "1g ",      "1g\n",         "+1g",          "0x10m",
        "010m",    "08m",   "00",       "00m",          "1e9",          "1mm",
        "1gg",     "unlimited", "none", "nan",          "1g;",          "\xc2\xb2g",
        "18014398509481984k",
    };
    uint64_t bytes;

    for (size_t i = 0; i < sizeof(read) / sizeof(*read); i++) {
        bytes = 12345;
        EXPECT(hami_env_size(read[i].text, &bytes));
        if (bytes != read[i].bytes) {
            fprintf(stderr, "%s\n", read[i].text);
            EXPECT(bytes == read[i].bytes);
        }
    }
    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
        if (hami_env_size(refused[i], &bytes)) {
            fprintf(stderr, "read as %llu: '%s'\n", (unsigned long long)bytes, refused[i]);
            failures++;
        }
    }
}

static void percents(void)
{
    static const char *const refused[] = {"",   "101", "1000", "-1", "50%", "0x10", "050",
                                          "1k", "30 ", " 30",  "a",  "4294967346"};
    uint32_t percent;

    for (uint32_t i = 0; i <= 100; i++) {
        char text[8];

        snprintf(text, sizeof(text), "%u", i);
        EXPECT(hami_env_percent(text, &percent) && percent == i);
    }
    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++)
        EXPECT(!hami_env_percent(refused[i], &percent));
}

/* An environment of the test's own: NAME=value strings. */
static const char *const *set;

static const char *get(const char *name)
{
    size_t length = strlen(name);

    for (const char *const *at = set; *at; at++)
        if (strncmp(*at, name, length) == 0 && (*at)[length] == '=')
            return *at + length + 1;
    return NULL;
}

#define READ(...)                                                                                  \
    (set = (const char *const[]){__VA_ARGS__, NULL}, hami_env_read(get, &env, culprit))

static void limits(void)
{
    struct hami_env env;
    char culprit[64];

    EXPECT(READ(NULL));
    EXPECT(!env.any && env.priority == 1 && env.policy == HAMI_POLICY_DEFAULT);

    EXPECT(READ("CUDA_DEVICE_MEMORY_LIMIT=2g"));
    EXPECT(env.any && env.memory_bytes[0] == 2 * GIB && env.memory_bytes[15] == 2 * GIB);
    EXPECT(env.cores[0] == 0);

    EXPECT(READ("CUDA_DEVICE_MEMORY_LIMIT_1=3000m", "CUDA_DEVICE_MEMORY_LIMIT=1g",
                "CUDA_DEVICE_SM_LIMIT=30", "CUDA_DEVICE_SM_LIMIT_2=60"));
    EXPECT(env.memory_bytes[0] == GIB && env.memory_bytes[1] == 3000 * MIB);
    EXPECT(env.cores[0] == 30 && env.cores[1] == 30 && env.cores[2] == 60);

    /* _1 is not the start of _15. */
    EXPECT(READ("CUDA_DEVICE_MEMORY_LIMIT_15=1g"));
    EXPECT(env.any && env.memory_bytes[1] == 0 && env.memory_bytes[15] == GIB);

    /* Nothing is limited here, so this is no slice. */
    EXPECT(READ("CUDA_DEVICE_MEMORY_LIMIT=0m", "CUDA_DEVICE_SM_LIMIT=100", "CUDA_TASK_PRIORITY=0",
                "GPU_CORE_UTILIZATION_POLICY=force"));
    EXPECT(!env.any && env.priority == 0 && env.policy == HAMI_POLICY_FORCE);
    EXPECT(READ("CUDA_DEVICE_SM_LIMIT=99"));
    EXPECT(env.any);
    EXPECT(READ("CUDA_DEVICE_MEMORY_LIMIT_16=1g"));
    EXPECT(!env.any);
}

static void what_cannot_be_read_names_itself(void)
{
    struct hami_env env;
    char culprit[64];

    EXPECT(!READ("CUDA_DEVICE_MEMORY_LIMIT_3=1.5g", "CUDA_DEVICE_MEMORY_LIMIT=1g"));
    EXPECT(strcmp(culprit, "CUDA_DEVICE_MEMORY_LIMIT_3") == 0);
    EXPECT(!READ("CUDA_DEVICE_MEMORY_LIMIT="));
    EXPECT(strcmp(culprit, "CUDA_DEVICE_MEMORY_LIMIT") == 0);
    EXPECT(!READ("CUDA_DEVICE_SM_LIMIT=150"));
    EXPECT(strcmp(culprit, "CUDA_DEVICE_SM_LIMIT") == 0);
    EXPECT(!READ("CUDA_DEVICE_MEMORY_LIMIT=1g", "CUDA_DEVICE_SM_LIMIT_0=-5"));
    EXPECT(strcmp(culprit, "CUDA_DEVICE_SM_LIMIT_0") == 0);
}

/* A word that makes no sense raises nobody's rank and lifts no limit. */
static void words(void)
{
    struct hami_env env;
    char culprit[64];

    static const char *const not_priorities[] = {
        "CUDA_TASK_PRIORITY=",    "CUDA_TASK_PRIORITY=-1",          "CUDA_TASK_PRIORITY=high",
        "CUDA_TASK_PRIORITY=0x0", "CUDA_TASK_PRIORITY=99999999999",
    };

    for (size_t i = 0; i < sizeof(not_priorities) / sizeof(*not_priorities); i++) {
        EXPECT(READ(not_priorities[i]));
        EXPECT(env.priority == 1);
    }
    EXPECT(READ("CUDA_TASK_PRIORITY=7") && env.priority == 7);
    EXPECT(READ("GPU_CORE_UTILIZATION_POLICY=FORCE") && env.policy == HAMI_POLICY_FORCE);
    EXPECT(READ("GPU_CORE_UTILIZATION_POLICY=disable") && env.policy == HAMI_POLICY_DISABLE);
    EXPECT(READ("GPU_CORE_UTILIZATION_POLICY=DISABLE") && env.policy == HAMI_POLICY_DISABLE);
    EXPECT(READ("GPU_CORE_UTILIZATION_POLICY=Disable") && env.policy == HAMI_POLICY_DEFAULT);
    EXPECT(READ("GPU_CORE_UTILIZATION_POLICY=disabled") && env.policy == HAMI_POLICY_DEFAULT);
}

static void lists_of_uuids(void)
{
    char uuids[HAMI_MAX_DEVICES][HAMI_UUID_SIZE], text[2048];
    static const char *const none[] = {"", "all", "none", "void", "0", "0,1", "gpu-1", "GP"};
    static const char *const wrong[] = {"GPU-", "GPU-1,", "GPU-1,,GPU-2", "GPU-1,0", "GPU-1,all",
                                        "GPU-1,GPU-1", "GPU-1, GPU-2"};

    EXPECT(hami_env_uuids(NULL, uuids) == 0);
    for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++)
        EXPECT(hami_env_uuids(none[i], uuids) == 0);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        EXPECT(hami_env_uuids(wrong[i], uuids) == -1);
    EXPECT(hami_env_uuids("GPU-b,MIG-a", uuids) == 2);
    EXPECT(strcmp(uuids[0], "GPU-b") == 0 && strcmp(uuids[1], "MIG-a") == 0);

    strcpy(text, "GPU-0");
    for (int i = 1; i < HAMI_MAX_DEVICES; i++)
        sprintf(text + strlen(text), ",GPU-%d", i);
    EXPECT(hami_env_uuids(text, uuids) == HAMI_MAX_DEVICES);
    strcat(text, ",GPU-one-more");
    EXPECT(hami_env_uuids(text, uuids) == -1);

    memset(text, 'x', sizeof(text));
    memcpy(text, "GPU-", 4);
    text[HAMI_UUID_SIZE - 1] = '\0';
    EXPECT(hami_env_uuids(text, uuids) == 1 && strcmp(uuids[0], text) == 0);
    text[HAMI_UUID_SIZE - 1] = 'x';
    text[HAMI_UUID_SIZE] = '\0';
    EXPECT(hami_env_uuids(text, uuids) == -1);
}

static void lists_of_numbers(void)
{
    int numbers[HAMI_MAX_DEVICES];

    EXPECT(hami_env_numbers("", numbers) == 0);
    EXPECT(hami_env_numbers("GPU-1", numbers) == -1 && hami_env_numbers("MIG-1", numbers) == -1);
    EXPECT(hami_env_numbers("3", numbers) == 1 && numbers[0] == 3);
    EXPECT(hami_env_numbers("2, 0", numbers) == 2 && numbers[0] == 2 && numbers[1] == 0);
    /* As in the driver, the first that makes no sense ends the list. */
    EXPECT(hami_env_numbers("1,-1,0", numbers) == 1 && numbers[0] == 1);
    EXPECT(hami_env_numbers("1,1,0", numbers) == 1);
    EXPECT(hami_env_numbers("-1", numbers) == 0 && hami_env_numbers("x", numbers) == 0);
    EXPECT(hami_env_numbers("99999999999999999999999", numbers) == 0);
    EXPECT(hami_env_numbers("0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", numbers) ==
           HAMI_MAX_DEVICES);
}

int main(void)
{
    sizes();
    percents();
    limits();
    what_cannot_be_read_names_itself();
    words();
    lists_of_uuids();
    lists_of_numbers();
    return failures != 0;
}
