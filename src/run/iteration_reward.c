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
static int32_t list_new(const struct weft_iteration *p, int32_t *index)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_all; i++)
        if (!p->extra[i].scored && weft_iteration_due(p, i))
            index[n++] = i;
    return n;
}

/* Rules and programs, of those samples that are on this rank. */
static int score_own(struct weft_iteration *p, int32_t n,
                     const int32_t *index, double (*part)[WEFT_MAX_REWARDS])
{
    size_t room = (size_t) n;
    int32_t *own = weft_alloc(room, sizeof *own), n_own = 0;
    double(*owns)[WEFT_MAX_REWARDS] = weft_alloc(room, sizeof *owns);
    int rc = own && owns
               ? 0
               : weft_err_nomem(p->err, "rewards", room * sizeof *owns);
    for (int32_t k = 0; k < n && !rc; k++) {
        (void) weft_scorer_wait(p->t->scorer, index[k]);
        if (weft_scorer_has(p, index[k]))
            own[n_own++] = index[k];
    }
    if (!rc && n_own > 0)
        rc = weft_scorer_end(p, n_own, own, owns);
    for (int32_t k = 0, at = 0; k < n && at < n_own && !rc; k++)
        if (own[at] == index[k])
            memcpy(part[k], owns[at++], sizeof part[k]);
    weft_free(own);
    weft_free(owns);
    return rc;
}

static int score_callbacks(struct weft_iteration *p, int32_t n,
                           const int32_t *index,
                           double (*part)[WEFT_MAX_REWARDS])
{
    struct weft_reward_sample *sample = weft_alloc((size_t) n,
                                                   sizeof *sample);
    if (!sample)
        return weft_err_nomem(p->err, "rewards", (size_t) n * sizeof *sample);
    for (int32_t k = 0; k < n; k++)
        sample[k] = weft_iteration_reward_sample(&p->text[index[k]]);
    int rc = weft_rewards_call(p->t->rewards, n, sample, part, p->err);
    weft_free(sample);
    return rc;
}

/* What this rank computes of n samples; other entries of part (n) stay 0. */
static int score_here(struct weft_iteration *p, int32_t n,
                      const int32_t *index, double (*part)[WEFT_MAX_REWARDS])
{
    bool first = weft_world_rank() == 0, wanted = weft_scorer_wanted(p);
    int rc = first || wanted ? weft_iteration_texts(p) : 0;
    if (!rc && wanted)
        rc = score_own(p, n, index, part);
    if (!rc && first)
        rc = score_callbacks(p, n, index, part);
    if (rc)
        weft_err_prefix(p->err, "iteration %d", p->iteration + 1);
    return rc;
}

/* Gives all ranks what each has computed of n samples, or one's error. */
static int share(struct weft_iteration *p, int rc, int32_t n,
                 double (*part)[WEFT_MAX_REWARDS])
{
    if (rc)
        weft_seq_fail(p->t->seq, rc, "%s", p->err->text);
    rc = weft_seq_merge(p->t->seq, part, (size_t) n * sizeof *part, p->err);
    if (rc)
        return rc;
    int64_t ns = weft_world_max((int64_t) (1e9 * p->reward_s));
    p->most_reward_s = 1e-9 * (double) ns;
    return 0;
}

int weft_iteration_score(struct weft_iteration *p)
{
    size_t room = (size_t) p->n_all;
    double(*part)[WEFT_MAX_REWARDS] = weft_alloc(room, sizeof *part);
    int32_t *index = weft_alloc(room, sizeof *index);
    double start_s = weft_clock_s();
    if (!p->part)
        p->part = weft_alloc(room, sizeof *p->part);
    int rc = part && index && p->part
               ? 0
               : weft_err_nomem(p->err, "rewards", room * sizeof *part);
    int32_t n = rc ? 0 : list_new(p, index);
    if (n > 0)
        rc = score_here(p, n, index, part);
    if (weft_scorer_wanted(p))
        rc = share(p, rc, n, part);
    p->reward_waits_s += weft_clock_s() - start_s;
    for (int32_t k = 0; k < n && !rc; k++) {
        memcpy(p->part[index[k]], part[k], sizeof part[k]);
        p->extra[index[k]].scored = true;
    }
    weft_free(index);
    weft_free(part);
    return rc;
}

int weft_iteration_rewards(struct weft_iteration *p)
{
    struct weft_trainer *t = p->t;
    size_t n = (size_t) p->n_all;
    if (t->recorded)
        return 0;
    if (p->rewards.start_s == 0)
        p->rewards.start_s = weft_rt_clock_s(t->rt);
    double(*shaped)[WEFT_MAX_REWARDS] = weft_alloc(n, sizeof *shaped);
    int rc = weft_iteration_score(p);
    if (!rc && !shaped)
        rc = weft_err_nomem(p->err, "rewards", n * sizeof *shaped);
    if (!rc && weft_world_rank() == 0) {
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
