/* SPDX-License-Identifier: Apache-2.0 */
/* A layer with random weights, packed for the kernels, and its oracle. */
#ifndef WEFT_TESTS_KERN_LAYER_FIXTURE_H
#define WEFT_TESTS_KERN_LAYER_FIXTURE_H

#include "base/alloc.h"
#include "each_isa.h"
#include "layer_reference.h"

struct fixture {
    struct weft_shape s;
    struct ref_layer ref, ref_grad;
    float *master[WEFT_MAX_BLOCKS], *grad[WEFT_MAX_BLOCKS];
    void *fwd[WEFT_MAX_BLOCKS], *bwd[WEFT_MAX_BLOCKS];
    float *norms, *grad_norms;
    struct weft_k_layer w;
    size_t n_flat[WEFT_MAX_BLOCKS], n_norms;
};

/* Deterministic numbers of about unit size. */
static inline double fixture_random(uint32_t stream, uint32_t i)
{
    return weft_rng_normal(7, WEFT_RNG_INIT, stream, 0, i);
}

static inline float *fixture_rows(uint32_t stream, int64_t n)
{
    float *x = weft_alloc_aligned((size_t) n, sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float) fixture_random(stream, (uint32_t) i);
    return x;
}

static inline void fixture_to_flat(double *natural, float *flat)
{
    *flat = (float) *natural;
}

static inline void fixture_init(struct fixture *f, struct weft_shape s,
                                int32_t n_blocks)
{
    struct weft_err err;
    *f = (struct fixture){.s = s};
    REQUIRE_OK(weft_shape_partition(&f->s, n_blocks, &err), err);
    f->ref = ref_create(&f->s);
    f->ref_grad = ref_create(&f->s);
    for (int m = 0; m < REF_N; m++) {
        double size = m < REF_QB ? 1 / sqrt((double) f->ref.k[m]) : 0.3;
        for (int64_t i = 0; i < f->ref.n[m] * f->ref.k[m]; i++) {
            double x = size
                     * fixture_random(100 + (uint32_t) m, (uint32_t) i);
            /* exact in bf16, so that both formats have one oracle */
            f->ref.w[m][i] = weft_bf16_to_f32(
                weft_f32_to_bf16((float) (m >= REF_NORM1 ? 1 + x : x)));
        }
    }
    struct weft_layout l;
    for (int32_t t = 0; t < f->s.n_blocks; t++) {
        weft_layout_get(&f->s, WEFT_TILE_LAYER, t, &l);
        f->n_flat[t] = l.n_flat;
        f->master[t] = weft_alloc_aligned(l.n_flat, sizeof(float));
        f->grad[t] = weft_alloc_aligned(l.n_flat, sizeof(float));
        f->fwd[t] = weft_alloc_aligned(l.fwd_bytes, 1);
        f->bwd[t] = weft_alloc_aligned(l.bwd_bytes, 1);
        ref_visit_block(&f->s, t, &f->ref, f->master[t], fixture_to_flat);
        weft_k_publish(&l, f->s.dtype, f->master[t], f->fwd[t], f->bwd[t]);
        f->w.fwd[t] = f->fwd[t];
        f->w.bwd[t] = f->bwd[t];
    }
    weft_layout_get(&f->s, WEFT_TILE_NORMS, 0, &l);
    f->n_norms = l.n_flat;
    f->norms = weft_alloc_aligned(l.n_flat, sizeof(float));
    f->grad_norms = weft_alloc_aligned(l.n_flat, sizeof(float));
    ref_visit_norms(&f->s, &f->ref, f->norms, fixture_to_flat);
    f->w.norms = f->norms;
}

static inline void fixture_zero_grad(struct fixture *f)
{
    for (int32_t t = 0; t < f->s.n_blocks; t++)
        memset(f->grad[t], 0, f->n_flat[t] * sizeof(float));
    memset(f->grad_norms, 0, f->n_norms * sizeof(float));
}

static inline void fixture_release(struct fixture *f)
{
    ref_release(&f->ref);
    ref_release(&f->ref_grad);
    for (int32_t t = 0; t < f->s.n_blocks; t++) {
        weft_free(f->master[t]);
        weft_free(f->grad[t]);
        weft_free(f->fwd[t]);
        weft_free(f->bwd[t]);
    }
    weft_free(f->norms);
    weft_free(f->grad_norms);
}

/* Runs from position 0 of the given lengths. */
struct fixture_batch {
    struct weft_k_run run[64];
    struct weft_k_batch b;
};

static inline void fixture_batch(struct fixture_batch *out, int32_t n,
                                 const int32_t *length)
{
    *out = (struct fixture_batch){.b = {.n_runs = n}};
    for (int32_t i = 0; i < n; i++) {
        out->run[i].n = length[i];
        out->b.n_rows += length[i];
    }
    out->b.run = out->run;
}

/* y, and with dx (in: of y, out: of x) also backward. */
static inline void fixture_run(struct fixture *f,
                               const struct weft_k_batch *b, const float *x,
                               float *y, float *dx, bool recompute)
{
    size_t bytes = weft_k_layer_saved_bytes(&f->s, b->n_rows);
    void *saved = dx && !recompute ? weft_alloc_aligned(bytes, 1) : NULL;
    void *scratch = weft_alloc_aligned(
        weft_k_layer_forward_scratch_bytes(&f->s, b), 1);
    weft_k_layer_forward(&f->s, &f->w, 0, b, NULL, x, y, saved, scratch);
    weft_free(scratch);
    if (dx) {
        scratch = weft_alloc_aligned(
            weft_k_layer_backward_scratch_bytes(&f->s, b, recompute), 1);
        weft_k_layer_backward(&f->s, &f->w, b, x, saved, dx, f->grad,
                              f->grad_norms, scratch);
        weft_free(scratch);
    }
    weft_free(saved);
}

#endif
