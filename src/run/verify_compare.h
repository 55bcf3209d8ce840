/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparing run directories that should hold the same bits: the digests of
 * their iterations (`digest: values`), and the tensors of their last
 * checkpoint, whose model folders are in f32 (`checkpoint.dtype`).
 */
#ifndef WEFT_RUN_VERIFY_COMPARE_H
#define WEFT_RUN_VERIFY_COMPARE_H

#include "base/err.h"

/* Of all iterations, or of all tensors. */
struct weft_verify_hashes {
    uint64_t tokens, logprobs, norms, weights;
};

/* Reads a run of that many iterations, the last of which has a checkpoint.
 * Errors: of base/json.h and model/safetensors.h. */
int weft_verify_read(const char *run_dir, int32_t iterations,
                     struct weft_verify_hashes *out, struct weft_err *err);

/* Where two runs part, each "" when they do not. */
struct weft_verify_difference {
    char number[256]; /* the first in the order of computing, both values */
    char tensor[384]; /* the first tensor, its first element, both values */
};

/* Errors: as above. */
int weft_verify_compare(const char *run_dir, const char *other,
                        int32_t iterations,
                        struct weft_verify_difference *out,
                        struct weft_err *err);

#endif
