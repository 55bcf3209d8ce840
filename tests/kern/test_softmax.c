/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax in pieces: row operations, chunks, merges, the tree. */
#include "kern/softmax.h"

#include <math.h>

#include "base/rng.h"
#include "each_isa.h"

enum { MAX_N = WEFT_SOFTMAX_COLUMNS };

static void fill(float *x, int64_t n, float spread)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = spread
             * (float) weft_rng_normal(31, WEFT_RNG_INIT, 0, 0, (uint32_t) i);
}

/* Sizes around the lanes, and the largest. */
static int64_t next_size(int64_t n)
{
    return n < 67 ? n + 1 : n < MAX_N - 5 ? MAX_N - 5 : n + 1;
}

static void row_operations(void)
{
    const struct weft_softmax_ops *ops = weft_softmax_ops();
    static float x[MAX_N + 1], e[MAX_N + 1], g[MAX_N + 1];
    for (int64_t n = 1; n <= MAX_N; n = next_size(n)) {
        float scale = 1.25f, base = 3, sum, dot, max = -INFINITY;
        double want_sum = 0, want_dot = 0;
        int bad = 0;
        fill(x, n, 4);
        x[n] = e[n] = g[n] =
            77; /* behind the row: neither read nor written */
        for (int64_t j = 0; j < n; j++)
            max = fmaxf(max, x[j]);
        CHECK(ops->max(x, n) == max);
        ops->exp(x, n, scale, base, e, &sum, &dot);
        memcpy(g, x, (size_t) n * sizeof *g);
        ops->grad(g, n, scale, 20, 2.5f, 0.5f, -0.25f);
        for (int64_t j = 0; j < n; j++) {
            double d = (double) (x[j] * scale - base), p = exp(d);
            want_sum += p;
            want_dot += p * d;
            bad += fabs(p - (double) e[j]) > 3e-7 * p; /* 2 ulp */
            d = (double) (x[j] * scale - 20.0f);
            p = exp(d);
            double term = fabs(0.5) + 0.25 * fabs(d + 2.5);
            bad += fabs(-1.25 * p * (0.5 - 0.25 * (d + 2.5)) - (double) g[j])
                 > 1e-6 * p * term;
        }
        CHECK_INT(bad, 0);
        /* n / 16 + 4 additions, each within 2^-24 of terms of one sign */
        double tolerance = 6e-8 * (double) (n / 16 + 8);
        CHECK(fabs((double) sum - want_sum) <= tolerance * want_sum);
        CHECK(fabs((double) dot - want_dot)
              <= tolerance * 20 * (want_sum + fabs(want_dot)));
        CHECK(x[n] == 77 && e[n] == 77 && g[n] == 77);
    }
}

static void test_softmax_row_operations(void)
{
    each_isa(row_operations);
}

static void special_values(void)
{
    float x[40];
    for (int n = 1; n <= 40; n++) {
        for (int i = 0; i < n; i++)
            x[i] = -INFINITY;
        struct weft_softmax s = weft_softmax_chunk(x, n, 1);
        CHECK(s.max == -INFINITY && s.sum == 0 && s.dot == 0);
        x[n - 1] = -2; /* one token that can come */
        s = weft_softmax_chunk(x, n, 1);
        CHECK(s.max == -2 && s.sum == 1 && s.dot == 0);
        CHECK(weft_softmax_lse(&s) == -2 && weft_softmax_entropy(&s) == 0);
        x[n / 2] = NAN;
        s = weft_softmax_chunk(x, n, 1);
        CHECK(isnan(s.sum));
        x[n / 2] = INFINITY;
        s = weft_softmax_chunk(x, n, 1);
        CHECK(isnan(s.sum));
    }
}

static void test_softmax_special_values(void)
{
    each_isa(special_values);
}

