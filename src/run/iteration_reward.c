/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the rewards for which there are no tasks: rules, programs, the
 * caller's function. */
#include <string.h>

#include "base/alloc.h"
#include "run/iteration.h"
#include "run/reward_state.h"

/* Lists the samples that have no rewards yet. */
static int32_t list_new(const struct weft_iteration *p, int32_t *index,
                        struct weft_reward_sample *sample)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n; i++) {
        const struct weft_iteration_text *text = &p->text[i];
        if (p->extra[i].scored)
            continue;
        index[n] = i;
        sample[n++] = (struct weft_reward_sample){
            .prompt = text->prompt,
            .response = text->response,
            .label = text->row.label,
            .row = text->row.json,
            .n_tokens = text->n_tokens,
            .ended = text->ended,
        };
    }
    return n;
}

int weft_iteration_score(struct weft_iteration *p)
{
    size_t n = (size_t) p->n;
    struct weft_reward_sample *sample = weft_alloc(n, sizeof *sample);
    double(*part)[WEFT_MAX_REWARDS] = weft_alloc(n, sizeof *part);
    int32_t *index = weft_alloc(n, sizeof *index), n_new = 0;
    int rc = weft_iteration_texts(p);
    if (!p->part)
        p->part = weft_alloc(n, sizeof *p->part);
    if (!rc && (!sample || !part || !index || !p->part))
        rc = weft_err_nomem(p->err, "rewards", n * sizeof *p->part);
    if (!rc)
        n_new = list_new(p, index, sample);
    if (!rc && n_new > 0)
        rc = weft_rewards_compute(p->t->rewards, n_new, sample, part, p->err);
    if (rc)
        weft_err_prefix(p->err, "iteration %d", p->iteration + 1);
    for (int32_t k = 0; k < n_new && !rc; k++) {
        memcpy(p->part[index[k]], part[k], sizeof part[k]);
        p->extra[index[k]].scored = true;
    }
    weft_free(index);
    weft_free(part);
    weft_free(sample);
    return rc;
}

int weft_iteration_rewards(struct weft_iteration *p)
{
    struct weft_trainer *t = p->t;
    size_t n = (size_t) p->n;
    if (t->recorded) /* only rank 0 waits here; the others go on */
        return 0;
    p->rewards.start_s = weft_rt_clock_s(t->rt);
    double(*shaped)[WEFT_MAX_REWARDS] = weft_alloc(n, sizeof *shaped);
    int rc = shaped ? weft_iteration_score(p)
                    : weft_err_nomem(p->err, "rewards", n * sizeof *shaped);
    if (!rc) {
        memcpy(shaped, p->part, n * sizeof *shaped);
        weft_rewards_shape(t->rewards, p->n, shaped);
    }
    for (int32_t i = 0; i < p->n && !rc; i++) {
        double score = weft_rewards_sum(t->rewards, shaped[i]);
        weft_external_complete(p->extra[i].answer, &score, sizeof score);
        p->extra[i].answer = NULL;
    }
    p->rewards.end_s = weft_rt_clock_s(t->rt);
    weft_free(shaped);
    return rc;
}

/* The scores in field f, the k-th of reward models. */
static int shape_field(struct weft_iteration *p,
                       const struct weft_where *where, int32_t f, int32_t k,
                       int32_t reward)
{
    struct weft_trainer *t = p->t;
    const struct weft_reward_config *c = &t->config.reward[reward];
    const struct weft_reward_shape_args args = {
        .running = c->normalize == WEFT_NORMALIZE_RUNNING,
        .low = -c->clip,
        .high = c->clip};
    const struct weft_tile_id id = {"sample", "shaped score", 0, -1, -1, 0};
    size_t n = (size_t) p->n;
    struct weft_tile **list = weft_alloc(2 * n, sizeof *list);
    int rc = list ? 0 : weft_err_nomem(p->err, "scores", 2 * n * 8);
    for (size_t i = 0; i < n && !rc; i++) {
        list[i] = p->extra[i].home[f];
        rc = weft_tile_create_temp(t->rt, &id, WEFT_MEM_SAMPLES,
                                   sizeof(float), &p->extra[i].shaped[k],
                                   p->err);
        list[n + i] = p->extra[i].shaped[k];
    }
    if (!rc)
        weft_insert_reward_shape(t->seq, where, &args, p->n, list,
                                 t->reward_moments[reward], list + n);
    weft_free(list);
    return rc;
}

int weft_iteration_shape_scores(struct weft_iteration *p,
                                const struct weft_where *where)
{
    const struct weft_dataflow *flow = &p->t->flow;
    int rc = 0;
    for (int32_t f = 0, k = 0; f < flow->n_fields && !rc; f++) {
        int32_t i = 1;
        if (flow->field[f].type != WEFT_FIELD_SCORE)
            continue;
        while (!(flow->call[i].writes & weft_flow_bit(f)))
            i++;
        int32_t reward = flow->role[flow->call[i].role].index;
        if (weft_reward_is_shaped(&p->t->config.reward[reward]))
            rc = shape_field(p, where, f, k, reward);
        k++;
    }
    return rc;
}
