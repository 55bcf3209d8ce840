/* SPDX-License-Identifier: Apache-2.0 */
/* Losses over chosen and rejected responses on a GPU: a block per pair, or per
 * run of KTO, whose first thread computes the loss from the sums; and a thread
 * per pair of scores. */
#include "kern/losses_cuda.h"
#include "kern/preference_loss.h"

/* Of n runs that follow one another. */
static __device__ __forceinline__ void put_stats(
    const struct weft_k_loss_runs &runs, int32_t run, int32_t n,
    const double (*stat)[WEFT_N_PREFERENCE_STATS])
{
    for (int32_t i = 0; runs.stats && i < n; i++)
        for (int32_t k = 0; k < WEFT_N_PREFERENCE_STATS; k++)
            runs.stats[(run + i) * WEFT_N_PREFERENCE_STATS + k] = stat[i][k];
}

struct pair_loss {
    enum { N_RUNS = 2 };
    struct weft_k_pairs pairs;

    __device__ void of(int32_t, float w, const int32_t *n,
                       const struct weft_response_sums *sums,
                       double (*stat)[WEFT_N_PREFERENCE_STATS],
                       double *slope) const
    {
        weft_pair_loss_of(&pairs, w, n, sums, stat[0], stat[1], slope);
    }
};

struct kto_loss {
    enum { N_RUNS = 1 };
    struct weft_k_kto kto;
    const float *label;
    double kl;

    __device__ void of(int32_t run, float w, const int32_t *n,
                       const struct weft_response_sums *sums,
                       double (*stat)[WEFT_N_PREFERENCE_STATS],
                       double *slope) const
    {
        *slope = weft_kto_loss_of(&kto, w, label[run] > 0, kl, *n, *sums,
                                  *stat);
    }
};

template <class LOSS>
static __global__ void response_losses(struct weft_k_loss_runs runs,
                                       LOSS loss, const float *logp,
                                       const float *ref_logp, float *dlogp)
{
    enum { N = LOSS::N_RUNS };
    WEFT_SHARED(struct loss_block, s);
    int32_t run = blockIdx.x * N, n[N];
    int64_t at[N];
    struct weft_response_sums sums[N];
    double stat[N][WEFT_N_PREFERENCE_STATS] = {}, slope[N] = {};
    float w = runs.weight[run] * runs.gate;
    at[0] = first_target(&s, runs.n_targets, run);
    for (int32_t i = 0; i < N; i++) {
        n[i] = runs.n_targets[run + i];
        if (i > 0)
            at[i] = at[i - 1] + n[i - 1];
        if (w == 0)
            continue;
        sums[i].logp = sum_in_order(&s, n[i], logp + at[i], NULL);
        sums[i].ref_logp = 0;
        if (ref_logp)
            sums[i].ref_logp = sum_in_order(&s, n[i], ref_logp + at[i], NULL);
    }
    if (threadIdx.x == 0) {
        if (w != 0)
            loss.of(run, w, n, sums, stat, slope);
        put_stats(runs, run, N, stat);
        for (int32_t i = 0; i < N; i++)
            s.slope[i] = slope[i];
    }
    __syncthreads();
    for (int32_t i = 0; i < N; i++)
        for (int32_t k = threadIdx.x; k < n[i]; k += LOSS_THREADS)
            dlogp[at[i] + k] = (float) s.slope[i];
}

template <class LOSS>
static void launch(cudaStream_t stream, const struct weft_k_loss_runs *runs,
                   const LOSS &loss, const float *logp, const float *ref_logp,
                   float *dlogp)
{
    if (runs->n > 0)
        WEFT_LAUNCH(response_losses<LOSS>, runs->n / LOSS::N_RUNS,
                    LOSS_THREADS, stream, *runs, loss, logp, ref_logp, dlogp);
}

void weft_k_pair_losses_cuda(cudaStream_t stream,
                             const struct weft_k_pairs *pairs,
                             const struct weft_k_loss_runs *runs,
                             const float *logp, const float *ref_logp,
                             float *dlogp)
{
    struct pair_loss loss = {*pairs};
    launch(stream, runs, loss, logp, pairs->reference_free ? NULL : ref_logp,
           dlogp);
}

void weft_k_kto_losses_cuda(cudaStream_t stream, const struct weft_k_kto *kto,
                            const struct weft_k_loss_runs *runs,
                            const float *label, double kl, const float *logp,
                            const float *ref_logp, float *dlogp)
{
    struct kto_loss loss = {*kto, label, kl};
    launch(stream, runs, loss, logp, ref_logp, dlogp);
}

/* ---- Scores ------------------------------------------------------------ */

enum { PAIRS = 64 }; /* of a block */

static __global__ void bradley_terry(float center,
                                     struct weft_k_loss_runs runs,
                                     const float *margin, const float *score,
                                     float *dscore)
{
    int32_t i = 2 * (blockIdx.x * PAIRS + threadIdx.x);
    double stat[2][WEFT_N_PREFERENCE_STATS] = {};
    float d[2] = {};
    if (i >= runs.n)
        return;
    float w = runs.weight[i] * runs.gate;
    if (w != 0)
        weft_bradley_terry_of(center, w, margin[i], score + i, d, stat[0],
                              stat[1]);
    put_stats(runs, i, 2, stat);
    dscore[i] = d[0];
    dscore[i + 1] = d[1];
}

void weft_k_bradley_terry_cuda(cudaStream_t stream, float center,
                               const struct weft_k_loss_runs *runs,
                               const float *margin, const float *score,
                               float *dscore)
{
    if (runs->n > 0)
        WEFT_LAUNCH(bradley_terry, blocks_for(runs->n, 2 * PAIRS), PAIRS,
                    stream, center, *runs, margin, score, dscore);
}
