/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/utf8.h"

static enum weft_log_level log_level = WEFT_LOG_INFO;
static int log_rank = -1; /* one process */

void weft_log_set_level(enum weft_log_level level)
{
    log_level = level;
}

void weft_log_set_rank(int rank)
{
    log_rank = rank;
}

void weft_log(enum weft_log_level level, const char *fmt, ...)
{
    static const char *const prefix[] = {"error: ", "warning: ", ""};
    if (level > log_level || (log_rank > 0 && level == WEFT_LOG_INFO))
        return;
    char text[2048], line[2048], rank[32] = "";
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t length = n < 0 ? 0 : (size_t) n;
    weft_utf8_printable(text, length < sizeof text ? length : sizeof text - 1,
                        line, sizeof line);
    if (log_rank >= 0)
        snprintf(rank, sizeof rank, "rank %d: ", log_rank);
    fprintf(stderr, "weft: %s%s%s\n", rank, prefix[level], line);
}
