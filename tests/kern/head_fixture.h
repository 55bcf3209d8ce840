/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A language-model head with random weights, rows that predict, and the
 * head's sums in double.
 */
#ifndef WEFT_TESTS_KERN_HEAD_FIXTURE_H
#define WEFT_TESTS_KERN_HEAD_FIXTURE_H

#include <math.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "each_isa.h"

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

static inline float noise(uint32_t stream, int64_t i)
{
    return (float) weft_rng_normal(17, WEFT_RNG_INIT, stream, 0,
                                   (uint32_t) i);
}

static inline float rounded(enum weft_dtype d, float x)
{
    return d == WEFT_BF16 ? weft_bf16_to_f32(weft_f32_to_bf16(x)) : x;
}

static inline void model_init(struct model *m, int32_t v, int32_t h,
                              int32_t n_blocks, enum weft_dtype dtype)
{
    struct weft_err err = {0};
    struct weft_layout l;
    *m = (struct model){.shape = {.hidden = h,
                                  .n_heads = 32,
                                  .n_kv_heads = 32,
                                  .head_dim = 4,
                                  .intermediate = 2048,
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

static inline void model_release(struct model *m)
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
static inline void rows_init(struct rows *r, const struct model *m,
                             int32_t n_rows, int32_t step)
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
    r->targets = (struct weft_k_targets){r->n, r->row, r->target, 0, NULL};
}

/* The forward pass keeps the logits of the first n rows. */
static inline void rows_keep(struct rows *r, const struct model *m, int32_t n)
{
    weft_free(r->targets.logits);
    r->targets.logits = weft_alloc((size_t) n * (size_t) m->v, sizeof(float));
    r->targets.n_logits = n;
    REQUIRE(r->targets.logits != NULL);
}

static inline void rows_release(struct rows *r)
{
    weft_free(r->targets.logits);
    weft_free(r->x);
    weft_free(r->logp);
    weft_free(r->row);
}

static inline void *scratch_get(size_t bytes)
{
    void *p = weft_alloc_aligned(1, bytes);
    REQUIRE(p != NULL);
    memset(p, 0xff, bytes); /* its contents do not matter: NaN */
    return p;
}

static inline void logprob(const struct model *m, struct rows *r, float scale)
{
    void *scratch = scratch_get(weft_k_head_scratch_bytes(&m->shape, r->n));
    weft_k_head_logprob(&m->shape, &m->head, r->x, &r->targets, scale,
                        r->logp, r->entropy, r->lse, scratch);
    weft_free(scratch);
}

/* ---- Reference in double ----------------------------------------------- */

/* Scaled logits of one row; `normed` is rounded as the kernel rounds it. */
static inline void naive_logits(const struct model *m, const float *x,
                                float scale, double *z)
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

static inline struct naive naive_softmax(const double *z, int32_t v)
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

/* ---- Cases ------------------------------------------------------------- */

static const struct {
    int32_t v, h, n_blocks;
} sizes[] = {{1, 2, 1},     {31, 2, 1},    {130, 16, 2},  {257, 24, 4},
             {513, 32, 8},  {2050, 8, 1},  {4177, 16, 2}, {65, 64, 2},
             {1025, 6, 16}, {2101, 10, 32}};

static const enum weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16};

#endif
