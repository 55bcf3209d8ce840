/* SPDX-License-Identifier: Apache-2.0 */
#include "verify/job.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/string.h"
#include "lm/init.h"
#include "run/plan_needs.h"
#include "run/run_config.h"

enum { PATH_BYTES = 4096 };

/* ---- The built-in job ------------------------------------------------- */

/* A small job that uses everything whose order could change bits: KV heads
 * that blocks share, uneven stages, tied and untied heads, biases, several
 * optimizer steps, a reward model, an adaptive KL controller. */
static const char job_yaml[] =
    "algorithm: ppo\n"
    "seed: 1\n"
    "iterations: 2\n"
    "data: {path: prompts.jsonl}\n"
    "model: {actor: actor, critic: critic, reference: actor}\n"
    "reward:\n"
    "  - {type: length, target: 6}\n"
    "  - {type: model, model: critic}\n"
    "rollout: {prompts: 6, samples_per_prompt: 2, max_new_tokens: 8}\n"
    "ppo:\n"
    "  mini_batches: 2\n"
    "  entropy_coef: 0.01\n"
    "  kl: {coef: 0.1, controller: adaptive, target: 0.5, horizon: 50}\n"
    "actor: {lr: 1e-3}\n"
    "critic: {lr: 1e-3}\n"
    "train: {micro_batch_tokens: 64}\n"
    "numerics: {tensor_blocks: 4, gradient_groups: 4}\n";

