/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A randomly initialised model folder of a given size: what tests, benchmarks
 * and first experiments start from.
 *
 * Matrices are normal with deviation `std`, norms 1, biases 0. A weight is a
 * pure function of (seed, tensor, element), so folders of one seed agree
 * whatever wrote them, and the trunk of a scalar-head model is the language
 * model's.
 */
#ifndef WEFT_MODEL_INIT_H
#define WEFT_MODEL_INIT_H

#include "model/arch.h"

struct weft_init_options {
    enum weft_family family;
    int32_t hidden, layers, heads;
    int32_t kv_heads;      /* 0: heads */
    int32_t head_dim;      /* 0: hidden / heads */
    int32_t intermediate;  /* 0: 8/3 hidden, up to a multiple of 64 */
    int32_t vocab;         /* 0: the tokenizer's */
    int32_t max_positions; /* 0: 2048 */
    double rope_theta;     /* 0: 10000 */
    double std;            /* 0: 0.02 */
    bool tied, attention_bias, scalar_head;
    enum weft_dtype dtype; /* of the files */
    uint64_t seed;
    const char *tokenizer;    /* NULL: none; "bytes": a byte-level one; else a
                              folder whose tokenizer is copied */
    uint64_t max_shard_bytes; /* 0: one file */
};

/* Named sizes: "nano", "tiny", "110m", ... False when there is none of that
 * name; leaves the other options alone. */
bool weft_init_preset(const char *name, struct weft_init_options *options);

/* Makes the folder; on failure nothing is left. `dir` must not be there, or
 * be an empty folder. arch_out (may be NULL): what was made. */
int weft_init_model(const struct weft_init_options *options, const char *dir,
                    struct weft_arch *arch_out, struct weft_err *err);

#endif
