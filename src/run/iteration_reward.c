/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the rewards for which there are no tasks: rules, programs, the
 * caller's function. */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "run/iteration.h"
#include "run/reward_state.h"
#include "run/scorer.h"

struct weft_reward_sample weft_iteration_reward_sample(
    const struct weft_iteration_text *text)
{
    return (struct weft_reward_sample){
        .prompt = text->prompt,
        .response = text->response,
        .label = text->row.label,
        .row = text->row.json,
        .n_tokens = text->n_tokens,
        .ended = text->ended,
    };
}

/* Lists the samples that have no rewards yet. */
static int32_t list_new(const struct weft_iteration *p, int32_t *index,
                        struct weft_reward_sample *sample)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_all; i++) {
        if (p->extra[i].scored || !weft_iteration_due(p, i))
            continue;
        index[n] = i;
        sample[n++] = weft_iteration_reward_sample(&p->text[i]);
    }
    return n;
}

int weft_iteration_score(struct weft_iteration *p)
{
    size_t n = (size_t) p->n_all;
    struct weft_reward_sample *sample = weft_alloc(n, sizeof *sample);
    double(*part)[WEFT_MAX_REWARDS] = weft_alloc(n, sizeof *part);
    int32_t *index = weft_alloc(n, sizeof *index), n_new = 0;
    double start_s = weft_clock_s();
    int rc = weft_iteration_texts(p);
    p->reward_s += weft_scorer_end(p->t->scorer);
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
    p->reward_s += weft_rewards_busy_s(p->t->rewards);
    p->reward_waits_s += weft_clock_s() - start_s;
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
    size_t n = (size_t) p->n_all;
    if (t->recorded) /* only rank 0 waits here; the others go on */
        return 0;
    if (p->rewards.start_s == 0)
        p->rewards.start_s = weft_rt_clock_s(t->rt);
    double(*shaped)[WEFT_MAX_REWARDS] = weft_alloc(n, sizeof *shaped);
    int rc = shaped ? weft_iteration_score(p)
                    : weft_err_nomem(p->err, "rewards", n * sizeof *shaped);
    if (!rc) {
        memcpy(shaped, p->part, n * sizeof *shaped);
        weft_rewards_shape(t->rewards, p->n_all, shaped);
    }
    for (int32_t i = 0; i < p->n_all && !rc; i++) {
        if (!p->extra[i].answer)
            continue;
        double score = weft_rewards_sum(t->rewards, shaped[i]);
        weft_external_complete(p->extra[i].answer, &score, sizeof score);
        p->extra[i].answer = NULL;
    }
    p->rewards.end_s = weft_rt_clock_s(t->rt);
    weft_free(shaped);
    return rc;
}

/* The reward that a field has the scores of; -1: none. */
static int32_t reward_of(const struct weft_dataflow *flow, int32_t field)
{
    return flow->field[field].type == WEFT_FIELD_SCORE
             ? flow->role[flow->call[weft_flow_writer(flow, field)].role]
                   .index
             : -1;
}

/* Lists the scores of a reward model, then makes and lists as many tiles for
 * those in the unit of its key. Sets follow one another in the order of fields.
 * Returns how many in *n_out. */
static int list_scores(struct weft_iteration *p, int32_t reward,
                       struct weft_tile **list, struct weft_tile **shaped,
                       int32_t *n_out)
{
    const struct weft_dataflow *flow = &p->t->flow;
    const struct weft_tile_id id = {"sample", "shaped score", 0, -1, -1, 0};
    int32_t rank[WEFT_MAX_FIELDS] = {0}; /* of the set's scores */
    int rc = 0;
    *n_out = 0;
    for (int32_t f = 0; f < flow->n_fields; f++) {
        const struct weft_iteration_set *s = &p->set[p->set_of[f]];
        int32_t k = rank[p->set_of[f]];
        rank[p->set_of[f]] += reward_of(flow, f) >= 0;
        for (int32_t i = s->first;
             i < s->first + s->n && reward_of(flow, f) == reward && !rc;
             i++) {
            struct weft_tile **out = &p->extra[i].shaped[k];
            rc = weft_tile_create_temp(p->t->rt, &id, WEFT_MEM_SAMPLES,
                                       sizeof(float), out, p->err);
            list[*n_out] = p->extra[i].home[f];
            shaped[(*n_out)++] = *out;
        }
    }
    return rc;
}

static int shape_reward(struct weft_iteration *p,
                        const struct weft_where *where, int32_t reward)
{
    const struct weft_reward_config *c = &p->t->config.reward[reward];
    const struct weft_reward_shape_args args = {
        .running = c->normalize == WEFT_NORMALIZE_RUNNING,
        .low = -c->clip,
        .high = c->clip};
    size_t n = (size_t) p->n_all;
    int32_t n_scores;
    struct weft_tile **list = weft_alloc(2 * n, sizeof *list);
    if (!list)
        return weft_err_nomem(p->err, "scores", 2 * n * sizeof *list);
    int rc = list_scores(p, reward, list, list + n, &n_scores);
    if (!rc)
        weft_insert_reward_shape(p->t->seq, where, &args, n_scores, list,
                                 p->t->reward_moments[reward], list + n);
    weft_free(list);
    return rc;
}

/* All sets' scores of a reward are in one unit. */
int weft_iteration_shape_scores(struct weft_iteration *p,
                                const struct weft_where *where)
{
    const struct weft_config *c = &p->t->config;
    int rc = 0;
    for (int32_t r = 0; r < c->n_rewards && !rc; r++)
        if (c->reward[r].type == WEFT_REWARD_MODEL
            && weft_reward_is_shaped(&c->reward[r]))
            rc = shape_reward(p, where, r);
    return rc;
}
