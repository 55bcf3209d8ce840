/* SPDX-License-Identifier: Apache-2.0 */
/* From rewards to the score of a sample; the rewards of a batch in one unit. */
#include "codelets/score.h"

#include <math.h>
#include <string.h>

static double total_score(const struct weft_gae_args *args,
                          const struct weft_score_inputs *in)
{
    double score = in->score ? *in->score : 0;
    for (int32_t i = 0; i < args->n_models; i++)
        score += (double) args->weight[i] * (double) *in->model_score[i];
    return score;
}

static double shaped_score(const struct weft_gae_args *args,
                           const struct weft_advantage *a)
{
    double score = a->raw_score;
    if (!a->ended)
        score -= (double) args->missing_eos_penalty;
    if (args->overlong_factor > 0)
        score += (double) args->overlong_factor
               * weft_k_overlong(a->n, args->overlong_max,
                                 args->overlong_cache);
    if (args->reward_clip > 0)
        score = fmax(fmin(score, (double) args->reward_clip),
                     -(double) args->reward_clip);
    return score;
}

int weft_score_sample(const struct weft_gae_args *args, int32_t sample,
                      const struct weft_score_inputs *in,
                      struct weft_advantage *a, float *reward_out,
                      struct weft_exec *x)
{
    const struct weft_rollout *r = in->rollout;
    int32_t n = r->n_total - r->n_prompt;
    const float *logp = weft_rollout_logp(r) + r->n_prompt;

    memset(a, 0, sizeof *a);
    a->n = n;
    a->ended = r->ended;
    a->raw_score = total_score(args, in);
    if (!isfinite((float) a->raw_score))
        return weft_err_set(weft_exec_err(x), WEFT_ENUMERIC,
                            "iteration %d: the score of sample %d is no "
                            "finite f32 number: %g",
                            args->iteration + 1, sample, a->raw_score);
    double score = shaped_score(args, a);
    a->score = score;
    a->kl_coef = in->kl->coef;
    for (int32_t i = 0; i < n; i++) {
        float from = in->ref ? in->ref[i] : logp[i];
        double penalty = a->kl_coef
                       * weft_k_kl(args->kl, logp[i], from).value;
        a->kl_sum += (double) logp[i] - (double) from;
        a->reward_sum -= penalty;
        if (reward_out)
            reward_out[i] = (float) (i == n - 1 ? score - penalty : -penalty);
    }
    a->reward_sum += score;
    return 0;
}

/* ---- Rewards of all samples -------------------------------------------- */

struct shape_task {
    struct weft_reward_shape_args shape;
    int32_t n;
    bool moments;
};

static int reward_shape_cpu(const void *args, void *const buf[], int n_buf,
                            struct weft_exec *x)
{
    const struct shape_task *t = args;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_k_moments *moments = t->moments ? weft_take(&take) : NULL;
    void *const *score = buf + take.next;

    if (moments && !t->shape.running)
        *moments = (struct weft_k_moments){.n = 0};
    for (int32_t i = 0; i < t->n; i++) {
        const float *s = weft_take(&take);
        if (!isfinite(*s))
            return weft_err_set(weft_exec_err(x), WEFT_ENUMERIC,
                                "the reward of sample %d is no finite "
                                "number: %g",
                                i, (double) *s);
        if (moments)
            weft_k_moments_add(moments, 1, s);
    }
    for (int32_t i = 0; i < t->n; i++)
        *(float *) weft_take(&take) = (float) weft_k_reward(
            moments, t->shape.low, t->shape.high,
            (double) *(const float *) score[i]);
    weft_take_end(&take);
    return 0;
}

WEFT_CODELET(reward_shape, 0xba68c8, reward_shape_cpu)

void weft_insert_reward_shape(struct weft_seq *seq,
                              const struct weft_where *where,
                              const struct weft_reward_shape_args *args,
                              int32_t n, struct weft_tile *const score[],
                              struct weft_tile *moments,
                              struct weft_tile *const shaped[])
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct shape_task task = {*args, n, false};
    struct weft_access_list access;
    weft_access_list_init(&access);
    task.moments = weft_access_list_add_optional(&access, moments,
                                                 WEFT_READ_WRITE);
    for (int32_t i = 0; i < n; i++)
        weft_access_list_add(&access, score[i], WEFT_READ);
    for (int32_t i = 0; i < n; i++)
        weft_access_list_add(&access, shaped[i], WEFT_WRITE);
    weft_access_list_insert(&access, seq, where, &weft_cl_reward_shape, &task,
                            sizeof task);
}
