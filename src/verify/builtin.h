/* SPDX-License-Identifier: Apache-2.0 */
/* The job that `weft verify` runs when it is given none. */
#ifndef WEFT_VERIFY_BUILTIN_H
#define WEFT_VERIFY_BUILTIN_H

#include "base/err.h"
#include "config/schema.h"

/* Creates in `dir` what the job needs: two random models, rows of data, a
 * configuration for each algorithm, <name>.yaml. Errors: those of
 * lm/init.h. */
int weft_verify_make(const char *dir, struct weft_err *err);

typedef void (*weft_verify_add)(void *ctx, const char *word);
/* Adds the words key=value that its runs have under an algorithm. */
void weft_verify_builtin(const struct weft_config_algorithm *algorithm,
                         const char *dir, weft_verify_add add, void *ctx);

#endif
