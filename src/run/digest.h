/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Digests of what an iteration computed, in <run>/digests/000012.json. With
 * them two runs that should have the same bits can be compared, and the first
 * number that differs can be named (verify/compare.h).
 */
#ifndef WEFT_RUN_DIGEST_H
#define WEFT_RUN_DIGEST_H

#include "run/iteration.h"

/* Writes the file of the finished iteration if the key `digest` asks for it.
 * Waits for the samples' tiles. Errors: those of base/file.h. */
int weft_digest_write(const struct weft_iteration *p);

/* Path of an iteration's file (from 1). Caller frees; NULL: no memory. */
char *weft_digest_path(const char *run_dir, int64_t iteration);

/* Names of the digests of samples' columns, in the order in which an
 * iteration computes them; NULL after the last. */
const char *weft_digest_column(int i);

#endif
