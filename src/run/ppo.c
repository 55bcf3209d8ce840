/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One PPO iteration as a submission: generation; per finished samples the
 * inference of reference, critic and reward models; advantages; training of
 * critic and actor. Nothing waits for a whole stage but what its data need.
 */
#include "run/ppo.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"

static bool needs_reference(const struct weft_config *c)
{
    return c->ppo.kl_place != WEFT_KL_NOWHERE;
}

static float inv_temperature(const struct weft_config *c)
{
    return c->rollout.temperature > 0 ? 1 / c->rollout.temperature : 1;
}

static int temp(struct weft_ppo *p, const char *kind, size_t bytes,
                struct weft_tile **out)
{
    struct weft_tile_id id = {"sample", kind, 0, -1, -1, 0};
    return weft_tile_create_temp(p->t->rt, &id, WEFT_MEM_SAMPLES, bytes, out,
                                 p->err);
}

/* ---- Inference of finished samples ------------------------------------ */

static void infer(struct weft_ppo *p, const struct weft_run_model *model,
                  enum weft_call call, enum weft_g_infer_kind kind,
                  const struct weft_g_infer_sample *sample)
{
    struct weft_where where = {.device = -1,
                               .call = call,
                               .iteration = p->t->iteration,
                               .micro_batch = p->waiting[0],
                               .layer = -1};
    weft_g_infer(p->t->seq, &where, &model->tiles, kind,
                 inv_temperature(&p->t->config), p->n_waiting, sample);
}

/* Submits the inference calls of the samples that wait. */
static int flush(struct weft_ppo *p)
{
    struct weft_trainer *t = p->t;
    int32_t n = p->n_waiting;
    if (n == 0)
        return 0;
    struct weft_g_infer_sample *sample = weft_alloc((size_t) p->n_waiting,
                                                    sizeof *sample);
    if (!sample)
        return weft_err_nomem(p->err, "inference",
                              (size_t) p->n_waiting * sizeof *sample);
    for (int32_t i = 0; i < n; i++) {
        const struct weft_sample *s = &p->sample[p->waiting[i]];
        sample[i] = (struct weft_g_infer_sample){
            .rollout = s->rollout,
            .n_prompt = s->n_prompt,
            .n_total = s->n_total,
            .out = p->extra[p->waiting[i]].ref};
    }
    if (needs_reference(&t->config))
        infer(p, &t->reference, WEFT_CALL_REF_INFER, WEFT_INFER_LOGPROB,
              sample);
    for (int32_t i = 0; i < n; i++)
        sample[i].out = p->extra[p->waiting[i]].value;
    infer(p, &t->critic, WEFT_CALL_CRITIC_INFER, WEFT_INFER_VALUE, sample);
    for (int32_t r = 0; r < t->config.n_rewards; r++) {
        if (t->config.reward[r].type != WEFT_REWARD_MODEL)
            continue;
        for (int32_t i = 0; i < n; i++)
            sample[i].out = p->extra[p->waiting[i]].model_score[r];
        infer(p, &t->reward[r], WEFT_CALL_REWARD_INFER, WEFT_INFER_SCORE,
              sample);
    }
    p->n_waiting = p->waiting_rows = 0;
    weft_free(sample);
    return 0;
}

/* A sample is finished: gives it its tiles and its inference. */
static int on_finished(void *ctx, int32_t index, struct weft_sample *s,
                       struct weft_err *err)
{
    struct weft_ppo *p = ctx;
    struct weft_ppo_sample *x = &p->extra[index];
    size_t column = (size_t) (s->n_total - s->n_prompt) * sizeof(float);
    (void) err;
    int rc = temp(p, "value", column, &x->value);
    if (!rc && needs_reference(&p->t->config))
        rc = temp(p, "reference log-probs", column, &x->ref);
    for (int32_t r = 0; r < p->t->config.n_rewards && !rc; r++)
        if (p->t->config.reward[r].type == WEFT_REWARD_MODEL)
            rc = temp(p, "score", sizeof(float), &x->model_score[r]);
    if (rc)
        return rc;
    if (p->n_waiting > 0
        && p->waiting_rows + s->n_total
               > p->t->config.train.micro_batch_tokens)
        rc = flush(p);
    p->waiting[p->n_waiting++] = index;
    p->waiting_rows += s->n_total;
    return rc;
}

