/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The language-model head: final norm, logits, log-probs and entropy.
 *
 * Log-probs are computed for WEFT_SOFTMAX_COLUMNS columns of a vocabulary
 * block and up to ROWS rows at a time, so that a chunk of logits stays in the
 * cache; only those that the targets keep exist at once. A row's results do not
 * depend on other rows: those of the products do not, and all else is done per
 * row.
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

size_t weft_k_head_part_bytes(struct weft_range range, int32_t n)
{
    struct weft_head_part part;
    return weft_head_part_at(range, n, 0, &part);
}

struct work {
    void *part;    /* of all rows and blocks */
    void *normed;  /* (rows, H) dtype */
    float *logits; /* (rows, columns of a chunk) */
};

/* Divides the work area at `base`; returns its size in bytes. */
static size_t work_lay(const struct weft_shape *s, int32_t n, uintptr_t base,
                       struct work *out)
{
    uintptr_t at = base;
    int64_t rows = weft_min64(n, ROWS);
    int64_t element = (int64_t) weft_dtype_bytes(s->dtype);
    struct weft_range all = weft_all_blocks(s);
    out->part = weft_head_take(&at, weft_k_head_part_bytes(all, n));
    out->normed = weft_head_take(&at,
                                 weft_head_align(rows * s->hidden * element));
    out->logits = weft_head_take(
        &at, weft_head_align(rows * WEFT_SOFTMAX_COLUMNS * 4));
    return at - base;
}

size_t weft_k_head_scratch_bytes(const struct weft_shape *shape, int32_t n)
{
    struct work work;
    return work_lay(shape, n, 0, &work);
}

/* Some rows of a range's part; pointers are to the first of them. */
struct rows {
    const struct weft_shape *s;
    struct weft_range range;
    int32_t n;
    const int32_t *target;
    float scale;
    struct weft_head_part part;
};

/* Adds a chunk of logits (rows, n), columns [j, j + n) of block t, to the
 * states. */
static void take_chunk(const struct rows *rows, const float *logits,
                       int32_t t, int64_t j, int64_t n)
{
    int64_t first = rows->s->block[t].vocab0 + j;
    for (int32_t i = 0; i < rows->n; i++) {
        const float *z = logits + i * n;
        struct weft_softmax *state =
            &rows->part.state[i * rows->range.n + t - rows->range.first];
        struct weft_softmax chunk = weft_softmax_chunk(z, n, rows->scale);
        int32_t target = rows->target[i];
        *state = j == 0 ? chunk : weft_softmax_merge(*state, chunk);
        if (target >= first && target < first + n)
            rows->part.hit[i] = z[target - first] * rows->scale;
    }
}

void weft_k_head_part(const struct weft_shape *s, struct weft_range range,
                      const struct weft_k_head *head, const float *x,
                      const struct weft_k_targets *targets,
                      float inv_temperature, void *part_out, void *scratch)
{
    struct work work;
    struct weft_head_part part;
    work_lay(s, targets->n, (uintptr_t) scratch, &work);
    weft_head_part_at(range, targets->n, (uintptr_t) part_out, &part);
    int32_t m;
    for (int32_t r = 0; r < targets->n; r += m) {
        bool keeps = r < targets->n_logits;
        int32_t end = keeps ? targets->n_logits : targets->n;
        m = (int32_t) weft_min64(ROWS, end - r);
        struct rows rows = {
            s,
            range,
            m,
            targets->target + r,
            inv_temperature,
            {part.state + (int64_t) r * range.n, part.hit + r}};
        weft_head_norm(s, head->final, x, targets->row + r, m, work.normed);
        for (int32_t t = range.first; t < weft_range_end(range); t++) {
            int64_t columns = s->block[t].n_vocab;
            for (int64_t j = 0; j < columns; j += WEFT_SOFTMAX_COLUMNS) {
                int64_t n = weft_min64(WEFT_SOFTMAX_COLUMNS, columns - j);
                float *logits = work.logits;
                if (keeps)
                    logits = weft_head_kept(s, range, targets, t, j) + r * n;
                weft_head_gemm(s, head, t, j, m, n, work.normed, logits, n);
                take_chunk(&rows, logits, t, j, n);
            }
        }
    }
}

void weft_k_head_merge(const struct weft_shape *s,
                       const struct weft_k_targets *targets, int32_t n_parts,
                       const struct weft_k_head_parts *part, float *logp_out,
                       float *entropy_out, float *lse_out)
{
    for (int32_t i = 0; i < targets->n; i++) {
        struct weft_softmax state[WEFT_MAX_BLOCKS];
        float hit = 0;
        for (int32_t p = 0; p < n_parts; p++) {
            struct weft_range range = part[p].range;
            struct weft_head_part of;
            int32_t first, n;
            weft_head_part_at(range, targets->n, (uintptr_t) part[p].part,
                              &of);
            memcpy(state + range.first, of.state + (int64_t) i * range.n,
                   (size_t) range.n * sizeof *state);
            weft_k_vocab_range(s, range, &first, &n);
            if (targets->target[i] >= first && targets->target[i] < first + n)
                hit = of.hit[i];
        }
        struct weft_softmax all = weft_softmax_tree(state, s->n_blocks);
        float lse = weft_softmax_lse(&all);
        logp_out[i] = hit - lse;
        if (entropy_out)
            entropy_out[i] = weft_softmax_entropy(&all);
        if (lse_out)
            lse_out[i] = lse;
    }
}

void weft_k_head_logprob(const struct weft_shape *s,
                         const struct weft_k_head *head, const float *x,
                         const struct weft_k_targets *targets,
                         float inv_temperature, float *logp_out,
                         float *entropy_out, float *lse_out, void *scratch)
{
    struct work work;
    struct weft_range all = weft_all_blocks(s);
    work_lay(s, targets->n, (uintptr_t) scratch, &work);
    weft_k_head_part(s, all, head, x, targets, inv_temperature, work.part,
                     scratch);
    weft_k_head_merge(s, targets, 1,
                      &(struct weft_k_head_parts){all, work.part}, logp_out,
                      entropy_out, lse_out);
}

void weft_k_vocab_range(const struct weft_shape *s, struct weft_range range,
                        int32_t *first_out, int32_t *n_out)
{
    const struct weft_block *last = &s->block[range.first + range.n - 1];
    *first_out = s->block[range.first].vocab0;
    *n_out = last->vocab0 + last->n_vocab - *first_out;
}

void weft_k_head_logits_part(const struct weft_shape *s,
                             struct weft_range range,
                             const struct weft_k_head *head, int32_t n,
                             const float *x, float *logits, void *scratch)
{
    struct work work;
    work_lay(s, n, (uintptr_t) scratch, &work);
    for (int32_t r = 0; r < n; r += ROWS) {
        int32_t m = (int32_t) weft_min64(ROWS, n - r);
        weft_head_norm(s, head->final, x + (int64_t) r * s->hidden, NULL, m,
                       work.normed);
        for (int32_t t = range.first; t < weft_range_end(range); t++)
            weft_head_gemm(s, head, t, 0, m, s->block[t].n_vocab, work.normed,
                           logits + (int64_t) r * s->vocab
                               + s->block[t].vocab0,
                           s->vocab);
    }
}

void weft_k_head_logits(const struct weft_shape *s,
                        const struct weft_k_head *head, int32_t n,
                        const float *x, float *logits, void *scratch)
{
    weft_k_head_logits_part(s, weft_all_blocks(s), head, n, x, logits,
                            scratch);
}
