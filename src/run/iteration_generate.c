/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The samples of an iteration are generated in rounds. The first is of all
 * prompts. Dynamic sampling (DAPO) adds rounds: prompts whose responses all
 * have one score teach nothing, and are replaced by the next prompts of the
 * data, in their places, at most rollout.refills times; what is equal then
 * stays. What is replaced depends on scores alone, so the samples are the same
 * on every layout.
 */
#include <string.h>

#include "base/alloc.h"
#include "run/iteration.h"
#include "run/recorded.h"

/* ---- A round ----------------------------------------------------------- */

static int on_finished(void *ctx, int32_t k, struct weft_sample *s,
                       struct weft_err *err)
{
    struct weft_iteration *p = ctx;
    int32_t i = p->index[k];
    (void) err;
    p->sample[i] = *s;
    p->extra[i].field[p->field[WEFT_FIELD_ROLLOUT]] = s->rollout;
    return weft_iteration_calls_add(p, i);
}

/* A recorded sample's tokens in this round; 0: it is not generated in it. */
static int32_t given(const struct weft_iteration *p, int32_t i)
{
    const struct weft_recorded *r = p->t->recorded;
    int64_t at = (int64_t) (p->iteration - r->first)
                   * (p->t->settings.refills + 1)
               + p->round;
    return r->n_total[at * p->n + i];
}

/* Draws the prompts of the round's samples: the data's next. */
static void draw_prompts(struct weft_iteration *p)
{
    struct weft_trainer *t = p->t;
    const struct weft_config *c = &t->config;
    int32_t per_prompt = c->rollout.samples_per_prompt;
    for (int32_t k = 0; k < p->n_round; k++) {
        int32_t i = p->index[k];
        const struct weft_run_prompt *prompt = weft_trainer_draw(
            t, t->drawn + k / per_prompt);
        p->prompt[i] = prompt;
        p->round_sample[k] = (struct weft_sample){
            .prompt = i / per_prompt,
            .n_prompt = prompt->n_prompt,
            .limit = prompt->n_prompt + c->rollout.max_new_tokens,
            .token = prompt->token,
        };
        if (t->recorded)
            p->round_sample[k].n_total = t->recorded->n_total
                                           ? given(p, i)
                                           : p->round_sample[k].limit;
    }
    t->drawn += p->n_round / per_prompt;
}

static int roll_out(struct weft_iteration *p)
{
    struct weft_trainer *t = p->t;
    const struct weft_config *c = &t->config;
    struct weft_rollout_stats stats = {0};
    struct weft_gen_args args = {
        .sampling = {.temperature = c->rollout.temperature,
                     .top_k = c->rollout.top_k,
                     .top_p = c->rollout.top_p,
                     .seed = c->seed},
        .iteration = p->iteration,
        .first_sample = p->round * p->n,
        .n_steps = c->rollout.chunk_tokens,
        .prefill_tokens = c->rollout.prefill_tokens,
        .n_stop = t->n_stop,
    };
    struct weft_where where = {.device = -1,
                               .priority = 2,
                               .call = t->gen.call,
                               .iteration = p->iteration,
                               .micro_batch = -1,
                               .layer = -1};
    memcpy(args.stop, t->stop, sizeof t->stop);
    weft_rollout_reset(&t->gen);
    int rc = weft_g_view_open(t->seq, &where, t->gen.model, &t->gen.layout,
                              &p->policy, p->err);
    if (!rc)
        rc = weft_rollout_run(t->seq, &t->gen, &p->policy, &args, p->n_round,
                              p->round_sample, on_finished, p, &stats,
                              p->err);
    if (p->policy.model)
        weft_g_view_close(&p->policy);
    p->rollout.n_decoded += stats.n_decoded;
    p->rollout.n_prefilled += stats.n_prefilled;
    p->rollout.n_chunks += stats.n_chunks;
    return rc;
}

static int run_round(struct weft_iteration *p)
{
    draw_prompts(p);
    weft_iteration_calls_release(p);
    int rc = weft_iteration_calls_init(p);
    if (!rc)
        rc = roll_out(p);
    weft_rt_when(p->t->rt, WEFT_REC_EARLY);
    if (!rc)
        rc = weft_iteration_calls_end(p);
    weft_rt_when(p->t->rt, WEFT_REC_IN_TURN);
    return rc;
}

int weft_iteration_generate(struct weft_iteration *p)
{
    if (weft_flow_call_of(&p->t->flow, WEFT_GENERATE, -1) < 0)
        return weft_iteration_data(p);
    for (int32_t i = 0; i < p->n; i++)
        p->index[i] = i;
    return run_round(p);
}

