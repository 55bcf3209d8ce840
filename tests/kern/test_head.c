/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The language-model head against double loops, finite differences, and
 * itself: the same bits for any number of rows, from training and decode,
 * and for any cut into micro-batches.
 */
#include "kern/kern.h"

#include <math.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "tests/harness.h"

struct model {
    struct weft_shape shape;
    int32_t h, v;
    float *final;
    float *weight; /* (V, H) as published */
    float *master[WEFT_MAX_BLOCKS];
    void *fwd[WEFT_MAX_BLOCKS], *bwd[WEFT_MAX_BLOCKS];
    size_t n_flat[WEFT_MAX_BLOCKS];
    struct weft_k_head head;
};

static float noise(uint32_t stream, int64_t i)
{
    return (float) weft_rng_normal(17, WEFT_RNG_INIT, stream, 0,
                                   (uint32_t) i);
}

static float rounded(enum weft_dtype d, float x)
{
    return d == WEFT_BF16 ? weft_bf16_to_f32(weft_f32_to_bf16(x)) : x;
}

static void model_init(struct model *m, int32_t v, int32_t h,
                       int32_t n_blocks, enum weft_dtype dtype)
{
    struct weft_err err = {0};
    struct weft_layout l;
    *m = (struct model){.shape = {.hidden = h,
                                  .n_heads = 8,
                                  .n_kv_heads = 8,
                                  .head_dim = 4,
                                  .intermediate = 512,
                                  .vocab = v,
                                  .rms_eps = 1e-5f,
                                  .dtype = dtype},
                        .h = h,
                        .v = v};
    REQUIRE_OK(weft_shape_partition(&m->shape, n_blocks, &err), err);
    m->final = weft_alloc_aligned((size_t) h, sizeof(float));
    m->weight = weft_alloc((size_t) v * (size_t) h, sizeof(float));
    REQUIRE(m->final && m->weight);
    for (int32_t j = 0; j < h; j++)
        m->final[j] = 1 + 0.3f * noise(1, j);
    for (int32_t t = 0; t < n_blocks; t++) {
        weft_layout_get(&m->shape, WEFT_TILE_HEAD, t, &l);
        m->n_flat[t] = l.n_flat;
        m->master[t] = weft_alloc_aligned(l.n_flat, sizeof(float));
        m->fwd[t] = weft_alloc_aligned(1, l.fwd_bytes);
        m->bwd[t] = weft_alloc_aligned(1, l.bwd_bytes);
        REQUIRE(m->master[t] && m->fwd[t] && m->bwd[t]);
        int32_t first = m->shape.block[t].vocab0;
        for (int32_t n = 0; n < l.part[0].n; n++)
            for (int32_t k = 0; k < h; k++) {
                int64_t i = (int64_t) (first + n) * h + k;
                float w = noise(2, i) * 2 / sqrtf((float) h);
                m->master[t][weft_flat_index(&l.part[0], n, k)] = w;
                m->weight[i] = rounded(dtype, w);
            }
        weft_k_publish(&l, dtype, m->master[t], m->fwd[t], m->bwd[t]);
        m->head.fwd[t] = m->fwd[t];
        m->head.bwd[t] = m->bwd[t];
    }
    m->head.final = m->final;
}

static void model_release(struct model *m)
{
    for (int32_t t = 0; t < m->shape.n_blocks; t++) {
        weft_free(m->master[t]);
        weft_free(m->fwd[t]);
        weft_free(m->bwd[t]);
    }
    weft_free(m->final);
    weft_free(m->weight);
}

/* Rows, targets and upstream gradients of a micro-batch. */
struct rows {
    int32_t n_rows, n;
    float *x, *logp, *entropy, *lse, *dlogp, *dentropy;
    int32_t *row, *target;
    struct weft_k_targets targets;
};

