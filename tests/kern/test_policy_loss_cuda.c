/* SPDX-License-Identifier: Apache-2.0 */
/* Losses of all runs of a micro-batch on a GPU against the CPU's, run by run,
 * for lengths about a block's 256 threads; and advantages of a response. */
#include "../cuda/test_device.h"

#include <math.h>

enum { MOST = 70 };

/* Runs, some of which have no token, some no weight; those of a pair have one.
 * Their n targets are in columns of both sides. */
enum { COLUMNS = 5 };
struct batch {
    int32_t n_runs, n, n_targets[MOST];
    float weight[MOST], label[MOST], gate;
    int width; /* statistics of a run */
    float *column[COLUMNS], *column_[COLUMNS];
    float *got_, *other_;
    float *want, *other;
    double *stats;
    struct weft_k_loss_runs runs;
    float *label_;
};

static void batch_init(struct batch *b, int32_t n_runs, const int32_t *length,
                       float gate, int width)
{
    *b = (struct batch){.n_runs = n_runs, .gate = gate, .width = width};
    for (int32_t i = 0; i < n_runs; i++) {
        b->n_targets[i] = length[i];
        b->weight[i] = i / 2 % 3 == 2 ? 0 : 0.125f + 0.25f * (float) (i / 2);
        b->label[i] = i % 3 == 0 ? 1 : 0.25f * (float) -(i % 2);
        b->n += length[i];
    }
    size_t bytes = (size_t) b->n * 4;
    for (uint32_t c = 0; c < COLUMNS; c++) {
        b->column[c] = host_rows(c, b->n);
        for (int32_t i = 0; i < b->n; i++)
            if (c < 3) /* logp, old_logp, ref_logp; some far apart */
                b->column[c][i] = -2 + 0.3f * b->column[c][i]
                                - (i % 11 == 5 && c == 1 ? 30 : 0)
                                - (i % 13 == 4 && c == 0 ? 30 : 0);
        b->column_[c] = dev_put(b->column[c], bytes);
    }
    size_t n_stats = (size_t) (n_runs * width);
    b->got_ = dev_new(bytes);
    b->other_ = dev_new(bytes);
    b->want = weft_alloc((size_t) b->n + 1, sizeof *b->want);
    b->other = weft_alloc((size_t) b->n + 1, sizeof *b->other);
    b->stats = weft_alloc(n_stats + 1, sizeof *b->stats);
    b->label_ = dev_put(b->label, (size_t) n_runs * 4);
    b->runs = (struct weft_k_loss_runs){
        n_runs, gate, dev_put(b->n_targets, (size_t) n_runs * 4),
        dev_put(b->weight, (size_t) n_runs * 4), dev_new(n_stats * 8)};
}

/* exp() may differ in the last bit on a card, and a ratio with it. */
static void near_f32(const float *dev, const float *host, int32_t n)
{
#ifdef WEFT_CUDA_EXECUTOR
    CHECK(dev_same(dev, host, (size_t) n * 4));
#endif
    float *got = host_rows(1, n);
    dev_get(got, dev, (size_t) n * 4);
    for (int32_t i = 0; i < n; i++)
        CHECK(fabsf(got[i] - host[i]) <= 1e-6f * (1e-3f + fabsf(host[i])));
    weft_free(got);
}

static void near_f64(const double *dev, const double *host, int32_t n)
{
    double *got = weft_alloc((size_t) n + 1, sizeof *got);
#ifdef WEFT_CUDA_EXECUTOR
    CHECK(dev_same(dev, host, (size_t) n * 8));
#endif
    dev_get(got, dev, (size_t) n * 8);
    for (int32_t i = 0; i < n; i++)
        CHECK(fabs(got[i] - host[i]) <= 1e-6 * (1e-3 + fabs(host[i]))
              || (isnan(got[i]) && isnan(host[i])));
    weft_free(got);
}

