/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Randomly initialised models of a given size, for tests, benchmarks and first
 * experiments; run/init.h makes whole folders of them. Matrices are normal with
 * deviation `std`, norms 1, biases 0. A weight is a pure function of (seed,
 * tensor, element). So folders of one seed are the same however they were
 * written, and a scalar-head model has the layers of the language model of that
 * seed.
 */
#ifndef WEFT_MODEL_INIT_H
#define WEFT_MODEL_INIT_H

#include "model/arch.h"

struct weft_init_options {
    enum weft_family family;
    int32_t hidden, layers, heads;
    int32_t kv_heads;      /* 0: heads */
    int32_t head_dim;      /* 0: hidden / heads */
    int32_t intermediate;  /* 0: 8/3 hidden, rounded up to a multiple of 64 */
    int32_t vocab;         /* 0: that of the tokenizer */
    int32_t max_positions; /* 0: 2048 */
    double rope_theta;     /* 0: 10000 */
    double std;            /* 0: 0.02 */
    bool tied, attention_bias, scalar_head;
    enum weft_dtype dtype; /* of the files */
    uint64_t seed;
    const char *tokenizer; /* of the folder, by weft_tokenizer_place(); NULL:
                              none */
    uint64_t max_shard_bytes; /* 0: one file */
};

/* Sets the sizes of a preset ("nano", "tiny", "110m", ...) and leaves the
 * other options alone. False when there is none of that name. */
bool weft_init_preset(const char *name, struct weft_init_options *options);

/* Describes the model of these options; its vocabulary is as given, its special
 * ids are none. Errors: WEFT_EINVAL. */
int weft_init_arch(const struct weft_init_options *options,
                   struct weft_arch *out, struct weft_err *err);

/* Writes configuration and weights into a folder. */
int weft_init_write(const struct weft_init_options *options,
                    const struct weft_arch *arch, const char *dir,
                    struct weft_err *err);

#endif
