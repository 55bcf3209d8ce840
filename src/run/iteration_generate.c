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
#include "run/ahead.h"
#include "run/iteration.h"
#include "run/predict/recorded.h"
#include "run/scorer.h"

/* ---- A round ----------------------------------------------------------- */

static int on_finished(void *ctx, int32_t k, struct weft_sample *s,
                       struct weft_err *err)
{
    const struct weft_iteration_set *set = ctx;
    struct weft_iteration *p = set->p;
    int32_t i = p->index[set->first + k];
    (void) err;
    p->sample[i] = *s;
    p->n_total[(int64_t) p->round * p->n_all + i] = s->n_total;
    p->extra[i].field[set->field] = s->rollout;
    weft_iteration_left_add(p, i);
    for (const struct weft_iteration_set *before = p->set; before < set;
         before++)
        k += before->n_round;
    p->extra[i].number = k;
    int rc = weft_scorer_expect(p, i);
    return rc ? rc : weft_iteration_calls_add(p, i);
}

static int on_turn(void *ctx, const struct weft_rollout_turn *turn,
                   struct weft_err *err)
{
    const struct weft_iteration_set *set = ctx;
    struct weft_iteration *p = set->p;
    (void) err;
    weft_iteration_left_turn(p, turn->instance, turn->more);
    weft_rt_when(p->t->rt, WEFT_REC_EARLY);
    p->told_bytes = turn->told_bytes;
    int rc = weft_iteration_retokenise(p, p->left.n, p->left.sample);
    if (!rc)
        rc = weft_iteration_calls_turn(set, turn);
    weft_rt_when(p->t->rt, WEFT_REC_IN_TURN);
    if (!rc)
        rc = weft_iteration_early_turn(p);
    p->told_bytes = 0;
    return rc;
}

static void on_busy(void *ctx, int32_t instance, bool busy)
{
    weft_iteration_deal_busy(ctx, instance, busy);
}

/* A recorded sample's tokens in this round; 0: it is not generated in it. */
static int32_t given(const struct weft_iteration *p, int32_t i)
{
    const struct weft_recorded *r = p->t->recorded;
    int64_t at = (int64_t) (p->iteration - r->first)
                   * (p->t->settings.refills + 1)
               + p->round;
    return r->n_total[at * p->n_all + i];
}

/* Draws the prompts of the set's samples in this round: the data's next, the
 * same for all sets. */
static void draw_prompts(struct weft_iteration_set *s)
{
    struct weft_iteration *p = s->p;
    struct weft_trainer *t = p->t;
    for (int32_t k = 0; k < s->n_round; k++) {
        int32_t i = p->index[s->first + k];
        struct weft_sample *out = &p->round_sample[s->first + k];
        const struct weft_run_prompt *prompt = weft_prompts_draw(
            t, t->drawn + k / s->each);
        p->prompt[i] = prompt;
        *out = (struct weft_sample){
            .prompt = weft_iteration_prompt(p, i),
            .n_prompt = prompt->n_prompt,
            .limit = prompt->n_prompt
                   + weft_lengths_draw(&t->lengths, t->config.seed,
                                       p->iteration, i,
                                       t->config.rollout.max_new_tokens),
            .token = prompt->token,
        };
        if (t->recorded)
            out->n_total = !t->recorded->n_total ? out->limit
                         : t->recorded->responses
                             ? prompt->n_prompt + given(p, i)
                             : given(p, i);
    }
}

static struct weft_gen_args args_of(const struct weft_iteration_set *s)
{
    const struct weft_iteration *p = s->p;
    const struct weft_trainer *t = p->t;
    const struct weft_config *c = &t->config;
    bool greedy = t->flow.call[s->call].greedy;
    struct weft_gen_args args = {
        .sampling = {.temperature = greedy ? 0 : c->rollout.temperature,
                     .top_k = greedy ? 0 : c->rollout.top_k,
                     .top_p = greedy ? 1 : c->rollout.top_p,
                     .seed = c->seed},
        .iteration = p->iteration,
        .first_sample = p->round * p->n,
        .n_steps = c->rollout.chunk_tokens,
        .prefill_tokens = c->rollout.prefill_tokens,
        .prefix_sharing = c->rollout.prefix_sharing,
        .min_new_tokens = c->rollout.min_new_tokens,
    };
    weft_stops_set(&t->stops, &args);
    return args;
}

