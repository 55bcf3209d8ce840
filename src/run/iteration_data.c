/* SPDX-License-Identifier: Apache-2.0 */
/* Samples that come from rows of the data. */
#include <string.h>

#include "base/alloc.h"
#include "run/iteration.h"
#include "run/predict/recorded.h"

/* The tile of a sample's tokens: those of one row's prompt, then those of a
 * row's response. Rank 0 writes them. */
static int tile_of(struct weft_iteration *p, const char *kind,
                   const struct weft_sample *s,
                   const struct weft_run_prompt *prompt,
                   const struct weft_run_prompt *response,
                   struct weft_tile **out)
{
    struct weft_trainer *t = p->t;
    struct weft_tile_id id = {"sample", kind, 0, -1, -1, 0};
    size_t n_prompt = (size_t) s->n_prompt, n_total = (size_t) s->n_total;
    int rc = weft_tile_create(t->rt, &id, WEFT_MEM_SAMPLES,
                              weft_rollout_bytes(s->n_total), out, p->err);
    if (rc || t->recorded || !weft_tile_is_here(*out))
        return rc;
    struct weft_rollout *r = weft_tile_acquire(*out, WEFT_WRITE);
    *r = (struct weft_rollout){s->n_total, s->n_prompt, s->n_total, 1};
    int32_t *token = weft_rollout_token(r);
    memcpy(token, prompt->token, n_prompt * sizeof *token);
    memcpy(token + n_prompt, response->token + response->n_prompt,
           (n_total - n_prompt) * sizeof *token);
    weft_tile_unacquire(*out);
    return 0;
}

/* k: the number of the sample among all that the run draws. */
static int fill(struct weft_iteration *p, int32_t i, int64_t k)
{
    struct weft_sample *s = &p->sample[i];
    int32_t field = p->set->field;
    const struct weft_run_prompt *row = weft_prompts_draw(p->t, k);
    *s = (struct weft_sample){.prompt = i,
                              .n_prompt = row->n_prompt,
                              .n_total = row->n,
                              .limit = row->n,
                              .token = row->token,
                              .finished = true};
    p->prompt[i] = row;
    int rc = tile_of(p, "text", s, row, row, &s->rollout);
    p->extra[i].field[field] = p->extra[i].home[field] = s->rollout;
    return rc;
}

/* ---- Responses to other prompts ----------------------------------------- */

/* In a set of its own, sample i's prompt with the response of the sample before
 * it, as far as it fits. A recorded one is as long as can be. */
static int fill_other(struct weft_iteration *p,
                      const struct weft_iteration_set *set, int32_t i)
{
    const struct weft_trainer *t = p->t;
    const struct weft_run_prompt *row = p->prompt[i];
    const struct weft_run_prompt *before = p->prompt[(i + p->n - 1) % p->n];
    int32_t field = set->field, other = set->first + i;
    struct weft_sample *s = &p->sample[other];
    int64_t n = (int64_t) row->n_prompt + before->n - before->n_prompt;
    bool longest = t->recorded && !t->recorded->n_total;
    *s = p->sample[i];
    s->n_total = longest ? t->max_prompt
                         : (int32_t) weft_min64(n, t->max_prompt);
    int rc = tile_of(p, "mismatched text", s, row, before, &s->rollout);
    p->extra[other].field[field] = p->extra[other].home[field] = s->rollout;
    return rc;
}

int32_t weft_iteration_learned(const struct weft_iteration *p, int32_t i)
{
    const struct weft_sample *s = &p->sample[i];
    return p->prompt[i]->learned ? p->prompt[i]->n_learned
                                 : s->n_total - s->n_prompt;
}

int weft_iteration_data(struct weft_iteration *p)
{
    int rc = weft_iteration_calls_init(p);
    for (int32_t i = 0; i < p->n && !rc; i++)
        rc = fill(p, i, p->first_prompt + i);
    for (int32_t i = 0; i < p->n && p->n_sets > 1 && !rc; i++)
        rc = fill_other(p, &p->set[1], i);
    for (int32_t i = 0; i < p->n_all && !rc; i++)
        rc = weft_iteration_calls_add(p, i);
    return rc ? rc : weft_iteration_calls_end(p);
}

/* What a call on mismatched responses writes: that of a trained role, or of
 * the reference. */
static int32_t mismatched(const struct weft_iteration *p, bool trained)
{
    const struct weft_dataflow *flow = &p->t->flow;
    uint32_t other = weft_flow_bit(p->set[1].field);
    for (int32_t i = 1; i < flow->n_calls; i++)
        if (flow->call[i].reads & other
            && flow->role[flow->call[i].role].trained == trained)
            return weft_flow_field_of(flow, flow->call[i].writes,
                                      WEFT_FIELD_LOGP);
    return -1;
}

int weft_iteration_kl(struct weft_iteration *p)
{
    struct weft_trainer *t = p->t;
    size_t n = (size_t) p->n;
    struct weft_where where = {
        .device = -1,
        .call = weft_iteration_writer(&p->set[1], WEFT_FIELD_KL),
        .iteration = p->iteration,
        .micro_batch = -1,
        .layer = -1};
    struct weft_tile_id id = {"run", "KL", 0, -1, -1, 0};
    int32_t policy = mismatched(p, true), ref = mismatched(p, false);
    struct weft_tile **tile = weft_alloc(2 * n, sizeof *tile);
    int32_t *n_tokens = weft_alloc(n, sizeof *n_tokens);
    int rc = tile && n_tokens ? 0 : weft_err_nomem(p->err, "the KL", 24 * n);
    if (!rc)
        rc = weft_tile_create_temp(t->rt, &id, WEFT_MEM_SAMPLES,
                                   sizeof(double), &p->kl, p->err);
    for (int32_t i = 0; i < p->n && !rc; i++) {
        int32_t other = p->set[1].first + i;
        const struct weft_sample *s = &p->sample[other];
        struct weft_iteration_sample *x = &p->extra[other];
        n_tokens[i] = s->n_total - s->n_prompt;
        tile[i] = weft_g_sample_at(p->copies, t->seq, &where,
                                   x->field[policy], 0);
        tile[p->n + i] = weft_g_sample_at(p->copies, t->seq, &where,
                                          x->field[ref], 0);
    }
    if (!rc)
        weft_insert_kto_kl(t->seq, &where, p->n, n_tokens, tile, tile + n,
                           p->kl);
    weft_free(tile);
    weft_free(n_tokens);
    return rc;
}
