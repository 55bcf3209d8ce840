/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/largest.h"

#include "plan/deal.h"
#include "plan/shares.h"
#include "job/plan_needs.h"
#include "run/reward_text.h"

static const struct weft_shape *shape_of(const struct weft_trainer *t,
                                         int32_t call)
{
    return &t->model[t->flow.call[call].role].arch.shape;
}

static int32_t max_new(const struct weft_trainer *t)
{
    return weft_config_generates(&t->config)
             ? t->config.rollout.max_new_tokens
             : 0;
}

static int64_t longest(const struct weft_trainer *t)
{
    return t->max_prompt + max_new(t);
}

static int64_t shortest(const struct weft_trainer *t)
{
    int64_t n = t->max_prompt;
    for (int32_t i = 0; i < t->n_prompts; i++)
        n = weft_min64(n, t->prompt[i].n);
    return n + (max_new(t) > 1 ? 1 : max_new(t));
}

/* The most rows of a micro-batch of units that is limited by rows. */
static int64_t row_budget(const struct weft_trainer *t, int32_t unit)
{
    int64_t l = unit * longest(t);
    int64_t budget = t->config.train.micro_batch_tokens;
    if (unit * shortest(t) == l)
        budget -= budget % l;
    return weft_max64(budget, l);
}

/* The size of at most n samples with n_rows rows in all, with the most runs
 * and targets. */
static struct weft_g_rows rows_of(const struct weft_trainer *t, int64_t n,
                                  int64_t n_rows)
{
    n_rows = weft_min64(n_rows, n * longest(t));
    int64_t runs = weft_min64(n, n_rows / shortest(t));
    int64_t targets = weft_config_generates(&t->config)
                        ? weft_min64(n_rows, runs * max_new(t))
                        : n_rows;
    return (struct weft_g_rows){n_rows, (int32_t) runs, (int32_t) targets};
}

/* The most rows of a part when samples are cut into parts of about the same
 * cost, none of which costs more than k of the longest samples. */
static int64_t rows_by_cost(const struct weft_trainer *t,
                            const struct weft_shape *shape, int64_t k)
{
    int64_t l = longest(t), s = shortest(t);
    double most = weft_plan_sample_cost(shape, (int32_t) l) * (double) k;
    double row = weft_plan_sample_cost(shape, (int32_t) s) / (double) s;
    return (int64_t) (most / row * (1 + 1e-9));
}

/* The most units of an optimizer step; and of one gradient group. */
static int64_t of_step(const struct weft_trainer *t)
{
    const struct weft_config *c = &t->config;
    return weft_ceil_div(weft_run_samples(c) / weft_run_unit(c),
                         t->settings.mini_batches);
}

static int64_t of_group(const struct weft_trainer *t)
{
    return weft_ceil_div(of_step(t), t->config.numerics.gradient_groups);
}

struct weft_g_rows weft_run_most_train(const struct weft_trainer *t,
                                       int32_t call)
{
    int64_t n = of_group(t), parts = t->layout[call].plan.micro_batches;
    int32_t unit = weft_run_unit(&t->config);
    return rows_of(t, unit * n,
                   parts > 0 ? rows_by_cost(t, shape_of(t, call),
                                            unit * weft_ceil_div(n, parts))
                             : row_budget(t, unit));
}

/* Texts for a reward model, which are not the samples' own tokens. */
static struct weft_g_rows of_texts(const struct weft_trainer *t, int64_t n,
                                   int64_t text, bool parts)
{
    int64_t budget = t->config.train.micro_batch_tokens;
    int64_t rows = parts ? n * text : weft_max64(budget, text);
    return (struct weft_g_rows){weft_min64(rows, n * text), (int32_t) n,
                                (int32_t) n};
}

struct weft_g_rows weft_run_most_infer(const struct weft_trainer *t,
                                       int32_t call)
{
    const struct weft_call_plan *plan = &t->layout[call].plan;
    int64_t parts = plan->micro_batches;
    int64_t n = weft_run_samples_at(&t->config, &t->flow,
                                    weft_flow_origin_of_call(&t->flow, call));
    int32_t reward = t->flow.role[t->flow.call[call].role].index;
    int64_t text = reward < 0 ? 0 : weft_reward_text_limit(t, reward);
    n = weft_ceil_div(weft_plan_most_share(plan, (int32_t) n),
                      weft_max64(parts, 1));
    if (text > 0)
        return of_texts(t, n, text, parts > 0);
    return rows_of(t, n, parts > 0 ? n * longest(t) : row_budget(t, 1));
}

int32_t weft_run_micro_batches(const struct weft_trainer *t, int32_t call)
{
    const struct weft_call_plan *plan = &t->layout[call].plan;
    int64_t n = of_group(t), parts = plan->micro_batches;
    int64_t fit = weft_max64(1,
                             t->config.train.micro_batch_tokens
                                 / (weft_run_unit(&t->config) * longest(t)));
    int64_t cuts = parts > 0 ? weft_min64(parts, n) : weft_ceil_div(n, fit);
    return (int32_t) weft_min64(
        of_step(t),
        cuts
            * weft_plan_most_share(plan, t->config.numerics.gradient_groups));
}

int64_t weft_run_most_moved(const struct weft_trainer *t)
{
    int64_t n = weft_run_samples_all(&t->config, &t->flow);
    return weft_g_job_n_places(&t->job) > 1
                && weft_config_generates(&t->config)
             ? n * (t->config.runtime.overlap ? 2 : 1)
             : 0;
}
