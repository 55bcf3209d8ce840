/* SPDX-License-Identifier: Apache-2.0 */
/* The head on a GPU, from logits: states of chunks, log-probs, gradients and
 * draws are the CPU's, whatever the pieces in which logits come; and the scalar
 * head. */
#include "../cuda/test_device.h"

#include <math.h>

#include "kern/head.h"
#include "kern/sample.h"
#include "kern/softmax.h"

/* A vocabulary of two blocks, each more than one launch's 16 chunks of 1024
 * when `is_large`, with odd ends. */
static struct weft_shape shape_of(bool is_large)
{
    struct weft_shape s = {.hidden = 16, .n_blocks = 2};
    int32_t first = is_large ? 17 * 1024 + 64 : 1024;
    int32_t second = is_large ? 1025 : 37;
    s.block[0] = (struct weft_block){.vocab0 = 0, .n_vocab = first};
    s.block[1] = (struct weft_block){.vocab0 = first, .n_vocab = second};
    s.vocab = first + second;
    return s;
}

/* Rows with ordinary logits, far ones, equal ones, one of -infinity. */
static float *logits_of(int64_t m, int64_t v)
{
    float *z = host_rows(3, m * v);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < v; j++) {
            float *x = &z[i * v + j];
            *x = i % 4 == 1 ? *x * 30 : i % 4 == 2 ? 2.5f : *x;
            if (i % 4 == 3 && (j % 5 == 0 || j > v - 40))
                *x = -INFINITY;
        }
    return z;
}

/* logp, entropy and lse are of logarithms in double, whose last bit may be
 * another on a card. */
static void close_to(const float *dev, const float *host, int64_t n)
{
#ifdef WEFT_CUDA_EXECUTOR
    if (cpu_is_fused()) {
        CHECK(dev_same(dev, host, (size_t) n * 4));
        return;
    }
#endif
    float *got = host_rows(1, n);
    dev_get(got, dev, (size_t) n * 4);
    for (int64_t i = 0; i < n; i++)
        CHECK(fabsf(got[i] - host[i]) <= 1e-5f * (1 + fabsf(host[i])));
    weft_free(got);
}

/* The head of M rows by one member, or by two with a block each. */
static void forward_of(const struct weft_shape *s, int32_t m, int n_parts,
                       int64_t piece, float scale, const float *z_,
                       const int32_t *target_, float *logp_, float *entropy_,
                       float *lse_)
{
    struct weft_k_targets targets = {m, NULL, target_, 0, NULL};
    struct weft_k_head_parts part[2];
    for (int i = 0; i < n_parts; i++) {
        struct weft_range range = {i, 2 / n_parts};
        void *part_ = dev_new(weft_k_head_part_bytes(range, m));
        struct weft_head_part to;
        weft_head_part_at(range, m, (uintptr_t) part_, &to);
        part[i] = (struct weft_k_head_parts){range, part_};
        for (int32_t t = i; t < weft_range_end(range); t++) {
            int64_t n = s->block[t].n_vocab, v0 = s->block[t].vocab0;
            for (int64_t j = 0; j < n; j += piece)
                weft_k_head_take_cuda(0, m, v0 + j, weft_min64(piece, n - j),
                                      j == 0, z_ + v0 + j, s->vocab, scale,
                                      target_, to.state + t - range.first,
                                      range.n, to.hit);
        }
    }
    weft_k_head_merge_cuda(0, s, &targets, n_parts, part, logp_, entropy_,
                           lse_);
    dev_wait();
    for (int i = 0; i < n_parts; i++)
        dev_free((void *) (uintptr_t) part[i].part);
}

