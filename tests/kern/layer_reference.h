/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A decoder layer in double loops, forward and backward, one sample at a
 * time, on matrices in their natural order: the oracle of the layer's tests.
 */
#ifndef WEFT_TESTS_KERN_LAYER_REFERENCE_H
#define WEFT_TESTS_KERN_LAYER_REFERENCE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kern/kern.h"

enum ref_matrix {
    REF_Q,
    REF_K,
    REF_V,
    REF_O,
    REF_GATE,
    REF_UP,
    REF_DOWN,
    REF_QB,
    REF_KB,
    REF_VB,
    REF_OB,
    REF_NORM1,
    REF_NORM2,
    REF_QNORM,
    REF_KNORM,
    REF_N
};

/* Weights (or their gradients): matrix (n[i], k[i]), vectors k = 1; NULL
 * where the shape has none. */
struct ref_layer {
    int64_t n[REF_N], k[REF_N];
    double *w[REF_N];
};

static inline double *ref_zeros(int64_t n)
{
    return calloc((size_t) n + 1, sizeof(double));
}

static inline struct ref_layer ref_create(const struct weft_shape *s)
{
    struct ref_layer r = {{0}, {0}, {0}};
    int64_t h = s->hidden, q = s->n_heads * s->head_dim;
    int64_t kv = s->n_kv_heads * s->head_dim, i = s->intermediate;
    int64_t size[REF_N][2] = {{q, h},
                              {kv, h},
                              {kv, h},
                              {h, q},
                              {i, h},
                              {i, h},
                              {h, i},
                              {s->qkv_bias ? q : 0, 1},
                              {s->qkv_bias ? kv : 0, 1},
                              {s->qkv_bias ? kv : 0, 1},
                              {s->o_bias ? h : 0, 1},
                              {h, 1},
                              {h, 1},
                              {s->qk_norm ? s->head_dim : 0, 1},
                              {s->qk_norm ? s->head_dim : 0, 1}};
    for (int m = 0; m < REF_N; m++) {
        r.n[m] = size[m][0];
        r.k[m] = size[m][1];
        r.w[m] = r.n[m] ? ref_zeros(r.n[m] * r.k[m]) : NULL;
    }
    return r;
}

static inline void ref_release(struct ref_layer *r)
{
    for (int m = 0; m < REF_N; m++)
        free(r->w[m]);
}

/* Calls visit(natural element, flat element) for every element of block t's
 * tile, or of the norms' (t < 0); replicas too. */
typedef void (*ref_visit_fn)(double *natural, float *flat);

static inline void ref_visit_rows(struct ref_layer *r, int m, int64_t first,
                                  int64_t n, const struct weft_part *p,
                                  int64_t row, float *tile,
                                  ref_visit_fn visit)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < r->k[m]; k++)
            visit(&r->w[m][(first + i) * r->k[m] + k],
                  tile + p->offset
                      + (p->k ? weft_flat_index(p, row + i, k)
                              : (size_t) (row + i)));
}

static inline void ref_visit_block(const struct weft_shape *s, int32_t t,
                                   struct ref_layer *r, float *tile,
                                   ref_visit_fn visit)
{
    const struct weft_block *b = &s->block[t];
    int64_t d = s->head_dim, q = b->n_heads * d, kv = b->n_kv * d;
    struct weft_layout l;
    weft_layout_get(s, WEFT_TILE_LAYER, t, &l);
    for (int bias = 0; bias < 2; bias++) {
        const struct weft_part *p = weft_layout_part(
            &l, bias ? WEFT_PART_QKV_BIAS : WEFT_PART_QKV);
        int m = bias ? REF_QB : REF_Q;
        if (!p)
            continue;
        ref_visit_rows(r, m, b->head0 * d, q, p, 0, tile, visit);
        ref_visit_rows(r, m + 1, b->kv0 * d, kv, p, q, tile, visit);
        ref_visit_rows(r, m + 2, b->kv0 * d, kv, p, q + kv, tile, visit);
    }
    const struct weft_part *o = weft_layout_part(&l, WEFT_PART_O);
    for (int64_t i = 0; i < s->hidden; i++)
        for (int64_t k = 0; k < q; k++)
            visit(&r->w[REF_O][i * r->k[REF_O] + b->head0 * d + k],
                  tile + o->offset + weft_flat_index(o, i, k));
    const struct weft_part *gu = weft_layout_part(&l, WEFT_PART_GATE_UP);
    const struct weft_part *dn = weft_layout_part(&l, WEFT_PART_DOWN);
    for (int64_t f = 0; f < b->n_ff; f++)
        for (int64_t k = 0; k < s->hidden; k++) {
            int64_t at = (b->ff0 + f) * s->hidden + k;
            visit(&r->w[REF_GATE][at],
                  tile + gu->offset
                      + weft_flat_index(gu, weft_gate_up_row(f, false), k));
            visit(&r->w[REF_UP][at],
                  tile + gu->offset
                      + weft_flat_index(gu, weft_gate_up_row(f, true), k));
            visit(&r->w[REF_DOWN][k * r->k[REF_DOWN] + b->ff0 + f],
                  tile + dn->offset + weft_flat_index(dn, k, f));
        }
}

