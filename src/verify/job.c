/* SPDX-License-Identifier: Apache-2.0 */
#include "verify/job.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/string.h"
#include "job/plan_needs.h"
#include "job/run_config.h"
#include "verify/builtin.h"

enum { PATH_BYTES = 4096 };

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
static const char *const fixed_words[] = {"digest=values",
                                          "checkpoint.every=0",
                                          "checkpoint.keep=1",
                                          "samples_kept=0",
                                          "trace=false",
                                          "tensorboard=false",
                                          "layout=null",
                                          "plan=null",
                                          "train.micro_batches=0",
                                          "train.zero=0",
                                          "train.recompute=false",
                                          "train.offload_optimizer=false",
                                          "model.reference_offload=false",
                                          "runtime.place=node",
                                          "checkpoint.dtype=f32",
                                          "epochs=0"};

/* ---- A row ------------------------------------------------------------ */

/* The path of a row's folder, dir/ppo/f32/tp2, or with a suffix of its .log or
 * .json. */
static const char *row_path(const struct weft_verify_job *job,
                            const struct weft_verify_case *c,
                            const char *suffix, char out[PATH_BYTES])
{
    char label[96];
    snprintf(out, PATH_BYTES, "%s/%s%s", job->dir,
             weft_verify_label(c, label), suffix);
    return out;
}

static const char *config_of(const struct weft_verify_job *job,
                             const struct weft_verify_case *c,
                             char out[PATH_BYTES])
{
    snprintf(out, PATH_BYTES, "%s/%s.yaml", job->dir, c->algorithm->name);
    return job->config ? job->config : out;
}

static void add_word(void *ctx, const char *word)
{
    add(ctx, word);
}

static void add_devices(const struct weft_verify_row *row, struct words *w)
{
    int32_t n_gpus = weft_verify_gpus(row);
    if (n_gpus == 0) {
        addf(w, "runtime.devices=%d", (int) row->devices);
        return;
    }
    addf(w, "runtime.devices=gpu");
    addf(w, "runtime.gpus=%d", (int) row->devices);
    addf(w, "runtime.ranks_per_gpu=%d",
         (int) (row->ranks * row->devices / n_gpus));
    addf(w, "runtime.cpu_devices=1");
}

/* All words but the plan's. */
static void add_row_words(const struct weft_verify_job *job,
                          const struct weft_verify_case *c, struct words *w)
{
    char path[PATH_BYTES];
    if (!job->config)
        weft_verify_builtin(c->algorithm, job->dir, add_word, w);
    for (int i = 0; i < job->n_words; i++)
        add(w, job->word[i]);
    for (size_t i = 0; i < WEFT_COUNT(fixed_words); i++)
        if (weft_verify_knows(c->algorithm, fixed_words[i]))
            add(w, fixed_words[i]);
    addf(w, "run_dir=%s", row_path(job, c, "", path));
    addf(w, "iterations=%d", (int) job->iterations);
    addf(w, "numerics.dtype=%s", weft_dtype_name(c->dtype));
    add_devices(c->row, w);
    add_split(w, c->row->words);
}

/* A plan's text without memory numbers; NULL: no memory. */
static char *plan_text(const struct weft_plan *plan)
{
    struct weft_plan alone = *plan;
    alone.memory = alone.measured = alone.replayed = NULL;
    alone.predicted_s = alone.measured_s = (struct weft_plan_times){0};
    return weft_plan_json(&alone);
}

/* Writes the plan of a row with a mix, and names it in the configuration. */
static int write_mix(const struct weft_verify_case *c, const char *path,
                     struct weft_config *config, struct weft_err *err)
{
    struct weft_dataflow flow;
    struct weft_plan plan;
    int rc = weft_run_flow(config, &flow, err);
    if (!rc)
        rc = weft_verify_plan(c->row, &flow, &plan, err);
    if (!rc)
        rc = weft_plan_write(&plan, path, err);
    if (!rc && !(config->plan = weft_strdup(path)))
        rc = weft_err_nomem(err, "a path", PATH_BYTES);
    return rc;
}

/* Checks that the layout can run, and returns its plan. */
static int check_layout(const struct weft_verify_job *job,
                        const struct weft_verify_case *c,
                        const struct words *w, char **plan_out,
                        struct weft_err *err)
{
    char path[PATH_BYTES];
    struct weft_config config;
    struct weft_plan_needs nodes;
    struct weft_run_needs needs;
    struct weft_plan plan = {0};
    int rc = weft_run_config_read(config_of(job, c, path), (int) w->n,
                                  (const char *const *) w->word, &config,
                                  err);
    if (rc)
        return rc;
    if (c->row->mix)
        rc = write_mix(c, row_path(job, c, ".json", path), &config, err);
    weft_verify_nodes(c->row, &nodes);
    if (!rc)
        rc = weft_run_needs_read(&config, nodes.n_nodes, nodes.n_devices,
                                 nodes.n_gpus, &needs, err);
    if (!rc)
        rc = weft_run_plan(&config, &needs.plan, &plan, err);
    if (!rc && !(*plan_out = plan_text(&plan)))
        rc = weft_err_nomem(err, "a plan", PATH_BYTES);
    weft_plan_release(&plan);
    weft_config_release(&config);
    return rc;
}

/* Checks that the machine has the row's GPUs. */
static int check_gpus(const struct weft_verify_job *job,
                      const struct weft_verify_case *c, struct weft_err *err)
{
    int32_t n = weft_verify_gpus(c->row);
    return n <= job->n_gpus
             ? 0
             : weft_err_set(err, WEFT_ENOTFOUND,
                            "it needs %d GPU%s, and this machine has %d", n,
                            n == 1 ? "" : "s", job->n_gpus);
}