/* Moves the policy's weights to where the set is generated. keep: those of
 * now. */
static int open_view(struct weft_iteration_set *s, bool keep)
{
    struct weft_trainer *t = s->p->t;
    const struct weft_g_generate *gen = &t->gen[s->call];
    const struct weft_where where = {.device = -1,
                                     .priority = WEFT_PRIORITY_GENERATE,
                                     .call = s->call,
                                     .iteration = s->p->iteration,
                                     .micro_batch = -1,
                                     .layer = -1};
    return (keep ? weft_g_view_keep : weft_g_view_open)(
        t->seq, &where, gen->model, &gen->layout, &s->policy, s->p->err);
}

int weft_iteration_keep_weights(struct weft_iteration *p)
{
    int rc = 0;
    for (int32_t k = 0; k < p->n_sets && !rc; k++)
        if (weft_run_inserts(p->t, p->set[k].call))
            rc = open_view(&p->set[k], true);
    return rc ? rc : weft_iteration_calls_keep(p);
}

/* The samples of a set whose generation is not recorded: its instances have
 * equal shares of them. */
static int take(struct weft_iteration_set *s)
{
    struct weft_iteration *p = s->p;
    const struct weft_g_generate *gen = &p->t->gen[s->call];
    int64_t each = weft_ceil_div(s->n_round, gen->n_instances);
    int rc = 0;
    for (int32_t k = 0; k < s->n_round && !rc; k++) {
        struct weft_sample *x = &p->round_sample[s->first + k];
        const struct weft_tile_id id = {
            gen->model->name,
            "rollout",
            0,
            -1,
            -1,
            weft_g_generate_place(gen, (int32_t) (k / each))};
        x->finished = true;
        x->ended = x->n_total < x->limit;
        rc = weft_tile_create_temp(p->t->rt, &id, WEFT_MEM_SAMPLES,
                                   weft_rollout_bytes(x->n_total),
                                   &x->rollout, p->err);
        if (!rc)
            rc = on_finished(s, k, x, p->err);
    }
    return rc;
}

/* Where mini-batches train as they complete, the first one's samples begin
 * first. */
static const int32_t *order_of(const struct weft_iteration_set *s)
{
    const int32_t *order = s->p->early.order;
    return order ? order + s->first : NULL;
}

static void add_stats(const struct weft_rollout_stats *stats,
                      struct weft_rollout_stats *sum)
{
    sum->n_decoded += stats->n_decoded;
    sum->n_prefilled += stats->n_prefilled;
    sum->n_chunks += stats->n_chunks;
    sum->n_shared += stats->n_shared;
    sum->n_preempted += stats->n_preempted;
    sum->n_moved += stats->n_moved;
    sum->n_cached += stats->n_cached;
    sum->n_freed += stats->n_freed;
    sum->n_turns += stats->n_turns;
    sum->n_tail_turns += stats->n_tail_turns;
    sum->most_pages = (int32_t) weft_max64(sum->most_pages,
                                           stats->most_pages);
}

/* Samples that moved in the round have their numbers in the set. */
static void number_moved(const struct weft_iteration_set *s)
{
    const struct weft_iteration *p = s->p;
    struct weft_migrated *m = weft_iteration_moved(p, p->round, s->call);
    for (int32_t k = 0; k < m->n; k++)
        for (int32_t i = 0; i < m->of[k].n_moved; i++) {
            int32_t *sample = &m->of[k].moved[i].sample;
            *sample = p->index[s->first + *sample] - s->first;
        }
}

/* Whether weights that a call trains are then moved, to infer elsewhere. */
static bool moves(const struct weft_trainer *t, int32_t call)
{
    const struct weft_call_plan *home = &t->plan.call[call];
    for (int32_t c = 1; c < t->flow.n_calls; c++) {
        const struct weft_call_plan *p = &t->plan.call[c];
        if (t->flow.call[c].kind == WEFT_INFER
            && t->flow.call[c].role == t->flow.call[call].role
            && !weft_plan_lies_alike(p, home))
            return true;
    }
    return false;
}

