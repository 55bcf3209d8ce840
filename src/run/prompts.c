/* SPDX-License-Identifier: Apache-2.0 */
#include "run/prompts.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "run/lm.h"
#include "run/trainer.h"

/* ---- Rendering -------------------------------------------------------- */

int weft_renderer_init(const char *name, const char *folder,
                       const char *system, struct weft_renderer *out,
                       struct weft_err *err)
{
    *out = (struct weft_renderer){.system = system};
    if (strcmp(name, "none") != 0)
        return weft_chat_open(name, folder, &out->chat, err);
    if (system)
        return weft_err_set(err, WEFT_EINVAL,
                            "a system message needs a chat template; name "
                            "one, or 'auto'");
    return 0;
}

void weft_renderer_release(struct weft_renderer *renderer)
{
    weft_chat_free(renderer->chat);
    renderer->chat = NULL;
}

static int render_chat(const struct weft_renderer *r,
                       const struct weft_row *row, struct weft_str *text_out,
                       struct weft_err *err)
{
    size_t n = row->prompt.s ? 1 : row->n_messages;
    static char user[] = "user", system[] = "system";
    struct weft_message one = {user, (char *) (uintptr_t) row->prompt.s};
    const struct weft_message *from = row->prompt.s ? &one : row->message;
    char *text = NULL;
    if (row->prompt.s && memchr(row->prompt.s, 0, row->prompt.n))
        return weft_err_set(err, WEFT_EUNSUPPORTED,
                            "line %zu: the prompt holds the zero character "
                            "'\\u0000', which chat templates do not take",
                            row->line);
    struct weft_message *message = weft_alloc(n + 1, sizeof *message);
    if (!message)
        return weft_err_nomem(err, "messages", n * sizeof *message);
    size_t at = 0;
    bool has_system = n > 0 && strcmp(from[0].role, system) == 0;
    if (r->system && !has_system)
        message[at++] = (struct weft_message){system,
                                              (char *) (uintptr_t) r->system};
    memcpy(message + at, from, n * sizeof *message);
    int rc = weft_chat_render(r->chat, message, at + n, true, &text, err);
    weft_free(message);
    if (!rc)
        *text_out = weft_str_of(text);
    return rc;
}

int weft_renderer_prompt(const struct weft_renderer *r,
                         const struct weft_row *row,
                         struct weft_str *text_out, struct weft_err *err)
{
    if (r->chat)
        return render_chat(r, row, text_out, err);
    if (row->n_messages > 0)
        return weft_err_set(err, WEFT_EINVAL,
                            "line %zu: the prompt is a list of messages; "
                            "name a chat template (or 'auto')",
                            row->line);
    return weft_str_copy(row->prompt.s ? row->prompt : weft_str_of(""),
                         text_out, err);
}

int weft_renderer_encode(const struct weft_renderer *r,
                         const struct weft_tokenizer *tokenizer,
                         struct weft_str text, int32_t **token_out,
                         int32_t *n_out, struct weft_err *err)
{
    size_t n;
    /* Also without a template: prompts that come rendered spell them. */
    unsigned flags = WEFT_TOK_SPECIAL | (r->chat ? 0 : WEFT_TOK_ADD_BOS);
    int rc = weft_tokenizer_encode(tokenizer, text.s, text.n, flags,
                                   token_out, &n, err);
    if (!rc && n > INT32_MAX / 4) {
        weft_free(*token_out);
        rc = weft_err_set(err, WEFT_EINVAL, "a text of %zu tokens", n);
    }
    if (!rc)
        *n_out = (int32_t) n;
    return rc;
}

/* ---- A run's data ----------------------------------------------------- */

/* Cuts or refuses a prompt that is too long. keep_out: use the row. */
static int limit_prompt(const struct weft_trainer *t,
                        const struct weft_row *row, struct weft_run_prompt *p,
                        bool *keep_out, struct weft_err *err)
{
    int32_t limit = t->config.data.max_prompt_tokens;
    const char *rule = t->config.data.long_prompts;
    *keep_out = true;
    if (p->n <= limit)
        return 0;
    if (strcmp(rule, "skip") == 0) {
        *keep_out = false;
    } else if (strcmp(rule, "truncate") == 0) { /* the end matters most */
        memmove(p->token, p->token + (p->n - limit), (size_t) limit * 4);
        p->n = limit;
    } else {
        return weft_err_set(err, WEFT_EINVAL,
                            "'%s' line %zu: the prompt has %d tokens, "
                            "data.max_prompt_tokens is %d; raise it, or set "
                            "data.long_prompts to skip or truncate",
                            t->config.data.path, row->line, p->n, limit);
    }
    return 0;
}

