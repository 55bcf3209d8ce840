/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inference of finished samples by the reference, the critic and the reward
 * models. Each call packs them into micro-batches of its own, which its
 * replicas get in turn.
 */
#include "base/alloc.h"
#include "run/ppo.h"

static struct weft_where where_of(const struct weft_ppo *p,
                                  const struct weft_ppo_call *c)
{
    return (struct weft_where){.device = -1,
                               .call = c->call,
                               .iteration = p->iteration,
                               .micro_batch = c->n_flushed,
                               .layer = -1};
}

static int add_call(struct weft_ppo *p, enum weft_call call,
                    struct weft_run_model *model, int32_t reward)
{
    struct weft_ppo_call *c = &p->call[p->n_calls++];
    *c = (struct weft_ppo_call){
        .call = call,
        .model = model,
        .reward = reward,
        .waiting = weft_alloc((size_t) p->n, sizeof *c->waiting)};
    if (!c->waiting)
        return weft_err_nomem(p->err, "inference", (size_t) p->n * 4);
    c->begun = true;
    return weft_trainer_model_begin(p->t, model, p->iteration, p->err);
}

/* The call needs its weights no more. */
static void close_call(struct weft_ppo_call *c)
{
    if (c->open)
        weft_g_view_close(&c->view);
    if (c->begun)
        weft_trainer_model_end(c->model);
    c->open = c->begun = false;
}

int weft_ppo_calls_init(struct weft_ppo *p)
{
    struct weft_trainer *t = p->t;
    const struct weft_config *config = &t->config;
    int rc = 0;
    if (config->ppo.kl_place != WEFT_KL_NOWHERE)
        rc = add_call(p, WEFT_CALL_REF_INFER, &t->reference, -1);
    if (!rc)
        rc = add_call(p, WEFT_CALL_CRITIC_INFER, &t->critic, -1);
    for (int32_t r = 0; r < config->n_rewards && !rc; r++)
        if (config->reward[r].type == WEFT_REWARD_MODEL)
            rc = add_call(p, WEFT_CALL_REWARD_INFER, &t->reward[r], r);
    return rc;
}

void weft_ppo_calls_release(struct weft_ppo *p)
{
    for (int32_t k = 0; k < p->n_calls; k++) {
        close_call(&p->call[k]);
        weft_free(p->call[k].waiting);
    }
    p->n_calls = 0;
}

/* The tile of a sample that the call writes. */
static struct weft_tile **out_of(struct weft_ppo *p,
                                 const struct weft_ppo_call *c, int32_t i)
{
    struct weft_ppo_sample *x = &p->extra[i];
    return c->reward >= 0                 ? &x->model_score[c->reward]
         : c->call == WEFT_CALL_REF_INFER ? &x->ref
                                          : &x->value;
}

/* Opens the view of the weights at the call's first micro-batch. */
static int open_view(struct weft_ppo *p, struct weft_ppo_call *c)
{
    struct weft_where where = where_of(p, c);
    if (c->open)
        return 0;
    c->open = true;
    return weft_g_view_open(p->t->seq, &where, &c->model->tiles,
                            weft_trainer_layout(p->t, c->call, c->model),
                            &c->view, p->err);
}

static int flush(struct weft_ppo *p, struct weft_ppo_call *c)
{
    static const char *const kind_name[] = {"score", "value",
                                            "reference log-probs"};
    struct weft_trainer *t = p->t;
    const struct weft_g_layout *layout = weft_trainer_layout(t, c->call,
                                                             c->model);
    int32_t n = c->n_waiting, dp = c->n_flushed % layout->plan.dp;
    bool ref = c->call == WEFT_CALL_REF_INFER, score = c->reward >= 0;
    if (n == 0)
        return 0;
    int rc = open_view(p, c);
    struct weft_g_infer_sample *sample = weft_alloc((size_t) n,
                                                    sizeof *sample);
    if (!sample)
        return weft_err_nomem(p->err, "inference",
                              (size_t) n * sizeof *sample);
    struct weft_tile_id id = {"sample", kind_name[score ? 0 : ref ? 2 : 1],
                              0,        -1,
                              -1,       weft_g_infer_out_place(layout, dp)};
    for (int32_t k = 0; k < n && !rc; k++) {
        int32_t i = c->waiting[k];
        const struct weft_sample *s = &p->sample[i];
        struct weft_tile **out = out_of(p, c, i);
        size_t values = score ? 1 : (size_t) (s->n_total - s->n_prompt);
        rc = weft_tile_create_temp(t->rt, &id, WEFT_MEM_SAMPLES,
                                   values * sizeof(float), out, p->err);
        sample[k] = (struct weft_g_infer_sample){.rollout = s->rollout,
                                                 .n_prompt = s->n_prompt,
                                                 .n_total = s->n_total,
                                                 .out = *out};
    }
    struct weft_where where = where_of(p, c);
    if (!rc)
        weft_g_infer(t->seq, &where, &c->view, dp,
                     score ? WEFT_INFER_SCORE
                     : ref ? WEFT_INFER_LOGPROB
                           : WEFT_INFER_VALUE,
                     weft_ppo_inv_temperature(&t->config), n, sample,
                     p->copies);
    c->n_waiting = c->waiting_rows = 0;
    c->n_flushed++;
    weft_free(sample);
    return rc;
}

/* Whether a sample of so many rows does not fit into the present
 * micro-batch. */
static bool is_full(const struct weft_ppo *p, const struct weft_ppo_call *c,
                    int32_t rows)
{
    const struct weft_call_plan *plan = &p->t->plan.call[c->call];
    if (plan->micro_batches > 0)
        return c->n_waiting
            >= weft_ceil_div(p->n, plan->dp * plan->micro_batches);
    return c->n_waiting > 0
        && c->waiting_rows + rows > p->t->config.train.micro_batch_tokens;
}

int weft_ppo_calls_add(struct weft_ppo *p, int32_t index)
{
    int32_t rows = p->sample[index].n_total;
    int rc = 0;
    for (int32_t k = 0; k < p->n_calls && !rc; k++) {
        struct weft_ppo_call *c = &p->call[k];
        if (is_full(p, c, rows))
            rc = flush(p, c);
        c->waiting[c->n_waiting++] = index;
        c->waiting_rows += rows;
    }
    return rc;
}

int weft_ppo_calls_end(struct weft_ppo *p)
{
    int rc = 0;
    for (int32_t k = 0; k < p->n_calls && !rc; k++) {
        struct weft_ppo_call *c = &p->call[k];
        rc = flush(p, c);
        close_call(c);
    }
    return rc;
}