/* Generation begins behind other models' training of the iteration before where
 * they share devices and its weights then move, beside generation. Nothing
 * waits where generation needs no new weights, or a fused schedule trains both
 * models, which end together; nor for training that a recording leaves out. */
static void begin_behind(const struct weft_iteration_set *s)
{
    const struct weft_trainer *t = s->p->t;
    const struct weft_g_generate *gen = &t->gen[s->call];
    if (s->p->stale || s->p->as_completed || t->plan.intra_stage_fusion)
        return;
    for (int32_t c = 1; c < t->flow.n_calls; c++) {
        if (!weft_flow_trains(&t->flow, c) || !weft_run_inserts(t, c))
            continue;
        const struct weft_g_model *m = &t->model[t->flow.call[c].role].tiles;
        if (m != gen->model && moves(t, c))
            weft_g_generate_behind(t->seq, gen, m, s->p->iteration);
    }
}

/* Generates the round's samples of all sets at the same time. */
static int roll_out(struct weft_iteration *p)
{
    size_t n = (size_t) p->n_sets;
    struct weft_rollout_job *job = weft_alloc(n, sizeof *job);
    struct weft_gen_args *args = weft_alloc(n, sizeof *args);
    int rc = job && args
               ? 0
               : weft_err_nomem(p->err, "generation", n * sizeof *args);
    int32_t n_jobs = 0;
    if (!rc)
        rc = weft_seen_round(p);
    for (int32_t k = 0; k < p->n_sets && !rc; k++) {
        struct weft_iteration_set *s = &p->set[k];
        if (!weft_run_inserts(p->t, s->call)) {
            rc = take(s);
            continue;
        }
        if (p->round == 0)
            rc = weft_tail_decide(s, &p->tail[s->call], p->err);
        args[k] = args_of(s);
        job[n_jobs++] = (struct weft_rollout_job){
            .gen = &p->t->gen[s->call],
            .view = &s->policy,
            .args = &args[k],
            .n = s->n_round,
            .sample = p->round_sample + s->first,
            .order = order_of(s),
            .migrate = p->tail[s->call].when,
            .migrated = weft_iteration_moved(p, p->round, s->call),
            .most = p->t->config.rollout.max_new_tokens,
            .seen = weft_seen_of(p->seen, k),
            .on_finished = on_finished,
            .on_turn = on_turn,
            .on_busy = on_busy,
            .ctx = s};
        weft_rollout_reset(&p->t->gen[s->call]);
        if (!rc && !s->policy.model)
            rc = open_view(s, false);
        if (!rc && p->round == 0)
            begin_behind(s);
    }
    if (!rc)
        weft_iteration_deal_begin(p);
    if (!rc)
        rc = weft_iteration_meet(p);
    if (!rc)
        rc = weft_rollout_run_all(p->t->seq, n_jobs, job, &p->order, p->err);
    for (int32_t k = 0; job && k < p->n_sets; k++) {
        if (p->set[k].policy.model)
            weft_g_view_close(&p->set[k].policy);
        add_stats(&job[k].stats, &p->rollout);
        number_moved(&p->set[k]);
    }
    if (!rc)
        weft_seen_samples(p);
    weft_free(job);
    weft_free(args);
    return rc;
}

/* Takes the samples from the checkpoint. */
static int restore(struct weft_iteration *p)
{
    struct weft_trainer *t = p->t;
    int rc = 0;
    for (int32_t i = 0; i < p->n_all && !rc; i++) {
        rc = weft_ahead_get(p, i, &p->round_sample[i]);
        if (!rc)
            rc = on_finished((void *) weft_iteration_set(p, i),
                             i - weft_iteration_set(p, i)->first,
                             &p->round_sample[i], p->err);
    }
    p->stale = true;
    p->rollout = t->ahead->stats;
    weft_ahead_forget(t);
    return rc;
}

