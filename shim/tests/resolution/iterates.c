/* A program with a dl_iterate_phdr of its own, which asks for the original by dlsym: who answers
 * must not iterate. */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>

int dl_iterate_phdr(int (*each)(struct dl_phdr_info *, size_t, void *), void *data)
{
    static int depth;
    int (*next)(int (*)(struct dl_phdr_info *, size_t, void *), void *);
    int result;

    if (++depth > 8)
        return -1;
    *(void **)&next = dlsym(RTLD_NEXT, "dl_iterate_phdr");
    result = next ? next(each, data) : -2;
    depth--;
    return result;
}

static int count(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)info;
    (void)size;
    ++*(int *)data;
    return 0;
}

int main(void)
{
    int found = 0, result = dl_iterate_phdr(count, &found);

    printf("%d %s\n", result, found > 2 ? "all" : "too few");
    return 0;
}
