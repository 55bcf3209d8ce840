/* SPDX-License-Identifier: Apache-2.0 */
/* GAE against verl's (and so TRL's) recursion, and against its definition. */
#include "kern/losses.h"

#include <math.h>

#include "base/rng.h"
#include "tests/kern/ppo_golden.h"

static void test_gae_golden(void)
{
    FILE *f = golden_open();
    static struct golden g;
    int n_cases = 0;
    while (golden_next(f, "gae", &g)) {
        float reward[GOLDEN_MAX_N], value[GOLDEN_MAX_N];
        float advantage[GOLDEN_MAX_N], ret[GOLDEN_MAX_N];
        golden_row(&g, "reward", reward);
        golden_row(&g, "value", value);
        weft_k_gae(g.n, golden_number(&g, "gamma"), golden_number(&g, "lam"),
                   reward, value, 0, advantage, ret);
        for (int i = 0; i < g.n; i++) {
            /* one rounding of 2^-24 per term of a chain of < 3 n terms */
            golden_near(&g, "advantage", advantage[i],
                        golden_get(&g, "advantage")[i], 6e-8 * 3 * g.n);
            golden_near(&g, "return", ret[i], golden_get(&g, "ret")[i],
                        6e-8 * 3 * g.n);
        }
        n_cases++;
    }
    fclose(f);
    CHECK_INT(n_cases, 5);
}

/* A_t = sum_k (gamma lambda)^k delta_{t+k}, as the paper writes it. */
static void test_gae_definition(void)
{
    enum { N = 40 };
    float reward[N], value[N], advantage[N], ret[N];
    double gamma = 0.875, lambda = 0.75, bootstrap = 1.5;
    for (uint32_t i = 0; i < N; i++) {
        reward[i] = (float) weft_rng_normal(1, WEFT_RNG_INIT, 0, 0, i);
        value[i] = (float) weft_rng_normal(1, WEFT_RNG_INIT, 1, 0, i);
    }
    weft_k_gae(N, (float) gamma, (float) lambda, reward, value,
               (float) bootstrap, advantage, ret);
    for (int t = 0; t < N; t++) {
        double sum = 0;
        for (int k = t; k < N; k++) {
            double next = k + 1 < N ? (double) value[k + 1] : bootstrap;
            sum += pow(gamma * lambda, k - t)
                 * ((double) reward[k] + gamma * next - (double) value[k]);
        }
        CHECK(fabs(sum - (double) advantage[t]) < 1e-5);
        CHECK(ret[t] == advantage[t] + value[t]);
    }
}

/* Long responses: within 1e-6 of the largest of the advantages by their
 * definition, whose sums have 64 bits here. In f32 the recursion is not. */
static void test_gae_long(void)
{
    enum { N = 3000 };
    static float reward[N], value[N], advantage[N], ret[N];
    static const float decay[][2] = {{1, 1}, {1, 0.95f}, {0.99f, 1}};
    for (uint32_t i = 0; i < N; i++) {
        reward[i] = 0.01f
                  * (float) weft_rng_normal(1, WEFT_RNG_INIT, 2, 0, i);
        value[i] = (float) weft_rng_normal(1, WEFT_RNG_INIT, 3, 0, i);
    }
    for (size_t k = 0; k < WEFT_COUNT(decay); k++) {
        long double gamma = decay[k][0], both = gamma * decay[k][1];
        double most = 0, off = 0;
        weft_k_gae(N, decay[k][0], decay[k][1], reward, value, 0, advantage,
                   ret);
        for (int t = 0; t < N; t++) {
            long double sum = 0, factor = 1;
            for (int i = t; i < N; i++, factor *= both) {
                long double next = i + 1 < N ? value[i + 1] : 0;
                sum += factor * (reward[i] + gamma * next - value[i]);
            }
            most = fmax(most, fabs((double) sum));
            off = fmax(off, fabs((double) sum - (double) advantage[t]));
        }
        CHECK(off < 1e-6 * most);
    }
}

static void test_gae_limits(void)
{
    /* exact: lambda 1 is the return minus the value, lambda 0 the
     * one-step error */
    float reward[4] = {1, 0, 0.5f, -2}, value[4] = {0.5f, 1, -1, 0.25f};
    float a[4], r[4];
    weft_k_gae(4, 1, 1, reward, value, 4, a, r);
    CHECK(r[0] == 3.5f && r[1] == 2.5f && r[2] == 2.5f && r[3] == 2);
    CHECK(a[0] == 3 && a[1] == 1.5f && a[2] == 3.5f && a[3] == 1.75f);
    weft_k_gae(4, 1, 0, reward, value, 4, a, r);
    CHECK(a[0] == 1.5f && a[1] == -2 && a[2] == 1.75f && a[3] == 1.75f);
    a[0] = 7;
    weft_k_gae(0, 1, 1, reward, value, 4, a, r);
    CHECK(a[0] == 7);
    weft_k_gae(4, 1, 1, reward, value, 4, a, value); /* in place */
    CHECK(value[0] == 3.5f && value[3] == 2);
}

WEFT_TESTS("kern/gae", {"test_gae_golden", test_gae_golden},
           {"test_gae_definition", test_gae_definition},
           {"test_gae_long", test_gae_long},
           {"test_gae_limits", test_gae_limits})
