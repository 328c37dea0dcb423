/* HAMi reads sizes with strtoul: a minus, an overflow or rubbish there ends as 0, which means no
 * limit. Here whatever is not plainly a size is refused, and the caller fails closed. */
#include "slice/env.h"

#include <stdio.h>
#include <string.h>

/* The digits at the start of a text, without leading zeroes (which strtoul takes for octal). */
static const char *number(const char *text, uint64_t *value)
{
    const char *at = text;

    *value = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');

        if (*value > (UINT64_MAX - digit) / 10)
            return NULL;
        *value = *value * 10 + digit;
    }
    if (at == text || (*text == '0' && at - text > 1))
        return NULL;
    return at;
}

bool hami_env_size(const char *text, uint64_t *bytes)
{
    const char *rest = number(text, bytes);
    unsigned shift = 0;

    if (!rest)
        return false;
    if (*rest == 'g' || *rest == 'G')
        shift = 30;
    else if (*rest == 'm' || *rest == 'M')
        shift = 20;
    else if (*rest == 'k' || *rest == 'K')
        shift = 10;
    if (shift && *++rest && (*rest == 'b' || *rest == 'B'))
        rest++;
    if (*rest || *bytes > UINT64_MAX >> shift)
        return false;
    *bytes <<= shift;
    return true;
}

bool hami_env_percent(const char *text, uint32_t *percent)
{
    uint64_t value;
    const char *rest = number(text, &value);

    if (!rest || *rest || value > 100)
        return false;
    *percent = (uint32_t)value;
    return true;
}

/* The variable of device i, or the one for all devices; NULL: neither is set. */
static const char *of_device(hami_env_get *get, const char *name, int i, char used[64])
{
    const char *text;

    snprintf(used, 64, "%s_%d", name, i);
    text = get(used);
    if (text)
        return text;
    snprintf(used, 64, "%s", name);
    return get(used);
}

/* Words that are not limits: what makes no sense is as if it were not there. */
static void read_words(hami_env_get *get, struct hami_env *env)
{
    const char *priority = get("CUDA_TASK_PRIORITY");
    const char *policy = get("GPU_CORE_UTILIZATION_POLICY");
    const char *rest;
    uint64_t value;

    env->priority = 1;
    if (priority) {
        rest = number(priority, &value);
        if (rest && !*rest && value <= INT32_MAX)
            env->priority = (uint32_t)value;
    }
    env->policy = HAMI_POLICY_DEFAULT;
    if (policy && (strcmp(policy, "force") == 0 || strcmp(policy, "FORCE") == 0))
        env->policy = HAMI_POLICY_FORCE;
    if (policy && (strcmp(policy, "disable") == 0 || strcmp(policy, "DISABLE") == 0))
        env->policy = HAMI_POLICY_DISABLE;
}

bool hami_env_read(hami_env_get *get, struct hami_env *env, char culprit[64])
{
    memset(env, 0, sizeof(*env));
    read_words(get, env);
    for (int i = 0; i < HAMI_MAX_DEVICES; i++) {
        const char *text = of_device(get, "CUDA_DEVICE_MEMORY_LIMIT", i, culprit);

        if (text && !hami_env_size(text, &env->memory_bytes[i]))
            return false;
        text = of_device(get, "CUDA_DEVICE_SM_LIMIT", i, culprit);
        if (text && !hami_env_percent(text, &env->cores[i]))
            return false;
        if (env->memory_bytes[i] || (env->cores[i] && env->cores[i] < 100))
            env->any = true;
    }
    return true;
}

static bool starts_uuid(const char *text)
{
    return strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0;
}

int hami_env_uuids(const char *text, char uuids[HAMI_MAX_DEVICES][HAMI_UUID_SIZE])
{
    int count = 0;

    if (!text || !starts_uuid(text))
        return 0;
    for (;;) {
        size_t length = strcspn(text, ",");

        if (count == HAMI_MAX_DEVICES || length <= 4 || length >= HAMI_UUID_SIZE ||
            !starts_uuid(text))
            return -1;
        memset(uuids[count], 0, HAMI_UUID_SIZE);
        memcpy(uuids[count], text, length);
        for (int i = 0; i < count; i++)
            if (strcmp(uuids[i], uuids[count]) == 0)
                return -1;
        count++;
        if (!text[length])
            return count;
        text += length + 1;
    }
}

int hami_env_numbers(const char *text, int numbers[HAMI_MAX_DEVICES])
{
    int count = 0;

    if (strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0)
        return -1;
    while (count < HAMI_MAX_DEVICES) {
        uint64_t value;
        const char *rest = number(text + strspn(text, " "), &value);

        if (!rest || value > INT32_MAX)
            return count;
        for (int i = 0; i < count; i++)
            if (numbers[i] == (int)value)
                return count;
        numbers[count++] = (int)value;
        rest += strspn(rest, " ");
        if (*rest != ',')
            return count;
        text = rest + 1;
    }
    return count;
}
