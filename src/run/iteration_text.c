/* SPDX-License-Identifier: Apache-2.0 */
/* Samples as texts, and inference calls that read these texts in tokens of
 * their own. */
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "run/iteration.h"
#include "run/predict/recorded.h"
#include "run/reward_text.h"
#include "run/scorer.h"

int weft_iteration_decode(const struct weft_iteration *p, int32_t i,
                          const struct weft_rollout *r,
                          struct weft_iteration_text *out,
                          struct weft_err *err)
{
    const struct weft_trainer *t = p->t;
    char *text = NULL;
    size_t n = 0;
    out->ended = r->ended;
    out->n_tokens = r->n_total - r->n_prompt;
    int rc = weft_tokenizer_decode(
        t->tokenizer, weft_rollout_token(r) + r->n_prompt,
        (size_t) out->n_tokens, true, &text, &n, err);
    out->response = (struct weft_str){text, n};
    if (!rc)
        rc = weft_dataset_row(t->data, p->prompt[i]->row, &out->row, err);
    if (!rc)
        rc = weft_renderer_prompt(&t->renderer, &out->row, &out->prompt, err);
    return rc;
}

/* Waits for the rollout of sample i, and for its text, or decodes it here. */
static int get_text(struct weft_iteration *p, int32_t i)
{
    struct weft_trainer *t = p->t;
    int32_t f = weft_iteration_set(p, i)->field;
    struct weft_tile *tile = weft_world_rank() == 0 ? p->extra[i].home[f]
                                                    : p->extra[i].field[f];
    const struct weft_rollout *r = weft_tile_acquire(tile, WEFT_READ);
    int rc = weft_seq_status(t->seq, p->err);
    if (!rc && !weft_scorer_wait(t->scorer, i))
        rc = weft_iteration_decode(p, i, r, &p->text[i], p->err);
    p->text[i].there = true;
    weft_tile_unacquire(tile);
    return rc;
}

int weft_iteration_texts(struct weft_iteration *p)
{
    int rc = weft_iteration_texts_init(p);
    for (int32_t i = 0; i < p->n_all && !rc; i++)
        if (!p->text[i].there && weft_iteration_due(p, i)
            && (weft_world_rank() == 0 || weft_scorer_has(p, i)))
            rc = get_text(p, i);
    return rc;
}

int weft_iteration_texts_init(struct weft_iteration *p)
{
    if (!p->text)
        p->text = weft_alloc((size_t) p->n_all, sizeof *p->text);
    return p->text ? 0
                   : weft_err_nomem(p->err, "texts",
                                    (size_t) p->n_all * sizeof *p->text);
}

void weft_iteration_text_clear(struct weft_iteration_text *text)
{
    weft_row_release(&text->row);
    weft_str_release(&text->prompt);
    weft_str_release(&text->response);
    *text = (struct weft_iteration_text){.there = false};
}

void weft_iteration_texts_release(struct weft_iteration *p)
{
    for (int32_t i = 0; p->text && i < p->n_all; i++)
        weft_iteration_text_clear(&p->text[i]);
    weft_free(p->text);
    weft_free(p->part);
}

/* ---- Texts in other tokens --------------------------------------------- */

/* On rank 0: a sample's tokens, and their number. */
static int encode(struct weft_iteration *p, int32_t i, int32_t reward,
                  int32_t **token_out, int32_t *n_out)
{
    struct weft_iteration_text *text = &p->text[i];
    int rc = text->there ? 0 : get_text(p, i);
    return rc ? rc
              : weft_reward_text_encode(p->t, reward, &text->row,
                                        text->prompt, text->response,
                                        token_out, n_out, p->err);
}

/* The length in a run that is only recorded: given, or the longest. */
static int32_t recorded_length(const struct weft_iteration *p, int32_t reward,
                               int32_t i)
{
    const struct weft_recorded *r = p->t->recorded;
    int64_t at = ((int64_t) (p->iteration - r->first) * p->t->config.n_rewards
                  + reward)
               * p->n_all;
    return r->n_text ? r->n_text[at + i]
                     : weft_reward_text_limit(p->t, reward);
}

/* All ranks learn n lengths. A message has room for them, as no more samples
 * leave an instance at a time than two statuses tell of. */
static int tell(struct weft_iteration *p, int32_t n, int32_t *length)
{
    size_t used = (size_t) n * sizeof *length, bytes = p->told_bytes;
    if (bytes == 0)
        return weft_seq_agree(p->t->seq, length, used, p->err);
    int32_t *message = weft_alloc(1, bytes);
    if (!message)
        return weft_err_nomem(p->err, "texts", bytes);
    weft_assert(used <= bytes);
    memcpy(message, length, used);
    int rc = weft_seq_tell(p->t->seq, message, bytes, false, p->err);
    if (!rc)
        memcpy(length, message, used);
    weft_free(message);
    return rc;
}

