/* SPDX-License-Identifier: Apache-2.0 */
#include "run/reward_text.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"

struct weft_reward_text {
    struct weft_tokenizer *tokenizer;
    struct weft_renderer renderer;
    int32_t limit;
    bool warned; /* that a text was cut */
};

static int32_t limit_of(const struct weft_config *c,
                        const struct weft_reward_config *reward,
                        const struct weft_shape *shape)
{
    int64_t usual = 2
                  * ((int64_t) c->data.max_prompt_tokens
                     + c->rollout.max_new_tokens);
    if (reward->max_tokens > 0)
        return reward->max_tokens;
    return (int32_t) weft_min64(usual, shape->max_positions);
}

static int open_one(struct weft_trainer *t, const struct weft_role *role,
                    const struct weft_shape *shape, struct weft_err *err)
{
    const struct weft_config *c = &t->config;
    const struct weft_reward_config *reward = &c->reward[role->index];
    const struct weft_renderer_options options = {.template = "auto",
                                                  .folder = reward->model,
                                                  .system = NULL,
                                                  .date = c->data.date};
    struct weft_reward_text *x = weft_alloc(1, sizeof *x);
    if (!x)
        return weft_err_nomem(err, "a tokenizer", sizeof *x);
    t->reward_text[role->index] = x;
    x->limit = limit_of(c, reward, shape);
    if (x->limit > shape->max_positions)
        return weft_err_set(err, WEFT_EINVAL,
                            "max_tokens is %d, but '%s' has %d positions",
                            x->limit, reward->model, shape->max_positions);
    int rc = weft_tokenizer_open(reward->model, &x->tokenizer, err);
    if (!rc && weft_tokenizer_size(x->tokenizer) > shape->vocab)
        rc = weft_err_set(err, WEFT_EINVAL,
                          "'%s' has a vocabulary of %d, fewer than its "
                          "tokenizer's %d tokens",
                          reward->model, shape->vocab,
                          weft_tokenizer_size(x->tokenizer));
    if (!rc)
        rc = weft_renderer_init(&options, &x->renderer, err);
    /* what a template writes may stand in a prompt: it is a user's text */
    x->renderer.automatic = false;
    x->renderer.system = c->data.system;
    return rc;
}

int weft_reward_text_open(struct weft_trainer *t, struct weft_err *err)
{
    int rc = 0;
    for (int32_t r = 0; r < t->flow.n_roles && !rc; r++) {
        const struct weft_role *role = &t->flow.role[r];
        if (role->index < 0 || !t->config.reward[role->index].own_tokenizer)
            continue;
        rc = open_one(t, role, &t->model[r].arch.shape, err);
        if (rc)
            weft_err_prefix(err, "reward '%s'",
                            t->config.reward[role->index].name);
    }
    return rc;
}

void weft_reward_text_close(struct weft_trainer *t)
{
    for (int32_t r = 0; r < WEFT_MAX_REWARDS; r++) {
        struct weft_reward_text *x = t->reward_text[r];
        if (!x)
            continue;
        weft_renderer_release(&x->renderer);
        weft_tokenizer_free(x->tokenizer);
        weft_free(x);
        t->reward_text[r] = NULL;
    }
}

int32_t weft_reward_text_limit(const struct weft_trainer *t, int32_t reward)
{
    return t->reward_text[reward] ? t->reward_text[reward]->limit : 0;
}

/* The conversation with the response, by the reward model's template. */
static int encode_chat(const struct weft_reward_text *x,
                       const struct weft_row *row, struct weft_str response,
                       struct weft_rendered *out, struct weft_err *err)
{
    struct weft_row whole = *row;
    whole.answer = NULL;
    whole.response = response;
    return weft_renderer_encode_pair(&x->renderer, x->tokenizer, &whole, out,
                                     err);
}

static int encode_plain(const struct weft_reward_text *x,
                        struct weft_str prompt, struct weft_str response,
                        struct weft_rendered *out, struct weft_err *err)
{
    size_t n = prompt.n + response.n, n_token = 0;
    char *text = weft_alloc(n + 1, 1);
    if (!text)
        return weft_err_nomem(err, "a text", n);
    if (prompt.n > 0)
        memcpy(text, prompt.s, prompt.n);
    if (response.n > 0)
        memcpy(text + prompt.n, response.s, response.n);
    int rc = weft_tokenizer_encode(x->tokenizer, text, n,
                                   WEFT_TOK_SPECIAL | WEFT_TOK_ADD_BOS,
                                   &out->token, &n_token, err);
    weft_free(text);
    if (!rc && n_token > INT32_MAX / 4) {
        weft_free(out->token);
        return weft_err_set(err, WEFT_EINVAL, "a text of %zu tokens",
                            n_token);
    }
    out->n = (int32_t) n_token;
    return rc;
}

int weft_reward_text_encode(struct weft_trainer *t, int32_t reward,
                            const struct weft_row *row,
                            struct weft_str prompt, struct weft_str response,
                            int32_t **token_out, int32_t *n_out,
                            struct weft_err *err)
{
    struct weft_reward_text *x = t->reward_text[reward];
    struct weft_rendered r = {0};
    int rc = x->renderer.chat && t->renderer.chat
               ? encode_chat(x, row, response, &r, err)
               : encode_plain(x, prompt, response, &r, err);
    if (rc) {
        weft_err_prefix(err, "reward '%s'", t->config.reward[reward].name);
        return rc;
    }
    if (r.n > x->limit) {
        memmove(r.token, r.token + (r.n - x->limit),
                (size_t) x->limit * sizeof *r.token);
        if (!x->warned)
            weft_warn("reward %s: a text of %d tokens loses its beginning, "
                      "its model reads %d (max_tokens); this is not said "
                      "again",
                      t->config.reward[reward].name, r.n, x->limit);
        x->warned = true;
        r.n = x->limit;
    }
    if (r.n == 0) { /* nothing but what the tokenizer leaves out */
        weft_free(r.token);
        r.token = weft_alloc(1, sizeof *r.token);
        r.n = 1;
    }
    *token_out = r.token;
    *n_out = r.n;
    return r.token ? 0 : weft_err_nomem(err, "a text", sizeof *r.token);
}
