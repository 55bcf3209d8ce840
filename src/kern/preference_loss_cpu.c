/* SPDX-License-Identifier: Apache-2.0 */
/* Losses over chosen and rejected responses, and pairs of a reward model's
 * scores; the formulas are in preference_loss.h. */
#include "kern/preference_loss.h"

static double sum(int32_t n, const float *x)
{
    double total = 0;
    for (int32_t i = 0; i < n; i++)
        total += (double) x[i];
    return total;
}

double weft_k_log_ratio(int32_t n, const float *logp, const float *ref_logp)
{
    return sum(n, logp) - sum(n, ref_logp);
}

static struct weft_response_sums sums_of(const struct weft_k_response *r,
                                         bool has_ref)
{
    return (struct weft_response_sums){sum(r->n, r->logp),
                                       has_ref ? sum(r->n, r->ref_logp) : 0};
}

static void put_gradient(const struct weft_k_response *r, double slope)
{
    for (int32_t i = 0; i < r->n; i++)
        r->dlogp[i] = (float) slope;
}

void weft_k_pair_loss(const struct weft_k_pairs *p, float w,
                      const struct weft_k_response *chosen,
                      const struct weft_k_response *rejected)
{
    int32_t n[2] = {chosen->n, rejected->n};
    struct weft_response_sums sums[2] = {
        sums_of(chosen, !p->reference_free),
        sums_of(rejected, !p->reference_free)};
    double slope[2];
    weft_pair_loss_of(p, w, n, sums, chosen->stat, rejected->stat, slope);
    put_gradient(chosen, slope[0]);
    put_gradient(rejected, slope[1]);
}

double weft_k_kto_kl(int32_t n, double sum_of_log_ratios)
{
    double mean = sum_of_log_ratios / n;
    return mean < 0 ? 0 : mean;
}

void weft_k_kto_loss(const struct weft_k_kto *k, float w, bool is_desirable,
                     double kl, const struct weft_k_response *r)
{
    put_gradient(r, weft_kto_loss_of(k, w, is_desirable, kl, r->n,
                                     sums_of(r, true), r->stat));
}

/* ---- Scores ------------------------------------------------------------ */

void weft_k_bradley_terry(float center, float w, float margin,
                          const float score[2], float dscore[2],
                          double *const stat[2])
{
    weft_bradley_terry_of(center, w, margin, score, dscore, stat[0], stat[1]);
}
