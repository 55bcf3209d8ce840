/* SPDX-License-Identifier: Apache-2.0 */
/* Losses over pairs, single responses and scores, against TRL with autograd.
 * All is computed in double and rounded once. */
#include "kern/losses.h"

#include <math.h>

#include "tests/kern/ppo_golden.h"

/* A response of a case: its rows are name_suffix. */
struct side {
    float logp[GOLDEN_MAX_N], ref[GOLDEN_MAX_N], dlogp[GOLDEN_MAX_N];
    double stat[WEFT_N_PREFERENCE_STATS];
    struct weft_k_response of;
};

static void side_get(const struct golden *g, int32_t n, const char *logp,
                     const char *ref, struct side *out)
{
    memset(out, 0, sizeof *out);
    golden_row(g, logp, out->logp);
    golden_row(g, ref, out->ref);
    out->of = (struct weft_k_response){n, out->logp, out->ref, out->dlogp,
                                       out->stat};
}

static double total(int32_t n, const float *x)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += (double) x[i];
    return sum;
}

static void check_stat(const struct golden *g, const char *what,
                       double actual, double expected)
{
    golden_relative(g, what, actual, expected, 1e-12);
}

static void check_pair(const struct golden *g)
{
    struct weft_k_pairs p = {
        .kind = (enum weft_pair_kind) golden_number(g, "kind"),
        .beta = golden_number(g, "beta"),
        .label_smoothing = golden_number(g, "smooth"),
        .reference_free = golden_number(g, "free") != 0,
        .length_normalised = golden_number(g, "mean") != 0,
    };
    struct side c, r;
    int32_t n_c = (int32_t) golden_number(g, "n_chosen");
    int32_t n_r = (int32_t) golden_number(g, "n_rejected");
    side_get(g, n_c, "logp_c", "ref_c", &c);
    side_get(g, n_r, "logp_r", "ref_r", &r);
    if (p.reference_free)
        c.of.ref_logp = NULL; /* the other one's is there and not read */
    weft_k_pair_loss(&p, golden_number(g, "w"), &c.of, &r.of);
    for (int i = 0; i < g->n; i++) {
        golden_relative(g, "dlogp of chosen", c.dlogp[i],
                        golden_get(g, "dlogp_c")[i], 1e-6);
        golden_relative(g, "dlogp of rejected", r.dlogp[i],
                        golden_get(g, "dlogp_r")[i], 1e-6);
    }
    golden_relative(g, "loss", c.stat[WEFT_PSTAT_LOSS],
                    golden_get(g, "loss")[0], 1e-10);
    check_stat(g, "chosen reward", c.stat[WEFT_PSTAT_CHOSEN_REWARD],
               golden_get(g, "reward_c")[0]);
    check_stat(g, "rejected reward", r.stat[WEFT_PSTAT_REJECTED_REWARD],
               golden_get(g, "reward_r")[0]);
    golden_near(g, "margin", c.stat[WEFT_PSTAT_MARGIN],
                golden_get(g, "margin")[0], 1e-12);
    CHECK(c.stat[WEFT_PSTAT_ACCURACY] == golden_get(g, "better")[0]);
    check_stat(g, "chosen logp", c.stat[WEFT_PSTAT_CHOSEN_LOGP],
               total(n_c, c.logp));
    check_stat(g, "rejected logp", r.stat[WEFT_PSTAT_REJECTED_LOGP],
               total(n_r, r.logp));
    CHECK(c.stat[WEFT_PSTAT_CHOSEN] == 1 && r.stat[WEFT_PSTAT_REJECTED] == 1);
    CHECK(c.stat[WEFT_PSTAT_TOKENS] == n_c);
    CHECK(r.stat[WEFT_PSTAT_TOKENS] == n_r);
    /* Sums over runs are sums over pairs. */
    CHECK(c.stat[WEFT_PSTAT_REJECTED] == 0 && r.stat[WEFT_PSTAT_CHOSEN] == 0);
    CHECK(r.stat[WEFT_PSTAT_LOSS] == 0 && r.stat[WEFT_PSTAT_MARGIN] == 0);
    CHECK(r.stat[WEFT_PSTAT_ACCURACY] == 0);
}

