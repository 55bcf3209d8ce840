/* SPDX-License-Identifier: Apache-2.0 */
/* What a benchmark does with an error: it ends. */
#ifndef WEFT_BENCH_CHECK_H
#define WEFT_BENCH_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"

#define CHECK(call)                                                          \
    do {                                                                     \
        if ((call) != 0) {                                                   \
            fprintf(stderr, "%s: %s\n", #call, err.text);                    \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

static struct weft_err err;

#endif
