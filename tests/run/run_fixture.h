/* SPDX-License-Identifier: Apache-2.0 */
/* A small run in a temporary folder: random model, generated prompts, a
 * reward that any text gets some of. */
#ifndef WEFT_TESTS_RUN_FIXTURE_H
#define WEFT_TESTS_RUN_FIXTURE_H

#include <unistd.h>

#include "harness.h"

#include "base/file.h"
#include "base/hash.h"
#include "lm/init.h"
#include "run/trainer.h"

struct fixture {
    char dir[256];
    char config[512];
};

static const char fixture_yaml[] =
    "algorithm: ppo\n"
    "seed: 5\n"
    "run_dir: unset\n"
    "iterations: 3\n"
    "data: {path: prompts.jsonl}\n"
    "model: {actor: model, critic: model, reference: model}\n"
    "reward: [{type: callback, name: low}]\n"
    "rollout: {prompts: 6, samples_per_prompt: 2, max_new_tokens: 12}\n"
    "ppo: {epochs: 2, mini_batches: 2, entropy_coef: 0.01,\n"
    "      kl: {coef: 0.1, controller: adaptive, target: 0.5, horizon: 50}}\n"
    "actor: {lr: 1e-3}\n"
    "critic: {lr: 1e-3}\n"
    "train: {micro_batch_tokens: 64}\n"
    "runtime: {devices: 1}\n"
    "checkpoint: {every: 0, dtype: f32}\n";

/* Share of letters among the first bytes: smooth, deterministic. */
static int fixture_reward(void *ctx, const struct weft_reward_sample *sample,
                          double *score_out, struct weft_err *err)
{
    int n = 0, low = 0;
    (void) ctx;
    (void) err;
    for (; n < 16 && (size_t) n < sample->response.n; n++)
        low += (unsigned char) sample->response.s[n] < 0x60;
    *score_out = n ? (double) low / n : 0;
    return 0;
}

static inline struct weft_init_options fixture_model(void)
{
    return (struct weft_init_options){.family = WEFT_QWEN3,
                                      .hidden = 64,
                                      .layers = 2,
                                      .heads = 4,
                                      .kv_heads = 2,
                                      .head_dim = 16,
                                      .intermediate = 256,
                                      .max_positions = 256,
                                      .std = 0.1,
                                      .dtype = WEFT_F32,
                                      .seed = 3,
                                      .tied = true,
                                      .tokenizer = "bytes"};
}

/* A model of random weights in folder `name`. */
static inline void fixture_init_model(const struct fixture *f,
                                      const char *name,
                                      const struct weft_init_options *o)
{
    struct weft_err err;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    REQUIRE_OK(weft_init_model(o, path, NULL, &err), err);
}

/* A small Llama with an alphabet of bytes in folder `name`. tokenizer: "bytes",
 * or NULL: none. */
static inline void fixture_make_model(const struct fixture *f,
                                      const char *name, uint64_t seed,
                                      bool scalar, bool tied,
                                      const char *tokenizer)
{
    struct weft_init_options o = {.family = WEFT_LLAMA,
                                  .hidden = 64,
                                  .layers = 2,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .head_dim = 16,
                                  .intermediate = 128,
                                  .vocab = 259,
                                  .std = 0.2,
                                  .dtype = WEFT_F32,
                                  .seed = seed,
                                  .scalar_head = scalar,
                                  .tied = tied,
                                  .tokenizer = tokenizer};
    fixture_init_model(f, name, &o);
}