/* Every `step`-th of n_rows rows predicts. */
static void rows_init(struct rows *r, const struct model *m, int32_t n_rows,
                      int32_t step)
{
    *r = (struct rows){.n_rows = n_rows, .n = (n_rows + step - 1) / step};
    size_t n = (size_t) r->n;
    r->x = weft_alloc((size_t) n_rows * (size_t) m->h, sizeof(float));
    r->logp = weft_alloc(5 * n, sizeof(float));
    r->row = weft_alloc(2 * n, sizeof(int32_t));
    REQUIRE(r->x && r->logp && r->row);
    r->entropy = r->logp + n;
    r->lse = r->entropy + n;
    r->dlogp = r->lse + n;
    r->dentropy = r->dlogp + n;
    r->target = r->row + n;
    for (int64_t i = 0; i < (int64_t) n_rows * m->h; i++)
        r->x[i] = 3 * noise(3, i);
    for (int32_t i = 0; i < r->n; i++) {
        r->row[i] = i * step;
        r->target[i] = (int32_t) ((int64_t) i * 7919 % m->v);
        r->dlogp[i] = noise(4, i);
        r->dentropy[i] = 0.5f * noise(5, i);
    }
    r->target[0] = m->v - 1;
    r->targets = (struct weft_k_targets){r->n, r->row, r->target};
}

static void rows_release(struct rows *r)
{
    weft_free(r->x);
    weft_free(r->logp);
    weft_free(r->row);
}

static void *scratch_get(size_t bytes)
{
    void *p = weft_alloc_aligned(1, bytes);
    REQUIRE(p != NULL);
    memset(p, 0xff, bytes); /* its contents do not matter: NaN */
    return p;
}

static void logprob(const struct model *m, struct rows *r, float scale)
{
    void *scratch = scratch_get(weft_k_head_scratch_bytes(&m->shape, r->n));
    weft_k_head_logprob(&m->shape, &m->head, r->x, &r->targets, scale,
                        r->logp, r->entropy, r->lse, scratch);
    weft_free(scratch);
}

static void backward(const struct model *m, const struct rows *r,
                     int32_t n_runs, const int32_t *run_rows, float scale,
                     bool entropy, float *dx, float *const grad[],
                     float *grad_final)
{
    void *scratch = scratch_get(
        weft_k_head_backward_scratch_bytes(&m->shape, r->n, n_runs));
    weft_k_head_backward(&m->shape, &m->head, r->n_rows, r->x, &r->targets,
                         n_runs, run_rows, scale, r->lse, r->entropy,
                         r->dlogp, entropy ? r->dentropy : NULL, dx, grad,
                         grad_final, scratch);
    weft_free(scratch);
}

/* ---- Reference in double ----------------------------------------------- */

/* Scaled logits of one row; `normed` is rounded as the kernel rounds it. */
static void naive_logits(const struct model *m, const float *x, float scale,
                         double *z)
{
    double square = 0;
    double *y = malloc((size_t) m->h * sizeof *y);
    REQUIRE(y != NULL);
    for (int32_t j = 0; j < m->h; j++)
        square += (double) x[j] * (double) x[j];
    double r = 1 / sqrt(square / m->h + (double) m->shape.rms_eps);
    if (m->shape.dtype == WEFT_F32) {
        for (int32_t j = 0; j < m->h; j++)
            y[j] = (double) x[j] * r * (double) m->final[j];
    } else { /* a double norm may round to the other neighbour */
        uint16_t *b = malloc((size_t) m->h * sizeof *b);
        REQUIRE(b != NULL);
        weft_k_rmsnorm(m->shape.dtype, 1, m->h, m->shape.rms_eps, x, m->final,
                       b);
        for (int32_t j = 0; j < m->h; j++)
            y[j] = (double) weft_bf16_to_f32(b[j]);
        free(b);
    }
    for (int32_t i = 0; i < m->v; i++) {
        z[i] = 0;
        for (int32_t j = 0; j < m->h; j++)
            z[i] += y[j] * (double) m->weight[(int64_t) i * m->h + j];
        z[i] *= (double) scale;
    }
    free(y);
}

struct naive {
    double lse, entropy;
};

static struct naive naive_softmax(const double *z, int32_t v)
{
    double max = z[0], sum = 0, dot = 0;
    for (int32_t i = 1; i < v; i++)
        max = fmax(max, z[i]);
    for (int32_t i = 0; i < v; i++)
        sum += exp(z[i] - max);
    double lse = max + log(sum);
    for (int32_t i = 0; i < v; i++)
        dot += exp(z[i] - lse) * (z[i] - lse);
    return (struct naive){lse, -dot};
}

/* sum of dlogp logp + dentropy entropy */
static double naive_loss(const struct model *m, const struct rows *r,
                         float scale, bool entropy)
{
    double sum = 0, *z = malloc((size_t) m->v * sizeof *z);
    REQUIRE(z != NULL);
    for (int32_t i = 0; i < r->n; i++) {
        naive_logits(m, r->x + (int64_t) r->row[i] * m->h, scale, z);
        struct naive s = naive_softmax(z, m->v);
        sum += (double) r->dlogp[i] * (z[r->target[i]] - s.lse);
        if (entropy)
            sum += (double) r->dentropy[i] * s.entropy;
    }
    free(z);
    return sum;
}

