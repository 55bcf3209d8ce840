/* SPDX-License-Identifier: Apache-2.0 */
#include "run/prompts.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "lm/lm.h"
#include "job/plan_needs.h"
#include "run/predict/recorded.h"
#include "run/trainer.h"

/* ---- A run's data ----------------------------------------------------- */

/* The id of the special token that ends the assistant's turn, or -1. */
static int find_turn_end(const struct weft_trainer *t, int32_t *out,
                         struct weft_err *err)
{
    const char *text = weft_chat_turn_end(t->renderer.chat);
    int32_t *id = NULL;
    size_t n = 0;
    int rc = weft_tokenizer_encode(t->tokenizer, text, strlen(text),
                                   WEFT_TOK_SPECIAL, &id, &n, err);
    *out = -1;
    for (size_t i = 0; i < n && !rc && *out < 0; i++)
        if (weft_tokenizer_is_special(t->tokenizer, id[i]))
            *out = id[i];
    weft_free(id);
    return rc;
}

/* Collects what ends a response: the model's ids, the end of the template's
 * turn, rollout.stop. */
static int collect_stops(struct weft_trainer *t, struct weft_err *err)
{
    const struct weft_arch *arch = &t->model[0].arch;
    const char *stop = t->config.rollout.stop;
    bool ignored = t->config.rollout.ignore_eos;
    int32_t id = -1;
    int rc = t->renderer.chat ? find_turn_end(t, &id, err) : 0;
    if (rc)
        return rc;
    t->end = id >= 0 ? id : arch->n_eos > 0 ? arch->eos[0] : -1;
    for (int32_t i = 0; i < arch->n_eos && !ignored; i++)
        weft_stops_add_id(&t->stops, arch->eos[i]);
    if (id >= 0 && !ignored)
        weft_stops_add_id(&t->stops, id);
    if (stop)
        rc = weft_stops_add_text(&t->stops, t->tokenizer,
                                 t->config.role[0].folder, "rollout.stop",
                                 stop, err);
    if (rc)
        return rc;
    if (t->end < 0 && t->config.data.add_eos)
        return weft_err_set(err, WEFT_EINVAL,
                            "'%s' names no eos_token_id; set it in its "
                            "config.json",
                            t->config.role[0].folder);
    return 0;
}

/* Whether a reward compares with the row's label. */
static bool wants_labels(const struct weft_config *c)
{
    for (int32_t r = 0; r < c->n_rewards; r++)
        if (c->reward[r].type == WEFT_REWARD_GSM8K
            || c->reward[r].type == WEFT_REWARD_EXACT
            || c->reward[r].type == WEFT_REWARD_BOXED)
            return true;
    return false;
}

/* What every row of the data must have. */
static unsigned needs_of(const struct weft_config *c)
{
    switch (weft_algorithm_of(c)->rows) {
    case WEFT_ROWS_RESPONSE:
        return WEFT_NEED_RESPONSE;
    case WEFT_ROWS_PAIR:
        return WEFT_NEED_PROMPT | WEFT_NEED_PAIR;
    case WEFT_ROWS_LABELLED:
        return WEFT_NEED_PROMPT | WEFT_NEED_EXAMPLE;
    default:
        return WEFT_NEED_PROMPT | (wants_labels(c) ? WEFT_NEED_LABEL : 0);
    }
}

/* The longest text there can be; with mismatched responses, of any prompt with
 * any response. */
static void set_longest(struct weft_trainer *t)
{
    int32_t prompt = 0, response = 0, whole = 0;
    for (int32_t i = 0; i < t->n_prompts; i++) {
        const struct weft_run_prompt *p = &t->prompt[i];
        prompt = p->n_prompt > prompt ? p->n_prompt : prompt;
        response = p->n - p->n_prompt > response ? p->n - p->n_prompt
                                                 : response;
        whole = p->n > whole ? p->n : whole;
    }
    if (weft_algorithm_of(&t->config)->rows == WEFT_ROWS_LABELLED)
        whole = (int32_t) weft_min64(t->model[0].arch.shape.max_positions,
                                     (int64_t) prompt + response);
    t->max_prompt = whole;
}

static int create(struct weft_trainer *t, size_t n, struct weft_err *err)
{
    t->prompt = weft_alloc(n, sizeof *t->prompt);
    t->order = weft_alloc(n, sizeof *t->order);
    return t->prompt && t->order
             ? 0
             : weft_err_nomem(err, "prompts", n * sizeof *t->prompt);
}

/* The rows of an iteration, all of the lengths that stand in the place of
 * data. Each begins with a token of its own, whatever the vocabulary is. */
static int make_up(struct weft_trainer *t, struct weft_err *err)
{
    const struct weft_config *c = &t->config;
    int32_t n = c->data.prompt_tokens;
    t->n_prompts = weft_config_generates(c) ? c->rollout.prompts
                                            : weft_run_samples(c);
    int rc = create(t, (size_t) t->n_prompts, err);
    for (int32_t i = 0; i < t->n_prompts && !rc; i++) {
        struct weft_run_prompt *p = &t->prompt[i];
        *p = (struct weft_run_prompt){.n_prompt = n,
                                      .n = n + c->data.response_tokens};
        p->token = weft_alloc((size_t) p->n, sizeof *p->token);
        if (!p->token)
            rc = weft_err_nomem(err, "prompts", (size_t) p->n * 4);
        else /* none begins as another does, which it would share */
            p->token[0] = i;
    }
    if (!rc)
        set_longest(t);
    return rc;
}

