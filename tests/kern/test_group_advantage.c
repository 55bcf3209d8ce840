/* SPDX-License-Identifier: Apache-2.0 */
/* Advantages of groups and what shapes rewards, against verl. */
#include "kern/losses.h"

#include <math.h>

#include "tests/kern/ppo_golden.h"

static void check_case(const struct golden *g)
{
    static const struct {
        enum weft_group_advantage kind;
        const char *key;
    } kinds[] = {
        {WEFT_ADVANTAGE_GRPO, "grpo"},
        {WEFT_ADVANTAGE_MEAN, "mean"},
        {WEFT_ADVANTAGE_MEAN, "mean_rf"},
        {WEFT_ADVANTAGE_RLOO, "rloo"},
    };
    double out[GOLDEN_MAX_N];
    for (size_t k = 0; k < WEFT_COUNT(kinds); k++) {
        weft_k_group_advantage(kinds[k].kind, g->n, golden_get(g, "score"),
                               out);
        /* double; scores of size 1e6 differ by about 1 */
        for (int i = 0; i < g->n; i++)
            golden_near(g, kinds[k].key, out[i],
                        golden_get(g, kinds[k].key)[i], 1e-9);
    }
}

/* A response's return is its score at every token. */
static void check_baseline(const struct golden *g)
{
    for (int i = 0; i < g->n; i++) {
        float ret = (float) golden_get(g, "score")[i], out[3] = {0, 0, 7};
        float both[2] = {ret, ret};
        weft_k_baseline(2, both, golden_get(g, "greedy")[0], out);
        golden_near(g, "remax", (double) out[1], golden_get(g, "remax")[i],
                    1e-6); /* f32 */
        CHECK(out[0] == out[1] && out[2] == 7);
    }
}

static void test_group_advantage_golden(void)
{
    FILE *f = golden_open_file("algorithms/goldens.txt");
    static struct golden g;
    int n_cases = 0;
    while (golden_next(f, "advantage", &g)) {
        check_case(&g);
        check_baseline(&g);
        n_cases++;
    }
    fclose(f);
    CHECK_INT(n_cases, 5);
}

/* Also where the mean of equal numbers is another number. */
static void test_group_advantage_equal_scores(void)
{
    static const double scores[] = {0, 0.1, -0.7, 1e30, 1.0 / 3};
    for (size_t k = 0; k < WEFT_COUNT(scores); k++)
        for (int32_t n = 2; n <= 16; n++)
            for (int kind = 0; kind <= WEFT_ADVANTAGE_RLOO; kind++) {
                double score[16], out[16];
                for (int32_t i = 0; i < n; i++)
                    score[i] = scores[k];
                weft_k_group_advantage((enum weft_group_advantage) kind, n,
                                       score, out);
                for (int32_t i = 0; i < n; i++)
                    CHECK(out[i] == 0);
            }
}

static void test_group_advantage_shows_nan(void)
{
    double score[3] = {1, (double) NAN, 2}, out[3];
    for (int kind = 0; kind <= WEFT_ADVANTAGE_RLOO; kind++) {
        weft_k_group_advantage((enum weft_group_advantage) kind, 3, score,
                               out);
        CHECK(isnan(out[0]) && isnan(out[1]) && isnan(out[2]));
    }
}

static void test_overlong_golden(void)
{
    FILE *f = golden_open_file("algorithms/goldens.txt");
    static struct golden g;
    int n_cases = 0;
    while (golden_next(f, "overlong", &g)) {
        for (int i = 0; i < g.n; i++)
            golden_near(&g, "penalty",
                        weft_k_overlong((int32_t) golden_get(&g, "length")[i],
                                        (int32_t) golden_get(&g, "max")[0],
                                        (int32_t) golden_get(&g, "cache")[0]),
                        golden_get(&g, "penalty")[i], 1e-15);
        n_cases++;
    }
    fclose(f);
    CHECK_INT(n_cases, 2);
}

static void test_overlong_limits(void)
{
    /* without a cache the penalty is a step */
    CHECK(weft_k_overlong(10, 10, 0) == 0);
    CHECK(weft_k_overlong(11, 10, 0) == -1);
    CHECK(weft_k_overlong(9, 10, 2) == -0.5);
    CHECK(weft_k_overlong(10, 10, 2) == -1);
}

static void test_reward(void)
{
    static const float x[4] = {1, 2, 4, 9}; /* variance 38 / 3 */
    struct weft_k_moments m = {.n = 0}, one = {.n = 0};
    weft_k_moments_add(&m, 4, x);
    weft_k_moments_add(&one, 1, x);
    double z = 5 / sqrt(38.0 / 3 + 1e-8);
    CHECK(fabs(weft_k_reward(&m, 0, 0, 9) - z) < 1e-14);
    CHECK(weft_k_reward(&m, -0.5f, 1.25f, 9) == 1.25);
    CHECK(weft_k_reward(&m, -0.5f, 1.25f, 0) == -0.5);
    CHECK(weft_k_reward(NULL, -0.5f, 1.25f, -3) == -0.5);
    CHECK(weft_k_reward(NULL, -0.5f, 1.25f, 1) == 1);
    CHECK(weft_k_reward(NULL, 0, 0, -3) == -3);
    CHECK(weft_k_reward(&one, 0, 0, 3) == 2);
    CHECK(isnan(weft_k_reward(&m, -1, 1, (double) NAN)));
    /* equal rewards carry nothing */
    static const float same[3] = {0.1f, 0.1f, 0.1f};
    struct weft_k_moments equal = {.n = 0};
    weft_k_moments_add(&equal, 3, same);
    CHECK(fabs(weft_k_reward(&equal, 0, 0, (double) 0.1f)) < 1e-10);
}

WEFT_TESTS("kern/group_advantage",
           {"test_group_advantage_golden", test_group_advantage_golden},
           {"test_group_advantage_equal_scores",
            test_group_advantage_equal_scores},
           {"test_group_advantage_shows_nan", test_group_advantage_shows_nan},
           {"test_overlong_golden", test_overlong_golden},
           {"test_overlong_limits", test_overlong_limits},
           {"test_reward", test_reward})
