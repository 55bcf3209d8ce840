/* SPDX-License-Identifier: Apache-2.0 */
/* KL estimates against closed forms, and the controller of the coefficient. */
#include "kern/losses.h"

#include <math.h>

#include "tests/harness.h"

static void check(enum weft_kl kind, float d, double value, double slope)
{
    /* d is a multiple of 2^-12 below 64: logp - ref has no rounding */
    struct weft_k_kl k = weft_k_kl(kind, d - 2, -2);
    bool good = fabs(k.value - value) <= 1e-12 * fabs(value)
             && fabs(k.slope - slope) <= 1e-12 * fabs(slope);
    if (!good)
        printf("\n    k%d at %g: %.17g and %.17g, expected %.17g and %.17g\n",
               (int) kind, (double) d, k.value, k.slope, value, slope);
    CHECK(good);
}

static void test_kl_closed_forms(void)
{
    static const float apart[] = {-2.25f, -0.5f, 0, 0.125f, 1, 3.5f, 9};
    for (size_t i = 0; i < WEFT_COUNT(apart); i++) {
        float d = apart[i];
        double x = (double) d;
        check(WEFT_KL_NONE, d, 0, 0);
        check(WEFT_KL_K1, d, x, 1);
        check(WEFT_KL_K2, d, x * x / 2, x);
        check(WEFT_KL_K3, d, exp(-x) - 1 + x, 1 - exp(-x));
        check(WEFT_KL_ABS, d, fabs(x), x == 0 ? 0 : x / fabs(x));
    }
    /* Near 0 the exponential's own digits cancel: the series
     * d^2/2 - d^3/6 + d^4/24, whose next term is 2^-36 of the first. */
    double x = 0x1p-12;
    struct weft_k_kl k = weft_k_kl(WEFT_KL_K3, -1 + 0x1p-12f, -1);
    CHECK(fabs(k.value / (x * x / 2 * (1 - x / 3 + x * x / 12)) - 1) < 1e-9);
    CHECK(fabs(k.slope / (x * (1 - x / 2 + x * x / 6)) - 1) < 1e-9);
}

/* k3 has one bound, on both sides; log-probs as far apart as they get. */
static void test_kl_bound(void)
{
    /* e^2.6 - 1 - 2.6 = 9.86, e^2.625 - 1 - 2.625 = 10.18 */
    check(WEFT_KL_K3, -2.5f, exp(2.5) - 3.5, 1 - exp(2.5));
    check(WEFT_KL_K3, -2.625f, 10, 0);
    check(WEFT_KL_K3, -40, 10, 0);
    check(WEFT_KL_K3, 10.5f, exp(-10.5) + 9.5, 1 - exp(-10.5));
    check(WEFT_KL_K3, 11.25f, 10, 0);
    struct weft_k_kl k = weft_k_kl(WEFT_KL_K3, -1e4f, 0);
    CHECK(k.value == 10 && k.slope == 0);
    check(WEFT_KL_K1, -40, -40, 1);
    check(WEFT_KL_K2, -40, 800, -40);
    for (int kind = WEFT_KL_K1; kind <= WEFT_KL_ABS; kind++)
        CHECK(isnan(weft_k_kl((enum weft_kl) kind, NAN, -1).value));
}

/* The mean of k1 and of k3 over the policy's own samples is the divergence
 * itself, and k3's is never negative: summed over a distribution of 4. */
static void test_kl_expectation(void)
{
    static const float p[] = {-0.75f, -1.5f, -2.25f, -3},
                       q[] = {-2, -1, -2, -1.5f};
    double total = 0, other = 0, kl = 0, k1 = 0, k3 = 0;
    for (int i = 0; i < 4; i++) {
        total += exp((double) p[i]);
        other += exp((double) q[i]);
    }
    for (int i = 0; i < 4; i++) {
        float logp = (float) ((double) p[i] - log(total));
        float ref = (float) ((double) q[i] - log(other));
        double weight = exp((double) logp);
        kl += weight
            * ((double) p[i] - log(total) - (double) q[i] + log(other));
        k1 += weight * weft_k_kl(WEFT_KL_K1, logp, ref).value;
        k3 += weight * weft_k_kl(WEFT_KL_K3, logp, ref).value;
        CHECK(weft_k_kl(WEFT_KL_K3, logp, ref).value > 0);
    }
    CHECK(fabs(k1 - kl) < 1e-6); /* log-probs are rounded to f32 */
    CHECK(fabs(k3 - kl) < 1e-6);
}

static void test_kl_adapt(void)
{
    CHECK(fabs(weft_k_kl_adapt(0.3, 2.2, 2, 30, 60) - 0.3 * 1.05) < 1e-15);
    CHECK(fabs(weft_k_kl_adapt(0.3, 1.8, 2, 30, 60) - 0.3 * 0.95) < 1e-15);
    CHECK(weft_k_kl_adapt(0.3, 2, 2, 30, 60) == 0.3);
    /* the error is kept in +-0.2 */
    CHECK(fabs(weft_k_kl_adapt(0.3, 99, 2, 30, 60) - 0.3 * 1.1) < 1e-15);
    CHECK(fabs(weft_k_kl_adapt(0.3, -99, 2, 30, 60) - 0.3 * 0.9) < 1e-15);
}

/* The mean over all tokens decides, and the limit itself is allowed. */
static void test_kl_gate(void)
{
    double stat[2][WEFT_N_POLICY_STATS] = {{0}};
    CHECK(weft_k_kl_gate(0.5f, 2, stat[0]) == 1); /* no token */
    stat[0][WEFT_STAT_PPO_KL] = 3;
    stat[0][WEFT_STAT_TOKENS] = 2;
    stat[1][WEFT_STAT_PPO_KL] = -1;
    stat[1][WEFT_STAT_TOKENS] = 2;
    CHECK(weft_k_kl_gate(0.5f, 2, stat[0]) == 1);
    CHECK(weft_k_kl_gate(0.49f, 2, stat[0]) == 0);
    CHECK(weft_k_kl_gate(0.5f, 1, stat[0]) == 0);
    CHECK(weft_k_kl_gate(0.5f, 0, stat[0]) == 1);
    stat[1][WEFT_STAT_PPO_KL] = (double) NAN;
    CHECK(weft_k_kl_gate(0.5f, 2, stat[0]) == 0);
}

WEFT_TESTS("kern/kl", {"test_kl_closed_forms", test_kl_closed_forms},
           {"test_kl_bound", test_kl_bound},
           {"test_kl_expectation", test_kl_expectation},
           {"test_kl_adapt", test_kl_adapt}, {"test_kl_gate", test_kl_gate})