/* ---- Which prompts are replaced ---------------------------------------- */

/* Copies what scores are made of to the first place, of new samples. */
static void fetch_scores(struct weft_iteration *p)
{
    const struct weft_where where = {.device = -1,
                                     .iteration = p->iteration,
                                     .micro_batch = -1,
                                     .layer = -1};
    const struct weft_dataflow *flow = &p->t->flow;
    for (int32_t i = 0; i < p->n; i++) {
        struct weft_iteration_sample *x = &p->extra[i];
        for (int32_t f = 0; f < flow->n_fields && !x->fetched; f++)
            if (flow->field[f].type == WEFT_FIELD_SCORE
                || f == p->field[WEFT_FIELD_ROLLOUT])
                x->home[f] = weft_g_copy_at(p->copies, p->t->seq, &where,
                                            x->field[f], 0);
        x->fetched = true;
    }
}

/* The weighted sum of a sample's rewards, as they are. */
static double score_of(const struct weft_iteration *p, int32_t i)
{
    const struct weft_config *c = &p->t->config;
    double sum = 0;
    for (int32_t r = 0; r < c->n_rewards; r++)
        sum += (double) c->reward[r].weight * p->part[i][r];
    return sum;
}

/* Sets again[g] where the responses to prompt g have one score. */
static int compare(struct weft_iteration *p, uint8_t *again)
{
    int32_t each = p->t->config.rollout.samples_per_prompt;
    int rc = weft_iteration_score(p);
    if (rc)
        return rc;
    weft_iteration_model_scores(p);
    for (int32_t i = 0; i < p->n; i += each) {
        bool equal = true;
        for (int32_t k = 1; k < each && equal; k++)
            equal = score_of(p, i + k) == score_of(p, i);
        again[i / each] = equal;
    }
    return 0;
}

/* Of a run that is only recorded: given, or all. */
static void recorded(const struct weft_iteration *p, uint8_t *again)
{
    int32_t each = p->t->config.rollout.samples_per_prompt;
    for (int32_t i = 0; i < p->n; i += each)
        again[i / each] = !p->t->recorded->n_total || given(p, i) != 0;
}

/* Lists the samples to be generated in this round. */
static int choose(struct weft_iteration *p)
{
    struct weft_trainer *t = p->t;
    int32_t each = t->config.rollout.samples_per_prompt;
    size_t groups = (size_t) (p->n / each);
    uint8_t *again = weft_alloc(groups, 1);
    if (!again)
        return weft_err_nomem(p->err, "prompts", groups);
    fetch_scores(p);
    if (t->recorded)
        recorded(p, again);
    else if (weft_world_rank() == 0 && compare(p, again))
        weft_seq_fail(t->seq, p->err->code, "%s", p->err->text);
    int rc = weft_seq_agree(t->seq, again, groups, p->err);
    p->n_round = 0;
    for (int32_t i = 0; i < p->n && !rc; i++)
        if (again[i / each])
            p->index[p->n_round++] = i;
    weft_free(again);
    return rc;
}

/* Forgets the samples of this round. Copies are found by tiles' addresses,
 * which new tiles may have: all are dropped. */
static void drop(struct weft_iteration *p)
{
    for (int32_t k = 0; k < p->n_round; k++) {
        int32_t i = p->index[k];
        struct weft_iteration_sample *x = &p->extra[i];
        for (int32_t f = 0; f < WEFT_MAX_FIELDS; f++)
            weft_tile_release(x->field[f]);
        *x = (struct weft_iteration_sample){.answer = NULL};
        if (p->text)
            weft_iteration_text_clear(&p->text[i]);
    }
    for (int32_t i = 0; i < p->n; i++)
        for (int32_t f = 0; f < WEFT_MAX_FIELDS; f++)
            p->extra[i].home[f] = NULL;
    weft_g_copies_drop(p->copies);
}

int weft_iteration_refill(struct weft_iteration *p)
{
    int32_t rounds = p->t->settings.refills;
    int rc = weft_iteration_retokenise(p);
    for (p->round = 1; p->round <= rounds && !rc; p->round++) {
        rc = choose(p);
        if (rc || p->n_round == 0)
            break;
        drop(p);
        p->n_refilled += p->n_round / p->t->config.rollout.samples_per_prompt;
        rc = run_round(p);
        if (!rc)
            rc = weft_iteration_retokenise(p);
    }
    return rc;
}
