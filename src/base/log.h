/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines on stderr: "weft: text". Lower case, a value after a space. */
#ifndef WEFT_BASE_LOG_H
#define WEFT_BASE_LOG_H

#include "base/compiler.h"

enum weft_log_level { WEFT_LOG_ERROR, WEFT_LOG_WARN, WEFT_LOG_INFO };

/* Lines above `level` are dropped (default: info). Thread-safe to call
 * before threads start. */
void weft_log_set_level(enum weft_log_level level);
/* For a job of several processes: every line then names its rank, and only the
 * first rank prints WEFT_LOG_INFO, which all ranks would repeat. */
void weft_log_set_rank(int rank);

/* Prints one line; fmt has no newline. The line is made printable
 * (base/utf8.h), as arguments may quote anything. Safe from any thread. */
void weft_log(enum weft_log_level level, const char *fmt, ...)
    WEFT_PRINTF(2, 3);

#define weft_error(...) weft_log(WEFT_LOG_ERROR, __VA_ARGS__)
#define weft_warn(...) weft_log(WEFT_LOG_WARN, __VA_ARGS__)
#define weft_info(...) weft_log(WEFT_LOG_INFO, __VA_ARGS__)

#endif
