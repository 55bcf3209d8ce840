/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The language-model head's gradients against double loops, finite
 * differences, and themselves: the same bits for any cut into micro-batches.
 */
#include "head_fixture.h"

static void backward(const struct model *m, const struct rows *r,
                     int32_t n_runs, const int32_t *run_rows, float scale,
                     bool entropy, float *dx, float *const grad[],
                     float *grad_final)
{
    struct weft_k_head head = m->head;
    if (r->targets.n_logits == r->n) /* then it needs no weights for them */
        memset(head.fwd, 0, sizeof head.fwd);
    void *scratch = scratch_get(
        weft_k_head_backward_scratch_bytes(&m->shape, r->n, n_runs));
    weft_k_head_backward(&m->shape, &head, r->n_rows, r->x, &r->targets,
                         n_runs, run_rows, scale, r->lse, r->entropy,
                         r->dlogp, entropy ? r->dentropy : NULL, dx, grad,
                         grad_final, scratch);
    weft_free(scratch);
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

/* Of the 6 rows all logits are kept, some, or none. */
static void naive_backward(void)
{
    static const int32_t run[] = {1, 3, 0, 2}, kept[] = {0, 4, 6};
    for (size_t s = 0; s < WEFT_COUNT(sizes); s++)
        for (size_t d = 0; d < 2 * WEFT_COUNT(kept); d++) {
            struct model m;
            struct rows r;
            struct grads g;
            model_init(&m, sizes[s].v, sizes[s].h, sizes[s].n_blocks,
                       dtypes[d % 2]);
            rows_init(&r, &m, 11, 2);
            rows_keep(&r, &m, kept[d / 2]);
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

/* One call over many samples, more rows than a chunk, odd ones among them, with
 * all logits kept, those of the first chunk and some more, or none; then a call
 * per sample, continuing, which computes them again: identical bits. */
static void cut_anywhere(void)
{
    static const int32_t run[] = {7, 101, 1, 300, 0, 33, 3};
    static const int32_t kept[] = {0, 301, 445};
    for (size_t d = 0; d < 2 * WEFT_COUNT(kept); d++) {
        struct model m;
        struct rows r, part;
        struct grads g, c;
        model_init(&m, 1091, 6, 2, dtypes[d % 2]);
        rows_init(&r, &m, 445, 1);
        rows_keep(&r, &m, kept[d / 2]);
        grads_init(&g, &m, r.n_rows);
        grads_init(&c, &m, r.n_rows);
        logprob(&m, &r, 1);
        backward(&m, &r, 7, run, 1, true, g.dx, g.block, g.final);
        int32_t at = 0;
        for (size_t i = 0; i < WEFT_COUNT(run); at += run[i++]) {
            part = r;
            part.n = part.n_rows = part.targets.n = run[i];
            part.targets.n_logits = 0;
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

WEFT_TESTS("kern/head_backward",
           {"test_backward_finite_differences",
            test_backward_finite_differences},
           {"test_backward_naive", test_backward_naive},
           {"test_backward_cut_anywhere", test_backward_cut_anywhere},
           {"test_backward_without_entropy", test_backward_without_entropy})