/* Makes the folder, which is empty. */
static inline void fixture_make_folder(struct fixture *f)
{
    snprintf(f->dir, sizeof f->dir, "%s/weft-test-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    REQUIRE(mkdtemp(f->dir) != NULL);
}

static inline void fixture_make(struct fixture *f)
{
    struct weft_err err;
    char path[512];
    struct weft_init_options o = fixture_model();
    fixture_make_folder(f);
    fixture_init_model(f, "model", &o);
    snprintf(path, sizeof path, "%s/prompts.jsonl", f->dir);
    FILE *data = fopen(path, "w");
    REQUIRE(data != NULL);
    for (int i = 0; i < 20; i++) /* of very different lengths, 1 to 150 */
        fprintf(data, "{\"prompt\": \"%.*s\", \"label\": \"%d\"}\n",
                1 + i * i * 149 / 361,
                "The quick brown fox jumps over the lazy dog, and then it "
                "walks all the way back home because it has forgotten the "
                "one thing that a fox should never go out without.",
                i);
    fclose(data);
    snprintf(f->config, sizeof f->config, "%s/run.yaml", f->dir);
    REQUIRE_OK(weft_file_write(f->config, fixture_yaml,
                               sizeof fixture_yaml - 1, &err),
               err);
}

static inline void fixture_remove(struct fixture *f)
{
    weft_dir_remove(f->dir, NULL);
}

/* Opens a run in folder `name` of the fixture with "key=value" words, NULL at
 * their end. It notes in `log` what it inserts; NULL: it does not. */
static inline struct weft_trainer *fixture_open_logged(
    const struct fixture *f, const char *name, const char *const *word,
    struct weft_recording *log)
{
    struct weft_err err;
    char run[512];
    const char *all[32] = {run};
    int n = 1;
    struct weft_trainer *trainer = NULL;
    snprintf(run, sizeof run, "run_dir=%s/%s", f->dir, name);
    while (word && word[n - 1]) {
        all[n] = word[n - 1];
        n++;
    }
    const struct weft_trainer_opening opening = {.log = log};
    REQUIRE_OK(
        weft_trainer_open_with(f->config, n, all, &opening, &trainer, &err),
        err);
    weft_trainer_set_reward(trainer, fixture_reward, NULL);
    return trainer;
}

static inline struct weft_trainer *fixture_open(const struct fixture *f,
                                                const char *name,
                                                const char *const *word)
{
    return fixture_open_logged(f, name, word, NULL);
}

static inline void fixture_steps(struct weft_trainer *trainer, int n)
{
    struct weft_err err;
    while (n-- > 0 && !weft_trainer_done(trainer))
        REQUIRE_OK(weft_trainer_step(trainer, &err), err);
}

/* One call of a plan of eight devices; without a call: the end. */
struct fixture_call {
    const char *call;
    int device, devices, dp, tp, pp;
    const char *options; /* ", \"zero\": 1" */
};

/* Writes the plan and returns "plan=PATH"; a static buffer per plan. */
static inline const char *fixture_plan(const struct fixture *f,
                                       const char *name,
                                       const struct fixture_call *call)
{
    static char word[8][600];
    static int next;
    char *out = word[next++ % 8];
    snprintf(out, sizeof word[0], "plan=%s/%s.json", f->dir, name);
    FILE *file = fopen(out + 5, "w");
    REQUIRE(file != NULL);
    fprintf(file,
            "{\"format\": 1, \"nodes\": 1, \"devices\": 8, \"calls\": {");
    for (int i = 0; call[i].call; i++)
        fprintf(file,
                "%s\n\"%s\": {\"mesh\": {\"node\": 0, \"nodes\": 1, "
                "\"device\": %d, \"devices\": %d}, \"dp\": %d, \"tp\": %d, "
                "\"pp\": %d%s}",
                i ? "," : "", call[i].call, call[i].device, call[i].devices,
                call[i].dp, call[i].tp, call[i].pp,
                call[i].options ? call[i].options : "");
    fprintf(file, "}}\n");
    fclose(file);
    return out;
}

/* Hash over both models' masters and moments in a checkpoint. */
static inline struct weft_hash fixture_hash_of(const struct fixture *f,
                                               const char *name,
                                               int iteration, size_t n,
                                               const char *const *file)
{
    struct weft_hash hash[8];
    struct weft_err err;
    for (size_t i = 0; i < n; i++) {
        char path[768];
        uint64_t bytes;
        snprintf(path, sizeof path,
                 "%s/%s/checkpoints/iteration-%06d/%s.safetensors", f->dir,
                 name, iteration, file[i]);
        REQUIRE_OK(weft_hash_file(path, &hash[i], &bytes, &err), err);
        REQUIRE(bytes > 1000);
    }
    return weft_hash128(hash, n * sizeof hash[0]);
}

static inline struct weft_hash fixture_hash(const struct fixture *f,
                                            const char *name, int iteration)
{
    static const char *const file[] = {"actor/model",
                                       "critic/model",
                                       "optimizer/actor/exp_avg",
                                       "optimizer/actor/exp_avg_sq",
                                       "optimizer/critic/exp_avg",
                                       "optimizer/critic/exp_avg_sq"};
    return fixture_hash_of(f, name, iteration, WEFT_COUNT(file), file);
}

#endif
