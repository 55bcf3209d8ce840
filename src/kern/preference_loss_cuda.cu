/* SPDX-License-Identifier: Apache-2.0 */
/* Losses over chosen and rejected responses on a GPU: a warp per pair. Sums
 * over tokens are in the tokens' order. */
#include "kern/cuda_lang.h"

#include "kern/preference_loss.h"

/* All lanes have the sum. */
static __device__ __forceinline__ double sum_of(int32_t n, const float *x)
{
    double total = 0;
    for (int32_t first = 0; first < n; first += WEFT_WARP) {
        int32_t i = first + threadIdx.x;
        float mine = i < n ? x[i] : 0;
        for (int from = 0; from < WEFT_WARP; from++) {
            double next = (double) __shfl_sync(WEFT_FULL_WARP, mine, from);
            total = first + from < n ? total + next : total;
        }
    }
    return total;
}

static __device__ __forceinline__ struct weft_response_sums sums_of(
    const struct weft_k_response &r, bool has_ref)
{
    struct weft_response_sums sums;
    sums.logp = sum_of(r.n, r.logp);
    sums.ref_logp = has_ref ? sum_of(r.n, r.ref_logp) : 0;
    return sums;
}

static __device__ __forceinline__ void put_gradient(
    const struct weft_k_response &r, double slope)
{
    for (int32_t i = threadIdx.x; i < r.n; i += WEFT_WARP)
        r.dlogp[i] = (float) slope;
}

/* Every lane computes the loss; the first adds its statistics, the others to
 * numbers that nobody reads. */
static __global__ void pair_loss(struct weft_k_pairs p, const float *w,
                                 struct weft_k_response chosen,
                                 struct weft_k_response rejected)
{
    int32_t n[2] = {chosen.n, rejected.n};
    struct weft_response_sums sums[2];
    double slope[2], unread[2][WEFT_N_PREFERENCE_STATS] = {};
    bool is_first = threadIdx.x == 0;
    sums[0] = sums_of(chosen, !p.reference_free);
    sums[1] = sums_of(rejected, !p.reference_free);
    weft_pair_loss_of(&p, *w, n, sums, is_first ? chosen.stat : unread[0],
                      is_first ? rejected.stat : unread[1], slope);
    put_gradient(chosen, slope[0]);
    put_gradient(rejected, slope[1]);
}

void weft_k_pair_loss_cuda(cudaStream_t stream,
                           const struct weft_k_pairs *pairs, const float *w,
                           const struct weft_k_response *chosen,
                           const struct weft_k_response *rejected)
{
    WEFT_LAUNCH(pair_loss, 1, WEFT_WARP, stream, *pairs, w, *chosen,
                *rejected);
}

static __global__ void kto_loss(struct weft_k_kto k, const float *w,
                                bool is_desirable, const double *kl,
                                struct weft_k_response r)
{
    double unread[WEFT_N_PREFERENCE_STATS] = {};
    struct weft_response_sums sums = sums_of(r, true);
    put_gradient(r, weft_kto_loss_of(&k, *w, is_desirable, *kl, r.n, sums,
                                     threadIdx.x == 0 ? r.stat : unread));
}

void weft_k_kto_loss_cuda(cudaStream_t stream, const struct weft_k_kto *kto,
                          const float *w, bool is_desirable, const double *kl,
                          const struct weft_k_response *response)
{
    WEFT_LAUNCH(kto_loss, 1, WEFT_WARP, stream, *kto, w, is_desirable, kl,
                *response);
}
