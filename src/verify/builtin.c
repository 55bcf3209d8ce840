/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The built-in job: small, with everything whose order could change bits: KV
 * heads that blocks share, uneven stages, tied and untied heads, biases,
 * several optimizer steps, a reward model, a KL controller that moves, a
 * reference that moves.
 */
#include "verify/builtin.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/string.h"
#include "config/keys.h"
#include "graphs/algorithms.h"
#include "lm/init.h"
#include "job/run_config.h"
#include "verify/rows.h"

static const struct weft_init_options job_model = {.family = WEFT_QWEN3,
                                                   .hidden = 64,
                                                   .layers = 5,
                                                   .heads = 4,
                                                   .kv_heads = 2,
                                                   .head_dim = 16,
                                                   .intermediate = 320,
                                                   .max_positions = 128,
                                                   .std = 0.1,
                                                   .tied = true,
                                                   .seed = 3,
                                                   .tokenizer = "bytes"};

static const struct weft_init_options job_scalar = {.family = WEFT_QWEN2,
                                                    .hidden = 64,
                                                    .layers = 4,
                                                    .heads = 4,
                                                    .kv_heads = 2,
                                                    .intermediate = 256,
                                                    .max_positions = 128,
                                                    .std = 0.1,
                                                    .scalar_head = true,
                                                    .seed = 4,
                                                    .tokenizer = "bytes"};

static int write_file(const char *dir, const char *name, const char *text,
                      struct weft_err *err)
{
    char *path = weft_path_join(dir, name);
    int rc = path ? weft_file_write(path, text, strlen(text), err)
                  : weft_err_nomem(err, "a path", strlen(dir));
    weft_free(path);
    return rc;
}

static int write_model(const char *dir, const char *name,
                       const struct weft_init_options *options,
                       struct weft_err *err)
{
    char *path = weft_path_join(dir, name);
    int rc = path ? weft_init_model(options, path, NULL, err)
                  : weft_err_nomem(err, "a path", strlen(dir));
    weft_free(path);
    return rc;
}

/* Texts of 1 to 60 bytes, for whatever learns from them: prompts, responses,
 * pairs. */
static int write_rows(const char *dir, struct weft_err *err)
{
    static const char words[] = "the weft goes over and under the warp, and "
                                "the cloth is the same";
    enum { N = 16 };
    struct weft_string t = {0};
    for (int i = 0; i < N; i++)
        weft_string_addf(&t,
                         "{\"prompt\": \"%.*s\", \"response\": \"%.*s\", "
                         "\"chosen\": \"%.*s\", \"rejected\": \"%.*s\"}\n",
                         1 + i * i * 59 / ((N - 1) * (N - 1)), words,
                         1 + i % 7, words + i, 1 + i % 5, words + i,
                         2 + i % 3, words + 2 * i);
    int rc = weft_string_check(&t, "rows", err);
    if (!rc)
        rc = write_file(dir, "rows.jsonl", t.data, err);
    weft_string_release(&t);
    return rc;
}

static int write_config(const char *dir,
                        const struct weft_config_algorithm *algorithm,
                        struct weft_err *err)
{
    struct weft_string t = {0};
    char name[64];
    weft_string_addf(&t,
                     "algorithm: %s\n"
                     "seed: 1\n"
                     "iterations: 2\n"
                     "data: {path: rows.jsonl}\n"
                     "train: {micro_batch_tokens: 64}\n"
                     "numerics: {tensor_blocks: 4, gradient_groups: 4}\n",
                     algorithm->name);
    if (algorithm->generates)
        weft_string_add(&t, "reward:\n"
                            "  - {type: length, target: 6}\n"
                            "  - {type: model, model: scalar}\n");
    snprintf(name, sizeof name, "%s.yaml", algorithm->name);
    int rc = weft_string_check(&t, "a configuration", err);
    if (!rc)
        rc = write_file(dir, name, t.data, err);
    weft_string_release(&t);
    return rc;
}

int weft_verify_make(const char *dir, struct weft_err *err)
{
    int rc = write_model(dir, "model", &job_model, err);
    if (!rc)
        rc = write_model(dir, "scalar", &job_scalar, err);
    if (!rc)
        rc = write_rows(dir, err);
    for (int i = 0; weft_algorithms[i] && !rc; i++)
        rc = write_config(dir, weft_algorithms[i], err);
    return rc;
}

/* ---- Its words -------------------------------------------------------- */

/* For the algorithms that have the keys. */
static const char *const words[] = {
    "rollout.prompts=6", "rollout.samples_per_prompt=2",
    "rollout.max_new_tokens=8", "ppo.mini_batches=2", "train.batch=6"};
/* For the first algorithm. */
static const char *const first_words[] = {
    "ppo.entropy_coef=0.01",      "ppo.kl.coef=0.1",
    "ppo.kl.controller=adaptive", "ppo.kl.target=0.5",
    "ppo.kl.horizon=50",          "reference.every=1"};

/* A role's folder, where that does not follow from another's, and its learning
 * rate, by whatever keys the algorithm has for them. */
static void add_role(const struct weft_config_algorithm *algorithm,
                     const char *dir, const struct weft_role *role,
                     weft_verify_add add, void *ctx)
{
    const struct weft_config c = {.schema = &weft_run_schema,
                                  .algorithm = algorithm};
    const struct weft_role_config *r = &c.role[role->slot];
    const char *folder = weft_config_name(&c, &r->folder);
    const char *lr = weft_config_name(&c, &r->optim.lr);
    char word[4096];
    if (folder && (role->trained || role->scalar)) {
        snprintf(word, sizeof word, "%s=%s/%s", folder, dir,
                 role->scalar ? "scalar" : "model");
        add(ctx, word);
    }
    if (lr && role->trained) {
        snprintf(word, sizeof word, "%s=1e-3", lr);
        add(ctx, word);
    }
}

void weft_verify_builtin(const struct weft_config_algorithm *algorithm,
                         const char *dir, weft_verify_add add, void *ctx)
{
    const struct weft_config c = {.algorithm = algorithm};
    struct weft_dataflow flow;
    weft_algorithm_of(&c)->flow(&(struct weft_flow_needs){.reference = true},
                                &flow);
    for (int32_t r = 0; r < flow.n_roles; r++)
        if (flow.role[r].slot >= 0)
            add_role(algorithm, dir, &flow.role[r], add, ctx);
    for (size_t i = 0; i < WEFT_COUNT(words); i++)
        if (weft_verify_knows(algorithm, words[i]))
            add(ctx, words[i]);
    for (size_t i = 0; i < WEFT_COUNT(first_words); i++)
        if (algorithm == weft_algorithms[0])
            add(ctx, first_words[i]);
}
