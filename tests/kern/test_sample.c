/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sampler against a full sort in double: the very token for a given
 * uniform number, and frequencies against exact probabilities.
 */
#include "kern/sample.h"
#include "kern/softmax.h"

#include <math.h>

#include "base/rng.h"
#include "each_isa.h"

static struct weft_shape shape_of(int32_t vocab)
{
    struct weft_shape s = {.hidden = 4,
                           .n_heads = 8,
                           .n_kv_heads = 8,
                           .head_dim = 2,
                           .intermediate = 512,
                           .vocab = vocab};
    struct weft_err err = {0};
    REQUIRE_OK(weft_shape_partition(&s, 0, &err), err);
    return s;
}

static float noise(uint32_t stream, int32_t i)
{
    return (float) weft_rng_normal(23, WEFT_RNG_INIT, stream, 0,
                                   (uint32_t) i);
}

/* ---- Reference --------------------------------------------------------- */

struct ranked {
    float z;
    int32_t id;
    double p; /* 0 when cut off; sums to 1 over what is kept */
};

static int by_rank(const void *a_, const void *b_)
{
    const struct ranked *a = a_, *b = b_;
    if (a->z != b->z)
        return a->z > b->z ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static int by_id(const void *a_, const void *b_)
{
    const struct ranked *a = a_, *b = b_;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* Tokens in the order the draw goes through them. `close` is the distance of
 * the top-p cut from the nearest sum, as a share. */
static struct ranked *rank(const float *logits, int32_t v,
                           const struct weft_k_sampling *s, double *close)
{
    struct ranked *r = malloc((size_t) v * sizeof *r);
    REQUIRE(r != NULL);
    bool top_k = s->top_k > 0 && s->top_k < v;
    for (int32_t i = 0; i < v; i++)
        r[i] = (struct ranked){logits[i], i, 0};
    qsort(r, (size_t) v, sizeof *r, by_rank);
    double total = 0, sum = 0, kept = 0;
    int32_t n = top_k ? s->top_k : v, last = n;
    for (int32_t i = 0; i < n; i++) {
        r[i].p = exp(((double) r[i].z - (double) r[0].z)
                     / (double) s->temperature);
        total += r[i].p;
    }
    *close = 1;
    for (int32_t i = 0; i < n && s->top_p < 1; i++) {
        sum += r[i].p / total;
        *close = fmin(*close, fabs(sum - (double) s->top_p));
        if (sum >= (double) s->top_p && i < last)
            last = i + 1;
    }
    for (int32_t i = 0; i < last; i++)
        kept += r[i].p;
    for (int32_t i = 0; i < v; i++)
        r[i].p = i < last ? r[i].p / kept : 0;
    if (!top_k && s->top_p >= 1)
        qsort(r, (size_t) v, sizeof *r, by_id);
    return r;
}

static const struct weft_k_sampling settings[] = {
    {1, 0, 1, 7},       {0.6f, 0, 1, 7},     {2.5f, 0, 1, 8},
    {1, 1, 1, 9},       {1, 5, 1, 9},        {0.8f, 40, 1, 10},
    {1, 0, 0.9f, 11},   {0.7f, 0, 0.5f, 12}, {1.3f, 0, 0.999f, 13},
    {1, 0, 1e-6f, 14},  {1, 20, 0.8f, 15},   {1, 1000000, 0.95f, 16},
    {1, 3, 0.999f, 17},
};

/* ---- Cases ------------------------------------------------------------- */

static void exact_tokens(int32_t v, float spread)
{
    enum { DRAWS = 300 };
    struct weft_shape shape = shape_of(v);
    float *logits = malloc((size_t) v * 4);
    void *scratch = malloc((size_t) v * 8); /* exactly what is documented */
    REQUIRE(logits && scratch);
    for (int32_t i = 0; i < v; i++)
        logits[i] = spread * noise(1, i);
    for (size_t k = 0; k < WEFT_COUNT(settings); k++) {
        double close;
        struct ranked *r = rank(logits, v, &settings[k], &close);
        int wrong = 0, checked = 0;
        for (uint32_t i = 0; i < DRAWS && close > 3e-6; i++) {
            float logp, u = weft_rng_uniform(settings[k].seed,
                                             WEFT_RNG_SAMPLE, 3, i, 5);
            int32_t got = weft_k_sample(&shape, &settings[k], logits, 3, i, 5,
                                        &logp, scratch),
                    n = 0;
            double sum = 0, near = 1;
            while (n < v - 1 && sum + r[n].p <= (double) u)
                sum += r[n++].p;
            near = fmin(fabs((double) u - sum),
                        fabs(sum + r[n].p - (double) u));
            if (near < 3e-6) /* f32 sums may fall on either side */
                continue;
            wrong += got != r[n].id;
            checked++;
        }
        CHECK_INT(wrong, 0);
        CHECK(close <= 3e-6 || checked > DRAWS / 2);
        free(r);
    }
    free(logits);
    free(scratch);
}

static void exact_sizes(void)
{
    static const int32_t sizes[] = {1, 2, 17, 130, 1023, 1024, 1025, 5003};
    for (size_t i = 0; i < WEFT_COUNT(sizes); i++) {
        exact_tokens(sizes[i], 1);
        exact_tokens(sizes[i], 6);
    }
}

static void test_sample_exact_tokens(void)
{
    each_isa(exact_sizes);
}

static void test_sample_frequencies(void)
{
    enum { V = 37, N = 40000 };
    struct weft_shape shape = shape_of(V);
    float logits[V];
    int64_t scratch[V];
    for (int32_t i = 0; i < V; i++)
        logits[i] = 1.5f * noise(2, i);
    for (size_t k = 0; k < WEFT_COUNT(settings); k++) {
        int count[V] = {0}, rest = 0, df = -1, outside = 0;
        double close, chi = 0, rest_p = 0;
        struct ranked *r = rank(logits, V, &settings[k], &close);
        REQUIRE(close > 3e-6);
        for (uint32_t i = 0; i < N; i++) {
            float logp;
            int32_t t = weft_k_sample(&shape, &settings[k], logits, i % 7, i,
                                      i / 7, &logp, scratch);
            REQUIRE(t >= 0 && t < V);
            count[t]++;
        }
        for (int i = 0; i < V; i++) {
            double expected = r[i].p * N;
            int seen = count[r[i].id];
            outside += r[i].p == 0 ? seen : 0;
            if (expected >= 10) {
                chi += (seen - expected) * (seen - expected) / expected;
                df++;
            } else { /* classes too small for the approximation, together */
                rest += seen;
                rest_p += expected;
            }
        }
        if (rest_p >= 10) {
            chi += (rest - rest_p) * (rest - rest_p) / rest_p;
            df++;
        }
        CHECK_INT(outside, 0);
        /* Wilson-Hilferty: 4 standard deviations, one in 30000 */
        double c = 1 - 2.0 / (9 * fmax(df, 1))
                 + 4 * sqrt(2.0 / 9 / fmax(df, 1));
        CHECK(chi <= fmax(df, 1) * c * c * c);
        free(r);
    }
}

static void test_sample_ties_go_to_lower_ids(void)
{
    enum { V = 300 };
    struct weft_shape shape = shape_of(V);
    float logits[V], logp;
    int64_t scratch[V];
    for (int i = 0; i < V; i++)
        logits[i] = 0.25f;
    const struct weft_k_sampling k3 = {1, 3, 1, 1}, half = {1, 0, 0.5f, 1};
    int seen_k[V] = {0}, seen_p[V] = {0}, sum_k = 0, sum_p = 0;
    for (uint32_t i = 0; i < 4000; i++) {
        seen_k[weft_k_sample(&shape, &k3, logits, 0, 0, i, &logp, scratch)] =
            1;
        seen_p[weft_k_sample(&shape, &half, logits, 0, 0, i, &logp,
                             scratch)] = 1;
        CHECK(fabs((double) logp + log(V)) < 1e-6);
    }
    for (int i = 0; i < V; i++) {
        sum_k += seen_k[i];
        sum_p += seen_p[i];
        CHECK(i < 3 || !seen_k[i]);
        CHECK(i < V / 2 || !seen_p[i]);
    }
    CHECK_INT(sum_k, 3);
    CHECK_INT(sum_p, V / 2);
}

static void test_sample_greedy(void)
{
    enum { V = 2000 };
    struct weft_shape shape = shape_of(V);
    struct weft_k_sampling cold = {
        .temperature = 0, .top_k = 5, .top_p = 0.3f, .seed = 3};
    float logits[V], logp;
    int64_t scratch[V];
    for (int i = 0; i < V; i++)
        logits[i] = noise(4, i);
    logits[1500] = logits[777] = logits[1999] = 5;
    CHECK_INT(weft_k_sample(&shape, &cold, logits, 1, 2, 3, &logp, scratch),
              777);
    struct weft_softmax all = weft_softmax_row(&shape, logits, 1);
    CHECK(logp == 5 - weft_softmax_lse(&all));
    double sum = 0; /* at temperature 1 */
    for (int i = 0; i < V; i++)
        sum += exp((double) logits[i]);
    CHECK(fabs((double) logp - (5 - log(sum))) < 1e-5);
}

static void test_sample_top_1_is_greedy(void)
{
    enum { V = 500 };
    struct weft_shape shape = shape_of(V);
    const struct weft_k_sampling one = {0.9f, 1, 1, 3}, cold = {0, 0, 1, 3};
    int64_t scratch[V];
    for (int32_t s = 0; s < 200; s++) {
        float logits[V], logp;
        for (int32_t i = 0; i < V; i++) /* coarse: many near ties */
            logits[i] = 8
                      + 0x1p-20f * (float) (int) (3 * noise(9, s * V + i));
        CHECK_INT(weft_k_sample(&shape, &one, logits, 0, 0, (uint32_t) s,
                                &logp, scratch),
                  weft_k_sample(&shape, &cold, logits, 0, 0, (uint32_t) s,
                                &logp, scratch));
    }
}

/* The log-prob is of the whole vocabulary, whatever the cut. */
static void test_sample_logp(void)
{
    enum { V = 1500 };
    struct weft_shape shape = shape_of(V);
    float logits[V];
    int64_t scratch[V];
    for (int32_t i = 0; i < V; i++)
        logits[i] = 4 * noise(5, i);
    for (size_t k = 0; k < WEFT_COUNT(settings); k++) {
        float logp, scale = 1 / settings[k].temperature;
        int32_t t = weft_k_sample(&shape, &settings[k], logits, 0, 1, 2,
                                  &logp, scratch);
        struct weft_softmax all = weft_softmax_row(&shape, logits, scale);
        float lse = weft_softmax_lse(&all);
        double max = -1e9, sum = 0;
        for (int i = 0; i < V; i++)
            max = fmax(max, (double) logits[i] * (double) scale);
        for (int i = 0; i < V; i++)
            sum += exp((double) logits[i] * (double) scale - max);
        REQUIRE(t >= 0);
        CHECK(logp == logits[t] * scale - lse);
        CHECK(fabs((double) lse - max - log(sum)) < 1e-5);
    }
}

static void bad_logits(void)
{
    enum { V = 1100 };
    struct weft_shape shape = shape_of(V);
    static const int32_t places[] = {0, 5, 1023, 1024, V - 1};
    static const float poison[] = {NAN, -NAN, INFINITY};
    const struct weft_k_sampling cold = {.temperature = 0, .top_p = 1};
    float logits[V], logp = 42;
    int64_t scratch[V];
    for (size_t p = 0; p < WEFT_COUNT(places); p++)
        for (size_t q = 0; q < WEFT_COUNT(poison); q++) {
            for (int i = 0; i < V; i++)
                logits[i] = p % 2 ? noise(6, i) : -INFINITY;
            logits[places[p]] = poison[q];
            for (size_t k = 0; k < WEFT_COUNT(settings); k++)
                CHECK_INT(weft_k_sample(&shape, &settings[k], logits, 0, 0, 0,
                                        &logp, scratch),
                          -1);
            CHECK_INT(
                weft_k_sample(&shape, &cold, logits, 0, 0, 0, &logp, scratch),
                -1);
        }
    for (int i = 0; i < V; i++)
        logits[i] = -INFINITY;
    CHECK_INT(
        weft_k_sample(&shape, &settings[0], logits, 0, 0, 0, &logp, scratch),
        -1);
    CHECK(logp == 42);
}

static void test_sample_bad_logits(void)
{
    each_isa(bad_logits);
}

/* Masked tokens never come, and do not count. */
static void masked(void)
{
    enum { V = 2100 };
    struct weft_shape shape = shape_of(V);
    float logits[V], logp;
    int64_t scratch[V];
    for (int i = 0; i < V; i++) /* whole chunks and blocks of them */
        logits[i] = i >= 1030 && i < 1034 ? 1 : -INFINITY;
    for (size_t k = 0; k < WEFT_COUNT(settings); k++)
        for (uint32_t i = 0; i < 50; i++) {
            int32_t t = weft_k_sample(&shape, &settings[k], logits, 0, 0, i,
                                      &logp, scratch);
            CHECK(t >= 1030 && t < 1034);
            CHECK(fabs((double) logp + log(4)) < 1e-6);
        }
}

static void test_sample_masked(void)
{
    each_isa(masked);
}

/* Tokens that are held back do not count for the draw, but for the
 * log-prob. */
static void held(void)
{
    enum { V = 1500, DRAWS = 60, MOST_HELD = 16 };
    static const int32_t n_held[] = {1, 3, MOST_HELD};
    struct weft_shape shape = shape_of(V);
    float logits[V], masked[V], given[V];
    int64_t scratch[V];
    for (size_t c = 0; c < WEFT_COUNT(settings) * WEFT_COUNT(n_held); c++) {
        struct weft_k_sampling s = settings[c / WEFT_COUNT(n_held)];
        int32_t n = n_held[c % WEFT_COUNT(n_held)], id[MOST_HELD];
        for (int32_t i = 0; i < V; i++)
            logits[i] = masked[i] = 2 * noise(5, i);
        for (int32_t i = 0; i < n; i++) { /* likely, and whole chunks */
            id[i] = 1023 + 29 * i;
            logits[id[i]] += 6;
            masked[id[i]] = -INFINITY;
        }
        struct weft_softmax all = weft_softmax_row(&shape, logits,
                                                   1 / s.temperature);
        for (uint32_t i = 0; i < DRAWS; i++) {
            float logp, other;
            memcpy(given, logits, sizeof given);
            int32_t t = weft_k_sample_held(&shape, &s, n, id, given, 0, 0, i,
                                           &logp, scratch);
            CHECK_INT(t, weft_k_sample(&shape, &s, masked, 0, 0, i, &other,
                                       scratch));
            REQUIRE(t >= 0 && masked[t] > -INFINITY);
            CHECK(logp
                  == logits[t] * (1 / s.temperature)
                         - weft_softmax_lse(&all));
        }
    }
}

/* Nothing is left to draw, or what is held is no number. */
static void held_bad(void)
{
    enum { V = 16 };
    struct weft_shape shape = shape_of(V);
    const struct weft_k_sampling s = settings[0];
    int32_t id[V];
    float logits[V] = {0}, logp = 42;
    int64_t scratch[V];
    for (int32_t i = 0; i < V; i++)
        id[i] = i;
    CHECK_INT(weft_k_sample_held(&shape, &s, V, id, logits, 0, 0, 0, &logp,
                                 scratch),
              -1);
    memset(logits, 0, sizeof logits);
    logits[0] = NAN;
    CHECK_INT(weft_k_sample_held(&shape, &s, 1, id, logits, 0, 0, 0, &logp,
                                 scratch),
              -1);
    CHECK(logp == 42);
}

static void test_sample_held(void)
{
    each_isa(held);
    each_isa(held_bad);
}

/* Far apart: everything but the maximum underflows. */
static void test_sample_extreme(void)
{
    enum { V = 70 };
    struct weft_shape shape = shape_of(V);
    float logits[V], logp;
    int64_t scratch[V];
    for (int i = 0; i < V; i++)
        logits[i] = i == 33 ? 3e38f : -3e38f;
    for (size_t k = 0; k < WEFT_COUNT(settings); k++) {
        if (settings[k].temperature < 1)
            continue; /* 3e38 / 0.6 is infinite, and reported */
        CHECK_INT(weft_k_sample(&shape, &settings[k], logits, 0, 0, 0, &logp,
                                scratch),
                  33);
        CHECK(logp == 0);
    }
}

WEFT_TESTS("kern/sample",
           {"test_sample_exact_tokens", test_sample_exact_tokens},
           {"test_sample_frequencies", test_sample_frequencies},
           {"test_sample_ties_go_to_lower_ids",
            test_sample_ties_go_to_lower_ids},
           {"test_sample_greedy", test_sample_greedy},
           {"test_sample_held", test_sample_held},
           {"test_sample_top_1_is_greedy", test_sample_top_1_is_greedy},
           {"test_sample_logp", test_sample_logp},
           {"test_sample_bad_logits", test_sample_bad_logits},
           {"test_sample_masked", test_sample_masked},
           {"test_sample_extreme", test_sample_extreme})