/* A rollout that has no response, only what the model reads. */
static int put(struct weft_iteration *p, int32_t i, int32_t field,
               const struct weft_where *where, const int32_t *token,
               int32_t n)
{
    struct weft_trainer *t = p->t;
    struct weft_iteration_sample *x = &p->extra[i];
    const struct weft_tile_id id = {
        "sample", t->flow.field[field].name, 0, -1, -1, 0};
    size_t bytes = weft_rollout_bytes(n);
    struct weft_external *answer = NULL;
    struct weft_rollout *r = token ? weft_alloc(1, bytes) : NULL;
    int rc = token && !r ? weft_err_nomem(p->err, "a text", bytes) : 0;
    if (!rc)
        rc = weft_tile_create_temp(t->rt, &id, WEFT_MEM_SAMPLES, bytes,
                                   &x->field[field], p->err);
    if (!rc)
        rc = weft_external_begin(t->seq, x->field[field], where, &answer,
                                 p->err);
    x->home[field] = x->field[field];
    if (!rc && r) {
        *r = (struct weft_rollout){n, n, n, 1};
        memcpy(weft_rollout_token(r), token, (size_t) n * sizeof *token);
        weft_external_complete(answer, r, bytes);
    }
    weft_free(r);
    return rc;
}

/* token (n): NULL, or tokens that the caller frees. */
static int retokenise(struct weft_iteration *p, struct weft_iteration_call *c,
                      int32_t n, const int32_t *index, int32_t **token,
                      int32_t *length)
{
    struct weft_trainer *t = p->t;
    const struct weft_where where = {.device = -1,
                                     .call = c->call,
                                     .iteration = p->iteration,
                                     .micro_batch = -1,
                                     .layer = -1};
    int32_t reward = t->flow.role[c->model->role].index;
    int rc = 0;
    for (int32_t k = 0; k < n && !rc; k++) {
        if (t->recorded)
            length[k] = recorded_length(p, reward, index[k]);
        else if (weft_world_rank() == 0)
            rc = encode(p, index[k], reward, &token[k], &length[k]);
    }
    if (rc)
        weft_seq_fail(t->seq, rc, "%s", p->err->text);
    rc = tell(p, n, length);
    for (int32_t k = 0; k < n && !rc; k++) {
        int32_t i = index[k];
        c->length[i] = length[k];
        p->n_text[(int64_t) reward * p->n_all + i] = length[k];
        rc = put(p, i, c->input, &where, token[k], length[k]);
        if (!rc)
            rc = weft_iteration_call_add(p, c, i);
    }
    return rc;
}

/* Those of n samples that are a call's, in memory for its retokenise(). */
static int retokenise_own(struct weft_iteration *p,
                          struct weft_iteration_call *c, int32_t n,
                          const int32_t *index)
{
    size_t room = (size_t) n;
    int32_t **token = weft_alloc(room, sizeof *token);
    int32_t *own = weft_alloc(room, 2 * sizeof *own), n_own = 0;
    int rc = token && own
               ? 0
               : weft_err_nomem(p->err, "texts", room * sizeof *token);
    for (int32_t k = 0; k < n && !rc; k++)
        if (weft_iteration_set(p, index[k]) == c->set)
            own[n_own++] = index[k];
    if (!rc && n_own > 0)
        rc = retokenise(p, c, n_own, own, token, own + n);
    for (int32_t k = 0; token && k < n_own; k++)
        weft_free(token[k]);
    weft_free(token);
    weft_free(own);
    return rc;
}

/* Submits the copy of a sample that rank 0 decodes. */
static void bring(struct weft_iteration *p, int32_t i)
{
    const struct weft_where where = {.device = -1,
                                     .iteration = p->iteration,
                                     .micro_batch = -1,
                                     .layer = -1};
    int32_t f = weft_iteration_set(p, i)->field;
    p->extra[i].home[f] = weft_g_sample_at(p->copies, p->t->seq, &where,
                                           p->extra[i].field[f], 0);
    p->extra[i].encoded = true;
}

static bool reads_texts(const struct weft_iteration *p)
{
    bool any = false;
    for (int32_t k = 0; k < p->n_calls; k++)
        any = any || p->call[k].length;
    return any;
}

int weft_iteration_retokenise(struct weft_iteration *p, int32_t n,
                              const int32_t *index)
{
    if (n == 0 || !reads_texts(p))
        return 0;
    int rc = weft_iteration_texts_init(p);
    for (int32_t k = 0; k < n; k++)
        bring(p, index[k]);
    if (!rc)
        rc = weft_iteration_meet(p);
    for (int32_t k = 0; k < p->n_calls && !rc; k++)
        if (p->call[k].length)
            rc = retokenise_own(p, &p->call[k], n, index);
    return rc;
}

int weft_iteration_retokenise_rest(struct weft_iteration *p)
{
    int32_t n = 0;
    if (!reads_texts(p))
        return 0;
    for (int32_t i = 0; i < p->n_all; i++)
        if (!p->extra[i].encoded)
            p->left.sample[n++] = i;
    return weft_iteration_retokenise(p, n, p->left.sample);
}
