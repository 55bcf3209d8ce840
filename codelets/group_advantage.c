/* SPDX-License-Identifier: Apache-2.0 */
/* Advantages of the responses to one prompt, from one another's scores. */
#include "codelets/score.h"

struct group_task {
    struct weft_group_args group;
    int32_t n;
    bool ref, score; /* which tiles there are */
};

/* Every token has the sample's advantage, and no value is part of it. */
static void put_advantage(struct weft_advantage *a, double value)
{
    float *advantage = weft_advantage_of(a), *ret = weft_return_of(a);
    for (int32_t i = 0; i < a->n; i++)
        advantage[i] = ret[i] = (float) value;
}

static int group_advantage_cpu(const void *args, void *const buf[], int n_buf,
                               struct weft_exec *x)
{
    const struct group_task *t = args;
    const struct weft_gae_args *reward = &t->group.reward;
    size_t n = (size_t) t->n;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_score_inputs in = {.kl = weft_take(&take)};
    struct weft_advantage **a = weft_exec_scratch(x, n * sizeof *a);
    double *score = weft_exec_scratch(x, n * 2 * sizeof *score);
    if (!a || !score)
        return WEFT_ENOMEM;
    for (int32_t i = 0; i < t->n; i++) {
        a[i] = weft_take(&take);
        in.rollout = weft_take(&take);
        in.ref = t->ref ? weft_take(&take) : NULL;
        in.score = t->score ? weft_take(&take) : NULL;
        weft_take_model_scores(&take, reward->n_models, &in);
        int rc = weft_score_sample(reward, reward->sample + i, &in, a[i],
                                   NULL, x);
        if (rc)
            return rc;
        score[i] = a[i]->reward_sum;
    }
    weft_take_end(&take);
    weft_k_group_advantage(t->group.kind, t->n, score, score + n);
    for (int32_t i = 0; i < t->n; i++)
        put_advantage(a[i], score[(int32_t) n + i]);
    return 0;
}

WEFT_CODELET(group_advantage, 0xab47bc, group_advantage_cpu)

void weft_insert_group_advantage(struct weft_seq *seq,
                                 const struct weft_where *where,
                                 const struct weft_group_args *args,
                                 int32_t n,
                                 const struct weft_group_sample *sample,
                                 struct weft_tile *kl_state)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct group_task task = {.group = *args, .n = n};
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, kl_state, WEFT_READ);
    for (int32_t i = 0; i < n; i++) {
        const struct weft_group_sample *s = &sample[i];
        weft_assert(!s->ref == !sample->ref && !s->score == !sample->score);
        weft_access_list_add(&access, s->advantage, WEFT_WRITE);
        weft_access_list_add(&access, s->rollout, WEFT_READ);
        task.ref = weft_access_list_add_optional(&access, s->ref, WEFT_READ);
        task.score = weft_access_list_add_optional(&access, s->score,
                                                   WEFT_READ);
        for (int32_t k = 0; k < args->reward.n_models; k++)
            weft_access_list_add(&access, s->model_score[k], WEFT_READ);
    }
    weft_access_list_insert(&access, seq, where, &weft_cl_group_advantage,
                            &task, sizeof task);
}