/* ---- Cases ------------------------------------------------------------- */

static const struct {
    int32_t v, h, n_blocks;
} sizes[] = {{1, 2, 1},    {31, 2, 1},   {130, 16, 2},  {257, 24, 4},
             {513, 32, 8}, {2050, 8, 1}, {4177, 16, 2}, {65, 64, 2}};

static const enum weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16};

static void each_isa(void (*run)(void))
{
    struct weft_err err = {0};
    for (int i = 0; i <= (int) weft_k_isa_detect(); i++) {
        REQUIRE_OK(weft_k_init(weft_k_isa_name((enum weft_isa) i), &err),
                   err);
        run();
    }
    REQUIRE_OK(weft_k_init(NULL, &err), err);
}

static void naive_logprob(void)
{
    static const float scales[] = {1, 1 / 0.7f, 0.25f};
    for (size_t s = 0; s < WEFT_COUNT(sizes); s++)
        for (size_t d = 0; d < 2; d++) {
            struct model m;
            struct rows r;
            float scale = scales[s % 3];
            model_init(&m, sizes[s].v, sizes[s].h, sizes[s].n_blocks,
                       dtypes[d]);
            rows_init(&r, &m, 9, 2);
            logprob(&m, &r, scale);
            double *z = malloc((size_t) m.v * sizeof *z);
            REQUIRE(z != NULL);
            for (int32_t i = 0; i < r.n; i++) {
                naive_logits(&m, r.x + r.row[i] * m.h, scale, z);
                struct naive e = naive_softmax(z, m.v);
                /* logits of size < 30 from chains of <= 64 terms, sums of
                 * <= 65 terms a lane: some 70 roundings of 2^-24 * 30 */
                double tolerance = 1.3e-4;
                CHECK(fabs(e.lse - (double) r.lse[i]) < tolerance);
                CHECK(fabs(z[r.target[i]] - e.lse - (double) r.logp[i])
                      < tolerance);
                CHECK(fabs(e.entropy - (double) r.entropy[i]) < tolerance);
                CHECK(r.logp[i] <= 0);
            }
            free(z);
            rows_release(&r);
            model_release(&m);
        }
}

static void test_logprob_naive(void)
{
    each_isa(naive_logprob);
}

/* Rows alone, in batches of 1..33, and through decode: identical bits. */
static void same_bits(void)
{
    static const int32_t blocks[] = {1, 2, 4, 8};
    const float temperature = 0.7f;
    for (size_t b = 0; b < WEFT_COUNT(blocks); b++)
        for (size_t d = 0; d < 2; d++) {
            struct model m;
            struct rows r;
            int bad = 0;
            model_init(&m, 1603, 48, blocks[b], dtypes[d]);
            rows_init(&r, &m, 33, 1);
            logprob(&m, &r, 1 / temperature);
            void *scratch = scratch_get(
                weft_k_head_scratch_bytes(&m.shape, 33));
            float *logits = scratch_get((size_t) (33 * m.v) * 4);
            for (int32_t n = 1; n <= 33; n++) {
                float logp[33], entropy[33], lse[33];
                int32_t from = 33 - n;
                struct weft_k_targets part = {n, r.row + from,
                                              r.target + from};
                weft_k_head_logprob(&m.shape, &m.head, r.x, &part,
                                    1 / temperature, logp, entropy, lse,
                                    scratch);
                bad += memcmp(logp, r.logp + from, (size_t) n * 4) != 0;
                bad += memcmp(entropy, r.entropy + from, (size_t) n * 4) != 0;
                bad += memcmp(lse, r.lse + from, (size_t) n * 4) != 0;
                weft_k_head_logits(&m.shape, &m.head, n, r.x + from * m.h,
                                   logits, scratch);
                for (int32_t i = 0; i < n; i++) {
                    float *z = logits + i * m.v;
                    float l = weft_k_lse(&m.shape, z, 1 / temperature);
                    float p = z[r.target[from + i]] * (1 / temperature) - l;
                    bad += memcmp(&l, &r.lse[from + i], 4) != 0;
                    bad += memcmp(&p, &r.logp[from + i], 4) != 0;
                }
            }
            CHECK_INT(bad, 0);
            /* and the sampled token's log-prob is the training one */
            struct weft_k_sampling sampling = {
                .temperature = temperature, .top_p = 1, .seed = 5};
            void *pool = scratch_get((size_t) m.v * 8);
            float sampled[33];
            for (int32_t i = 0; i < 33; i++) {
                sampling.top_k = i % 3 == 1 ? 20 : 0;
                sampling.top_p = i % 3 == 2 ? 0.9f : 1;
                r.target[i] = weft_k_sample(&m.shape, &sampling,
                                            logits + i * m.v, 1, 2,
                                            (uint32_t) i, &sampled[i], pool);
                REQUIRE(r.target[i] >= 0 && r.target[i] < m.v);
            }
            logprob(&m, &r, 1 / temperature);
            CHECK(memcmp(sampled, r.logp, sizeof sampled) == 0);
            weft_free(pool);
            weft_free(logits);
            weft_free(scratch);
            rows_release(&r);
            model_release(&m);
        }
}

