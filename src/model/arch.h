/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a Hugging Face folder says about its model: config.json and
 * generation_config.json, read into numbers and written again.
 *
 * Families: llama, qwen2, qwen3, mistral, as a language model or, where
 * `architectures` says *ForSequenceClassification with one label, with a
 * scalar head. Whatever Weft would compute differently from transformers is
 * refused by the name of its key, never ignored: sliding windows, other RoPE
 * types, MLP biases, experts, quantization.
 */
#ifndef WEFT_MODEL_ARCH_H
#define WEFT_MODEL_ARCH_H

#include "base/shape.h"

enum weft_family {
    WEFT_LLAMA,
    WEFT_QWEN2,
    WEFT_QWEN3,
    WEFT_MISTRAL,
    WEFT_N_FAMILIES
};

enum { WEFT_MAX_EOS = 64 };

/* Values of generation_config.json; those that it lacks have transformers'
 * default. */
struct weft_generation {
    bool found;                /* whether there was such a file */
    bool do_sample;            /* false */
    double temperature;        /* 1 */
    int32_t top_k;             /* 50; 0: all */
    double top_p;              /* 1 */
    double repetition_penalty; /* 1 */
    int32_t max_new_tokens;    /* 0: not given */
    int32_t min_new_tokens;    /* 0 */
};

struct weft_arch {
    struct weft_shape shape; /* not partitioned; shape.dtype: F32, or BF16
                                   when the file says so; tied is false for a
                                   scalar head */
    enum weft_family family;
    /* dtype of the file's weights according to config.json */
    enum weft_dtype dtype;
    double initializer_range; /* standard deviation of random weights */
    int32_t bos, pad;         /* token ids; -1: none */
    int32_t n_eos;
    /* those of config.json, then the others of generation_config.json */
    int32_t eos[WEFT_MAX_EOS];
    struct weft_generation generation;
};

const char *weft_family_name(enum weft_family family); /* "llama" */
/* False when there is no such family. */
bool weft_family_find(const char *name, enum weft_family *out);

/* Reads dir/config.json and, where it is there, dir/generation_config.json.
 * Errors name file and key: WEFT_ENOTFOUND, WEFT_EFORMAT (not JSON, wrong
 * type), WEFT_EINVAL (a value that makes no sense), WEFT_EUNSUPPORTED. */
int weft_arch_read(const char *dir, struct weft_arch *out,
                   struct weft_err *err);

/* The same from memory; `name` names the source in messages. parse_generation
 * adds to what weft_arch_parse() found. */
int weft_arch_parse(const char *json, size_t n, const char *name,
                    struct weft_arch *out, struct weft_err *err);
int weft_arch_parse_generation(const char *json, size_t n, const char *name,
                               struct weft_arch *arch, struct weft_err *err);

/* Checks ranges and divisibility of sizes from a folder or from the user;
 * errors name config.json's keys. */
int weft_arch_check(const struct weft_arch *arch, struct weft_err *err);

/* Gives a language model's architecture a scalar head. */
void weft_arch_make_scalar(struct weft_arch *arch);

/* Writes both files (for a scalar head config.json alone), with the keys of
 * old and of new transformers, each atomically. `dir` must exist. */
int weft_arch_write(const char *dir, const struct weft_arch *arch,
                    struct weft_err *err);

#endif
