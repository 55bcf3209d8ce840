/* SPDX-License-Identifier: Apache-2.0 */
/* What a benchmark does with an error: it ends, as the examples do. */
#ifndef WEFT_BENCH_CHECK_H
#define WEFT_BENCH_CHECK_H

#include "base/err.h"
#include "examples/check.h"

static struct weft_err err;

#endif
