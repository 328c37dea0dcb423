#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LONGEST 512

/* Anything but one of the levels' digits is no wish to be told something. */
static int asked_for(const char *text)
{
    if (!text || text[0] < '0' || text[0] > '9' || text[1])
        return 0;
    return text[0] - '0';
}

static int level_asked_for(void)
{
    static _Atomic int level = -1;
    int known = atomic_load_explicit(&level, memory_order_relaxed);

    if (known < 0) {
        known = asked_for(getenv("LIBCUDA_LOG_LEVEL"));
        atomic_store_explicit(&level, known, memory_order_relaxed);
    }
    return known;
}

/* One line, one write: lines of several threads and processes stay whole. Past the stdio of the
 * program, which may hold its locks, and without touching its errno. */
void hami_log(enum hami_level level, const char *format, ...)
{
    static const char *const words[] = {"", "error", "warning", "info"};
    int saved = errno, length;
    char line[LONGEST];
    va_list arguments;
    size_t used;

    if ((int)level > level_asked_for())
        return;
    length = snprintf(line, sizeof(line), "[hami %d] %s: ", (int)getpid(), words[level]);
    used = length > 0 ? (size_t)length : 0;
    va_start(arguments, format);
    length = vsnprintf(line + used, sizeof(line) - used - 1, format, arguments);
    va_end(arguments);
    if (length > 0)
        used += strnlen(line + used, sizeof(line) - used - 1);
    line[used++] = '\n';
    while (write(STDERR_FILENO, line, used) < 0 && errno == EINTR)
        ;
    errno = saved;
}