int weft_verify_check(const struct weft_verify_job *job,
                      const struct weft_verify_case *c, char **plan_out,
                      struct weft_err *err)
{
    char dir[PATH_BYTES];
    struct words w = {0};
    snprintf(dir, sizeof dir, "%s/%s/%s", job->dir, c->algorithm->name,
             weft_dtype_name(c->dtype));
    int rc = weft_dir_create(dir, err);
    add_row_words(job, c, &w);
    if (!rc && w.failed)
        rc = weft_err_nomem(err, "arguments", PATH_BYTES);
    if (!rc && c->row->ranks > 1 && !job->mpiexec)
        rc = weft_err_set(err, WEFT_ENOTFOUND, "%s", job->no_mpi);
    if (!rc)
        rc = check_gpus(job, c, err);
    if (!rc)
        rc = check_layout(job, c, &w, plan_out, err);
    words_release(&w);
    return rc;
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
                 const struct weft_verify_case *c, double *seconds,
                 struct weft_err *err)
{
    char log[PATH_BYTES], config[PATH_BYTES];
    struct words argv = {0};
    if (c->row->ranks > 1) {
        add_split(&argv, job->mpiexec);
        addf(&argv, "-n");
        addf(&argv, "%d", (int) c->row->ranks);
    }
    add(&argv, job->program);
    add(&argv, "train");
    add(&argv, "-q");
    add(&argv, config_of(job, c, config));
    add_row_words(job, c, &argv);
    if (c->row->mix)
        addf(&argv, "plan=%s", row_path(job, c, ".json", log));
    struct weft_child child = {.argv = argv.word,
                               .log = row_path(job, c, ".log", log),
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

/* The case that another one is compared with. */
static struct weft_verify_case reference_of(const struct weft_verify_case *c)
{
    return (struct weft_verify_case){weft_verify_reference(c->row),
                                     c->algorithm, c->dtype};
}

/* Whether a row has GPUs and its reference has none. */
static bool is_other_kind(const struct weft_verify_row *row)
{
    return weft_verify_gpus(row) > 0
        && weft_verify_gpus(weft_verify_reference(row)) == 0;
}

bool weft_verify_is_reference(const struct weft_verify_row *row)
{
    return row == weft_verify_reference(row) || is_other_kind(row);
}

/* Reads the row's numbers and compares them with the reference's. */
static int judge(const struct weft_verify_job *job,
                 const struct weft_verify_case *c, const char *plan,
                 struct weft_verify_result *out)
{
    const struct weft_verify_case reference = reference_of(c);
    char run_dir[PATH_BYTES], other[PATH_BYTES];
    row_path(job, c, "", run_dir);
    int rc = check_followed(run_dir, plan, &out->why);
    if (!rc)
        rc = weft_verify_read(run_dir, job->iterations, &out->hashes,
                              &out->why);
    if (rc || c->row == reference.row)
        return rc;
    row_path(job, &reference, "", other);
    rc = is_other_kind(c->row)
           ? weft_verify_measure(other, run_dir, c->dtype, &out->distance,
                                 &out->difference, &out->why)
           : weft_verify_compare(other, run_dir, job->iterations,
                                 &out->difference, &out->why);
    if (out->difference.number[0] || out->difference.tensor[0])
        out->state = WEFT_VERIFY_DIFFERS;
    return rc;
}

/* The path of a row's last checkpoint. */
static const char *checkpoint_of(const struct weft_verify_job *job,
                                 const struct weft_verify_case *c,
                                 char out[PATH_BYTES])
{
    char suffix[64];
    snprintf(suffix, sizeof suffix, "/checkpoints/iteration-%06d",
             (int) job->iterations);
    return row_path(job, c, suffix, out);
}

/* Checks that there is something to compare a row with. */
static int check_reference(const struct weft_verify_job *job,
                           const struct weft_verify_case *c,
                           struct weft_err *err)
{
    const struct weft_verify_case reference = reference_of(c);
    char path[PATH_BYTES];
    return reference.row == c->row
                || weft_dir_exists(checkpoint_of(job, &reference, path))
             ? 0
             : weft_err_set(err, WEFT_ENOTFOUND,
                            "it is to be compared with row '%s', which did "
                            "not end",
                            reference.row->name);
}

/* Removes a row's checkpoint after the comparison, as it is large. */
static void remove_row(const struct weft_verify_job *job,
                       const struct weft_verify_case *c)
{
    char path[PATH_BYTES];
    if (!job->keep)
        (void) weft_dir_remove(checkpoint_of(job, c, path), NULL);
}

void weft_verify_run(const struct weft_verify_job *job,
                     const struct weft_verify_case *c,
                     struct weft_verify_result *out)
{
    char *plan = NULL;
    *out = (struct weft_verify_result){.state = WEFT_VERIFY_OK};
    int rc = weft_verify_check(job, c, &plan, &out->why);
    if (!rc)
        rc = check_reference(job, c, &out->why);
    if (rc && c->row != weft_verify_row(0))
        out->state = WEFT_VERIFY_SKIPPED;
    if (!rc)
        rc = train(job, c, &out->seconds, &out->why);
    if (!rc)
        rc = judge(job, c, plan, out);
    if (rc && out->state != WEFT_VERIFY_SKIPPED)
        out->state = WEFT_VERIFY_FAILED;
    if (!weft_verify_is_reference(c->row))
        remove_row(job, c);
    weft_free(plan);
}

void weft_verify_end(const struct weft_verify_job *job,
                     const struct weft_verify_case *c)
{
    struct weft_verify_case one = *c;
    for (size_t i = 0; (one.row = weft_verify_row(i)) != NULL; i++)
        if (weft_verify_is_reference(one.row))
            remove_row(job, &one);
}