static const struct weft_init_options job_actor = {.family = WEFT_QWEN3,
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

static const struct weft_init_options job_critic = {.family = WEFT_QWEN2,
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

/* Prompts of 1 to 60 bytes. */
static int write_prompts(const char *dir, struct weft_err *err)
{
    static const char words[] = "the weft goes over and under the warp, and "
                                "the cloth is the same";
    enum { N = 16 };
    struct weft_string t = {0};
    for (int i = 0; i < N; i++)
        weft_string_addf(&t, "{\"prompt\": \"%.*s\"}\n",
                         1 + i * i * 59 / ((N - 1) * (N - 1)), words);
    int rc = weft_string_check(&t, "prompts", err);
    if (!rc)
        rc = write_file(dir, "prompts.jsonl", t.data, err);
    weft_string_release(&t);
    return rc;
}

int weft_verify_make(const char *dir, char **config_out, struct weft_err *err)
{
    int rc = write_model(dir, "actor", &job_actor, err);
    if (!rc)
        rc = write_model(dir, "critic", &job_critic, err);
    if (!rc)
        rc = write_prompts(dir, err);
    if (!rc)
        rc = write_file(dir, "verify.yaml", job_yaml, err);
    char *config = rc ? NULL : weft_path_join(dir, "verify.yaml");
    if (!rc && !config)
        rc = weft_err_nomem(err, "a path", strlen(dir));
    if (!rc)
        *config_out = config;
    return rc;
}

/* ---- Words ------------------------------------------------------------ */

struct words {
    char **word; /* (n), then NULL */
    size_t n;
    bool failed;
};

static void words_release(struct words *w)
{
    for (size_t i = 0; i < w->n; i++)
        weft_free(w->word[i]);
    weft_free(w->word);
}

static void add_n(struct words *w, const char *text, size_t n)
{
    char **more = weft_realloc(w->word, w->n + 2, sizeof *more);
    char *word = more ? weft_alloc(n + 1, 1) : NULL;
    w->word = more ? more : w->word;
    w->failed = w->failed || !word;
    if (!word)
        return;
    memcpy(word, text, n);
    w->word[w->n++] = word;
    w->word[w->n] = NULL;
}

static void add(struct words *w, const char *text)
{
    add_n(w, text, strlen(text));
}

WEFT_PRINTF(2, 3)
static void addf(struct words *w, const char *fmt, ...)
{
    char text[PATH_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    add(w, text);
}

/* Adds the words of a text, which blanks separate. */
static void add_split(struct words *w, const char *text)
{
    while (text && *(text += strspn(text, " "))) {
        size_t n = strcspn(text, " ");
        add_n(w, text, n);
        text += n;
    }
}

/* Words that override the configuration in every row. */
static const char *const fixed_words[] = {
    "digest=values",         "checkpoint.every=0",
    "checkpoint.keep=1",     "samples_kept=0",
    "trace=false",           "tensorboard=false",
    "layout=null",           "plan=null",
    "train.micro_batches=0", "train.zero=0",
    "train.recompute=false", "model.reference_offload=false",
    "runtime.place=node",    "checkpoint.dtype=f32"};

/* ---- A row ------------------------------------------------------------ */

/* The path of a row's folder, dir/f32/tp2, or with a suffix of its .log or
 * .json. */
static const char *row_path(const struct weft_verify_job *job,
                            const struct weft_verify_row *row,
                            enum weft_dtype dtype, const char *suffix,
                            char out[PATH_BYTES])
{
    char label[64];
    snprintf(out, PATH_BYTES, "%s/%s%s", job->dir,
             weft_verify_label(row, dtype, label), suffix);
    return out;
}

static void add_row_words(const struct weft_verify_job *job,
                          const struct weft_verify_row *row,
                          enum weft_dtype dtype, struct words *w)
{
    char path[PATH_BYTES];
    for (int i = 0; i < job->n_words; i++)
        add(w, job->word[i]);
    for (size_t i = 0; i < WEFT_COUNT(fixed_words); i++)
        add(w, fixed_words[i]);
    addf(w, "run_dir=%s", row_path(job, row, dtype, "", path));
    addf(w, "iterations=%d", (int) job->iterations);
    addf(w, "numerics.dtype=%s", weft_dtype_name(dtype));
    addf(w, "runtime.devices=%d", (int) row->devices);
    add_split(w, row->words);
    if (row->mix)
        addf(w, "plan=%s", row_path(job, row, dtype, ".json", path));
}

/* A plan's text without memory numbers; NULL: no memory. */
static char *plan_text(const struct weft_plan *plan)
{
    struct weft_plan alone = *plan;
    alone.memory = alone.measured = NULL;
    return weft_plan_json(&alone);
}

/* Checks whether the job can run with the row's layout: it may have too few
 * layers, heads or samples. plan_out: the plan's text; the caller frees. */
static int check(const struct weft_verify_job *job,
                 const struct weft_verify_row *row, const struct words *w,
                 char **plan_out, struct weft_err *err)
{
    struct weft_config config;
    struct weft_run_needs needs;
    struct weft_plan plan = {0};
    int rc = weft_run_config_read(
        job->config, (int) w->n, (const char *const *) w->word, &config, err);
    if (rc)
        return rc;
    rc = weft_run_needs_read(&config, row->ranks, row->devices, &needs, err);
    if (!rc)
        rc = weft_run_plan(&config, &needs.plan, &plan, err);
    if (!rc && !(*plan_out = plan_text(&plan)))
        rc = weft_err_nomem(err, "a plan", PATH_BYTES);
    weft_plan_release(&plan);
    weft_config_release(&config);
    return rc;
}

static int prepare(const struct weft_verify_job *job,
                   const struct weft_verify_row *row, enum weft_dtype dtype,
                   struct words *w, char **plan_out, struct weft_err *err)
{
    char path[PATH_BYTES];
    struct weft_plan plan;
    int rc = 0;
    if (row->mix) {
        rc = weft_verify_plan(row, &plan, err);
        if (!rc)
            rc = weft_plan_write(
                &plan, row_path(job, row, dtype, ".json", path), err);
    }
    add_row_words(job, row, dtype, w);
    if (!rc && w->failed)
        rc = weft_err_nomem(err, "arguments", PATH_BYTES);
    if (!rc && row->ranks > 1 && !job->mpiexec)
        rc = weft_err_set(err, WEFT_ENOTFOUND, "%s", job->no_mpi);
    return rc ? rc : check(job, row, w, plan_out, err);
}

void weft_verify_explain(struct weft_err *err)
{
    if (strstr(err->text, "attempt to run as root"))
        weft_err_set(err, err->code,
                     "%s Set OMPI_ALLOW_RUN_AS_ROOT=1 and "
                     "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, or be another user",
                     err->text);
}

/* Runs `weft train`, which creates the run's folder. */
static int train(const struct weft_verify_job *job,
                 const struct weft_verify_row *row, enum weft_dtype dtype,
                 const struct words *w, double *seconds, struct weft_err *err)
{
    char log[PATH_BYTES];
    struct words argv = {0};
    if (row->ranks > 1) {
        add_split(&argv, job->mpiexec);
        addf(&argv, "-n");
        addf(&argv, "%d", (int) row->ranks);
    }
    add(&argv, job->program);
    add(&argv, "train");
    add(&argv, "-q");
    add(&argv, job->config);
    for (size_t i = 0; i < w->n; i++)
        add(&argv, w->word[i]);
    struct weft_child child = {.argv = argv.word,
                               .log = row_path(job, row, dtype, ".log", log),
                               .timeout_s = job->timeout_s,
                               .stop = job->stop};
    int rc = argv.failed ? weft_err_nomem(err, "arguments", PATH_BYTES)
                         : weft_child_run(&child, seconds, err);
    words_release(&argv);
    if (rc)
        weft_verify_explain(err);
    return rc;
}

/* Checks that the run used the row's plan; otherwise equal results would prove
 * nothing. */
static int check_followed(const char *run_dir, const char *expected,
                          struct weft_err *err)
{
    char path[PATH_BYTES + 16];
    struct weft_plan plan;
    snprintf(path, sizeof path, "%s/plan.json", run_dir);
    int rc = weft_plan_read(path, NULL, &plan, err);
    if (rc)
        return rc;
    char *text = plan_text(&plan);
    if (!text || strcmp(text, expected) != 0)
        rc = weft_err_set(err, WEFT_EINTERNAL,
                          "the run followed another plan than the row's");
    weft_free(text);
    weft_plan_release(&plan);
    return rc;
}

/* Reads the row's numbers and compares them with the reference's. */
static int judge(const struct weft_verify_job *job,
                 const struct weft_verify_row *row, enum weft_dtype dtype,
                 const char *plan, struct weft_verify_result *out)
{
    const struct weft_verify_row *reference = weft_verify_row(0);
    char run_dir[PATH_BYTES], other[PATH_BYTES];
    row_path(job, row, dtype, "", run_dir);
    int rc = check_followed(run_dir, plan, &out->why);
    if (!rc)
        rc = weft_verify_read(run_dir, job->iterations, &out->hashes,
                              &out->why);
    if (rc || row == reference)
        return rc;
    rc = weft_verify_compare(row_path(job, reference, dtype, "", other),
                             run_dir, job->iterations, &out->difference,
                             &out->why);
    if (out->difference.number[0] || out->difference.tensor[0])
        out->state = WEFT_VERIFY_DIFFERS;
    return rc;
}

/* Removes a row's checkpoint after the comparison, as it is large. */
static void remove_row(const struct weft_verify_job *job,
                       const struct weft_verify_row *row,
                       enum weft_dtype dtype)
{
    char path[PATH_BYTES], suffix[64];
    snprintf(suffix, sizeof suffix, "/checkpoints/iteration-%06d",
             (int) job->iterations);
    if (!job->keep)
        (void) weft_dir_remove(row_path(job, row, dtype, suffix, path), NULL);
}

void weft_verify_run(const struct weft_verify_job *job,
                     const struct weft_verify_row *row, enum weft_dtype dtype,
                     struct weft_verify_result *out)
{
    bool reference = row == weft_verify_row(0);
    char dir[PATH_BYTES], *plan = NULL;
    struct words w = {0};
    *out = (struct weft_verify_result){.state = WEFT_VERIFY_OK};
    snprintf(dir, sizeof dir, "%s/%s", job->dir, weft_dtype_name(dtype));
    int rc = weft_dir_create(dir, &out->why);
    if (!rc) {
        rc = prepare(job, row, dtype, &w, &plan, &out->why);
        if (rc && !reference)
            out->state = WEFT_VERIFY_SKIPPED;
    }
    if (!rc)
        rc = train(job, row, dtype, &w, &out->seconds, &out->why);
    if (!rc)
        rc = judge(job, row, dtype, plan, out);
    if (rc && out->state != WEFT_VERIFY_SKIPPED)
        out->state = WEFT_VERIFY_FAILED;
    if (!reference)
        remove_row(job, row, dtype);
    words_release(&w);
    weft_free(plan);
}

void weft_verify_end(const struct weft_verify_job *job, enum weft_dtype dtype)
{
    remove_row(job, weft_verify_row(0), dtype);
}
