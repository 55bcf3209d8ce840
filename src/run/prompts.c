/* SPDX-License-Identifier: Apache-2.0 */
#include "run/prompts.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "lm/lm.h"
#include "run/trainer.h"

/* ---- Long texts ------------------------------------------------------- */

/* Applies data.long_prompts to a row of which `part` has n tokens and `limit`
 * are allowed: error, skip, or truncate. why: the end of the error's text.
 * keep_out: the row is used, and must be truncated. */
static int judge_long(const struct weft_trainer *t,
                      const struct weft_row *row, const char *part, int32_t n,
                      int32_t limit, const char *why, bool *keep_out,
                      struct weft_err *err)
{
    const char *rule = t->config.data.long_prompts;
    *keep_out = strcmp(rule, "skip") != 0;
    if (strcmp(rule, "refuse") != 0)
        return 0;
    return weft_err_set(err, WEFT_EINVAL,
                        "'%s' line %zu: the %s has %d tokens, %s %d; shorten "
                        "it, or set data.long_prompts to skip or truncate",
                        t->config.data.path, row->line, part, n, why, limit);
}

/* Truncates a long prompt at its beginning, as its end matters most. */
static int limit_prompt(const struct weft_trainer *t,
                        const struct weft_row *row, struct weft_run_prompt *p,
                        bool *keep_out, struct weft_err *err)
{
    const struct weft_config *c = &t->config;
    int32_t room = t->model[0].arch.shape.max_positions;
    bool ppo = weft_config_generates(c), model;
    if (ppo)
        room -= c->rollout.max_new_tokens;
    model = ppo && room > 0 && room < c->data.max_prompt_tokens;
    int32_t limit = model ? room : c->data.max_prompt_tokens;
    int32_t over = p->n_prompt - limit;
    if (over <= 0)
        return 0;
    int rc = judge_long(t, row, "prompt", p->n_prompt, limit,
                        model ? "the model's positions less "
                                "rollout.max_new_tokens are"
                              : "data.max_prompt_tokens is",
                        keep_out, err);
    if (rc || !*keep_out)
        return rc;
    memmove(p->token, p->token + over,
            (size_t) (p->n - over) * sizeof *p->token);
    p->n -= over;
    p->n_prompt -= over;
    return 0;
}

/* Truncates a long response at its end. */
static int limit_whole(const struct weft_trainer *t,
                       const struct weft_row *row, struct weft_run_prompt *p,
                       bool *keep_out, struct weft_err *err)
{
    int32_t limit = t->model[0].arch.shape.max_positions;
    if (p->n <= limit)
        return 0;
    int rc = judge_long(t, row, "text (prompt and response)", p->n, limit,
                        "the model's positions are", keep_out, err);
    if (!rc && *keep_out)
        p->n = limit;
    return rc;
}

static int check_label(const struct weft_trainer *t,
                       const struct weft_row *row, struct weft_err *err)
{
    const struct weft_config *c = &t->config;
    const char *user = weft_rewards_label_user(c->reward, c->n_rewards);
    if (!user || row->label.s)
        return 0;
    return weft_err_set(err, WEFT_EINVAL,
                        "'%s' line %zu: no label, which reward '%s' compares "
                        "with; set data.label_key to its key",
                        c->data.path, row->line, user);
}

/* ---- Rows ------------------------------------------------------------- */

/* Encodes prompt and response. Without a prompt the first token of the
 * response is the prompt, as the next ones are predicted from it. */
static int encode_pair(struct weft_trainer *t, const struct weft_row *row,
                       struct weft_run_prompt *p, struct weft_err *err)
{
    struct weft_rendered r;
    int rc = weft_renderer_encode_pair(&t->renderer, t->tokenizer, row, &r,
                                       err);
    if (rc)
        return rc;
    p->token = r.token;
    p->n = r.n;
    p->n_prompt = r.n_prompt;
    if (r.n == r.n_prompt)
        return weft_err_set(err, WEFT_EINVAL, "the response is empty");
    if (!r.templated && t->config.data.add_eos)
        p->token[p->n++] = t->end; /* the renderer allocates one more */
    if (p->n_prompt == 0)
        p->n_prompt = 1;
    if (r.cut && !t->warned_cut)
        weft_warn(
            "'%s' line %zu: the conversation's tokens do not begin with its "
            "prompt's; what is learned follows what both begin with",
            t->config.data.path, row->line);
    t->warned_cut = t->warned_cut || r.cut;
    return 0;
}

static int encode_prompt(struct weft_trainer *t, const struct weft_row *row,
                         struct weft_run_prompt *p, struct weft_err *err)
{
    struct weft_rendered r;
    int rc = weft_renderer_encode_prompt(&t->renderer, t->tokenizer, row, &r,
                                         err);
    if (rc)
        return rc;
    p->token = r.token;
    p->n = p->n_prompt = r.n;
    return 0;
}

static int check_ids(const struct weft_trainer *t,
                     const struct weft_run_prompt *p, struct weft_err *err)
{
    int32_t vocab = t->model[0].arch.shape.vocab;
    for (int32_t k = 0; k < p->n; k++)
        if (p->token[k] >= vocab)
            return weft_err_set(err, WEFT_EINVAL,
                                "the tokenizer gives id %d, the model's "
                                "vocabulary has %d",
                                p->token[k], vocab);
    return 0;
}