static void batch_end(struct batch *b)
{
    near_f32(b->got_, b->want, b->n);
    near_f64(b->runs.stats, b->stats, b->n_runs * b->width);
    for (int c = 0; c < COLUMNS; c++) {
        dev_free(b->column_[c]);
        weft_free(b->column[c]);
    }
    dev_free(b->got_);
    dev_free(b->other_);
    dev_free(b->label_);
    dev_free((void *) (uintptr_t) b->runs.n_targets);
    dev_free((void *) (uintptr_t) b->runs.weight);
    dev_free(b->runs.stats);
    weft_free(b->want);
    weft_free(b->other);
    weft_free(b->stats);
}

static float weight_of(const struct batch *b, int32_t run)
{
    return b->weight[run] * b->gate;
}

/* ---- Losses of tokens -------------------------------------------------- */

static void policy_of(const struct weft_k_policy *p, struct batch *b)
{
    float *const *c = b->column, *const *c_ = b->column_;
    bool has_ref = p->kl != WEFT_KL_NONE;
    for (int32_t i = 0, at = 0; i < b->n_runs; at += b->n_targets[i++])
        if (weight_of(b, i) != 0)
            weft_k_policy_loss(p, b->n_targets[i], weight_of(b, i), c[0] + at,
                               c[1] + at, has_ref ? c[2] + at : NULL,
                               c[3] + at, c[4] + at, b->want + at,
                               b->other + at,
                               b->stats + i * WEFT_N_POLICY_STATS);
    weft_k_policy_losses_cuda(0, p, &b->runs, c_[0], c_[1],
                              has_ref ? c_[2] : NULL, c_[3], c_[4], b->got_,
                              b->other_);
    near_f32(b->other_, b->other, b->n);
}

static void sft_of(struct batch *b)
{
    float *const *c = b->column;
    for (int32_t i = 0, at = 0; i < b->n_runs; at += b->n_targets[i++]) {
        double *stat = b->stats + i * WEFT_N_POLICY_STATS, loss = 0;
        float w = weight_of(b, i);
        if (w == 0)
            continue;
        weft_k_sft_loss(b->n_targets[i], w, c[0] + at, c[4] + at,
                        b->want + at, stat);
        for (int32_t k = at; k < at + b->n_targets[i]; k++) {
            loss -= (double) c[0][k];
            CHECK(b->want[k] == -w);
        }
        CHECK(stat[WEFT_STAT_PG_LOSS] == loss);
        CHECK(fabs(stat[WEFT_STAT_LOSS] - (double) w * loss)
              <= 1e-6 * fabs(loss));
        CHECK(stat[WEFT_STAT_TOKENS] == b->n_targets[i]);
    }
    weft_k_sft_losses_cuda(0, &b->runs, b->column_[0], b->column_[4],
                           b->got_);
}

static void value_of(float clip, struct batch *b)
{
    float *const *c = b->column, *const *c_ = b->column_;
    for (int32_t i = 0, at = 0; i < b->n_runs; at += b->n_targets[i++])
        if (weight_of(b, i) != 0)
            weft_k_value_loss(clip, b->n_targets[i], weight_of(b, i),
                              c[0] + at, c[2] + at, c[3] + at, b->want + at,
                              b->stats + i * WEFT_N_VALUE_STATS);
    weft_k_value_losses_cuda(0, clip, &b->runs, c_[0], c_[2], c_[3], b->got_);
}

/* Every kind, for runs of these lengths. */
static void tokens_of(int32_t n, const int32_t *length, float gate)
{
    struct batch b;
    for (int kind = 0; kind <= WEFT_POLICY_CISPO; kind++)
        for (int kl = 0; kl <= WEFT_KL_ABS; kl++) {
            struct weft_k_policy p = {0.2f,
                                      0.3f,
                                      kl % 2 ? 3 : 0,
                                      0.01f,
                                      0.05f,
                                      (enum weft_kl) kl,
                                      (enum weft_policy_kind) kind};
            batch_init(&b, n, length, gate, WEFT_N_POLICY_STATS);
            policy_of(&p, &b);
            batch_end(&b);
        }
    batch_init(&b, n, length, gate, WEFT_N_POLICY_STATS);
    sft_of(&b);
    batch_end(&b);
    for (int clip = 0; clip < 2; clip++) {
        batch_init(&b, n, length, gate, WEFT_N_VALUE_STATS);
        value_of(0.4f * (float) clip, &b);
        batch_end(&b);
    }
}

