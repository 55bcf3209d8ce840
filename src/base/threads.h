/* SPDX-License-Identifier: Apache-2.0 */
/* Several threads that do the parts of one work. */
#ifndef WEFT_BASE_THREADS_H
#define WEFT_BASE_THREADS_H

#include <stdint.h>

#include "base/compiler.h"

/* As many as this process can keep busy; >= 1. */
int32_t weft_threads_usable(void);

/* Calls part(ctx, i) for each i below n, in up to n_threads threads, of which
 * the caller's is one: each takes the least i that none has taken. Returns when
 * all parts are done. Where there can be no more threads, fewer do them. */
void weft_threads_run(int32_t n_threads, int64_t n,
                      void (*part)(void *ctx, int64_t i), void *ctx);

#endif