/* Appends the response's ids and, when asked, the end of sequence. */
static int add_response(const struct weft_trainer *t,
                        const struct weft_row *row, struct weft_run_prompt *p,
                        struct weft_err *err)
{
    int32_t *more;
    size_t n;
    int32_t limit = t->actor.arch.shape.max_positions;
    int rc = weft_tokenizer_encode(t->tokenizer, row->response.s,
                                   row->response.n, 0, &more, &n, err);
    if (rc)
        return rc;
    bool eos = t->config.data.add_eos;
    int64_t total = p->n + (int64_t) n + (eos ? 1 : 0);
    if (total == p->n || total > limit) {
        weft_free(more);
        return weft_err_set(err, WEFT_EINVAL, "'%s' line %zu: %s",
                            t->config.data.path, row->line,
                            total == p->n ? "the response is empty"
                                          : "prompt and response exceed the "
                                            "model's positions");
    }
    int32_t *token = weft_realloc(p->token, (size_t) total, sizeof *token);
    if (!token) {
        weft_free(more);
        return weft_err_nomem(err, "a response", (size_t) total * 4);
    }
    p->token = token;
    memcpy(token + p->n, more, n * 4);
    if (eos)
        token[total - 1] = t->end;
    p->n = (int32_t) total;
    weft_free(more);
    return 0;
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

/* A text without a prompt begins with its first token: something must
 * predict from. */
static int encode_row(struct weft_trainer *t, size_t i,
                      struct weft_run_prompt *p, bool *keep_out,
                      struct weft_err *err)
{
    bool sft = t->config.algorithm == WEFT_ALGO_SFT;
    struct weft_row row;
    struct weft_str text = {0};
    *p = (struct weft_run_prompt){.row = i};
    int rc = weft_dataset_row(t->data, i, &row, err);
    if (rc)
        return rc;
    rc = check_label(t, &row, err);
    if (!rc)
        rc = weft_renderer_prompt(&t->renderer, &row, &text, err);
    if (!rc)
        rc = weft_renderer_encode(&t->renderer, t->tokenizer, text, &p->token,
                                  &p->n, err);
    if (!rc)
        rc = limit_prompt(t, &row, p, keep_out, err);
    int32_t vocab = t->actor.arch.shape.vocab;
    p->n_prompt = p->n;
    if (!rc && sft && *keep_out) {
        rc = add_response(t, &row, p, err);
        p->n_prompt = p->n_prompt ? p->n_prompt : 1;
    }
    if (!rc && (p->n < 1 || (sft && *keep_out && p->n <= p->n_prompt)))
        rc = weft_err_set(err, WEFT_EINVAL, "'%s' line %zu: nothing to %s",
                          t->config.data.path, row.line,
                          sft ? "learn from one token"
                              : "start from: the "
                                "prompt is empty");
    for (int32_t k = 0; k < p->n && !rc; k++)
        if (p->token[k] >= vocab)
            rc = weft_err_set(err, WEFT_EINVAL,
                              "'%s' line %zu: the tokenizer gives id %d, the "
                              "model's vocabulary has %d",
                              t->config.data.path, row.line, p->token[k],
                              vocab);
    weft_str_release(&text);
    weft_row_release(&row);
    return rc;
}

/* End-of-sequence ids of the model, the template's turn end, rollout.stop. */
static int collect_stops(struct weft_trainer *t, struct weft_err *err)
{
    t->n_stop = weft_lm_stop_ids(&t->actor.arch, t->stop);
    t->end = t->n_stop > 0 ? t->stop[0] : -1;
    if (t->renderer.chat && t->n_stop < 16) {
        int32_t id = weft_tokenizer_find(
            t->tokenizer, weft_chat_turn_end(t->renderer.chat));
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
                            t->config.model.actor);
    return 0;
}

/* Rules compare with the row's label. */
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
    bool sft = c->algorithm == WEFT_ALGO_SFT;
    struct weft_dataset_keys keys = {
        .prompt = c->data.prompt_key,
        .response = c->data.response_key,
        .label = c->data.label_key,
        .need = sft ? WEFT_NEED_RESPONSE : WEFT_NEED_PROMPT,
    };
    if (!sft && wants_labels(c))
        keys.need |= WEFT_NEED_LABEL;
    int rc = weft_renderer_init(c->data.template, c->model.actor,
                                c->data.system, &t->renderer, err);
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
                          "'%s': every prompt is longer than "
                          "data.max_prompt_tokens %d",
                          c->data.path, c->data.max_prompt_tokens);
    if (!rc && (size_t) t->n_prompts < rows)
        weft_info("%zu of %zu prompts are too long and skipped",
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
