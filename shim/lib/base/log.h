/* Off unless LIBCUDA_LOG_LEVEL asks: 1 errors, 2 warnings, 3 what is done. */
#ifndef HAMI_LOG_H
#define HAMI_LOG_H

enum hami_level { HAMI_ERROR = 1, HAMI_WARNING = 2, HAMI_INFO = 3 };

void hami_log(enum hami_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