static int generate(struct weft_ppo *p)
{
    struct weft_trainer *t = p->t;
    const struct weft_config *c = &t->config;
    struct weft_gen_args args = {
        .sampling = {.temperature = c->rollout.temperature,
                     .top_k = c->rollout.top_k,
                     .top_p = c->rollout.top_p,
                     .seed = c->seed},
        .iteration = t->iteration,
        .n_steps = c->rollout.chunk_tokens,
        .prefill_tokens = c->rollout.prefill_tokens,
        .n_stop = t->n_stop,
    };
    memcpy(args.stop, t->stop, sizeof t->stop);
    int32_t per_prompt = c->rollout.samples_per_prompt;
    for (int32_t i = 0; i < p->n; i++) {
        int64_t k = (int64_t) t->iteration * c->rollout.prompts
                  + i / per_prompt;
        const struct weft_run_prompt *prompt = weft_trainer_draw(t, k);
        p->prompt[i] = prompt;
        p->sample[i] = (struct weft_sample){
            .prompt = i / per_prompt,
            .n_prompt = prompt->n_prompt,
            .limit = prompt->n_prompt + c->rollout.max_new_tokens,
            .token = prompt->token,
        };
    }
    weft_rollout_reset(&t->gen);
    int rc = weft_rollout_run(t->seq, &t->gen, &args, p->n, p->sample,
                              on_finished, p, &p->rollout, p->err);
    if (!rc)
        rc = flush(p);
    p->gen_s = weft_clock_s() - p->start_s;
    return rc;
}

/* ---- Advantages ------------------------------------------------------- */

static int advantages(struct weft_ppo *p)
{
    struct weft_trainer *t = p->t;
    const struct weft_config *c = &t->config;
    struct weft_where where = {.device = -1,
                               .call = WEFT_CALL_ADVANTAGE,
                               .iteration = t->iteration,
                               .micro_batch = -1,
                               .layer = -1};
    struct weft_gae_args args = {
        .gamma = c->ppo.gamma,
        .lambda = c->ppo.lambda,
        .kl = c->ppo.kl_place == WEFT_KL_IN_REWARD
                ? (enum weft_kl) c->ppo.kl_kind
                : WEFT_KL_NONE,
        .missing_eos_penalty = c->ppo.missing_eos_penalty,
        .reward_clip = c->ppo.reward_clip,
    };
    for (int32_t r = 0; r < c->n_rewards; r++)
        if (c->reward[r].type == WEFT_REWARD_MODEL)
            args.weight[args.n_models++] = c->reward[r].weight;
    int rc = temp(p, "moments", sizeof(struct weft_moments), &p->moments);
    for (int32_t i = 0; i < p->n && !rc; i++) {
        struct weft_ppo_sample *x = &p->extra[i];
        const struct weft_sample *s = &p->sample[i];
        struct weft_tile *model_score[WEFT_MAX_REWARDS];
        int32_t n_models = 0;
        for (int32_t r = 0; r < c->n_rewards; r++)
            if (x->model_score[r])
                model_score[n_models++] = x->model_score[r];
        rc = temp(p, "score", sizeof(double), &x->score);
        if (!rc)
            rc = weft_external_begin(t->seq, x->score, &where, &x->answer,
                                     p->err);
        if (!rc)
            rc = temp(p, "advantages",
                      weft_advantage_bytes(s->n_total - s->n_prompt),
                      &x->advantage);
        if (rc)
            break;
        p->advantage[i] = x->advantage;
        weft_insert_gae(t->seq, &where, &args, s->rollout, x->ref, x->value,
                        x->score, model_score, t->kl_state, x->advantage);
    }
    if (rc)
        return rc;
    weft_insert_moments(t->seq, &where, c->ppo.whiten_advantages, p->n,
                        p->advantage, p->moments);
    if (needs_reference(c))
        weft_insert_kl_update(t->seq, &where,
                              c->ppo.kl_control == WEFT_KL_ADAPTIVE,
                              c->ppo.kl_target, c->ppo.kl_horizon, p->n,
                              p->advantage, t->kl_state);
    return 0;
}

/* ---- Training --------------------------------------------------------- */

static float weight_of(enum weft_loss_agg aggregation, int32_t n,
                       int64_t n_tokens, int32_t len, int32_t max_len)
{
    switch (aggregation) {
    case WEFT_AGG_SEQ_MEAN_TOKEN_SUM:
        return 1 / (float) n;
    case WEFT_AGG_SEQ_MEAN_TOKEN_MEAN:
        return 1 / ((float) n * (float) len);
    case WEFT_AGG_SEQ_MEAN_TOKEN_SUM_NORM:
        return 1 / ((float) n * (float) max_len);
    default:
        return 1 / (float) n_tokens;
    }
}

