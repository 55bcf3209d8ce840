/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares run directories that should hold the same bits, or numbers that are
 * near: the digests of their iterations (`digest: values`), and the tensors of
 * their last checkpoint, whose model folders must be in f32
 * (`checkpoint.dtype`).
 */
#ifndef WEFT_VERIFY_COMPARE_H
#define WEFT_VERIFY_COMPARE_H

#include "base/dtype.h"
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

/* How far two runs are apart before their first step, the largest of each: log-
 * probs of the same tokens, and norms of a model's first gradient, as a part of
 * the norm, where all tokens are the same. After it they part, as Adam's first
 * steps have the sign alone of the least gradient. */
struct weft_verify_distance {
    double logprob, norm;
    int64_t n_logprobs, n_norms; /* compared */
};

/* difference_out: `number` says what is further apart than GPUs and CPU devices
 * may be in that data type: log-probs 1e-4 in f32 and 0.1 in bf16, norms 1e-3
 * and 0.05 of them. Errors: as weft_verify_read(). */
int weft_verify_measure(const char *run_dir, const char *other,
                        enum weft_dtype dtype,
                        struct weft_verify_distance *out,
                        struct weft_verify_difference *difference_out,
                        struct weft_err *err);

#endif