static int run_round(struct weft_iteration *p)
{
    p->n_rounds = p->round + 1;
    for (int32_t k = 0; k < p->n_sets; k++)
        draw_prompts(&p->set[k]);
    p->t->drawn += p->set->n_round / p->set->each;
    weft_iteration_calls_release(p);
    int rc = weft_iteration_left_init(p);
    if (!rc)
        rc = weft_iteration_calls_init(p);
    if (!rc)
        rc = weft_scorer_begin(p);
    if (!rc)
        rc = p->t->ahead ? restore(p) : roll_out(p);
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
    for (int32_t i = 0; i < p->n_all; i++)
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
    for (int32_t i = 0; i < p->n_all; i++) {
        struct weft_iteration_sample *x = &p->extra[i];
        for (int32_t f = 0; f < flow->n_fields && !x->fetched; f++)
            if (flow->field[f].type == WEFT_FIELD_SCORE
                || f == weft_iteration_set(p, i)->field)
                x->home[f] = weft_g_sample_at(p->copies, p->t->seq, &where,
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

/* Sets again[g] where the responses to prompt g, of all sets, have one score,
 * on rank 0. Collective. */
static int compare(struct weft_iteration *p, uint8_t *again)
{
    int rc = weft_iteration_meet(p);
    if (!rc)
        rc = weft_iteration_score(p);
    if (rc || weft_world_rank() > 0)
        return rc;
    weft_iteration_model_scores(p);
    memset(again, 1, (size_t) (p->n / p->set->each));
    for (int32_t i = 0; i < p->n_all; i++) {
        int32_t g = weft_iteration_prompt(p, i);
        if (score_of(p, i) != score_of(p, g * p->set->each))
            again[g] = 0;
    }
    return 0;
}

/* Of a run that is only recorded: given, or all. */
static void recorded(const struct weft_iteration *p, uint8_t *again)
{
    int32_t each = p->set->each;
    for (int32_t i = 0; i < p->n; i += each)
        again[i / each] = !p->t->recorded->n_total || given(p, i) != 0;
}

/* Lists the samples to be generated in this round. */
static int choose(struct weft_iteration *p)
{
    struct weft_trainer *t = p->t;
    size_t groups = (size_t) (p->n / p->set->each);
    uint8_t *again = weft_alloc(groups, 1);
    if (!again)
        return weft_err_nomem(p->err, "prompts", groups);
    fetch_scores(p);
    if (t->recorded)
        recorded(p, again);
    else if (compare(p, again))
        weft_seq_fail(t->seq, p->err->code, "%s", p->err->text);
    int rc = weft_seq_agree(t->seq, again, groups, p->err);
    for (int32_t k = 0; k < p->n_sets; k++)
        p->set[k].n_round = 0;
    for (int32_t i = 0, k = 0; i < p->n_all && !rc; i++) {
        k += i >= p->set[k].first + p->set[k].n;
        if (again[weft_iteration_prompt(p, i)])
            p->index[p->set[k].first + p->set[k].n_round++] = i;
    }
    weft_free(again);
    return rc;
}

static void drop_sample(struct weft_iteration *p, int32_t i)
{
    struct weft_iteration_sample *x = &p->extra[i];
    for (int32_t f = 0; f < WEFT_MAX_FIELDS; f++)
        weft_tile_release(x->field[f]);
    *x = (struct weft_iteration_sample){.answer = NULL};
    if (p->text)
        weft_iteration_text_clear(&p->text[i]);
}

/* Forgets the samples of this round. Copies are found by tiles' addresses,
 * which new tiles may have: all are dropped. */
static void drop(struct weft_iteration *p)
{
    for (int32_t s = 0; s < p->n_sets; s++)
        for (int32_t k = 0; k < p->set[s].n_round; k++)
            drop_sample(p, p->index[p->set[s].first + k]);
    for (int32_t i = 0; i < p->n_all; i++)
        for (int32_t f = 0; f < WEFT_MAX_FIELDS; f++)
            p->extra[i].home[f] = NULL;
    weft_g_copies_drop(p->copies);
}

int weft_iteration_refill(struct weft_iteration *p)
{
    int32_t rounds = p->t->settings.refills;
    int rc = 0;
    for (p->round = 1; p->round <= rounds && !rc; p->round++) {
        rc = choose(p);
        if (rc || p->set->n_round == 0)
            break;
        drop(p);
        p->n_refilled += p->set->n_round / p->set->each;
        rc = run_round(p);
    }
    return rc;
}