static void test_logprob_same_bits(void)
{
    each_isa(same_bits);
}

/* More rows than a chunk holds. */
static void test_logprob_many_rows(void)
{
    struct model m;
    struct rows r, one;
    model_init(&m, 200, 16, 2, WEFT_BF16);
    rows_init(&r, &m, 300, 1);
    logprob(&m, &r, 1);
    int bad = 0;
    one = r;
    float values[3] = {0};
    one.n = one.targets.n = 1;
    one.logp = &values[0];
    one.entropy = &values[1];
    one.lse = &values[2];
    for (int32_t i = 0; i < r.n; i += 7) {
        one.targets.row = r.row + i;
        one.targets.target = r.target + i;
        logprob(&m, &one, 1);
        bad += values[0] != r.logp[i] || values[1] != r.entropy[i]
            || values[2] != r.lse[i];
    }
    CHECK_INT(bad, 0);
    rows_release(&r);
    model_release(&m);
}

struct grads {
    float *dx, *final, *block[WEFT_MAX_BLOCKS];
};

static void grads_init(struct grads *g, const struct model *m, int32_t n)
{
    g->dx = scratch_get((size_t) (n * m->h) * 4);
    g->final = weft_alloc((size_t) m->h, sizeof(float));
    for (int32_t t = 0; t < m->shape.n_blocks; t++) {
        g->block[t] = weft_alloc_aligned(m->n_flat[t], sizeof(float));
        REQUIRE(g->block[t] != NULL);
    }
}

static void grads_release(struct grads *g, const struct model *m)
{
    weft_free(g->dx);
    weft_free(g->final);
    for (int32_t t = 0; t < m->shape.n_blocks; t++)
        weft_free(g->block[t]);
}

static float *weight_grad(const struct model *m, const struct grads *g,
                          int32_t v, int32_t k)
{
    int32_t t = m->shape.n_blocks - 1;
    struct weft_layout l;
    while (v < m->shape.block[t].vocab0)
        t--;
    weft_layout_get(&m->shape, WEFT_TILE_HEAD, t, &l);
    return &g->block[t][weft_flat_index(&l.part[0],
                                        v - m->shape.block[t].vocab0, k)];
}

static double slope(const struct model *m, const struct rows *r, float *at,
                    float scale, bool entropy)
{
    float keep = *at;
    *at = keep + 0x1p-6f;
    double high = (double) *at, up = naive_loss(m, r, scale, entropy);
    *at = keep - 0x1p-6f;
    double low = (double) *at, down = naive_loss(m, r, scale, entropy);
    *at = keep;
    return (up - down) / (high - low);
}

/* Finite differences of the double reference, f32. */
static void differences(void)
{
    static const int32_t run[] = {3, 2, 1};
    for (int e = 0; e < 2; e++)
        for (int32_t blocks = 1; blocks <= 2; blocks++) {
            struct model m;
            struct rows r;
            struct grads g;
            float scale = 0.8f;
            model_init(&m, 131, 12, blocks, WEFT_F32);
            rows_init(&r, &m, 11, 2);
            grads_init(&g, &m, r.n_rows);
            logprob(&m, &r, scale);
            backward(&m, &r, 3, run, scale, e, g.dx, g.block, g.final);
            int bad = 0;
            /* central differences: step^2 / 6 * third derivative (< 5),
             * and f32 sums of values below 4 */
            for (int32_t i = 0; i < r.n_rows * m.h; i += 5)
                bad += fabs(slope(&m, &r, &r.x[i], scale, e)
                            - (double) g.dx[i])
                     > 3e-4;
            for (int32_t i = 0; i < m.h; i++)
                bad += fabs(slope(&m, &r, &m.final[i], scale, e)
                            - (double) g.final[i])
                     > 3e-4;
            for (int32_t i = 0; i < m.v * m.h; i += 37)
                bad += fabs(slope(&m, &r, &m.weight[i], scale, e)
                            - (double) *weight_grad(&m, &g, i / m.h, i % m.h))
                     > 3e-4;
            CHECK_INT(bad, 0);
            for (int32_t i = 0; i < m.h; i++) /* row 1 predicts nothing */
                CHECK(g.dx[m.h + i] == 0);
            grads_release(&g, &m);
            rows_release(&r);
            model_release(&m);
        }
}

