/* SPDX-License-Identifier: Apache-2.0 */
/* Losses and advantages of responses on a GPU against the CPU's, for lengths
 * about a warp's 32 tokens. */
#include "../cuda/test_device.h"

#include <math.h>

static const int32_t lengths[] = {1, 2, 31, 32, 33, 64, 65, 300};

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
    double got[32];
    REQUIRE(n <= 32);
#ifdef WEFT_CUDA_EXECUTOR
    CHECK(dev_same(dev, host, (size_t) n * 8));
#endif
    dev_get(got, dev, (size_t) n * 8);
    for (int32_t i = 0; i < n; i++)
        CHECK(fabs(got[i] - host[i]) <= 1e-6 * (1e-3 + fabs(host[i])));
}

static void policy_of(const struct weft_k_policy *p, int32_t n, bool has_ref)
{
    enum { FIELDS = 5, STATS = WEFT_N_POLICY_STATS };
    size_t bytes = (size_t) n * 4;
    float *host[FIELDS], *dev[FIELDS], w = 0.125f;
    for (uint32_t f = 0; f < FIELDS; f++) {
        host[f] = host_rows(f, n);
        for (int32_t i = 0; i < n; i++)
            if (f < 3) /* logp, old_logp, ref_logp; some far apart */
                host[f][i] = -2 + 0.3f * host[f][i]
                           - (i % 11 == 5 && f == 1 ? 30 : 0)
                           - (i % 13 == 4 && f == 0 ? 30 : 0);
        dev[f] = dev_put(host[f], bytes);
    }
    float *dlogp = host_rows(7, n), *dentropy = host_rows(8, n);
    float *dlogp_ = dev_new(bytes), *dentropy_ = dev_new(bytes);
    double stat[STATS];
    for (int i = 0; i < STATS; i++)
        stat[i] = 0.5 + i; /* of samples before */
    double *stat_ = dev_put(stat, sizeof stat);
    float *w_ = dev_put(&w, 4);
    weft_k_policy_loss(p, n, w, host[0], host[1], has_ref ? host[2] : NULL,
                       host[3], host[4], dlogp, dentropy, stat);
    weft_k_policy_loss_cuda(0, p, n, w_, dev[0], dev[1],
                            has_ref ? dev[2] : NULL, dev[3], dev[4], dlogp_,
                            dentropy_, stat_);
    near_f32(dlogp_, dlogp, n);
    near_f32(dentropy_, dentropy, n);
    near_f64(stat_, stat, STATS);
    void *all[] = {dlogp_, dentropy_, stat_, w_};
    for (size_t i = 0; i < WEFT_COUNT(all); i++)
        dev_free(all[i]);
    for (int f = 0; f < FIELDS; f++) {
        dev_free(dev[f]);
        weft_free(host[f]);
    }
    weft_free(dlogp);
    weft_free(dentropy);
}

static void policies(void)
{
    for (size_t i = 0; i < WEFT_COUNT(lengths); i++)
        for (int kind = 0; kind <= WEFT_POLICY_CISPO; kind++)
            for (int kl = 0; kl <= WEFT_KL_ABS; kl++) {
                struct weft_k_policy p = {0.2f,
                                          0.3f,
                                          kl % 2 ? 3 : 0,
                                          0.01f,
                                          0.05f,
                                          (enum weft_kl) kl,
                                          (enum weft_policy_kind) kind};
                policy_of(&p, lengths[i], kl != WEFT_KL_NONE);
            }
}

static void test_policy_loss(void)
{
    each_order(policies);
}

/* A maximum that is NaN stays so; nothing else of the kind is lost. */
static void test_policy_loss_nan(void)
{
    struct weft_k_policy p = {.clip_low = 0.2f, .clip_high = 0.2f};
    float x[40] = {0}, w = 1;
    double zero[WEFT_N_POLICY_STATS] = {0}, stat[WEFT_N_POLICY_STATS];
    x[3] = NAN;
    float *x_ = dev_put(x, sizeof x), *w_ = dev_put(&w, 4);
    float *d_ = dev_new(sizeof x), *e_ = dev_new(sizeof x);
    x[3] = 0;
    float *y_ = dev_put(x, sizeof x);
    double *stat_ = dev_put(zero, sizeof zero);
    weft_k_policy_loss_cuda(0, &p, 40, w_, x_, y_, NULL, y_, y_, d_, e_,
                            stat_);
    dev_get(stat, stat_, sizeof stat);
    CHECK(isnan(stat[WEFT_STAT_RATIO_MAX_DEV]));
    CHECK(isnan(stat[WEFT_STAT_LOGP_DIFF_MAX]));
    CHECK(stat[WEFT_STAT_TOKENS] == 40);
    void *all[] = {x_, w_, d_, e_, y_, stat_};
    for (size_t i = 0; i < WEFT_COUNT(all); i++)
        dev_free(all[i]);
}

