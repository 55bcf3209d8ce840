/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares run directories that should hold the same bits: the digests of
 * their iterations (`digest: values`), and the tensors of their last
 * checkpoint, whose model folders must be in f32 (`checkpoint.dtype`).
 */
#ifndef WEFT_VERIFY_COMPARE_H
#define WEFT_VERIFY_COMPARE_H

#include "base/err.h"

/* Hashes over all iterations; weights: over all tensors. */
struct weft_verify_hashes {
    uint64_t tokens, logprobs, norms, weights; /* logprobs: 0 without */
};

/* Reads a run of that many iterations, the last of which has a checkpoint.
 * Errors: those of base/json.h and model/safetensors.h. */
int weft_verify_read(const char *run_dir, int32_t iterations,
                     struct weft_verify_hashes *out, struct weft_err *err);

/* The first differences of two runs; "" where there is none. */
struct weft_verify_difference {
    char number[256]; /* the first in the order of computing, both values */
    char tensor[384]; /* the first tensor, its first element, both values */
};

/* Errors: as weft_verify_read(). */
int weft_verify_compare(const char *run_dir, const char *other,
                        int32_t iterations,
                        struct weft_verify_difference *out,
                        struct weft_err *err);

#endif