static inline void ref_visit_norms(const struct weft_shape *s,
                                   struct ref_layer *r, float *tile,
                                   ref_visit_fn visit)
{
    static const int part[5][2] = {{WEFT_PART_NORM1, REF_NORM1},
                                   {WEFT_PART_NORM2, REF_NORM2},
                                   {WEFT_PART_QNORM, REF_QNORM},
                                   {WEFT_PART_KNORM, REF_KNORM},
                                   {WEFT_PART_O_BIAS, REF_OB}};
    struct weft_layout l;
    weft_layout_get(s, WEFT_TILE_NORMS, 0, &l);
    for (int i = 0; i < 5; i++) {
        const struct weft_part *p = weft_layout_part(
            &l, (enum weft_part_id) part[i][0]);
        if (p)
            ref_visit_rows(r, part[i][1], 0, r->n[part[i][1]], p, 0, tile,
                           visit);
    }
}

/* ---- Arithmetic -------------------------------------------------------- */

/* y (m, n) = x (m, k) w^T + b */
static inline double *ref_linear(int64_t m, const double *x, int64_t n,
                                 int64_t k, const double *w, const double *b)
{
    double *y = ref_zeros(m * n);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = b ? b[j] : 0;
            for (int64_t l = 0; l < k; l++)
                sum += x[i * k + l] * w[j * k + l];
            y[i * n + j] = sum;
        }
    return y;
}

/* dx (m, k) += dy w, dw += dy^T x, db += sum dy */
static inline void ref_linear_backward(int64_t m, const double *x, int64_t n,
                                       int64_t k, const double *w,
                                       const double *dy, double *dx,
                                       double *dw, double *db)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double g = dy[i * n + j];
            if (db)
                db[j] += g;
            for (int64_t l = 0; l < k; l++) {
                dx[i * k + l] += g * w[j * k + l];
                dw[j * k + l] += g * x[i * k + l];
            }
        }
}

static inline double *ref_norm(int64_t m, int64_t h, double eps,
                               const double *x, const double *w)
{
    double *y = ref_zeros(m * h);
    for (int64_t i = 0; i < m; i++) {
        double sum = 0;
        for (int64_t j = 0; j < h; j++)
            sum += x[i * h + j] * x[i * h + j];
        double inv = 1 / sqrt(sum / (double) h + eps);
        for (int64_t j = 0; j < h; j++)
            y[i * h + j] = x[i * h + j] * inv * w[j];
    }
    return y;
}

static inline void ref_norm_backward(int64_t m, int64_t h, double eps,
                                     const double *x, const double *w,
                                     const double *dy, double *dx, double *dw)
{
    for (int64_t i = 0; i < m; i++, x += h, dy += h, dx += h) {
        double sum = 0, dot = 0;
        for (int64_t j = 0; j < h; j++) {
            sum += x[j] * x[j];
            dot += dy[j] * w[j] * x[j];
        }
        double inv = 1 / sqrt(sum / (double) h + eps);
        for (int64_t j = 0; j < h; j++) {
            dx[j] += inv * dy[j] * w[j]
                   - x[j] * dot * inv * inv * inv / (double) h;
            dw[j] += dy[j] * x[j] * inv;
        }
    }
}

