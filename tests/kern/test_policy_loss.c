/* SPDX-License-Identifier: Apache-2.0 */
/* Policy losses against verl with autograd, and finite differences. */
#include "kern/losses.h"

#include <math.h>

#include "tests/kern/ppo_golden.h"

struct inputs {
    float logp[GOLDEN_MAX_N], old[GOLDEN_MAX_N], ref[GOLDEN_MAX_N];
    float advantage[GOLDEN_MAX_N], entropy[GOLDEN_MAX_N];
};

static void read_inputs(const struct golden *g, struct inputs *out)
{
    golden_row(g, "logp", out->logp);
    golden_row(g, "old", out->old);
    golden_row(g, "ref", out->ref);
    golden_row(g, "advantage", out->advantage);
    golden_row(g, "entropy", out->entropy);
}

static struct weft_k_policy read_policy(const struct golden *g)
{
    return (struct weft_k_policy){
        .clip_low = golden_number(g, "low"),
        .clip_high = golden_number(g, "high"),
        .entropy_coef = golden_number(g, "entropy_coef"),
        .kl_coef = golden_number(g, "kl_coef"),
        .kl = (enum weft_kl) golden_number(g, "kl"),
    };
}

static void check_case(const struct golden *g)
{
    static const struct {
        enum weft_policy_stat stat;
        const char *key;
    } sums[] = {
        {WEFT_STAT_LOSS, "loss"},
        {WEFT_STAT_PG_LOSS, "pg_loss"},
        {WEFT_STAT_CLIPPED, "clipped"},
        {WEFT_STAT_PPO_KL, "ppo_kl"},
        {WEFT_STAT_KL, "kl_sum"},
        {WEFT_STAT_CLIPPED_LOWER, "clipped_lower"},
    };
    struct weft_k_policy p = read_policy(g);
    struct inputs in;
    float dlogp[GOLDEN_MAX_N], dentropy[GOLDEN_MAX_N];
    double stat[WEFT_N_POLICY_STATS] = {0};
    read_inputs(g, &in);
    p.dual_clip = golden_number(g, "dual");
    weft_k_policy_loss(&p, g->n, golden_number(g, "w"), in.logp, in.old,
                       p.kl == WEFT_KL_NONE ? NULL : in.ref, in.advantage,
                       in.entropy, dlogp, dentropy, stat);
    /* relative: a log-ratio of size 20 carries an error of 20 * 2^-24 into
     * its exponential, and the rest of the formula a few roundings */
    for (int i = 0; i < g->n; i++) {
        golden_near(g, "dlogp", dlogp[i], golden_get(g, "dlogp")[i], 3e-6);
        golden_near(g, "dentropy", dentropy[i], golden_get(g, "dentropy")[i],
                    1e-7);
    }
    for (size_t i = 0; i < WEFT_COUNT(sums); i++)
        golden_near(g, sums[i].key, stat[sums[i].stat],
                    golden_get(g, sums[i].key)[0], 3e-6);
    CHECK(stat[WEFT_STAT_TOKENS] == g->n);
    double entropy = 0, dev = 0, diff = 0;
    for (int i = 0; i < g->n; i++) {
        double d = (double) in.logp[i] - (double) in.old[i];
        double r = exp(fmin(fmax(d, -20), 20));
        entropy += (double) in.entropy[i];
        dev = fmax(dev, fabs(r - 1));
        diff = fmax(diff, fabs(d));
    }
    golden_near(g, "entropy", stat[WEFT_STAT_ENTROPY], entropy, 1e-12);
    golden_near(g, "ratio_max_dev", stat[WEFT_STAT_RATIO_MAX_DEV], dev, 3e-6);
    golden_near(g, "logp_diff", stat[WEFT_STAT_LOGP_DIFF_MAX], diff, 1e-7);
}

static void test_policy_loss_golden(void)
{
    FILE *f = golden_open();
    static struct golden g;
    int n_cases = 0;
    while (golden_next(f, "policy", &g)) {
        check_case(&g);
        n_cases++;
    }
    fclose(f);
    CHECK_INT(n_cases, 8);
}

/* GSPO and CISPO. A weight is a few roundings of an exponential in f32 whose
 * exponent is small or clamped. */
