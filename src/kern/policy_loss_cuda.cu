/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy losses, that of SFT and the critic's on a GPU: a block per run.
 * Threads compute 256 tokens at a time; then a thread per statistic adds those
 * of the tokens up, in their order.
 */
#include "kern/losses_cuda.h"

struct sft_loss {
    enum { N_STATS = WEFT_N_POLICY_STATS };
    const float *logp, *entropy;
    float *dlogp;

    __device__ void begin(struct loss_block *, int32_t, int64_t) const
    {
    }
    __device__ void zero(int64_t i) const
    {
        dlogp[i] = 0;
    }
    __device__ void token(const struct loss_block *, float w, int64_t i,
                          double *stat) const
    {
        weft_sft_loss_token(w, logp[i], entropy[i], &dlogp[i], stat);
    }
    static __device__ double add(int k, double all, double x)
    {
        return weft_policy_stat_add(k, all, x);
    }
};

struct policy_loss {
    enum { N_STATS = WEFT_N_POLICY_STATS };
    struct weft_k_policy policy;
    const float *logp, *old_logp, *ref_logp, *advantage, *entropy;
    float *dlogp, *dentropy;

    __device__ void begin(struct loss_block *s, int32_t n, int64_t at) const
    {
        if (policy.kind != WEFT_POLICY_GSPO)
            return;
        double sum = sum_in_order(s, n, logp + at, old_logp + at);
        if (threadIdx.x == 0)
            s->sample = weft_policy_sample(n, sum);
        __syncthreads();
    }
    __device__ void zero(int64_t i) const
    {
        dlogp[i] = dentropy[i] = 0;
    }
    __device__ void token(const struct loss_block *s, float w, int64_t i,
                          double *stat) const
    {
        struct weft_policy_token t;
        t.logp = logp[i];
        t.old_logp = old_logp[i];
        t.ref_logp = ref_logp ? ref_logp[i] : 0;
        t.advantage = advantage[i];
        t.entropy = entropy[i];
        weft_policy_loss_token(&policy, s->sample, w, &t, &dlogp[i],
                               &dentropy[i], stat);
    }
    static __device__ double add(int k, double all, double x)
    {
        return weft_policy_stat_add(k, all, x);
    }
};

struct value_loss {
    enum { N_STATS = WEFT_N_VALUE_STATS };
    float clip;
    const float *value, *old_value, *ret;
    float *dvalue;

    __device__ void begin(struct loss_block *, int32_t, int64_t) const
    {
    }
    __device__ void zero(int64_t i) const
    {
        dvalue[i] = 0;
    }
    __device__ void token(const struct loss_block *, float w, int64_t i,
                          double *stat) const
    {
        weft_value_loss_token(clip, w, value[i], old_value[i], ret[i],
                              &dvalue[i], stat);
    }
    static __device__ double add(int, double all, double x)
    {
        return all + x;
    }
};

template <class LOSS>
static __global__ void token_losses(struct weft_k_loss_runs runs, LOSS loss)
{
    WEFT_SHARED(struct loss_block, s);
    int32_t run = blockIdx.x, k = threadIdx.x, n = runs.n_targets[run];
    int64_t at = first_target(&s, runs.n_targets, run);
    float w = runs.weight[run] * runs.gate;
    double mine = 0;
    for (int32_t i = k; w == 0 && i < n; i += LOSS_THREADS)
        loss.zero(at + i);
    n = w == 0 ? 0 : n;
    loss.begin(&s, n, at);
    for (int32_t first = 0; first < n; first += LOSS_THREADS) {
        int32_t n_here = weft_min32(n - first, LOSS_THREADS);
        if (k < n_here)
            loss.token(&s, w, at + first + k, s.stat[k]);
        __syncthreads();
        for (int32_t i = 0; k < LOSS::N_STATS && i < n_here; i++)
            mine = LOSS::add(k, mine, s.stat[i][k]);
        __syncthreads();
    }
    if (k < LOSS::N_STATS && runs.stats)
        runs.stats[run * LOSS::N_STATS + k] = mine;
}

template <class LOSS>
static void launch(cudaStream_t stream, const struct weft_k_loss_runs *runs,
                   const LOSS &loss)
{
    if (runs->n > 0)
        WEFT_LAUNCH(token_losses<LOSS>, runs->n, LOSS_THREADS, stream, *runs,
                    loss);
}

void weft_k_sft_losses_cuda(cudaStream_t stream,
                            const struct weft_k_loss_runs *runs,
                            const float *logp, const float *entropy,
                            float *dlogp)
{
    struct sft_loss loss = {logp, entropy, dlogp};
    launch(stream, runs, loss);
}

void weft_k_policy_losses_cuda(cudaStream_t stream,
                               const struct weft_k_policy *policy,
                               const struct weft_k_loss_runs *runs,
                               const float *logp, const float *old_logp,
                               const float *ref_logp, const float *advantage,
                               const float *entropy, float *dlogp,
                               float *dentropy)
{
    struct policy_loss loss = {*policy,   logp,    old_logp, ref_logp,
                               advantage, entropy, dlogp,    dentropy};
    launch(stream, runs, loss);
}

void weft_k_value_losses_cuda(cudaStream_t stream, float clip,
                              const struct weft_k_loss_runs *runs,
                              const float *value, const float *old_value,
                              const float *ret, float *dvalue)
{
    struct value_loss loss = {clip, value, old_value, ret, dvalue};
    launch(stream, runs, loss);
}
