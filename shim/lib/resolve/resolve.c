#include "resolve/resolve.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>

#include "driver/image.h"
#include "driver/real.h"
#include "resolve/hook_list.h"

typedef void *dlsym_function(void *handle, const char *name);
typedef void *dlvsym_function(void *handle, const char *name, const char *version);

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

/* dlsym and dlvsym themselves, by whatever way they are asked for: who has the C library's own gets
 * every other function past us. No strcmp: see HAMI_EARLY. */
HAMI_EARLY static void *resolver_asked_for(const char *name)
{
    const char *rest = name;

    if (!name || name[0] != 'd' || name[1] != 'l')
        return NULL;
    rest += name[2] == 'v' ? 3 : 2;
    if (rest[0] != 's' || rest[1] != 'y' || rest[2] != 'm' || rest[3] != 0)
        return NULL;
    return name[2] == 'v' ? (void *)dlvsym : (void *)dlsym;
}

HAMI_EARLY static bool is_of_libc(const void *address)
{
    const struct link_map *map = hami_image_around(address);
    struct hami_image image;

    return map && hami_image_read(map, &image) &&
           (hami_image_has_soname(&image, "libc.so.6") ||
            hami_image_has_soname(&image, "libdl.so.2"));
}

/* A library that brings one of its own keeps it where it is asked for by its handle. */
HAMI_EARLY static struct hami_way way_to_resolver(void *found, void *ours)
{
    return (struct hami_way){.answer = found && is_of_libc(found) ? ours : found};
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
    void *resolver = resolver_asked_for(name);
    bool anywhere = handle == RTLD_NEXT || handle == RTLD_DEFAULT;

    if (__builtin_expect(resolver != NULL, 0) && ask)
        return anywhere ? (struct hami_way){.answer = resolver}
                        : way_to_resolver(ask(handle, name), resolver);
    if (!hook || !ask)
        return (struct hami_way){.jump = (void *)ask};
    if (!anywhere)
        return in_library(ask, handle, hook, caller);
    if (hami_hook_is_there(hook))
        return way_to(hook, caller);
    return (struct hami_way){.answer = ask(RTLD_NEXT, name)};
}

HAMI_EARLY struct hami_way hami_dlvsym_way(void *handle, const char *name, const char *version,
                                           const void *caller)
{
    const struct hami_hook *hook = hook_asked_for(name);
    dlvsym_function *ask = (dlvsym_function *)hami_libc_dlvsym();
    void *resolver = resolver_asked_for(name);

    if (__builtin_expect(resolver != NULL, 0) && ask)
        return way_to_resolver(ask(handle, name, version), resolver);
    /* The driver's symbols have no version, and ours have none. */
    if (hook && hami_hook_is_there(hook))
        return way_to(hook, caller);
    return (struct hami_way){.jump = (void *)ask};
}