static const int32_t lengths[] = {1,   2,   31, 32, 33,  255, 256,
                                  257, 300, 0,  5,  600, 0,   1};
static const int32_t short_runs[MOST] = {3, 0, 1, 2, 1, 1, 0, 7};

static void tokens(void)
{
    tokens_of(WEFT_COUNT(lengths), lengths, 1);
    tokens_of(MOST, short_runs, 0.3f); /* most are empty; more than a warp */
    tokens_of(2, lengths, 0);
    tokens_of(0, NULL, 1);
}

static void test_token_losses(void)
{
    each_order(tokens);
}

/* A maximum that is NaN stays so; nothing else of the kind is lost. Statistics
 * that are not wanted are not written. */
static void test_policy_loss_nan(void)
{
    static const int32_t length[] = {40};
    struct weft_k_policy p = {.clip_low = 0.2f, .clip_high = 0.2f};
    struct batch b;
    const double *stat = NULL;
    batch_init(&b, 1, length, 1, WEFT_N_POLICY_STATS);
    b.column[0][3] = NAN;
    dev_set(b.column_[0], b.column[0], 160);
    policy_of(&p, &b);
    dev_get(b.stats, b.runs.stats, WEFT_N_POLICY_STATS * 8);
    stat = b.stats;
    CHECK(isnan(stat[WEFT_STAT_RATIO_MAX_DEV]));
    CHECK(isnan(stat[WEFT_STAT_LOGP_DIFF_MAX]));
    CHECK(stat[WEFT_STAT_TOKENS] == 40);
    struct weft_k_loss_runs runs = b.runs;
    runs.stats = NULL;
    weft_k_sft_losses_cuda(0, &runs, b.column_[1], b.column_[4], b.got_);
    for (int i = 0; i < 40; i++)
        b.want[i] = -b.weight[0];
    batch_end(&b);
}

/* ---- Advantages -------------------------------------------------------- */

static void gae_of(int32_t n, bool has_bootstrap)
{
    size_t bytes = (size_t) n * 4;
    float *reward = host_rows(1, n), *value = host_rows(2, n), end = 0.7f;
    float *advantage = host_rows(3, n), *ret = host_rows(4, n);
    float *reward_ = dev_put(reward, bytes), *value_ = dev_put(value, bytes);
    float *advantage_ = dev_new(bytes), *ret_ = dev_new(bytes);
    float *end_ = dev_put(&end, 4);
    weft_k_gae(n, 0.99f, 0.95f, reward, value, has_bootstrap ? end : 0,
               advantage, ret);
    weft_k_gae_cuda(0, n, 0.99f, 0.95f, reward_, value_,
                    has_bootstrap ? end_ : NULL, advantage_, ret_);
    CHECK(dev_same(advantage_, advantage, bytes));
    CHECK(dev_same(ret_, ret, bytes));
    void *dev[] = {reward_, value_, advantage_, ret_, end_};
    for (size_t i = 0; i < WEFT_COUNT(dev); i++)
        dev_free(dev[i]);
    float *host[] = {reward, value, advantage, ret};
    for (size_t i = 0; i < WEFT_COUNT(host); i++)
        weft_free(host[i]);
}

static void gaes(void)
{
    for (size_t i = 0; i < WEFT_COUNT(lengths); i++) {
        gae_of(lengths[i], false);
        gae_of(lengths[i], true);
    }
}

static void test_gae(void)
{
    each_order(gaes);
}

/* ---- Preferences ------------------------------------------------------- */

static struct weft_k_response response_of(struct batch *b, int32_t run,
                                          int32_t at)
{
    return (struct weft_k_response){b->n_targets[run], b->column[0] + at,
                                    b->column[2] + at, b->want + at,
                                    b->stats + run * WEFT_N_PREFERENCE_STATS};
}