static void test_backward_finite_differences(void)
{
    each_isa(differences);
}

/* Double loops over the formula, at sizes that cross chunks and blocks. */
static void naive_gradients(const struct model *m, const struct rows *r,
                            float scale, double *dw, double *dy)
{
    double *z = malloc((size_t) m->v * sizeof *z);
    float *y = malloc((size_t) m->h * sizeof *y);
    uint16_t *b = malloc((size_t) m->h * sizeof *b);
    REQUIRE(z && y && b);
    for (int32_t i = 0; i < r->n; i++) {
        const float *x = r->x + (int64_t) r->row[i] * m->h;
        bool half = m->shape.dtype == WEFT_BF16;
        weft_k_rmsnorm(m->shape.dtype, 1, m->h, m->shape.rms_eps, x, m->final,
                       half ? (void *) b : (void *) y);
        if (half)
            weft_convert(y, WEFT_F32, b, WEFT_BF16, (size_t) m->h);
        naive_logits(m, x, scale, z);
        struct naive s = naive_softmax(z, m->v);
        for (int32_t j = 0; j < m->h; j++)
            dy[i * m->h + j] = 0;
        for (int32_t v = 0; v < m->v; v++) {
            double p = exp(z[v] - s.lse), hit = v == r->target[i];
            double d = (double) scale
                     * ((double) r->dlogp[i] * (hit - p)
                        - (double) r->dentropy[i] * p
                              * (z[v] - s.lse + s.entropy));
            for (int32_t j = 0; j < m->h; j++) {
                dw[(int64_t) v * m->h + j] += d * (double) y[j];
                dy[i * m->h + j] +=
                    d * (double) m->weight[(int64_t) v * m->h + j];
            }
        }
    }
    free(z);
    free(y);
    free(b);
}

static void compare_gradients(const struct model *m, const struct rows *r,
                              const struct grads *g, float scale)
{
    size_t n_w = (size_t) m->v * (size_t) m->h;
    double *dw = calloc(n_w, sizeof *dw);
    double *dy = calloc((size_t) (r->n * m->h), sizeof *dy);
    float *dx = calloc((size_t) (r->n_rows * m->h), sizeof *dx);
    float *final = calloc((size_t) m->h, sizeof *final);
    float *row = calloc((size_t) m->h, sizeof *row);
    REQUIRE(dw && dy && dx && final && row);
    naive_gradients(m, r, scale, dw, dy);
    for (int32_t i = 0; i < r->n; i++) {
        int64_t at = (int64_t) r->row[i] * m->h;
        for (int32_t j = 0; j < m->h; j++)
            row[j] = (float) dy[i * m->h + j];
        weft_k_rmsnorm_backward(1, m->h, m->shape.rms_eps, r->x + at,
                                m->final, row, dx + at, final);
    }
    /* relative to the size of the sums' terms: rounding of dlogits to bf16
     * (2^-9), or of f32 chains; logits' errors below 1e-4 in both */
    double tolerance = m->shape.dtype == WEFT_BF16 ? 1.2e-2 : 3e-4;
    int bad = 0;
    for (int32_t v = 0; v < m->v; v++)
        for (int32_t k = 0; k < m->h; k++)
            bad += fabs(dw[(int64_t) v * m->h + k]
                        - (double) *weight_grad(m, g, v, k))
                 > tolerance;
    CHECK_INT(bad, 0);
    bad = 0;
    for (int32_t i = 0; i < r->n_rows * m->h; i++)
        bad += fabs((double) dx[i] - (double) g->dx[i]) > tolerance;
    for (int32_t i = 0; i < m->h; i++)
        bad += fabs((double) final[i] - (double) g->final[i]) > 3 * tolerance;
    CHECK_INT(bad, 0);
    free(dw);
    free(dy);
    free(dx);
    free(final);
    free(row);
}