static void check_kind(const struct golden *g)
{
    struct weft_k_policy p = read_policy(g);
    struct inputs in;
    float dlogp[GOLDEN_MAX_N], dentropy[GOLDEN_MAX_N];
    double stat[WEFT_N_POLICY_STATS] = {0};
    read_inputs(g, &in);
    p.dual_clip = 1.5f; /* is PPO's alone */
    p.kind = (enum weft_policy_kind) golden_number(g, "kind");
    weft_k_policy_loss(&p, g->n, golden_number(g, "w"), in.logp, in.old,
                       in.ref, in.advantage, in.entropy, dlogp, dentropy,
                       stat);
    for (int i = 0; i < g->n; i++) {
        if (p.kl_coef == 0)
            golden_relative(g, "dlogp", dlogp[i], golden_get(g, "dlogp")[i],
                            1e-6);
        else /* two terms that may cancel */
            golden_near(g, "dlogp", dlogp[i], golden_get(g, "dlogp")[i],
                        1e-7);
        golden_relative(g, "dentropy", dentropy[i],
                        golden_get(g, "dentropy")[i], 1e-6);
    }
    golden_near(g, "loss", stat[WEFT_STAT_LOSS], golden_get(g, "loss")[0],
                1e-6);
    golden_near(g, "pg_loss", stat[WEFT_STAT_PG_LOSS],
                golden_get(g, "pg_loss")[0], 1e-6);
    golden_near(g, "clipped", stat[WEFT_STAT_CLIPPED],
                golden_get(g, "clipped")[0], 1e-6);
    golden_near(g, "kl_sum", stat[WEFT_STAT_KL], golden_get(g, "kl_sum")[0],
                1e-6);
    CHECK(stat[WEFT_STAT_CLIPPED_LOWER] == 0);
    CHECK(stat[WEFT_STAT_TOKENS] == g->n);
}

static void test_policy_loss_kinds(void)
{
    FILE *f = golden_open_file("algorithms/goldens.txt");
    static struct golden g;
    int n_cases = 0;
    while (golden_next(f, "policy", &g)) {
        check_kind(&g);
        n_cases++;
    }
    fclose(f);
    CHECK_INT(n_cases, 22);
}

/* Before the first update the ratio is 1 to the bit, and the gradient is that
 * of the plain policy gradient. */
static void test_policy_loss_first_update(void)
{
    for (int kind = WEFT_POLICY_PPO; kind <= WEFT_POLICY_CISPO; kind++) {
        const struct weft_k_policy p = {.clip_low = 0.2f,
                                        .clip_high = 0.2f,
                                        .dual_clip = 3,
                                        .kind = (enum weft_policy_kind) kind};
        float logp[5] = {-0.1f, -20, -1e-7f, 0, -3.3f}, zero[5] = {0};
        float advantage[5] = {1, -2, 0, 5, -0.5f}, dlogp[5], dentropy[5];
        double stat[WEFT_N_POLICY_STATS] = {0};
        weft_k_policy_loss(&p, 5, 0.25f, logp, logp, NULL, advantage, zero,
                           dlogp, dentropy, stat);
        CHECK(stat[WEFT_STAT_RATIO_MAX_DEV] == 0);
        CHECK(stat[WEFT_STAT_LOGP_DIFF_MAX] == 0);
        CHECK(stat[WEFT_STAT_CLIPPED] == 0);
        for (int i = 0; i < 5; i++)
            CHECK(dlogp[i] == -0.25f * advantage[i]);
    }
}

/* A ratio that is exactly at a limit (only that of equal log-probs is exact)
 * is not clipped and has its whole gradient; torch's maximum takes the mean
 * of both sides there. */
static void test_policy_loss_at_the_limit(void)
{
    static const float limits[2][2] = {{0, 0.2f}, {0.2f, 0}};
    for (int kind = WEFT_POLICY_PPO; kind <= WEFT_POLICY_CISPO; kind++)
        for (int k = 0; k < 2; k++) {
            const struct weft_k_policy p = {
                .clip_low = limits[k][0],
                .clip_high = limits[k][1],
                .kind = (enum weft_policy_kind) kind};
            float logp[3] = {-1, -2, -0.5f}, a[3] = {1, -1, 0};
            float entropy[3] = {0}, d[3], de[3];
            double stat[WEFT_N_POLICY_STATS] = {0};
            weft_k_policy_loss(&p, 3, 0.5f, logp, logp, NULL, a, entropy, d,
                               de, stat);
            CHECK(stat[WEFT_STAT_CLIPPED] == 0);
            CHECK(d[0] == -0.5f && d[1] == 0.5f && d[2] == 0);
        }
}

static double loss_at(const struct weft_k_policy *p, float logp,
                      float advantage, float entropy)
{
    float old = -2, ref = -1.5f, dlogp, dentropy;
    double stat[WEFT_N_POLICY_STATS] = {0};
    weft_k_policy_loss(p, 1, 0.5f, &logp, &old, &ref, &advantage, &entropy,
                       &dlogp, &dentropy, stat);
    return stat[WEFT_STAT_LOSS];
}