static inline double ref_frequency(const struct weft_shape *s, int64_t i)
{
    double f = pow(s->rope_theta, -2.0 * (double) i / s->head_dim);
    if (s->rope == WEFT_ROPE_LINEAR)
        return f / s->rope_factor;
    if (s->rope != WEFT_ROPE_LLAMA3)
        return f;
    /* as in transformers: by wavelengths */
    double wave = 2 * acos(-1.0) / f;
    if (wave > s->rope_original / s->rope_low)
        return f / s->rope_factor;
    if (wave < s->rope_original / s->rope_high)
        return f;
    double smooth = (s->rope_original / wave - s->rope_low)
                  / (s->rope_high - s->rope_low);
    return (1 - smooth) * f / s->rope_factor + smooth * f;
}

/* x (m, heads, D) at positions 0..m-1; sign -1: backward. */
static inline void ref_rope(const struct weft_shape *s, int64_t m,
                            int64_t heads, double *x, double sign)
{
    int64_t d = s->head_dim, half = d / 2;
    for (int64_t p = 0; p < m; p++)
        for (int64_t a = 0; a < heads; a++)
            for (int64_t i = 0; i < half; i++) {
                double *row = x + (p * heads + a) * d;
                double angle = (double) p * ref_frequency(s, i) * sign;
                double u = row[i], v = row[i + half];
                row[i] = u * cos(angle) - v * sin(angle);
                row[i + half] = v * cos(angle) + u * sin(angle);
            }
}

/* Causal attention; with dout, the gradients too (added). */
static inline void ref_attention(const struct weft_shape *s, int64_t m,
                                 const double *q, const double *k,
                                 const double *v, double *out,
                                 const double *dout, double *dq, double *dk,
                                 double *dv)
{
    int64_t d = s->head_dim, a = s->n_heads, c = s->n_kv_heads;
    double scale = 1 / sqrt((double) d);
    double *p = ref_zeros(m), *dp = ref_zeros(m);
    for (int64_t h = 0; h < a; h++)
        for (int64_t i = 0; i < m; i++) {
            int64_t kv = h / (a / c), qi = (i * a + h) * d;
            double max = -INFINITY, sum = 0, delta = 0;
            for (int64_t j = 0; j <= i; j++) {
                p[j] = 0;
                for (int64_t l = 0; l < d; l++)
                    p[j] += q[qi + l] * k[(j * c + kv) * d + l] * scale;
                max = p[j] > max ? p[j] : max;
            }
            for (int64_t j = 0; j <= i; j++)
                sum += p[j] = exp(p[j] - max);
            for (int64_t j = 0; j <= i; j++) {
                p[j] /= sum;
                for (int64_t l = 0; l < d; l++)
                    out[qi + l] += p[j] * v[(j * c + kv) * d + l];
            }
            for (int64_t j = 0; dout && j <= i; j++) {
                dp[j] = 0;
                for (int64_t l = 0; l < d; l++)
                    dp[j] += dout[qi + l] * v[(j * c + kv) * d + l];
                delta += p[j] * dp[j];
            }
            for (int64_t j = 0; dout && j <= i; j++)
                for (int64_t l = 0; l < d; l++) {
                    int64_t kj = (j * c + kv) * d + l;
                    double ds = p[j] * (dp[j] - delta) * scale;
                    dv[kj] += p[j] * dout[qi + l];
                    dk[kj] += ds * q[qi + l];
                    dq[qi + l] += ds * k[kj];
                }
        }
    free(p);
    free(dp);
}

/* y (m, H) of one sample x (m, H). With dy: dx (overwritten), and gradients
 * added to g. */