static void naive_backward(void)
{
    static const int32_t run[] = {1, 3, 0, 2};
    for (size_t s = 0; s < WEFT_COUNT(sizes); s++)
        for (size_t d = 0; d < 2; d++) {
            struct model m;
            struct rows r;
            struct grads g;
            model_init(&m, sizes[s].v, sizes[s].h, sizes[s].n_blocks,
                       dtypes[d]);
            rows_init(&r, &m, 11, 2);
            grads_init(&g, &m, r.n_rows);
            logprob(&m, &r, 0.8f);
            backward(&m, &r, 4, run, 0.8f, true, g.dx, g.block, g.final);
            compare_gradients(&m, &r, &g, 0.8f);
            grads_release(&g, &m);
            rows_release(&r);
            model_release(&m);
        }
}

static void test_backward_naive(void)
{
    each_isa(naive_backward);
}

/* One call over many samples, more rows than a chunk, odd ones among them;
 * then a call per sample, continuing: identical bits. */
static void cut_anywhere(void)
{
    static const int32_t run[] = {7, 101, 1, 300, 0, 33, 3};
    for (size_t d = 0; d < 2; d++) {
        struct model m;
        struct rows r, part;
        struct grads g, c;
        model_init(&m, 1091, 6, 2, dtypes[d]);
        rows_init(&r, &m, 445, 1);
        grads_init(&g, &m, r.n_rows);
        grads_init(&c, &m, r.n_rows);
        logprob(&m, &r, 1);
        backward(&m, &r, 7, run, 1, true, g.dx, g.block, g.final);
        int32_t at = 0;
        for (size_t i = 0; i < WEFT_COUNT(run); at += run[i++]) {
            part = r;
            part.n = part.n_rows = part.targets.n = run[i];
            part.x += at * m.h;
            part.targets.target += at;
            part.lse += at;
            part.entropy += at;
            part.dlogp += at;
            part.dentropy += at;
            if (run[i] > 0)
                backward(&m, &part, 1, &run[i], 1, true, c.dx + at * m.h,
                         c.block, c.final);
        }
        CHECK_INT(at, r.n);
        CHECK(memcmp(g.dx, c.dx, (size_t) (r.n_rows * m.h) * 4) == 0);
        CHECK(memcmp(g.final, c.final, (size_t) m.h * 4) == 0);
        for (int32_t t = 0; t < 2; t++)
            CHECK(memcmp(g.block[t], c.block[t], m.n_flat[t] * 4) == 0);
        grads_release(&c, &m);
        grads_release(&g, &m);
        rows_release(&r);
        model_release(&m);
    }
}

static void test_backward_cut_anywhere(void)
{
    each_isa(cut_anywhere);
}

/* No entropy gradient is the same as one of zero. */
static void test_backward_without_entropy(void)
{
    struct model m;
    struct rows r;
    struct grads g, z;
    int32_t run = 5;
    model_init(&m, 300, 8, 4, WEFT_F32);
    rows_init(&r, &m, 5, 1);
    memset(r.dentropy, 0, 5 * sizeof(float));
    grads_init(&g, &m, 5);
    grads_init(&z, &m, 5);
    logprob(&m, &r, 1);
    backward(&m, &r, 1, &run, 1, false, g.dx, g.block, g.final);
    backward(&m, &r, 1, &run, 1, true, z.dx, z.block, z.final);
    CHECK(memcmp(g.dx, z.dx, (size_t) (5 * m.h) * 4) == 0);
    for (int32_t t = 0; t < 4; t++)
        CHECK(memcmp(g.block[t], z.block[t], m.n_flat[t] * 4) == 0);
    grads_release(&g, &m);
    grads_release(&z, &m);
    rows_release(&r);
    model_release(&m);
}

WEFT_TESTS("kern/head", {"test_logprob_naive", test_logprob_naive},
           {"test_logprob_same_bits", test_logprob_same_bits},
           {"test_logprob_many_rows", test_logprob_many_rows},
           {"test_backward_finite_differences",
            test_backward_finite_differences},
           {"test_backward_naive", test_backward_naive},
           {"test_backward_cut_anywhere", test_backward_cut_anywhere},
           {"test_backward_without_entropy", test_backward_without_entropy})
