/* SPDX-License-Identifier: Apache-2.0 */
/* A model outside training, for the models of weft.h, `weft generate` and
 * `weft score`. */
#ifndef WEFT_LM_LM_H
#define WEFT_LM_LM_H

#include "graphs/calls/calls.h"
#include "model/arch.h"
#include "text/tokenizer.h"
#include "lm/replicas.h"
#include "lm/rollout.h"
#include "lm/stops.h"

struct weft_model {
    struct weft_context *context;
    struct weft_arch arch;
    struct weft_tokenizer *tokenizer; /* NULL: the folder has none */
    struct weft_g_model tiles;
    char *folder;
    /* CPU devices that serve a replica; 0: each call chooses, by costs, or
     * where there are none (NULL) by a rule (lm/replicas.h) */
    int32_t tp;
    const struct weft_costs_file *costs; /* borrowed, as their path */
    const char *costs_path;
    /* whether it says what it chooses, where that is not what it said before */
    bool tells;
    struct weft_replicas told;
    int64_t n_decoded, n_prefilled; /* rows of all calls so far */
};

struct weft_lm_prompt {
    const int32_t *token;
    int32_t n;
};

enum { WEFT_LM_MAX_NEW_TOKENS = 128 };

struct weft_lm_options {
    struct weft_k_sampling sampling;
    int32_t max_new_tokens; /* 0: WEFT_LM_MAX_NEW_TOKENS, fewer where the
                               model's positions end */
    int32_t min_new_tokens; /* so many do not end a completion */
    int32_t samples;        /* per prompt */
    int32_t slots;          /* per device, of an instance's; 0: 32 */
    int32_t first_prompt;   /* index of the first, for the random numbers */
    int32_t kv_blocks;      /* of a device's KV cache; 0: all ever needed */
    bool ignore_eos;        /* end-of-sequence tokens end nothing */
    int32_t n_stop_texts;   /* at most 16 */
    const char *const *stop_text; /* (n_stop_texts) */
};

/* Called for each sample in order: sample s of prompt p, both from 0. */
typedef int (*weft_lm_sample_fn)(void *ctx, int32_t p, int32_t s,
                                 const struct weft_rollout *rollout,
                                 struct weft_err *err);

/* Generates options->samples completions of each of n prompts on all devices.
 * A completion depends only on its prompt, its index and the seed. */
int weft_lm_generate(struct weft_model *model,
                     const struct weft_lm_options *options, int32_t n,
                     const struct weft_lm_prompt *prompt,
                     weft_lm_sample_fn on_sample, void *ctx,
                     struct weft_err *err);

/* Scores n texts. A language model writes log p(token j | tokens before it) of
 * text i to logp[i][j] for j >= 1; a model with a scalar head writes the score
 * to logp[i][0]. */
int weft_lm_score(struct weft_model *model, int32_t n,
                  const struct weft_lm_prompt *text, float temperature,
                  float *const logp[], struct weft_err *err);

#endif