static void head_of(bool is_large, int64_t piece, float scale)
{
    enum { M = 6 };
    struct weft_shape s = shape_of(is_large);
    int64_t v = s.vocab;
    size_t row_floats = (size_t) M * 4;
    float *z = logits_of(M, v), *z_ = dev_put(z, (size_t) (M * v) * 4);
    int32_t target[M] = {0, s.block[1].vocab0,     1023,
                         7, s.block[1].vocab0 - 1, (int32_t) v - 1};
    int32_t *target_ = dev_put(target, sizeof target);
    struct weft_softmax all[M];
    float *logp_ = dev_new(row_floats), *members_ = dev_new(row_floats);
    float *entropy_ = dev_new(row_floats), *lse_ = dev_new(row_floats);
    forward_of(&s, M, 2, piece, scale, z_, target_, members_, NULL, NULL);
    forward_of(&s, M, 1, piece, scale, z_, target_, logp_, entropy_, lse_);
    float logp[M], entropy[M], lse[M];
    for (int i = 0; i < M; i++) {
        all[i] = weft_softmax_row(&s, z + i * v, scale);
        lse[i] = weft_softmax_lse(&all[i]);
        entropy[i] = weft_softmax_entropy(&all[i]);
        logp[i] = z[i * v + target[i]] * scale - lse[i];
        double max = -INFINITY, sum = 0, dot = 0;
        for (int64_t j = 0; j < v; j++)
            max = fmax(max, (double) z[i * v + j] * (double) scale);
        for (int64_t j = 0; j < v; j++) {
            double d = (double) z[i * v + j] * (double) scale - max;
            sum += exp(d);
            dot += d > -700 ? exp(d) * d : 0;
        }
        CHECK(fabs((double) lse[i] - (max + log(sum))) < 1e-4);
        CHECK(fabs((double) entropy[i] - (log(sum) - dot / sum)) < 1e-4);
    }
    close_to(lse_, lse, M);
    close_to(entropy_, entropy, M);
    /* a target of probability 0 has log-prob -infinity in both */
    float got[M];
    dev_get(got, logp_, sizeof got);
    CHECK(dev_same(members_, got, sizeof got));
    for (int i = 0; i < M; i++)
        CHECK(got[i] == logp[i] || fabsf(got[i] - logp[i]) < 1e-4f);

    /* The gradient from the CPU's lse and entropy: the same bits. */
    float dlogp[M] = {0.5f, -1, 2, 0.1f, -0.25f, 1};
    float dentropy[M] = {0, 0.5f, 0, -0.1f, 1, 0};
    float *dlogp_ = dev_put(dlogp, sizeof dlogp);
    float *dentropy_ = dev_put(dentropy, sizeof dentropy);
    dev_set(lse_, lse, row_floats);
    dev_set(entropy_, entropy, row_floats);
    for (int d = WEFT_F32; d <= WEFT_BF16; d++) {
        enum weft_dtype dtype = (enum weft_dtype) d;
        size_t bytes = (size_t) (M * v) * weft_dtype_bytes(dtype);
        char *dz_ = dev_new(bytes);
        float *expect = host_copy(z, M * v);
        for (int64_t j = 0; j < v; j += piece)
            weft_k_head_gradient_cuda(
                0, dtype, M, j, weft_min64(piece, v - j), z_ + j, v, scale,
                target_, lse_, entropy_, dlogp_, dentropy_,
                dz_ + (size_t) j * weft_dtype_bytes(dtype), v);
        for (int i = 0; i < M; i++) {
            weft_softmax_ops()->grad(expect + i * v, v, scale, lse[i],
                                     dentropy[i] == 0 ? 0 : entropy[i],
                                     dlogp[i], dentropy[i]);
            expect[i * v + target[i]] += scale * dlogp[i];
        }
        void *rounded = host_as(dtype, expect, M * v);
        if (cpu_is_fused())
            CHECK(dev_same(dz_, rounded, bytes));
        dev_free(dz_);
        weft_free(expect);
        weft_free(rounded);
    }
    void *dev[] = {z_,       target_, members_, logp_,
                   entropy_, lse_,    dlogp_,   dentropy_};
    for (size_t i = 0; i < WEFT_COUNT(dev); i++)
        dev_free(dev[i]);
    weft_free(z);
}

static void heads(void)
{
    head_of(false, 1024, 1);
    head_of(true, 1 << 20, 0.7f);
    head_of(true, 16 * 1024, 1 / 0.9f);
    head_of(true, 2048, 1);
}

static void test_head(void)
{
    each_order(heads);
}

/* ---- Draws ------------------------------------------------------------- */