static void check_kto(const struct golden *g)
{
    struct weft_k_kto k = {golden_number(g, "beta"),
                           golden_number(g, "weight_d"),
                           golden_number(g, "weight_u")};
    bool good = golden_number(g, "desirable") != 0;
    struct side s;
    side_get(g, g->n, "logp", "ref", &s);
    double kl = weft_k_kto_kl((int32_t) golden_number(g, "n_kl"),
                              golden_get(g, "kl_sum")[0]);
    golden_relative(g, "kl", kl, golden_get(g, "kl")[0], 1e-15);
    weft_k_kto_loss(&k, golden_number(g, "w"), good, kl, &s.of);
    for (int i = 0; i < g->n; i++)
        golden_relative(g, "dlogp", s.dlogp[i], golden_get(g, "dlogp")[i],
                        1e-6);
    golden_near(g, "loss", s.stat[WEFT_PSTAT_LOSS], golden_get(g, "loss")[0],
                1e-14); /* torch's is 1 - sigmoid(x) */
    check_stat(
        g, "reward",
        s.stat[good ? WEFT_PSTAT_CHOSEN_REWARD : WEFT_PSTAT_REJECTED_REWARD],
        golden_get(g, "reward")[0]);
    CHECK(s.stat[good ? WEFT_PSTAT_CHOSEN : WEFT_PSTAT_REJECTED] == 1);
    CHECK(s.stat[good ? WEFT_PSTAT_REJECTED : WEFT_PSTAT_CHOSEN] == 0);
    CHECK(s.stat[WEFT_PSTAT_TOKENS] == g->n);
}

static void check_score(const struct golden *g)
{
    double chosen[WEFT_N_PREFERENCE_STATS] = {0};
    double rejected[WEFT_N_PREFERENCE_STATS] = {0};
    double *stat[2] = {chosen, rejected};
    float score[2], dscore[2];
    for (int i = 0; i < 2; i++)
        score[i] = (float) golden_get(g, "score")[i];
    weft_k_bradley_terry(golden_number(g, "center"), golden_number(g, "w"),
                         golden_number(g, "margin"), score, dscore, stat);
    for (int i = 0; i < 2; i++)
        golden_relative(g, "dscore", dscore[i], golden_get(g, "dscore")[i],
                        1e-6);
    golden_relative(g, "loss", chosen[WEFT_PSTAT_LOSS],
                    golden_get(g, "loss")[0], 1e-12);
    CHECK(rejected[WEFT_PSTAT_LOSS] == 0);
    CHECK(chosen[WEFT_PSTAT_CHOSEN] == 1);
    CHECK(rejected[WEFT_PSTAT_REJECTED] == 1);
    CHECK(chosen[WEFT_PSTAT_CHOSEN_REWARD] == (double) score[0]);
    CHECK(rejected[WEFT_PSTAT_REJECTED_REWARD] == (double) score[1]);
    CHECK(chosen[WEFT_PSTAT_MARGIN] == (double) score[0] - (double) score[1]);
    CHECK(chosen[WEFT_PSTAT_ACCURACY] == (score[0] > score[1]));
}

static void check_all(const char *kind, void (*check)(const struct golden *),
                      int expected)
{
    FILE *f = golden_open_file("algorithms/goldens.txt");
    static struct golden g;
    int n_cases = 0;
    while (golden_next(f, kind, &g)) {
        check(&g);
        n_cases++;
    }
    fclose(f);
    CHECK_INT(n_cases, expected);
}

static void test_pair_loss(void)
{
    check_all("pair", check_pair, 34);
}

static void test_kto_loss(void)
{
    check_all("kto", check_kto, 12);
}

static void test_bradley_terry(void)
{
    check_all("score", check_score, 8);
}

/* Statistics are added; a NaN is not lost in them. */
static void test_statistics_are_added(void)
{
    const struct weft_k_kto k = {0.5f, 1, 1};
    float logp[2] = {-1, -2}, ref[2] = {-1.5f, -2.5f}, d[2];
    double stat[WEFT_N_PREFERENCE_STATS] = {0};
    struct weft_k_response r = {2, logp, ref, d, stat};
    weft_k_kto_loss(&k, 1, true, 0, &r);
    double loss = stat[WEFT_PSTAT_LOSS];
    weft_k_kto_loss(&k, 1, true, 0, &r);
    CHECK(stat[WEFT_PSTAT_LOSS] == 2 * loss);
    CHECK(stat[WEFT_PSTAT_CHOSEN] == 2);
    logp[1] = NAN;
    weft_k_kto_loss(&k, 1, true, 0, &r);
    CHECK(isnan(stat[WEFT_PSTAT_LOSS]));
    CHECK(isnan(d[0]));
}

WEFT_TESTS("kern/preference_loss", {"test_pair_loss", test_pair_loss},
           {"test_kto_loss", test_kto_loss},
           {"test_bradley_terry", test_bradley_terry},
           {"test_statistics_are_added", test_statistics_are_added})
