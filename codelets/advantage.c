/* SPDX-License-Identifier: Apache-2.0 */
/* From rewards to advantages; moments of advantages; the KL controller. */
#include <string.h>

#include "codelets/score.h"

struct gae_task {
    struct weft_gae_args gae;
    bool value, ref, score, baseline;
};

static int gae_cpu(const void *args, void *const buf[], int n_buf,
                   struct weft_exec *x)
{
    const struct gae_task *t = args;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_advantage *a = weft_take(&take);
    struct weft_score_inputs in = {.rollout = weft_take(&take)};
    in.kl = weft_take(&take);
    const float *value = t->value ? weft_take(&take) : NULL;
    in.ref = t->ref ? weft_take(&take) : NULL;
    in.score = t->score ? weft_take(&take) : NULL;
    const struct weft_advantage *baseline = t->baseline ? weft_take(&take)
                                                        : NULL;
    weft_take_model_scores(&take, t->gae.n_models, &in);
    weft_take_end(&take);
    int32_t n = in.rollout->n_total - in.rollout->n_prompt;
    float *reward = weft_exec_scratch(x, (size_t) n * 2 * sizeof *reward);
    if (!reward)
        return WEFT_ENOMEM;
    if (!value)
        value = memset(reward + n, 0, (size_t) n * sizeof *value);
    int rc = weft_score_sample(&t->gae, t->gae.sample, &in, a, reward, x);
    if (rc)
        return rc;
    /* The score ends the episode even where the length limit cut the response,
     * so no value follows its last token. */
    weft_k_gae(n, t->gae.gamma, t->gae.lambda, reward, value, 0,
               weft_advantage_of(a), weft_return_of(a));
    if (baseline)
        weft_k_baseline(n, weft_return_of(a), baseline->score,
                        weft_advantage_of(a));
    return 0;
}

WEFT_CODELET(gae, 0xab47bc, gae_cpu)

void weft_insert_gae(struct weft_seq *seq, const struct weft_where *where,
                     const struct weft_gae_args *args,
                     struct weft_tile *rollout, struct weft_tile *ref,
                     struct weft_tile *value, struct weft_tile *score,
                     struct weft_tile *const model_score[],
                     struct weft_tile *kl_state, struct weft_tile *baseline,
                     struct weft_tile *advantage)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct gae_task task = {.gae = *args};
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, advantage, WEFT_WRITE);
    weft_access_list_add(&access, rollout, WEFT_READ);
    weft_access_list_add(&access, kl_state, WEFT_READ);
    task.value = weft_access_list_add_optional(&access, value, WEFT_READ);
    task.ref = weft_access_list_add_optional(&access, ref, WEFT_READ);
    task.score = weft_access_list_add_optional(&access, score, WEFT_READ);
    weft_assert(!baseline || !value);
    task.baseline = weft_access_list_add_optional(&access, baseline,
                                                  WEFT_READ);
    for (int32_t i = 0; i < args->n_models; i++)
        weft_access_list_add(&access, model_score[i], WEFT_READ);
    weft_access_list_insert(&access, seq, where, &weft_cl_gae, &task,
                            sizeof task);
}

struct moments_task {
    bool whiten;
    int32_t n;
};

static int moments_cpu(const void *args, void *const buf[], int n_buf,
                       struct weft_exec *x)
{
    (void) x;
    const struct moments_task *t = args;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_moments *m = weft_take(&take);

    *m = (struct weft_moments){.rstd = 1};
    for (int32_t s = 0; s < t->n; s++) {
        const struct weft_advantage *a = weft_take(&take);
        weft_k_moments_add(&m->of, a->n, weft_advantage_of(a));
    }
    weft_take_end(&take);
    if (t->whiten && m->of.n > 1) {
        m->mean = m->of.mean;
        m->rstd = weft_k_moments_rstd(&m->of);
    }
    return 0;
}

WEFT_CODELET(moments, 0x8e24aa, moments_cpu)

void weft_insert_moments(struct weft_seq *seq, const struct weft_where *where,
                         bool whiten, int32_t n,
                         struct weft_tile *const advantage[],
                         struct weft_tile *moments)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct moments_task task = {whiten, n};
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, moments, WEFT_WRITE);
    for (int32_t i = 0; i < n; i++)
        weft_access_list_add(&access, advantage[i], WEFT_READ);
    weft_access_list_insert(&access, seq, where, &weft_cl_moments, &task,
                            sizeof task);
}

struct kl_task {
    bool adaptive;
    float target;
    int32_t horizon, n;
};

static int kl_update_cpu(const void *args, void *const buf[], int n_buf,
                         struct weft_exec *x)
{
    (void) x;
    const struct kl_task *t = args;
    weft_assert(n_buf == 1 + t->n);
    struct weft_kl_state *state = buf[0];
    double sum = 0;
    for (int32_t s = 0; s < t->n; s++)
        sum += ((const struct weft_advantage *) buf[1 + s])->kl_sum;
    state->last_kl = sum / t->n;
    if (t->adaptive)
        state->coef = weft_k_kl_adapt(state->coef, state->last_kl,
                                      (double) t->target, t->n, t->horizon);
    return 0;
}

WEFT_CODELET(kl_update, 0x7b1fa2, kl_update_cpu)

void weft_insert_kl_update(struct weft_seq *seq,
                           const struct weft_where *where, bool adaptive,
                           float target, int32_t horizon, int32_t n,
                           struct weft_tile *const advantage[],
                           struct weft_tile *kl_state)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct kl_task task = {adaptive, target, horizon, n};
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, kl_state, WEFT_READ_WRITE);
    for (int32_t i = 0; i < n; i++)
        weft_access_list_add(&access, advantage[i], WEFT_READ);
    weft_access_list_insert(&access, seq, where, &weft_cl_kl_update, &task,
                            sizeof task);
}