static void pairs_of(const struct weft_k_pairs *p, struct batch *b)
{
    for (int32_t i = 0, at = 0; i < b->n_runs; i += 2) {
        struct weft_k_response chosen = response_of(b, i, at), rejected;
        rejected = response_of(b, i + 1, at + chosen.n);
        at += chosen.n + rejected.n;
        if (weight_of(b, i) != 0)
            weft_k_pair_loss(p, weight_of(b, i), &chosen, &rejected);
    }
    weft_k_pair_losses_cuda(0, p, &b->runs, b->column_[0], b->column_[2],
                            b->got_);
}

static void kto_of(const struct weft_k_kto *k, double kl, struct batch *b)
{
    for (int32_t i = 0, at = 0; i < b->n_runs; at += b->n_targets[i++]) {
        struct weft_k_response r = response_of(b, i, at);
        if (weight_of(b, i) != 0)
            weft_k_kto_loss(k, weight_of(b, i), b->label[i] > 0, kl, &r);
    }
    weft_k_kto_losses_cuda(0, k, &b->runs, b->label_, kl, b->column_[0],
                           b->column_[2], b->got_);
}

static void bradley_terry_of(float center, struct batch *b)
{
    for (int32_t i = 0; i < b->n_runs; i += 2) {
        double *stat[2];
        for (int k = 0; k < 2; k++)
            stat[k] = b->stats + (i + k) * WEFT_N_PREFERENCE_STATS;
        if (weight_of(b, i) != 0)
            weft_k_bradley_terry(center, weight_of(b, i), b->label[i],
                                 b->column[0] + i, b->want + i, stat);
    }
    weft_k_bradley_terry_cuda(0, center, &b->runs, b->label_, b->column_[0],
                              b->got_);
}

static void preferences_of(int32_t n, const int32_t *length, float gate)
{
    enum { STATS = WEFT_N_PREFERENCE_STATS };
    struct weft_k_kto kto = {0.1f, 1.5f, 0.5f};
    struct batch b;
    for (int kind = 0; kind <= WEFT_PAIR_IPO; kind++)
        for (int flags = 0; flags < 4; flags++) {
            struct weft_k_pairs p = {(enum weft_pair_kind) kind, 0.1f, 0.2f,
                                     flags & 1, flags & 2};
            batch_init(&b, n, length, gate, STATS);
            pairs_of(&p, &b);
            batch_end(&b);
        }
    batch_init(&b, n, length, gate, STATS);
    kto_of(&kto, 0.3, &b);
    batch_end(&b);
}

static void preferences(void)
{
    static const int32_t responses[] = {1,   33,  257, 2,  300, 31,
                                        255, 256, 1,   32, 5,   600};
    int32_t ones[MOST];
    preferences_of(WEFT_COUNT(responses), responses, 1);
    for (int i = 0; i < MOST; i++)
        ones[i] = 1 + i % 2;
    preferences_of(MOST, ones, 0.5f);
    preferences_of(2, responses, 0);
    preferences_of(0, NULL, 1);
}

/* Scores of pairs: fewer than a block has threads, as many, one more. */
static void scores(void)
{
    static const int32_t n_pairs[] = {0, 1, 33};
    int32_t ones[MOST];
    struct batch b;
    for (int i = 0; i < MOST; i++)
        ones[i] = 1;
    for (size_t i = 0; i < WEFT_COUNT(n_pairs); i++) {
        batch_init(&b, 2 * n_pairs[i], ones, 0.5f, WEFT_N_PREFERENCE_STATS);
        bradley_terry_of(0.01f, &b);
        batch_end(&b);
    }
}

static void test_preference_losses(void)
{
    each_order(preferences);
    each_order(scores);
}

WEFT_CUDA_TESTS("kern/policy_loss_cuda",
                {"test_token_losses", test_token_losses},
                {"test_policy_loss_nan", test_policy_loss_nan},
                {"test_gae", test_gae},
                {"test_preference_losses", test_preference_losses})
