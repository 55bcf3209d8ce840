/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static enum weft_log_level log_level = WEFT_LOG_INFO;

void weft_log_set_level(enum weft_log_level level)
{
    log_level = level;
}

void weft_log(enum weft_log_level level, const char *fmt, ...)
{
    static const char *const prefix[] = {"error: ", "warning: ", "", ""};
    if (level > log_level)
        return;
    char line[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    fprintf(stderr, "weft: %s%s\n", prefix[level], line);
}