int weft_prompts_load(struct weft_trainer *t, struct weft_err *err)
{
    const struct weft_config *c = &t->config;
    if (c->data.prompt_tokens > 0)
        return make_up(t, err);
    struct weft_dataset_keys keys = {
        .prompt = c->data.prompt_key,
        .response = c->data.response_key,
        .label = c->data.label_key,
        .chosen = c->data.chosen_key,
        .rejected = c->data.rejected_key,
        .need = needs_of(c),
    };
    const struct weft_renderer_options options = {
        .template = c->data.template,
        .key = "data.template",
        .folder = c->role[0].folder,
        .system = c->data.system,
        .date = c->data.date};
    int rc = weft_renderer_init(&options, &t->renderer, err);
    if (!rc)
        rc = collect_stops(t, err);
    if (!rc)
        rc = weft_dataset_open(c->data.path, &keys, &t->data, err);
    if (rc)
        return rc;
    size_t rows = weft_dataset_size(t->data), most = 2 * rows, n_used = 0;
    if (most > INT32_MAX)
        return weft_err_set(err, WEFT_EINVAL, "'%s' has %zu rows; at most %d",
                            c->data.path, rows, INT32_MAX / 2);
    rc = create(t, most, err);
    for (size_t i = 0; i < rows && !rc; i++) {
        int32_t n = 0;
        rc = weft_prompts_row(t, i, t->prompt + t->n_prompts, &n, err);
        n_used += n > 0;
        t->n_prompts += n;
    }
    set_longest(t);
    if (!rc && t->n_prompts == 0)
        rc = weft_err_set(err, WEFT_EINVAL,
                          "'%s': every row is too long "
                          "(data.max_prompt_tokens %d, the model's positions "
                          "%d)",
                          c->data.path, c->data.max_prompt_tokens,
                          t->model[0].arch.shape.max_positions);
    if (!rc && n_used < rows)
        weft_info("%zu of %zu rows are too long and skipped", rows - n_used,
                  rows);
    return rc;
}

/* ---- Iterations -------------------------------------------------------- */

static int64_t steps_of_epoch(const struct weft_trainer *t)
{
    return weft_ceil_div(t->n_prompts, weft_run_samples(&t->config));
}

int32_t weft_prompts_batch(const struct weft_trainer *t, int32_t iteration,
                           int64_t *first_out)
{
    int32_t unit = weft_run_unit(&t->config), n = t->n_prompts / unit;
    int32_t batch = weft_run_samples(&t->config) / unit;
    int32_t steps = (int32_t) steps_of_epoch(t);
    int64_t first = (int64_t) iteration * batch;
    if (t->config.epochs > 0) {
        int32_t at = iteration % steps * batch;
        first = (int64_t) (iteration / steps) * n + at;
        batch = batch < n - at ? batch : n - at;
    }
    *first_out = first * unit;
    return batch * unit;
}

double weft_prompts_epoch(const struct weft_trainer *t, int32_t iteration)
{
    int64_t first;
    int32_t n = weft_prompts_batch(t, iteration, &first);
    if (t->config.epochs > 0)
        return (double) (iteration + 1) / (double) steps_of_epoch(t);
    return (double) (first + n) / t->n_prompts;
}

int weft_prompts_iterations(const struct weft_trainer *t, int32_t *out,
                            struct weft_err *err)
{
    const struct weft_config *c = &t->config;
    int64_t steps = steps_of_epoch(t);
    /* of 0.1 epochs with 30 steps 3, though the product is more than 3 */
    double n = c->epochs > 0 ? ceil(c->epochs * (double) steps - 1e-6)
                             : c->iterations;
    if (c->epochs > 0 && weft_algorithm_of(c)->rows == WEFT_ROWS_LABELLED
        && t->n_prompts % c->train.batch == 1)
        return weft_err_set(err, WEFT_EINVAL,
                            "'epochs' leaves a single row of '%s' for an "
                            "epoch's last step (rows %d, train.batch %d), "
                            "which has no other response to estimate the KL "
                            "from; take another train.batch",
                            c->data.path, t->n_prompts, c->train.batch);
    if (n > INT32_MAX / 2)
        return weft_err_set(err, WEFT_EINVAL,
                            "'epochs' is %.10g, with %lld steps in each: "
                            "more than can be counted",
                            c->epochs, (long long) steps);
    *out = n < 1 ? 1 : (int32_t) n;
    return 0;
}

void weft_prompts_release(struct weft_trainer *t)
{
    for (int32_t i = 0; t->prompt && i < t->n_prompts; i++)
        weft_prompts_release_row(&t->prompt[i]);
    weft_free(t->prompt);
    weft_stops_release(&t->stops);
    weft_renderer_release(&t->renderer);
}

static const struct weft_run_prompt *longest(const struct weft_trainer *t)
{
    const struct weft_run_prompt *most = t->prompt;
    for (int32_t i = 1; i < t->n_prompts && most->n < t->max_prompt; i++)
        if (t->prompt[i].n > most->n)
            most = &t->prompt[i];
    return most;
}

const struct weft_run_prompt *weft_prompts_draw(struct weft_trainer *t,
                                                int64_t k)
{
    int32_t unit = weft_run_unit(&t->config), n = t->n_prompts / unit;
    int64_t epoch = k / unit / n;
    uint32_t i = (uint32_t) (k / unit % n), at = (uint32_t) (k % unit);
    if (t->recorded && !t->recorded->n_total)
        return longest(t);
    if (!t->config.data.shuffle)
        return &t->prompt[i * (uint32_t) unit + at];
    if (t->order_epoch != epoch) {
        weft_dataset_order((uint32_t) n, t->config.seed, (uint32_t) epoch,
                           t->order);
        t->order_epoch = epoch;
    }
    return &t->prompt[t->order[i] * (uint32_t) unit + at];
}
