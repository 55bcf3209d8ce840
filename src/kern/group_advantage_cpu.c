/* SPDX-License-Identifier: Apache-2.0 */
/* Advantages of the responses to one prompt. */
#include "kern/losses.h"

#include <math.h>

/* verl 0.9.1, trainer/ppo/core_algos.py: compute_grpo_outcome_advantage. */
static const double STD_EPS = 1e-6;

/* Sums are of distances from the first score: those of equal scores are zeros,
 * while the mean of equal scores may differ from them by a rounding. */
static double mean_distance(int32_t n, const double *score)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += score[i] - score[0];
    return sum / n;
}

static void subtract_mean(int32_t n, const double *score, double *out)
{
    double mean = mean_distance(n, score);
    for (int32_t i = 0; i < n; i++)
        out[i] = n == 1 ? score[i] : score[i] - score[0] - mean;
}

static void grpo(int32_t n, const double *score, double *out)
{
    double squares = 0, std = 1;
    subtract_mean(n, score, out);
    for (int32_t i = 0; i < n; i++)
        squares += out[i] * out[i];
    if (n > 1)
        std = sqrt(squares / (n - 1));
    for (int32_t i = 0; i < n; i++)
        out[i] /= std + STD_EPS;
}

/* r - (sum - r) / (n - 1) = (r - mean) n / (n - 1) */
static void rloo(int32_t n, const double *score, double *out)
{
    subtract_mean(n, score, out);
    for (int32_t i = 0; i < n && n > 1; i++)
        out[i] *= (double) n / (n - 1);
}

void weft_k_group_advantage(enum weft_group_advantage kind, int32_t n,
                            const double *score, double *out)
{
    switch (kind) {
    case WEFT_ADVANTAGE_GRPO:
        grpo(n, score, out);
        return;
    case WEFT_ADVANTAGE_MEAN:
        subtract_mean(n, score, out);
        return;
    case WEFT_ADVANTAGE_RLOO:
        rloo(n, score, out);
        return;
    }
}