/* One optimizer step on the samples index[0..n-1]. */
static int train_step(struct weft_ppo *p, struct weft_g_train *train,
                      enum weft_loss_agg aggregation, int32_t n,
                      const uint32_t *index, struct weft_ppo_update *u)
{
    struct weft_pack_sample *pack = weft_alloc((size_t) n, sizeof *pack);
    struct weft_g_stats *stats = u->stats + u->n_stats;
    int64_t n_tokens = 0;
    int32_t n_stats = 0;
    if (!pack)
        return weft_err_nomem(p->err, "a mini-batch",
                              (size_t) n * sizeof *pack);
    for (int32_t i = 0; i < n; i++) {
        const struct weft_sample *s = &p->sample[index[i]];
        n_tokens += s->n_total - s->n_prompt;
    }
    for (int32_t i = 0; i < n; i++) {
        const struct weft_sample *s = &p->sample[index[i]];
        const struct weft_ppo_sample *x = &p->extra[index[i]];
        pack[i] = (struct weft_pack_sample){
            .rollout = s->rollout,
            .advantage = x->advantage,
            .value = x->value,
            .ref = x->ref,
            .n_prompt = s->n_prompt,
            .n_total = s->n_total,
            .weight = weight_of(aggregation, n, n_tokens,
                                s->n_total - s->n_prompt,
                                p->t->config.rollout.max_new_tokens),
        };
    }
    int rc = weft_g_train_step(p->t->seq, train, n, pack, stats, &n_stats,
                               &u->norm[u->n_norms], p->err);
    for (int32_t k = 0; k < n_stats; k++)
        for (int32_t i = 0; i < stats[k].n; i++)
            stats[k].sample[i] = (int32_t) index[stats[k].sample[i]];
    u->n_stats += n_stats;
    if (u->n_norms == 0)
        u->first_stats = n_stats;
    u->n_norms += !rc;
    weft_free(pack);
    return rc;
}

static int by_index(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *) a, y = *(const uint32_t *) b;
    return x < y ? -1 : x > y;
}

/* All epochs and mini-batches of one model. */
static int train(struct weft_ppo *p, struct weft_run_model *model,
                 const struct weft_optimizer_config *optim, bool actor,
                 int64_t *steps, struct weft_ppo_update *u)
{
    struct weft_trainer *t = p->t;
    const struct weft_config *c = &t->config;
    int32_t epochs = c->ppo.epochs, parts = c->ppo.mini_batches;
    int64_t per_iteration = (int64_t) epochs * parts;
    int64_t total = per_iteration * c->iterations;
    struct weft_g_train train = {
        .model = &model->tiles,
        .grads = &model->grads,
        .loss = {.loss = actor ? WEFT_LOSS_POLICY : WEFT_LOSS_VALUE,
                 .inv_temperature = inv_temperature(c),
                 .value_clip = c->ppo.value_clip,
                 .policy = {.clip_low = c->ppo.clip_low,
                            .clip_high = c->ppo.clip_high,
                            .dual_clip = c->ppo.dual_clip,
                            .entropy_coef = c->ppo.entropy_coef,
                            .kl_coef = c->ppo.kl_coef}},
        .grad_clip = optim->grad_clip,
        .micro_batch_rows = c->train.micro_batch_tokens,
        .recompute = c->train.recompute,
        .call = actor ? WEFT_CALL_ACTOR_TRAIN : WEFT_CALL_CRITIC_TRAIN,
        .iteration = t->iteration,
        .moments = actor ? p->moments : NULL,
    };
    if (c->ppo.kl_place == WEFT_KL_IN_LOSS)
        train.loss.policy.kl = (enum weft_kl) c->ppo.kl_kind;
    uint32_t *order = weft_alloc((size_t) p->n, sizeof *order);
    u->stats = weft_alloc((size_t) (epochs * (int64_t) p->n),
                          sizeof *u->stats);
    u->norm = weft_alloc((size_t) per_iteration, sizeof *u->norm);
    int rc = 0;
    if (!order || !u->stats || !u->norm)
        rc = weft_err_nomem(p->err, "training", (size_t) p->n * 8);
    for (int32_t e = 0; e < epochs && !rc; e++) {
        weft_rng_permutation(c->seed, WEFT_RNG_MINIBATCH,
                             (uint32_t) t->iteration, (uint32_t) e,
                             (uint32_t) p->n, order);
        for (int32_t k = 0; k < parts && !rc; k++) {
            int32_t a = (int32_t) ((int64_t) p->n * k / parts);
            int32_t b = (int32_t) ((int64_t) p->n * (k + 1) / parts);
            qsort(order + a, (size_t) (b - a), sizeof *order, by_index);
            train.loss.exact_first = actor && e == 0 && k == 0;
            train.adamw = weft_adamw_at(optim, *steps, total);
            rc = train_step(p, &train,
                            actor ? c->ppo.aggregation : WEFT_AGG_TOKEN_MEAN,
                            b - a, order + a, u);
            u->lr = (double) train.adamw.lr;
            (*steps)++;
        }
    }
    weft_free(order);
    return rc;
}