static void draw_of(bool is_large, float temperature, int32_t top_k,
                    float top_p)
{
    enum { M = 24, HELD = 3 };
    struct weft_shape s = shape_of(is_large);
    static const int32_t held[HELD] = {7, 3, 12};
    struct weft_k_sampling sampling = {temperature, top_k, top_p,
                                       0x123456789abcdefu};
    int64_t v = s.vocab;
    float *z = logits_of(M, v), logp[M], got_logp[M];
    uint32_t at[4 * M];
    int32_t token[M], got[M];
    void *scratch = weft_alloc_aligned((size_t) v, 8);
    float *copy = weft_alloc((size_t) v, 4);
    for (uint32_t i = 0; i < 4 * M; i++) /* every other row may draw all */
        at[i] = i % 4 == 3 ? i / 4 % 2 : i * i;
    at[4 * 10 + 3] = WEFT_K_ROW_HAS_ENDED;
    z[4 * v + 5] = NAN; /* no draw from these two */
    z[8 * v + v - 1] = INFINITY;
    for (int64_t j = 0; j < v; j++)
        z[12 * v + j] = j == v - 1 ? 0 : -INFINITY; /* only the last */
    for (int i = 0; i < M; i++) {
        logp[i] = 7;
        if (i % 2)
            z[i * v + held[0]] += 8;
        float *row = memcpy(copy, z + i * v, (size_t) v * 4);
        token[i] = weft_k_sample_held(&s, &sampling, at[4 * i + 3] ? HELD : 0,
                                      held, row, at[4 * i], at[4 * i + 1],
                                      at[4 * i + 2], &logp[i], scratch);
    }
    CHECK_INT(token[4], -1);
    CHECK_INT(token[12], (int32_t) v - 1);
    float *z_ = dev_put(z, (size_t) (M * v) * 4), *logp_ = dev_new(M * 4);
    uint32_t *at_ = dev_put(at, sizeof at);
    int32_t *token_ = dev_new(M * 4);
    size_t room = weft_k_sample_scratch_bytes_cuda(&s, &sampling, M);
    void *scratch_ = room > 0 ? dev_new(room) : NULL;
    weft_k_sample_cuda(0, &s, &sampling, HELD, held, M, z_, v, at_, token_,
                       logp_, scratch_);
    dev_get(got, token_, sizeof got);
    dev_get(got_logp, logp_, sizeof got_logp);
    CHECK_INT(got[10], WEFT_K_ENDED);
    CHECK(got_logp[10] == 0);
    for (int i = 0; i < M && cpu_is_fused(); i++) {
        if (i == 10)
            continue;
        CHECK_INT(got[i], token[i]);
        if (token[i] >= 0)
            CHECK(fabsf(got_logp[i] - logp[i]) <= 1e-6f * fabsf(logp[i]));
    }
    /* A row alone. */
    weft_k_sample_cuda(0, &s, &sampling, HELD, held, 1, z_ + 6 * v, v,
                       at_ + 24, token_, logp_, scratch_);
    CHECK(dev_same(token_, &got[6], 4));
    CHECK(dev_same(logp_, &got_logp[6], 4));
    if (scratch_)
        dev_free(scratch_);
    dev_free(z_);
    dev_free(logp_);
    dev_free(at_);
    dev_free(token_);
    weft_free(z);
    weft_free(copy);
    weft_free(scratch);
}

/* A draw of 0 is the first token that can be drawn at all. */
static void draw_zero(void)
{
    struct weft_shape s = shape_of(false);
    struct weft_k_sampling sampling = {1, 0, 1, 0x123456789abcdefu};
    const uint32_t at[4] = {0, 0, 5387025, 0};
    int32_t got;
    float logp;
    CHECK(
        weft_rng_uniform(sampling.seed, WEFT_RNG_SAMPLE, at[0], at[1], at[2])
        == 0);
    float *z = host_rows(3, s.vocab);
    for (int i = 0; i < 5; i++)
        z[i] = -INFINITY;
    void *scratch = weft_alloc_aligned((size_t) s.vocab, 8);
    CHECK_INT(
        weft_k_sample(&s, &sampling, z, at[0], at[1], at[2], &logp, scratch),
        5);
    float *z_ = dev_put(z, (size_t) s.vocab * 4), *logp_ = dev_new(4);
    uint32_t *at_ = dev_put(at, sizeof at);
    int32_t *token_ = dev_new(4);
    weft_k_sample_cuda(0, &s, &sampling, 0, NULL, 1, z_, s.vocab, at_, token_,
                       logp_, NULL);
    dev_get(&got, token_, sizeof got);
    CHECK_INT(got, 5);
    dev_free(z_);
    dev_free(logp_);
    dev_free(at_);
    dev_free(token_);
    weft_free(z);
    weft_free(scratch);
}

