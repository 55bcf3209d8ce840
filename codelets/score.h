/* SPDX-License-Identifier: Apache-2.0 */
/* The score of a sample, for every kind of advantage. */
#ifndef WEFT_CODELETS_SCORE_H
#define WEFT_CODELETS_SCORE_H

#include "codelets/access_list.h"
#include "rt/codelet.h"

struct weft_score_inputs {
    const struct weft_rollout *rollout;
    const struct weft_kl_state *kl;
    const float *ref;    /* of the response; NULL: equal to the policy's */
    const double *score; /* from outside; NULL: 0 */
    const float *model_score[WEFT_MAX_MODEL_SCORES];
};

/* Fills all of `a` but its columns, for the sample of this index. reward_out
 * (n response tokens; NULL: not wanted): the score at the last token, minus
 * the KL penalty of each. Errors: the score is not finite. */
int weft_score_sample(const struct weft_gae_args *args, int32_t sample,
                      const struct weft_score_inputs *in,
                      struct weft_advantage *a, float *reward_out,
                      struct weft_exec *x);

/* Takes the scores of n models, which come last of a sample's buffers. */
WEFT_INLINE void weft_take_model_scores(struct weft_take *take, int32_t n,
                                        struct weft_score_inputs *in)
{
    for (int32_t i = 0; i < n; i++)
        in->model_score[i] = weft_take(take);
}

#endif