static void value_of(float clip, int32_t n)
{
    size_t bytes = (size_t) n * 4;
    float *host[3], *dev[3], w = 0.3f, *dvalue = host_rows(4, n);
    double stat[WEFT_N_VALUE_STATS] = {1, 2, 3, 4};
    double *stat_ = dev_put(stat, sizeof stat);
    float *dvalue_ = dev_new(bytes), *w_ = dev_put(&w, 4);
    for (uint32_t f = 0; f < 3; f++) {
        host[f] = host_rows(f, n);
        dev[f] = dev_put(host[f], bytes);
    }
    weft_k_value_loss(clip, n, w, host[0], host[1], host[2], dvalue, stat);
    weft_k_value_loss_cuda(0, clip, n, w_, dev[0], dev[1], dev[2], dvalue_,
                           stat_);
    CHECK(dev_same(dvalue_, dvalue, bytes));
    CHECK(dev_same(stat_, stat, sizeof stat));
    for (int f = 0; f < 3; f++) {
        dev_free(dev[f]);
        weft_free(host[f]);
    }
    dev_free(stat_);
    dev_free(dvalue_);
    dev_free(w_);
    weft_free(dvalue);
}

static void values(void)
{
    for (size_t i = 0; i < WEFT_COUNT(lengths); i++) {
        value_of(0, lengths[i]);
        value_of(0.4f, lengths[i]);
    }
}

static void test_value_loss(void)
{
    each_order(values);
}

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

enum { PSTATS = WEFT_N_PREFERENCE_STATS };

/* A response on both sides. */
struct both {
    struct weft_k_response host, dev;
    float *logp, *ref_logp;
};

static void both_init(struct both *b, int32_t n, uint32_t seed)
{
    size_t bytes = (size_t) n * 4;
    b->logp = host_rows(seed, n);
    b->ref_logp = host_rows(seed + 1, n);
    double *stat = weft_alloc_aligned(PSTATS, 8);
    for (int i = 0; i < PSTATS; i++)
        stat[i] = 0.25 * i; /* of responses before */
    b->host = (struct weft_k_response){n, b->logp, b->ref_logp,
                                       host_rows(seed, n), stat};
    b->dev = (struct weft_k_response){
        n, dev_put(b->logp, bytes), dev_put(b->ref_logp, bytes),
        dev_new(bytes), dev_put(stat, PSTATS * 8)};
}

/* Compares, and frees. */
static void both_end(struct both *b)
{
    near_f32(b->dev.dlogp, b->host.dlogp, b->host.n);
    near_f64(b->dev.stat, b->host.stat, PSTATS);
    dev_free((void *) b->dev.logp);
    dev_free((void *) b->dev.ref_logp);
    dev_free(b->dev.dlogp);
    dev_free(b->dev.stat);
    weft_free(b->logp);
    weft_free(b->ref_logp);
    weft_free(b->host.dlogp);
    weft_free(b->host.stat);
}

static void preferences(void)
{
    float w = 0.125f, *w_ = dev_put(&w, 4);
    double kl = 0.3, *kl_ = dev_put(&kl, 8);
    for (size_t i = 0; i < WEFT_COUNT(lengths); i++) {
        int32_t n = lengths[i], other = lengths[(i + 3) % 8];
        for (int kind = 0; kind <= WEFT_PAIR_IPO; kind++)
            for (int flags = 0; flags < 4; flags++) {
                struct weft_k_pairs p = {(enum weft_pair_kind) kind, 0.1f,
                                         0.2f, flags & 1, flags & 2};
                struct both chosen, rejected;
                both_init(&chosen, n, 1);
                both_init(&rejected, other, 3);
                weft_k_pair_loss(&p, w, &chosen.host, &rejected.host);
                weft_k_pair_loss_cuda(0, &p, w_, &chosen.dev, &rejected.dev);
                both_end(&chosen);
                both_end(&rejected);
            }
        for (int is_desirable = 0; is_desirable < 2; is_desirable++) {
            struct weft_k_kto k = {0.1f, 1.5f, 0.5f};
            struct both b;
            both_init(&b, n, 5);
            weft_k_kto_loss(&k, w, is_desirable, kl, &b.host);
            weft_k_kto_loss_cuda(0, &k, w_, is_desirable, kl_, &b.dev);
            both_end(&b);
        }
    }
    dev_free(w_);
    dev_free(kl_);
}

static void test_preference_losses(void)
{
    each_order(preferences);
}

WEFT_CUDA_TESTS("kern/policy_loss_cuda",
                {"test_policy_loss", test_policy_loss},
                {"test_policy_loss_nan", test_policy_loss_nan},
                {"test_value_loss", test_value_loss}, {"test_gae", test_gae},
                {"test_preference_losses", test_preference_losses})