static void draws(void)
{
    draw_zero();
    draw_of(false, 1, 0, 1);
    draw_of(false, 0, 0, 1);
    draw_of(true, 0.8f, 0, 1);
    draw_of(true, 3, 0, 1);
    draw_of(true, 0, 0, 1);
}

/* Cuts inside the first bucket, of many buckets, and of nearly all tokens. */
static void cut_draws(void)
{
    draw_of(false, 1, 1, 1);
    draw_of(false, 1, 5, 1);
    draw_of(false, 0.7f, 0, 0.9f);
    draw_of(false, 1, 7, 0.5f);
    draw_of(false, 1, 1 << 20, 0.999f);
    draw_of(true, 1, 50, 1);
    draw_of(true, 3, 0, 0.95f);
    draw_of(true, 0.8f, 2000, 0.9f);
    draw_of(true, 1, 0, 1e-6f);
}

static void test_sample(void)
{
    each_order(draws);
    each_order(cut_draws);
}

/* ---- The scalar head --------------------------------------------------- */

static void values_of(int32_t h, int32_t n_rows, int32_t n)
{
    struct weft_shape s = {
        .hidden = h, .rms_eps = 1e-3f, .scalar_head = true, .n_blocks = 1};
    struct weft_layout layout;
    weft_layout_get(&s, WEFT_TILE_FINAL, 0, &layout);
    int64_t flat = (int64_t) layout.n_flat, all = (int64_t) n_rows * h;
    size_t final_bytes = (size_t) flat * 4, x_bytes = (size_t) all * 4;
    int32_t row[64];
    REQUIRE(n <= 64 && n_rows >= n);
    for (int32_t i = 0; i < n; i++)
        row[i] = i * (n_rows - 1) / (n > 1 ? n - 1 : 1);
    struct weft_k_targets targets = {n, row, NULL, 0, NULL};
    float *final = host_rows(1, flat), *x = host_rows(2, all);
    float *dvalue = host_rows(4, n), *grad = host_rows(5, flat);
    float *dx = host_rows(6, all), *value = host_rows(7, n);
    void *scratch = weft_alloc_aligned(weft_k_value_scratch_bytes(&s), 1);
    float *final_ = dev_put(final, final_bytes), *x_ = dev_put(x, x_bytes);
    float *dvalue_ = dev_put(dvalue, (size_t) n * 4);
    float *grad_ = dev_put(grad, final_bytes), *dx_ = dev_put(dx, x_bytes);
    float *value_ = dev_new((size_t) n * 4);
    int32_t *row_ = dev_put(row, (size_t) n * 4);
    void *scratch_ = dev_new(weft_k_value_scratch_bytes_cuda(&s, n));
    weft_k_value(&s, final, x, &targets, value, scratch);
    weft_k_value_backward(&s, final, n_rows, x, &targets, dvalue, dx, grad,
                          scratch);
    weft_k_value_cuda(0, &s, final_, x_, n, row_, value_, scratch_);
    weft_k_value_backward_cuda(0, &s, final_, n_rows, x_, n, row_, dvalue_,
                               dx_, grad_, scratch_);
    CHECK(!cpu_is_fused() || dev_same(value_, value, (size_t) n * 4));
    CHECK(!cpu_is_fused() || dev_same(dx_, dx, x_bytes));
    CHECK(!cpu_is_fused() || dev_same(grad_, grad, final_bytes));
    void *dev[] = {final_, x_, dvalue_, grad_, dx_, value_, row_, scratch_};
    for (size_t i = 0; i < WEFT_COUNT(dev); i++)
        dev_free(dev[i]);
    void *host[] = {final, x, dvalue, grad, dx, value, scratch};
    for (size_t i = 0; i < WEFT_COUNT(host); i++)
        weft_free(host[i]);
}

static void values(void)
{
    static const int32_t sizes[] = {1, 15, 16, 17, 64, 100, 768};
    for (size_t i = 0; i < WEFT_COUNT(sizes); i++) {
        values_of(sizes[i], 1, 1);
        values_of(sizes[i], 40, 17);
    }
    values_of(48, 64, 64);
    values_of(48, 3, 0);
}

static void test_value(void)
{
    each_order(values);
}

WEFT_CUDA_TESTS("kern/head_cuda", {"test_head", test_head},
                {"test_sample", test_sample}, {"test_value", test_value})
