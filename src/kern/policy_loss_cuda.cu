/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy losses and the critic's on a GPU: a warp per response. Lanes compute
 * 32 tokens at a time; then a lane per statistic adds those of the tokens up,
 * in their order.
 */
#include "kern/cuda_lang.h"

#include "kern/policy_loss.h"

struct token_stats {
    double of[WEFT_WARP][WEFT_N_POLICY_STATS];
};

/* Statistics 0..n_stats-1 of n tokens join the lane's own. */
static __device__ __forceinline__ double add_stats(
    const struct token_stats *token, int n, int n_stats, double mine)
{
    int k = threadIdx.x;
    __syncwarp();
    for (int i = 0; k < n_stats && i < n; i++)
        mine = n_stats == WEFT_N_POLICY_STATS
                 ? weft_policy_stat_add(k, mine, token->of[i][k])
                 : mine + token->of[i][k];
    __syncwarp();
    return mine;
}

/* The sum over tokens of logp - old_logp, in their order. */
static __device__ __forceinline__ double log_ratios(int32_t n,
                                                    const float *logp,
                                                    const float *old_logp)
{
    double sum = 0;
    for (int32_t first = 0; first < n; first += WEFT_WARP) {
        int32_t i = first + threadIdx.x;
        double d = i < n ? (double) logp[i] - (double) old_logp[i] : 0;
        for (int from = 0; from < WEFT_WARP; from++) {
            double x = __shfl_sync(WEFT_FULL_WARP, d, from);
            sum = first + from < n ? sum + x : sum;
        }
    }
    return sum;
}

static __global__ void policy_loss(
    struct weft_k_policy p, int32_t n, const float *weight, const float *logp,
    const float *old_logp, const float *ref_logp, const float *advantage,
    const float *entropy, float *dlogp, float *dentropy, double *stat)
{
    WEFT_SHARED(struct token_stats, token);
    int lane = threadIdx.x;
    double mine = lane < WEFT_N_POLICY_STATS ? stat[lane] : 0;
    struct weft_policy_term sample = weft_policy_term(0, 0);
    if (p.kind == WEFT_POLICY_GSPO)
        sample = weft_policy_sample(n, log_ratios(n, logp, old_logp));
    for (int32_t first = 0; first < n; first += WEFT_WARP) {
        int32_t i = first + lane;
        if (i < n) {
            struct weft_policy_token t;
            t.logp = logp[i];
            t.old_logp = old_logp[i];
            t.ref_logp = ref_logp ? ref_logp[i] : 0;
            t.advantage = advantage[i];
            t.entropy = entropy[i];
            weft_policy_loss_token(&p, sample, *weight, &t, &dlogp[i],
                                   &dentropy[i], token.of[lane]);
        }
        mine = add_stats(&token, weft_min32(n - first, WEFT_WARP),
                         WEFT_N_POLICY_STATS, mine);
    }
    if (lane < WEFT_N_POLICY_STATS)
        stat[lane] = mine;
}

void weft_k_policy_loss_cuda(cudaStream_t stream,
                             const struct weft_k_policy *policy, int32_t n,
                             const float *w, const float *logp,
                             const float *old_logp, const float *ref_logp,
                             const float *advantage, const float *entropy,
                             float *dlogp, float *dentropy, double *stat)
{
    if (n > 0)
        WEFT_LAUNCH(policy_loss, 1, WEFT_WARP, stream, *policy, n, w, logp,
                    old_logp, ref_logp, advantage, entropy, dlogp, dentropy,
                    stat);
}

static __global__ void value_loss(float clip, int32_t n, const float *weight,
                                  const float *value, const float *old_value,
                                  const float *ret, float *dvalue,
                                  double *stat)
{
    WEFT_SHARED(struct token_stats, token);
    int lane = threadIdx.x;
    double mine = lane < WEFT_N_VALUE_STATS ? stat[lane] : 0;
    for (int32_t first = 0; first < n; first += WEFT_WARP) {
        int32_t i = first + lane;
        if (i < n)
            weft_value_loss_token(clip, *weight, value[i], old_value[i],
                                  ret[i], &dvalue[i], token.of[lane]);
        mine = add_stats(&token, weft_min32(n - first, WEFT_WARP),
                         WEFT_N_VALUE_STATS, mine);
    }
    if (lane < WEFT_N_VALUE_STATS)
        stat[lane] = mine;
}

void weft_k_value_loss_cuda(cudaStream_t stream, float clip, int32_t n,
                            const float *w, const float *value,
                            const float *old_value, const float *ret,
                            float *dvalue, double *stat)
{
    if (n > 0)
        WEFT_LAUNCH(value_loss, 1, WEFT_WARP, stream, clip, n, w, value,
                    old_value, ret, dvalue, stat);
}
