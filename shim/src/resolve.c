/* dlsym and dlvsym as programs see them. resolve_entry.S is what is exported: it asks here, and
 * where the answer is not ours it jumps into the C library with the registers as they came, so that
 * RTLD_NEXT and RTLD_DEFAULT mean what they mean to the caller. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>

#include "hooks.h"
#include "image.h"
#include "tables.h"

/* `jump` is where to go on; NULL: `answer` is the answer. Two words, which both architectures
 * return in registers. */
struct hami_way {
    void *answer;
    void *jump;
};

typedef void *dlsym_function(void *handle, const char *name);
typedef void *dlvsym_function(void *handle, const char *name, const char *version);

struct hami_way hami_dlsym_way(void *handle, const char *name, const void *caller);
struct hami_way hami_dlvsym_way(void *handle, const char *name, const char *version,
                                const void *caller);

/* Names that begin like the driver's: not cursor, not curl_easy_init. */
HAMI_EARLY static bool may_be_ours(const char *name)
{
    const char *rest = NULL;

    if (name && name[0] == 'c' && name[1] == 'u')
        rest = name + 2;
    else if (name && name[0] == 'n' && name[1] == 'v' && name[2] == 'm' && name[3] == 'l')
        rest = name + 4;
    return rest && *rest >= 'A' && *rest <= 'Z';
}

/* NULL: let the C library answer. */
HAMI_EARLY static const struct hami_hook *hook_asked_for(const char *name)
{
    return may_be_ours(name) ? hami_hook_named(name) : NULL;
}

/* What stands before the driver is not for the driver itself, nor for us. The C library forgets an
 * earlier error with each name that it finds, so we do. */
static struct hami_way way_to(const struct hami_hook *hook, const void *caller)
{
    dlerror();
    if (hami_image_ours(caller) || hami_image_of_driver(caller))
        return (struct hami_way){.answer = hami_hook_real(hook)};
    return (struct hami_way){.answer = hook->hook};
}

/* By the handle of a library. One that has a function of its own by this name keeps it, and where
 * neither we nor the driver is behind the handle nothing is found. */
static struct hami_way in_library(dlsym_function *ask, void *handle, const struct hami_hook *hook,
                                  const void *caller)
{
    void *found = ask(handle, hook->name);

    if (!found || !(hami_image_ours(found) || hami_image_of_driver(found)))
        return (struct hami_way){.answer = found};
    if (hami_hook_is_there(hook))
        return way_to(hook, caller);
    return (struct hami_way){.answer = hami_image_ours(found) ? ask(RTLD_NEXT, hook->name) : found};
}

/* RTLD_DEFAULT and RTLD_NEXT find us wherever the driver is. Where it is not in the process, or is
 * too old to have the function, what is found must not be us, who only stand in front of nothing:
 * from here RTLD_NEXT means behind us. */
HAMI_EARLY struct hami_way hami_dlsym_way(void *handle, const char *name, const void *caller)
{
    const struct hami_hook *hook = hook_asked_for(name);
    dlsym_function *ask = (dlsym_function *)hami_libc_dlsym();

    if (!hook || !ask)
        return (struct hami_way){.jump = (void *)ask};
    if (handle != RTLD_NEXT && handle != RTLD_DEFAULT)
        return in_library(ask, handle, hook, caller);
    if (hami_hook_is_there(hook))
        return way_to(hook, caller);
    return (struct hami_way){.answer = ask(RTLD_NEXT, name)};
}

HAMI_EARLY struct hami_way hami_dlvsym_way(void *handle, const char *name, const char *version,
                                           const void *caller)
{
    const struct hami_hook *hook = hook_asked_for(name);

    (void)version; /* the driver's symbols have none, and ours have none */
    (void)handle;
    if (hook && hami_hook_is_there(hook))
        return way_to(hook, caller);
    return (struct hami_way){.jump = hami_libc_dlvsym()};
}