static void test_policy_loss_finite_differences(void)
{
    static const float logps[] = {-5, -3.1f, -2.2f, -1.9f, -1.5f, -0.25f};
    for (int kl = WEFT_KL_NONE; kl <= WEFT_KL_ABS; kl++)
        for (size_t i = 0; i < WEFT_COUNT(logps); i++)
            for (float a = -1.5f; a < 2; a += 3) {
                struct weft_k_policy p = {
                    0.2f,           0.3f, 2, 0.125f, 0.5f, (enum weft_kl) kl,
                    WEFT_POLICY_PPO};
                float x = logps[i], old = -2, ref = -1.5f, e = 0.75f;
                float step = 0x1p-7f, dlogp, dentropy;
                double stat[WEFT_N_POLICY_STATS] = {0};
                weft_k_policy_loss(&p, 1, 0.5f, &x, &old, &ref, &a, &e,
                                   &dlogp, &dentropy, stat);
                double up = loss_at(&p, x + step, a, e);
                double down = loss_at(&p, x - step, a, e);
                /* third derivative < 15 times step^2 / 6, and rounding of
                 * the losses (< 16) over the step */
                CHECK(fabs((up - down) / (2 * (double) step) - (double) dlogp)
                      < 15 * 6.2e-5 / 6 + 2.5e-4);
                up = loss_at(&p, x, a, e + step);
                down = loss_at(&p, x, a, e - step);
                CHECK(fabs((up - down) / (2 * (double) step)
                           - (double) dentropy)
                      < 2.5e-4);
            }
}

static void test_policy_loss_adds_statistics(void)
{
    /* two calls over parts of a sample sum to one call, to the bit */
    const struct weft_k_policy p = {
        0.2f, 0.2f, 3, 0.01f, 0.1f, WEFT_KL_K3, WEFT_POLICY_PPO};
    float logp[7], old[7], ref[7], a[7], e[7], d1[7], d2[7], de[7];
    for (int i = 0; i < 7; i++) {
        logp[i] = -(float) i / 3 - 0.1f;
        old[i] = logp[i] + (float) (i - 3) / 5;
        ref[i] = logp[i] - (float) (i - 2) / 7;
        a[i] = (float) (i % 3) - 0.7f;
        e[i] = (float) i / 2;
    }
    double one[WEFT_N_POLICY_STATS] = {0}, two[WEFT_N_POLICY_STATS] = {0};
    weft_k_policy_loss(&p, 7, 0.3f, logp, old, ref, a, e, d1, de, one);
    weft_k_policy_loss(&p, 3, 0.3f, logp, old, ref, a, e, d2, de, two);
    weft_k_policy_loss(&p, 4, 0.3f, logp + 3, old + 3, ref + 3, a + 3, e + 3,
                       d2 + 3, de + 3, two);
    CHECK(memcmp(one, two, sizeof one) == 0);
    CHECK(memcmp(d1, d2, sizeof d1) == 0);
}

static void test_policy_loss_shows_nan(void)
{
    const struct weft_k_policy p = {0.2f,         0.2f,           0, 0, 0,
                                    WEFT_KL_NONE, WEFT_POLICY_PPO};
    float logp[3] = {-1, NAN, -1}, old[3] = {-1, -1, -1.5f};
    float a[3] = {1, 1, 1}, e[3] = {0}, d[3], de[3];
    double stat[WEFT_N_POLICY_STATS] = {0};
    weft_k_policy_loss(&p, 3, 1, logp, old, NULL, a, e, d, de, stat);
    CHECK(isnan(stat[WEFT_STAT_RATIO_MAX_DEV]));
    CHECK(isnan(stat[WEFT_STAT_LOGP_DIFF_MAX]));
    CHECK(isnan(stat[WEFT_STAT_LOSS]));
}

WEFT_TESTS("kern/policy_loss",
           {"test_policy_loss_golden", test_policy_loss_golden},
           {"test_policy_loss_kinds", test_policy_loss_kinds},
           {"test_policy_loss_first_update", test_policy_loss_first_update},
           {"test_policy_loss_at_the_limit", test_policy_loss_at_the_limit},
           {"test_policy_loss_finite_differences",
            test_policy_loss_finite_differences},
           {"test_policy_loss_adds_statistics",
            test_policy_loss_adds_statistics},
           {"test_policy_loss_shows_nan", test_policy_loss_shows_nan})
