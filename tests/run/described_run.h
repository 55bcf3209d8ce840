/* SPDX-License-Identifier: Apache-2.0 */
/* A run that is described, to be recorded, and does not run. */
#ifndef WEFT_TESTS_RUN_DESCRIBED_RUN_H
#define WEFT_TESTS_RUN_DESCRIBED_RUN_H

#include "job/run_config.h"
#include "run/predict/recorded.h"
#include "run_fixture.h"

struct described_run {
    struct weft_config config;
    struct weft_plan plan;
    struct weft_trainer *t;
    struct weft_recording r; /* without a task so far */
};

/* The fixture's run with n "key=value" words. */
static inline void describe_run(const struct fixture *f,
                                const struct weft_g_job *job, int n,
                                const char *const *word,
                                struct described_run *out)
{
    struct weft_err err;
    out->plan = (struct weft_plan){0};
    weft_recording_init(&out->r);
    REQUIRE_OK(weft_run_config_read(f->config, n, word, &out->config, &err),
               err);
    REQUIRE_OK(
        weft_trainer_describe(&out->config, job, &out->plan, &out->t, &err),
        err);
}

/* A fixture's run in which two calls generate. */
static inline struct fixture remax_fixture(const struct fixture *f)
{
    static const char yaml[] =
        "algorithm: remax\n"
        "iterations: 1\n"
        "run_dir: unset\n"
        "data: {path: prompts.jsonl}\n"
        "model: {actor: model, reference: model}\n"
        "reward: [{type: callback}]\n"
        "rollout: {prompts: 6, samples_per_prompt: 2, max_new_tokens: 60}\n"
        "ppo: {mini_batches: 2}\n";
    struct fixture out = *f;
    struct weft_err err;
    snprintf(out.config, sizeof out.config, "%s/remax.yaml", f->dir);
    REQUIRE_OK(weft_file_write(out.config, yaml, sizeof yaml - 1, &err), err);
    return out;
}

static inline void forget_run(struct described_run *d)
{
    weft_recording_release(&d->r);
    weft_trainer_forget(d->t);
    weft_plan_release(&d->plan);
    weft_config_release(&d->config);
}

#endif