static int encode_row(struct weft_trainer *t, size_t i,
                      struct weft_run_prompt *p, bool *keep_out,
                      struct weft_err *err)
{
    bool sft = !weft_config_generates(&t->config);
    struct weft_row row;
    *p = (struct weft_run_prompt){.row = i};
    *keep_out = true;
    int rc = weft_dataset_row(t->data, i, &row, err);
    if (rc)
        return rc;
    rc = check_label(t, &row, err);
    if (!rc) {
        rc = sft ? encode_pair(t, &row, p, err)
                 : encode_prompt(t, &row, p, err);
        if (rc)
            weft_err_prefix(err, "'%s' line %zu", t->config.data.path,
                            row.line);
    }
    if (!rc)
        rc = limit_prompt(t, &row, p, keep_out, err);
    if (!rc && *keep_out && sft)
        rc = limit_whole(t, &row, p, keep_out, err);
    if (!rc && *keep_out) {
        if (p->n < 1 || (sft && p->n <= p->n_prompt))
            rc = weft_err_set(err, WEFT_EINVAL, "nothing to %s",
                              sft ? "learn from one token"
                                  : "start from: the prompt is empty");
        else
            rc = check_ids(t, p, err);
        if (rc)
            weft_err_prefix(err, "'%s' line %zu", t->config.data.path,
                            row.line);
    }
    weft_row_release(&row);
    return rc;
}

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

/* Collects the ids that end a response: the model's, the end of the template's
 * turn, rollout.stop. */
static int collect_stops(struct weft_trainer *t, struct weft_err *err)
{
    t->n_stop = weft_lm_stop_ids(&t->model[0].arch, t->stop);
    t->end = t->n_stop > 0 ? t->stop[0] : -1;
    if (t->renderer.chat && t->n_stop < 16) {
        int32_t id;
        int rc = find_turn_end(t, &id, err);
        if (rc)
            return rc;
        if (id >= 0) {
            t->stop[t->n_stop++] = id;
            t->end = id;
        }
    }
    const char *stop = t->config.rollout.stop;
    if (stop && t->n_stop < 16) {
        int32_t *id;
        size_t n;
        int rc = weft_tokenizer_encode(t->tokenizer, stop, strlen(stop),
                                       WEFT_TOK_SPECIAL, &id, &n, err);
        if (rc)
            return rc;
        if (n == 1)
            t->stop[t->n_stop++] = id[0];
        weft_free(id);
        if (n != 1)
            return weft_err_set(err, WEFT_EINVAL,
                                "rollout.stop '%s' is %zu tokens; it must be "
                                "one",
                                stop, n);
    }
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

int weft_prompts_load(struct weft_trainer *t, struct weft_err *err)
{
    const struct weft_config *c = &t->config;
    bool sft = !weft_config_generates(c);
    struct weft_dataset_keys keys = {
        .prompt = c->data.prompt_key,
        .response = c->data.response_key,
        .label = c->data.label_key,
        .need = sft ? WEFT_NEED_RESPONSE : WEFT_NEED_PROMPT,
    };
    if (!sft && wants_labels(c))
        keys.need |= WEFT_NEED_LABEL;
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
    size_t rows = weft_dataset_size(t->data);
    if (rows > INT32_MAX)
        return weft_err_set(err, WEFT_EINVAL, "'%s' has %zu rows; at most %d",
                            c->data.path, rows, INT32_MAX);
    t->prompt = weft_alloc(rows, sizeof *t->prompt);
    t->order = weft_alloc(rows, sizeof *t->order);
    if (!t->prompt || !t->order)
        return weft_err_nomem(err, "prompts", rows * sizeof *t->prompt);
    for (size_t i = 0; i < rows && !rc; i++) {
        struct weft_run_prompt *p = &t->prompt[t->n_prompts];
        bool keep;
        rc = encode_row(t, i, p, &keep, err);
        if (rc || !keep) {
            weft_free(p->token);
            p->token = NULL;
            continue;
        }
        t->max_prompt = (int32_t) weft_max64(t->max_prompt, p->n);
        t->n_prompts++;
    }
    if (!rc && t->n_prompts == 0)
        rc = weft_err_set(err, WEFT_EINVAL,
                          "'%s': every row is too long "
                          "(data.max_prompt_tokens %d, the model's positions "
                          "%d)",
                          c->data.path, c->data.max_prompt_tokens,
                          t->model[0].arch.shape.max_positions);
    if (!rc && (size_t) t->n_prompts < rows)
        weft_info("%zu of %zu rows are too long and skipped",
                  rows - (size_t) t->n_prompts, rows);
    return rc;
}

void weft_prompts_release(struct weft_trainer *t)
{
    for (int32_t i = 0; t->prompt && i < t->n_prompts; i++)
        weft_free(t->prompt[i].token);
    weft_free(t->prompt);
    weft_renderer_release(&t->renderer);
}