static inline void ref_layer_run(const struct weft_shape *s,
                                 const struct ref_layer *r, int64_t m,
                                 const double *x, double *y, const double *dy,
                                 double *dx, struct ref_layer *g)
{
    int64_t h = s->hidden, f = s->intermediate, d = s->head_dim;
    int64_t a = s->n_heads, c = s->n_kv_heads, nq = a * d, nk = c * d;
    double eps = s->rms_eps, *const *w = r->w;
    double *n1 = ref_norm(m, h, eps, x, w[REF_NORM1]);
    double *q0 = ref_linear(m, n1, nq, h, w[REF_Q], w[REF_QB]), *q = q0;
    double *k0 = ref_linear(m, n1, nk, h, w[REF_K], w[REF_KB]), *k = k0;
    double *v = ref_linear(m, n1, nk, h, w[REF_V], w[REF_VB]);
    if (s->qk_norm) {
        q = ref_norm(m * a, d, eps, q0, w[REF_QNORM]);
        k = ref_norm(m * c, d, eps, k0, w[REF_KNORM]);
    }
    ref_rope(s, m, a, q, 1);
    ref_rope(s, m, c, k, 1);
    double *att = ref_zeros(m * nq);
    ref_attention(s, m, q, k, v, att, NULL, NULL, NULL, NULL);
    double *mid = ref_linear(m, att, h, nq, w[REF_O], w[REF_OB]);
    for (int64_t i = 0; i < m * h; i++)
        mid[i] += x[i];
    double *n2 = ref_norm(m, h, eps, mid, w[REF_NORM2]);
    double *gate = ref_linear(m, n2, f, h, w[REF_GATE], NULL);
    double *up = ref_linear(m, n2, f, h, w[REF_UP], NULL);
    double *act = ref_zeros(m * f);
    for (int64_t i = 0; i < m * f; i++)
        act[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
    double *down = ref_linear(m, act, h, f, w[REF_DOWN], NULL);
    for (int64_t i = 0; i < m * h; i++)
        y[i] = mid[i] + down[i];
    if (dy) {
        double *dact = ref_zeros(m * f), *dgate = ref_zeros(m * f);
        double *dup = ref_zeros(m * f), *dn = ref_zeros(m * h);
        double *datt = ref_zeros(m * nq), *dq = ref_zeros(m * nq);
        double *dk = ref_zeros(m * nk), *dv = ref_zeros(m * nk);
        double *dq0 = ref_zeros(m * nq), *dk0 = ref_zeros(m * nk);
        double *out = ref_zeros(m * nq);
        double **gw = g->w;
        memcpy(dx, dy, (size_t) (m * h) * sizeof *dx);
        ref_linear_backward(m, act, h, f, w[REF_DOWN], dx, dact, gw[REF_DOWN],
                            NULL);
        for (int64_t i = 0; i < m * f; i++) {
            double e = 1 / (1 + exp(-gate[i]));
            dup[i] = dact[i] * gate[i] * e;
            dgate[i] = dact[i] * up[i] * e * (1 + gate[i] * (1 - e));
        }
        ref_linear_backward(m, n2, f, h, w[REF_GATE], dgate, dn, gw[REF_GATE],
                            NULL);
        ref_linear_backward(m, n2, f, h, w[REF_UP], dup, dn, gw[REF_UP],
                            NULL);
        ref_norm_backward(m, h, eps, mid, w[REF_NORM2], dn, dx,
                          gw[REF_NORM2]);
        memset(dn, 0, (size_t) (m * h) * sizeof *dn);
        ref_linear_backward(m, att, h, nq, w[REF_O], dx, datt, gw[REF_O],
                            gw[REF_OB]);
        ref_attention(s, m, q, k, v, out, datt, dq, dk, dv);
        ref_rope(s, m, a, dq, -1);
        ref_rope(s, m, c, dk, -1);
        if (s->qk_norm) {
            ref_norm_backward(m * a, d, eps, q0, w[REF_QNORM], dq, dq0,
                              gw[REF_QNORM]);
            ref_norm_backward(m * c, d, eps, k0, w[REF_KNORM], dk, dk0,
                              gw[REF_KNORM]);
        }
        ref_linear_backward(m, n1, nq, h, w[REF_Q], s->qk_norm ? dq0 : dq, dn,
                            gw[REF_Q], gw[REF_QB]);
        ref_linear_backward(m, n1, nk, h, w[REF_K], s->qk_norm ? dk0 : dk, dn,
                            gw[REF_K], gw[REF_KB]);
        ref_linear_backward(m, n1, nk, h, w[REF_V], dv, dn, gw[REF_V],
                            gw[REF_VB]);
        ref_norm_backward(m, h, eps, x, w[REF_NORM1], dn, dx, gw[REF_NORM1]);
        double *all[] = {dact, dgate, dup, dn,  datt, dq,
                         dk,   dv,    dq0, dk0, out};
        for (size_t i = 0; i < WEFT_COUNT(all); i++)
            free(all[i]);
    }
    double *all[] = {n1,
                     q0,
                     k0,
                     v,
                     att,
                     mid,
                     n2,
                     gate,
                     up,
                     act,
                     down,
                     s->qk_norm ? q : NULL,
                     s->qk_norm ? k : NULL};
    for (size_t i = 0; i < WEFT_COUNT(all); i++)
        free(all[i]);
}

#endif
