/* dlsym and dlvsym as programs see them. resolve_entry.S is what is exported: it asks here, and
 * where the answer is not ours it jumps into the C library with the registers as they came, so that
 * RTLD_NEXT and RTLD_DEFAULT mean what they mean to the caller. */
#ifndef HAMI_RESOLVE_H
#define HAMI_RESOLVE_H

/* `jump` is where to go on; NULL: `answer` is the answer. Two words, which both architectures
 * return in registers. */
struct hami_way {
    void *answer;
    void *jump;
};

/* Called by resolve_entry.S alone. */
struct hami_way hami_dlsym_way(void *handle, const char *name, const void *caller);
struct hami_way hami_dlvsym_way(void *handle, const char *name, const char *version,
                                const void *caller);

#endif