static void test_softmax_merge(void)
{
    static const float places[] = {0, -3, 5, 60, -200, -INFINITY};
    for (size_t i = 0; i < WEFT_COUNT(places); i++)
        for (size_t j = 0; j < WEFT_COUNT(places); j++) {
            struct weft_softmax a = {places[i], 3, -2},
                                b = {places[j], 5, -0.5f};
            if (isinf(a.max))
                a.sum = a.dot = 0;
            if (isinf(b.max))
                b.sum = b.dot = 0;
            struct weft_softmax m = weft_softmax_merge(a, b);
            double max = fmax((double) a.max, (double) b.max);
            CHECK((double) m.max == max);
            if (isinf(max)) {
                CHECK(m.sum == 0 && m.dot == 0);
                continue;
            }
            double da = (double) a.max - max, db = (double) b.max - max;
            double ea = exp(da), eb = exp(db);
            da = ea > 0 ? da : 0;
            db = eb > 0 ? db : 0;
            double sum = (double) a.sum * ea + (double) b.sum * eb;
            double dot = ((double) a.dot + (double) a.sum * da) * ea
                       + ((double) b.dot + (double) b.sum * db) * eb;
            CHECK(fabs((double) m.sum - sum) < 1e-6 * sum);
            CHECK(fabs((double) m.dot - dot) < 1e-5);
        }
    /* a NaN of either side stays */
    struct weft_softmax bad = {1, NAN, NAN}, none = {-INFINITY, NAN, NAN},
                        good = {2, 1, 0};
    CHECK(isnan(weft_softmax_merge(bad, good).sum));
    CHECK(isnan(weft_softmax_merge(good, none).sum));
    CHECK(isnan(weft_softmax_merge(none, none).sum));
}

static bool same(struct weft_softmax a, struct weft_softmax b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

/* ((0 1)(2 3))((4 5)(6 7)), to the bit. */
static void test_softmax_tree(void)
{
    struct weft_softmax s[8], t[8], p[4], q[2];
    for (int i = 0; i < 8; i++)
        s[i] = (struct weft_softmax){(float) (i * 5 % 8), 1 + (float) i / 3,
                                     -(float) i / 7};
    for (int i = 0; i < 4; i++)
        p[i] = weft_softmax_merge(s[2 * i], s[2 * i + 1]);
    for (int i = 0; i < 2; i++)
        q[i] = weft_softmax_merge(p[2 * i], p[2 * i + 1]);
    memcpy(t, s, sizeof s);
    CHECK(same(weft_softmax_tree(t, 1), s[0]));
    memcpy(t, s, sizeof s);
    CHECK(same(weft_softmax_tree(t, 2), p[0]));
    memcpy(t, s, sizeof s);
    CHECK(same(weft_softmax_tree(t, 4), q[0]));
    memcpy(t, s, sizeof s);
    CHECK(same(weft_softmax_tree(t, 8), weft_softmax_merge(q[0], q[1])));
}

/* A row is its blocks' chunks left to right, blocks by the tree. */
static void test_softmax_row(void)
{
    enum { V = 5000 };
    static float z[V];
    struct weft_shape shape = {
        .n_heads = 4, .n_kv_heads = 4, .vocab = V, .intermediate = 512};
    struct weft_err err = {0};
    struct weft_softmax block[4];
    REQUIRE_OK(weft_shape_partition(&shape, 4, &err), err);
    fill(z, V, 3);
    for (int t = 0; t < 4; t++) {
        const float *x = z + shape.block[t].vocab0;
        int32_t n = shape.block[t].n_vocab;
        REQUIRE(n > 1024 && n < 2048);
        block[t] = weft_softmax_merge(
            weft_softmax_chunk(x, 1024, 0.7f),
            weft_softmax_chunk(x + 1024, n - 1024, 0.7f));
    }
    struct weft_softmax all = weft_softmax_merge(
        weft_softmax_merge(block[0], block[1]),
        weft_softmax_merge(block[2], block[3]));
    CHECK(same(weft_softmax_row(&shape, z, 0.7f), all));
    double sum = 0, dot = 0;
    for (int i = 0; i < V; i++)
        sum += exp((double) z[i] * (double) 0.7f);
    for (int i = 0; i < V; i++)
        dot += exp((double) z[i] * (double) 0.7f) / sum
             * ((double) z[i] * (double) 0.7f - log(sum));
    CHECK(fabs((double) weft_softmax_lse(&all) - log(sum)) < 2e-6);
    CHECK(fabs((double) weft_softmax_entropy(&all) + dot) < 5e-6);
}

WEFT_TESTS("kern/softmax",
           {"test_softmax_row_operations", test_softmax_row_operations},
           {"test_softmax_special_values", test_softmax_special_values},
           {"test_softmax_merge", test_softmax_merge},
           {"test_softmax_tree", test_softmax_tree},
           {"test_softmax_row", test_softmax_row})