/* ---- The iteration ---------------------------------------------------- */

static void update_release(struct weft_ppo_update *u)
{
    for (int32_t i = 0; i < u->n_stats; i++) {
        weft_tile_release(u->stats[i].tile);
        weft_free(u->stats[i].sample);
    }
    for (int32_t i = 0; i < u->n_norms; i++)
        weft_tile_release(u->norm[i]);
    weft_free(u->stats);
    weft_free(u->norm);
}

/* Answers that are still owed, so that what was submitted can run out. */
static void give_up(struct weft_ppo *p)
{
    static const double none = 0;
    for (int32_t i = 0; p->extra && i < p->n; i++)
        if (p->extra[i].answer) {
            weft_external_complete(p->extra[i].answer, &none, sizeof none);
            p->extra[i].answer = NULL;
        }
}

static void release(struct weft_ppo *p)
{
    for (int32_t i = 0; p->sample && p->extra && i < p->n; i++) {
        struct weft_ppo_sample *x = &p->extra[i];
        weft_tile_release(p->sample[i].rollout);
        weft_tile_release(x->ref);
        weft_tile_release(x->value);
        weft_tile_release(x->advantage);
        weft_tile_release(x->score);
        for (int32_t r = 0; r < WEFT_MAX_REWARDS; r++)
            weft_tile_release(x->model_score[r]);
    }
    weft_tile_release(p->moments);
    weft_ppo_texts_release(p);
    update_release(&p->actor);
    update_release(&p->critic);
    weft_free(p->sample);
    weft_free(p->extra);
    weft_free(p->prompt);
    weft_free(p->advantage);
    weft_free(p->waiting);
}

int weft_ppo_iteration(struct weft_trainer *t, struct weft_err *err)
{
    const struct weft_config *c = &t->config;
    size_t n = (size_t) c->rollout.prompts
             * (size_t) c->rollout.samples_per_prompt;
    struct weft_ppo p = {
        .t = t,
        .n = (int32_t) n,
        .err = err,
        .start_s = weft_clock_s(),
        .sample = weft_alloc(n, sizeof *p.sample),
        .extra = weft_alloc(n, sizeof *p.extra),
        .prompt = weft_alloc(n, sizeof *p.prompt),
        .advantage = weft_alloc(n, sizeof *p.advantage),
        .waiting = weft_alloc(n, sizeof *p.waiting),
    };
    int rc = 0;
    if (!p.sample || !p.extra || !p.prompt || !p.advantage || !p.waiting)
        rc = weft_err_nomem(err, "an iteration", n * sizeof *p.extra);
    weft_rt_times_reset(t->rt);
    if (!rc)
        rc = weft_trainer_reference_begin(t, err);
    if (!rc)
        rc = generate(&p);
    if (!rc)
        rc = advantages(&p);
    if (!rc && t->iteration >= c->ppo.critic_warmup)
        rc = train(&p, &t->actor, &c->actor_optim, true, &t->actor_steps,
                   &p.actor);
    if (!rc)
        rc = train(&p, &t->critic, &c->critic_optim, false, &t->critic_steps,
                   &p.critic);
    if (!rc)
        rc = weft_ppo_rewards(&p);
    if (rc) { /* let what is submitted run out as no-ops */
        weft_seq_fail(t->seq, rc, "%s", err && err->code ? err->text : "");
        give_up(&p);
        (void) weft_seq_wait(t->seq, NULL);
    } else {
        rc = weft_seq_wait(t->seq, err);
    }
    if (!rc)
        rc = weft_ppo_report(&p);
    weft_trainer_reference_end(t);
    release(&p);
    return rc;
}
