/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The language-model head: final norm, logits, log-probs and entropy.
 *
 * Log-probs take WEFT_SOFTMAX_COLUMNS columns of a vocabulary block at a time
 * for up to ROWS rows, so that a chunk of logits stays in cache and the whole
 * never exists. A row's numbers do not depend on the rows beside it: products
 * do not, and everything else is per row.
 */
#include "kern/head.h"

enum { ROWS = 128 };

void weft_head_norm(const struct weft_shape *s, const float *final,
                    const float *x, const int32_t *row, int32_t n, void *y)
{
    int64_t h = s->hidden, bytes = h * (int64_t) weft_dtype_bytes(s->dtype);
    for (int32_t i = 0; i < n; i++)
        weft_k_rmsnorm(s->dtype, 1, h, s->rms_eps, x + (row ? row[i] : i) * h,
                       final, (char *) y + i * bytes);
}

void weft_head_gemm(const struct weft_shape *s,
                    const struct weft_k_head *head, int32_t t, int64_t j,
                    int64_t m, int64_t n, const void *normed, float *logits,
                    int64_t ld)
{
    int64_t h = s->hidden;
    struct weft_k_gemm_args args = {
        .dtype = s->dtype,
        .y_dtype = WEFT_F32,
        .m = m,
        .n = n,
        .n_blocks = 1,
        .x = {normed},
        .ldx = {h},
        .w = {(const char *) head->fwd[t]
              + (size_t) (j * h) * weft_dtype_bytes(s->dtype)},
        .k = {h},
        .y = logits,
        .ldy = ld,
    };
    weft_k_gemm(&args);
}

struct work {
    struct weft_softmax *state; /* (rows, T) */
    void *normed;               /* (rows, H) dtype */
    float *logits;              /* (rows, WEFT_SOFTMAX_COLUMNS) */
    float *hit;                 /* (rows) logit of the target, scaled */
};

/* Lays the work area out from `base`; returns its bytes. */
static size_t work_lay(const struct weft_shape *s, int32_t n, uintptr_t base,
                       struct work *out)
{
    uintptr_t at = base;
    int64_t rows = weft_min64(n, ROWS);
    int64_t element = (int64_t) weft_dtype_bytes(s->dtype);
    out->state = weft_head_take(
        &at,
        weft_head_align(rows * s->n_blocks * (int64_t) sizeof *out->state));
    out->normed = weft_head_take(&at,
                                 weft_head_align(rows * s->hidden * element));
    out->hit = weft_head_take(&at, weft_head_align(rows * 4));
    out->logits = weft_head_take(
        &at, weft_head_align(rows * WEFT_SOFTMAX_COLUMNS * 4));
    return at - base;
}

size_t weft_k_head_scratch_bytes(const struct weft_shape *shape, int32_t n)
{
    struct work work;
    return work_lay(shape, n, 0, &work);
}

/* A chunk of n columns from j of block t, for m rows. */
static void take_chunk(const struct weft_shape *s, const struct work *work,
                       const int32_t *target, float scale, int32_t t,
                       int64_t j, int32_t m, int64_t n)
{
    int64_t first = s->block[t].vocab0 + j;
    for (int32_t i = 0; i < m; i++) {
        const float *z = work->logits + (int64_t) i * WEFT_SOFTMAX_COLUMNS;
        struct weft_softmax *state = &work->state[i * s->n_blocks + t];
        struct weft_softmax chunk = weft_softmax_chunk(z, n, scale);
        *state = j == 0 ? chunk : weft_softmax_merge(*state, chunk);
        if (target[i] >= first && target[i] < first + n)
            work->hit[i] = z[target[i] - first] * scale;
    }
}

void weft_k_head_logprob(const struct weft_shape *s,
                         const struct weft_k_head *head, const float *x,
                         const struct weft_k_targets *targets,
                         float inv_temperature, float *logp_out,
                         float *entropy_out, float *lse_out, void *scratch)
{
    struct work work;
    work_lay(s, targets->n, (uintptr_t) scratch, &work);
    for (int32_t r = 0; r < targets->n; r += ROWS) {
        int32_t m = (int32_t) weft_min64(ROWS, targets->n - r);
        weft_head_norm(s, head->final, x, targets->row + r, m, work.normed);
        for (int32_t t = 0; t < s->n_blocks; t++) {
            int64_t columns = s->block[t].n_vocab;
            for (int64_t j = 0; j < columns; j += WEFT_SOFTMAX_COLUMNS) {
                int64_t n = weft_min64(WEFT_SOFTMAX_COLUMNS, columns - j);
                weft_head_gemm(s, head, t, j, m, n, work.normed, work.logits,
                               WEFT_SOFTMAX_COLUMNS);
                take_chunk(s, &work, targets->target + r, inv_temperature, t,
                           j, m, n);
            }
        }
        for (int32_t i = 0; i < m; i++) {
            struct weft_softmax all = weft_softmax_tree(
                &work.state[i * s->n_blocks], s->n_blocks);
            float lse = weft_softmax_lse(&all);
            logp_out[r + i] = work.hit[i] - lse;
            if (entropy_out)
                entropy_out[r + i] = weft_softmax_entropy(&all);
            if (lse_out)
                lse_out[r + i] = lse;
        }
    }
}

void weft_k_head_logits(const struct weft_shape *s,
                        const struct weft_k_head *head, int32_t n,
                        const float *x, float *logits, void *scratch)
{
    struct work work;
    work_lay(s, n, (uintptr_t) scratch, &work);
    for (int32_t r = 0; r < n; r += ROWS) {
        int32_t m = (int32_t) weft_min64(ROWS, n - r);
        weft_head_norm(s, head->final, x + (int64_t) r * s->hidden, NULL, m,
                       work.normed);
        for (int32_t t = 0; t < s->n_blocks; t++)
            weft_head_gemm(s, head, t, 0, m, s->block[t].n_vocab, work.normed,
                           logits + (int64_t) r * s->vocab
                               + s->block[t].vocab0,
                           s->vocab);
    }
}
