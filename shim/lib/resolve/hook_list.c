/* A hook is looked for when a program resolves a name, a few hundred times in its life: a walk over
 * the list, comparing lengths first, takes about as long as a hash would take to be made. */
#include "resolve/hook_list.h"

#include <stddef.h>
#include <string.h>

#include "driver/real.h"

static const struct hami_hook hooks[] = {
#define HAMI_HOOK(name, base, from, stream, kind)                                                  \
    {#name,                                                                                        \
     #base,                                                                                        \
     (void *)name,                                                                                 \
     from,                                                                                         \
     offsetof(struct hami_real, name) / sizeof(void *),                                            \
     sizeof(#name) - 1,                                                                            \
     sizeof(#base) - 1,                                                                            \
     stream,                                                                                       \
     HAMI_HOOK_##kind},
#define HAMI_NVML_HOOK(name)                                                                       \
    {#name,                                                                                        \
     NULL,                                                                                         \
     (void *)name,                                                                                 \
     0,                                                                                            \
     offsetof(struct hami_real_nvml, name) / sizeof(void *),                                       \
     sizeof(#name) - 1,                                                                            \
     0,                                                                                            \
     0,                                                                                            \
     HAMI_HOOK_nvml},
#include "hooks.def"
};
#define HOOKS (sizeof(hooks) / sizeof(*hooks))

const struct hami_hook *hami_hook_named(const char *name)
{
    size_t length = strlen(name);

    for (size_t i = 0; i < HOOKS; i++)
        if (hooks[i].length == length && memcmp(hooks[i].name, name, length) == 0)
            return &hooks[i];
    return NULL;
}

static bool is_base(const struct hami_hook *hook, const char *base, size_t length)
{
    return hook->base_length == length && memcmp(hook->base, base, length) == 0;
}

static void *entry_of(const void *table, const struct hami_hook *hook)
{
    void *function;

    memcpy(&function, (const char *)table + hook->place * sizeof(function), sizeof(function));
    return function;
}

/* Of two spellings of one function: which is nearer to what was asked for. */
static int nearness(const struct hami_hook *hook, const char *base, int version, bool per_thread)
{
    int points = 0;

    if (strcmp(hook->base, base) == 0)
        points += 4;
    if (hook->stream == per_thread)
        points += 2;
    if (hook->from <= version)
        points += 1;
    return points;
}

const struct hami_hook *hami_hook_before(const void *real, const char *base, int version,
                                         bool per_thread)
{
    const struct hami_real *driver = hami_real();
    const struct hami_hook *best = NULL;

    for (size_t i = 0; i < HOOKS; i++) {
        if (!hooks[i].base || entry_of(driver, &hooks[i]) != real)
            continue;
        if (!best || nearness(&hooks[i], base, version, per_thread) >
                         nearness(best, base, version, per_thread))
            best = &hooks[i];
    }
    return best;
}

const struct hami_hook *hami_hook_for(const char *base, int version, bool per_thread)
{
    const struct hami_hook *best = NULL;
    size_t length;

    /* The one name whose ABI went on under another name. */
    if (strcmp(base, "cuGraphInstantiate") == 0 && version >= 12000)
        base = "cuGraphInstantiateWithFlags";
    length = strlen(base);
    for (size_t i = 0; i < HOOKS; i++) {
        const struct hami_hook *hook = &hooks[i];

        /* Where there is no spelling for per-thread streams the plain one serves both. */
        if (!hook->base || !is_base(hook, base, length) || hook->from > version ||
            (hook->stream && !per_thread))
            continue;
        if (!best || hook->stream > best->stream ||
            (hook->stream == best->stream && hook->from > best->from))
            best = hook;
    }
    return best && hami_hook_is_there(best) ? best : NULL;
}

bool hami_hook_kind_of(const char *base, enum hami_hook_kind *kind)
{
    size_t length = strlen(base);

    for (size_t i = 0; i < HOOKS; i++) {
        if (hooks[i].base && is_base(&hooks[i], base, length)) {
            *kind = (enum hami_hook_kind)hooks[i].kind;
            return true;
        }
    }
    return false;
}

static const void *table_of(const struct hami_hook *hook)
{
    return hook->base ? hami_table_cuda() : hami_table_nvml();
}

bool hami_hook_is_there(const struct hami_hook *hook)
{
    return hami_table_has(table_of(hook), hook->place);
}

void *hami_hook_real(const struct hami_hook *hook)
{
    return entry_of(table_of(hook), hook);
}
