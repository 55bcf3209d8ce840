/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The language-model head on a GPU, in chunks of rows and of columns: all
 * logits never exist. The sums are those of head_cpu.c and
 * head_backward_cpu.c.
 */
#include "kern/head.h"
#include "kern/layer_cuda.h"
#include "kern/sum_blocks_cuda.h"

#ifdef WEFT_CUDA_EXECUTOR /* tests are small */
enum { ROWS = 24, COLUMNS = WEFT_SOFTMAX_COLUMNS };
#else
enum { ROWS = 1024, COLUMNS = WEFT_K_HEAD_COLUMNS };
_Static_assert(COLUMNS % WEFT_SOFTMAX_COLUMNS == 0, "chunks are whole");
#endif

struct work {
    struct CUstream_st *stream;
    const struct weft_shape *s;
    float *x;      /* (rows, H): the rows that predict */
    void *normed;  /* (rows, H) in dtype */
    float *logits; /* (rows, COLUMNS) */
    void *part;    /* forward: of all targets */
    /* backward */
    void *dlogits;                /* (rows, COLUMNS) in dtype */
    float *leaf[WEFT_MAX_BLOCKS]; /* (rows, H): of each block */
    float *dx, *inverse;          /* (rows, H), (rows) */
};

static void work_at(struct work *w, int32_t n, bool backward,
                    struct weft_arena *arena)
{
    const struct weft_shape *s = w->s;
    int64_t rows = weft_min64(n, ROWS), h = s->hidden;
    size_t element = weft_dtype_bytes(s->dtype);
    w->x = weft_arena_take(arena, rows * h, sizeof(float));
    w->normed = weft_arena_take(arena, rows * h, element);
    w->logits = weft_arena_take(arena, rows * COLUMNS, sizeof(float));
    if (!backward) {
        w->part = weft_arena_take(
            arena, (int64_t) weft_k_head_part_bytes(weft_all_blocks(s), n),
            1);
        return;
    }
    w->dlogits = weft_arena_take(arena, rows * COLUMNS, element);
    for (int32_t t = 0; t < s->n_blocks; t++)
        w->leaf[t] = weft_arena_take(arena, rows * h, sizeof(float));
    w->dx = weft_arena_take(arena, rows * h, sizeof(float));
    w->inverse = weft_arena_take(arena, rows, sizeof(float));
}

size_t weft_k_head_scratch_bytes_cuda(const struct weft_shape *shape,
                                      int32_t n, bool backward)
{
    struct weft_arena arena = {0};
    struct work w = {.s = shape};
    work_at(&w, n, backward, &arena);
    return arena.used;
}

static void normalise(const struct work *w, const float *final,
                      const float *x, const int32_t *row, int32_t m)
{
    const struct weft_shape *s = w->s;
    weft_gather_cuda(w->stream, m, s->hidden, row, x, w->x);
    weft_k_rmsnorm_cuda(w->stream, s->dtype, m, s->hidden, s->rms_eps, w->x,
                        final, w->normed);
}

/* w->logits (m, n), leading dimension COLUMNS: columns j.. of block t's
 * vocabulary. A token is drawn from what training has, bit for bit: with other
 * sizes, or another leading dimension, the library may choose an algorithm with
 * another order of sums. So generation has the same products, and copies. */
static void project(const struct work *w, const struct weft_k_head *head,
                    int32_t t, int64_t j, int64_t m, int64_t n)
{
    const struct weft_shape *s = w->s;
    int64_t h = s->hidden;
    weft_k_gemm_cuda(
        w->stream,
        &(struct weft_k_gemm_args){
            .dtype = s->dtype,
            .y_dtype = WEFT_F32,
            .m = m,
            .n = n,
            .n_blocks = 1,
            .x = {w->normed},
            .ldx = {h},
            .w = {weft_layer_at(s, (void *) (uintptr_t) head->fwd[t], j * h)},
            .k = {h},
            .y = w->logits,
            .ldy = COLUMNS},
        NULL);
}

void weft_k_head_part_cuda(struct CUstream_st *stream,
                           const struct weft_shape *s,
                           struct weft_range range,
                           const struct weft_k_head *head, const float *x,
                           const struct weft_k_targets *targets,
                           float inv_temperature, void *part_out,
                           void *scratch)
{
    struct work w = {.stream = stream, .s = s};
    struct weft_arena arena = {.base = scratch};
    struct weft_head_part part;
    work_at(&w, targets->n, false, &arena);
    weft_head_part_at(range, targets->n, (uintptr_t) part_out, &part);
    for (int32_t r = 0; r < targets->n; r += ROWS) {
        int32_t m = weft_min32(ROWS, targets->n - r);
        normalise(&w, head->final, x, targets->row + r, m);
        for (int32_t t = range.first; t < weft_range_end(range); t++) {
            int64_t columns = s->block[t].n_vocab;
            for (int64_t j = 0; j < columns; j += COLUMNS) {
                int64_t n = weft_min64(COLUMNS, columns - j);
                project(&w, head, t, j, m, n);
                weft_k_head_take_cuda(
                    stream, m, s->block[t].vocab0 + j, n, j == 0, w.logits,
                    COLUMNS, inv_temperature, targets->target + r,
                    part.state + (int64_t) r * range.n + t - range.first,
                    range.n, part.hit + r);
            }
        }
    }
}

void weft_k_head_logprob_cuda(struct CUstream_st *stream,
                              const struct weft_shape *s,
                              const struct weft_k_head *head, const float *x,
                              const struct weft_k_targets *targets,
                              float inv_temperature, float *logp_out,
                              float *entropy_out, float *lse_out,
                              void *scratch)
{
    struct weft_range all = weft_all_blocks(s);
    struct work w = {.stream = stream, .s = s};
    struct weft_arena arena = {.base = scratch};
    work_at(&w, targets->n, false, &arena);
    weft_k_head_part_cuda(stream, s, all, head, x, targets, inv_temperature,
                          w.part, scratch);
    weft_k_head_merge_cuda(stream, s, targets, 1,
                           &(struct weft_k_head_parts){all, w.part}, logp_out,
                           entropy_out, lse_out);
}

void weft_k_head_logits_cuda(struct CUstream_st *stream,
                             const struct weft_shape *s,
                             struct weft_range range,
                             const struct weft_k_head *head, int32_t n,
                             const int32_t *row, const float *x,
                             float *logits, void *scratch)
{
    struct work w = {.stream = stream, .s = s};
    struct weft_arena arena = {.base = scratch};
    work_at(&w, n, false, &arena);
    for (int32_t r = 0; r < n; r += ROWS) {
        int32_t m = weft_min32(ROWS, n - r);
        normalise(&w, head->final, x, row + r, m);
        for (int32_t t = range.first; t < weft_range_end(range); t++)
            for (int64_t j = 0; j < s->block[t].n_vocab; j += COLUMNS) {
                int64_t n_j = weft_min64(COLUMNS, s->block[t].n_vocab - j);
                project(&w, head, t, j, m, n_j);
                weft_k_copy_columns_cuda(stream, m, n_j, w.logits, COLUMNS,
                                         logits + (int64_t) r * s->vocab
                                             + s->block[t].vocab0 + j,
                                         s->vocab);
            }
    }
}

/* ---- Backward ----------------------------------------------------------- */

struct gradient {
    struct work w;
    struct weft_range range;
    const struct weft_k_head *head;
    const struct weft_k_targets *targets;
    float inv_temperature;
    const float *lse, *entropy, *dlogp, *dentropy;
    float *const *grad;
};

/* Rows first.. first + n - 1 of the targets: whole samples, or a piece of one
 * that begins at a multiple of ROWS of the sample's own rows, so that what is
 * added to a gradient at once does not depend on other samples. */
struct rows {
    int32_t first, n, n_runs, run[ROWS];
};

static void next_rows(int32_t n_runs, const int32_t *run_rows, int32_t *run,
                      int32_t *done, struct rows *rows)
{
    rows->first += rows->n;
    rows->n = rows->n_runs = 0;
    while (*run < n_runs) {
        int32_t left = run_rows[*run] - *done;
        int32_t take = weft_min32(left, ROWS);
        if (rows->n + take > ROWS || rows->n_runs == ROWS)
            break;
        if (take > 0)
            rows->run[rows->n_runs++] = take;
        rows->n += take;
        *done += take;
        if (take < left)
            break;
        ++*run;
        *done = 0;
    }
}

static void chunk(const struct gradient *g, const struct rows *rows,
                  int32_t t, int64_t j, int64_t n)
{
    const struct work *w = &g->w;
    const struct weft_shape *s = w->s;
    int64_t h = s->hidden, first = rows->first;
    bool bf16 = s->dtype == WEFT_BF16;
    project(w, g->head, t, j, rows->n, n);
    weft_k_head_gradient_cuda(
        w->stream, s->dtype, rows->n, s->block[t].vocab0 + j, n, w->logits,
        COLUMNS, g->inv_temperature, g->targets->target + first,
        g->lse + first, g->entropy ? g->entropy + first : NULL,
        g->dlogp + first, g->dentropy ? g->dentropy + first : NULL,
        w->dlogits, COLUMNS);
    weft_k_gemm_dw_cuda(
        w->stream, &(struct weft_k_gemm_dw_args){.dtype = s->dtype,
                                                 .n = n,
                                                 .k = h,
                                                 .n_runs = rows->n_runs,
                                                 .run_rows = rows->run,
                                                 .dy = w->dlogits,
                                                 .lddy = COLUMNS,
                                                 .x = w->normed,
                                                 .ldx = h,
                                                 .grad = g->grad[t] + j * h});
    weft_k_gemm_cuda(
        w->stream,
        &(struct weft_k_gemm_args){
            .dtype = s->dtype,
            .y_dtype = WEFT_F32,
            .m = rows->n,
            .n = h,
            .n_blocks = 1,
            .x = {w->dlogits},
            .ldx = {COLUMNS},
            .w = {weft_layer_at(s, (void *) (uintptr_t) g->head->bwd[t],
                                bf16 ? j : j * WEFT_PANEL)},
            .k = {n},
            .kstride = {weft_round_up(s->block[t].n_vocab, WEFT_PANEL)},
            .y = w->leaf[t],
            .ldy = h,
            .accumulate = j > 0},
        NULL);
}

/* Roots of the gradient of the norm's output, `stride` floats apart. */
static void roots_backward(const struct gradient *g, const struct rows *rows,
                           const float *x, float *out, int64_t stride)
{
    const struct work *w = &g->w;
    const struct weft_shape *s = w->s;
    struct weft_range root[WEFT_MAX_ROOTS];
    int32_t n_roots = weft_k_roots(s->n_blocks, g->range, root);
    int64_t h = s->hidden;
    normalise(w, g->head->final, x, g->targets->row + rows->first, rows->n);
    for (int32_t i = 0; i < n_roots; i++) {
        struct weft_leaves_cuda leaves = {{NULL}, {0}};
        for (int32_t b = 0; b < root[i].n; b++) {
            int32_t t = root[i].first + b;
            int64_t columns = s->block[t].n_vocab;
            for (int64_t j = 0; j < columns; j += COLUMNS)
                chunk(g, rows, t, j, weft_min64(COLUMNS, columns - j));
            leaves.x[b] = w->leaf[t];
            leaves.ld[b] = h;
        }
        weft_sum_leaves_cuda(w->stream, rows->n, h, &leaves, NULL, NULL,
                             WEFT_F32, out + i * stride, h);
    }
}

/* The norm's backward pass for m rows that are gathered in w->x. */
static void norm_backward(const struct work *w, const float *final,
                          const int32_t *row, int64_t m, const float *d,
                          float *dx, float *grad_final)
{
    const struct weft_shape *s = w->s;
    int64_t h = s->hidden;
    weft_k_zero_cuda(w->stream, w->dx, (size_t) (m * h) * sizeof(float));
    weft_k_rmsnorm_backward_cuda(w->stream, m, h, s->rms_eps, w->x, final, d,
                                 w->dx, grad_final, w->inverse);
    weft_scatter_cuda(w->stream, m, h, row, w->dx, dx);
}

void weft_k_head_backward_part_cuda(
    struct CUstream_st *stream, const struct weft_shape *s,
    struct weft_range range, const struct weft_k_head *head, const float *x,
    const struct weft_k_targets *targets, int32_t n_runs,
    const int32_t *run_rows, float inv_temperature, const float *lse,
    const float *entropy, const float *dlogp, const float *dentropy,
    float *const grad[], float *roots, void *scratch)
{
    struct gradient g = {{.stream = stream, .s = s},
                         range,
                         head,
                         targets,
                         inv_temperature,
                         lse,
                         entropy,
                         dlogp,
                         dentropy,
                         grad};
    struct weft_arena arena = {.base = scratch};
    struct rows rows = {0, 0, 0, {0}};
    int32_t run = 0, done = 0;
    int64_t h = s->hidden;
    work_at(&g.w, targets->n, true, &arena);
    for (next_rows(n_runs, run_rows, &run, &done, &rows); rows.n > 0;
         next_rows(n_runs, run_rows, &run, &done, &rows))
        roots_backward(&g, &rows, x, roots + rows.first * h, targets->n * h);
}

size_t weft_k_head_norm_scratch_bytes_cuda(const struct weft_shape *s,
                                           int32_t n)
{
    struct weft_arena arena = {0};
    struct work w = {.s = s};
    weft_arena_take(&arena, (int64_t) n * s->hidden, sizeof(float));
    work_at(&w, n, true, &arena);
    return arena.used;
}

void weft_k_head_norm_backward_cuda(struct CUstream_st *stream,
                                    const struct weft_shape *s,
                                    const float *final, int32_t n_rows,
                                    const float *x,
                                    const struct weft_k_targets *targets,
                                    int32_t n_parts,
                                    const struct weft_k_part *part, float *dx,
                                    float *grad_final, void *scratch)
{
    int64_t h = s->hidden, n = targets->n;
    struct work w = {.stream = stream, .s = s};
    struct weft_arena arena = {.base = scratch};
    float *d = weft_arena_take(&arena, n * h, sizeof(float));
    work_at(&w, targets->n, true, &arena);
    if (n > 0)
        weft_k_join_rows_cuda(stream, s->n_blocks, n_parts, part,
                              weft_all_blocks(s), n, h, NULL, NULL, d);
    weft_k_zero_cuda(stream, dx, (size_t) (n_rows * h) * sizeof *dx);
    for (int32_t r = 0; r < targets->n; r += ROWS) {
        int64_t m = weft_min32(ROWS, targets->n - r);
        weft_gather_cuda(stream, m, h, targets->row + r, x, w.x);
        norm_backward(&w, final, targets->row + r, m, d + r * h, dx,
                      grad_final);
    }
}

void weft_k_head_backward_cuda(
    struct CUstream_st *stream, const struct weft_shape *s,
    const struct weft_k_head *head, int32_t n_rows, const float *x,
    const struct weft_k_targets *targets, int32_t n_runs,
    const int32_t *run_rows, float inv_temperature, const float *lse,
    const float *entropy, const float *dlogp, const float *dentropy,
    float *dx, float *const grad[], float *grad_final, void *scratch)
{
    struct gradient g = {{.stream = stream, .s = s},
                         weft_all_blocks(s),
                         head,
                         targets,
                         inv_temperature,
                         lse,
                         entropy,
                         dlogp,
                         dentropy,
                         grad};
    struct weft_arena arena = {.base = scratch};
    struct rows rows = {0, 0, 0, {0}};
    int32_t run = 0, done = 0;
    work_at(&g.w, targets->n, true, &arena);
    weft_k_zero_cuda(stream, dx,
                     (size_t) (n_rows * (int64_t) s->hidden) * sizeof *dx);
    for (next_rows(n_runs, run_rows, &run, &done, &rows); rows.n > 0;
         next_rows(n_runs, run_rows, &run, &done, &rows)) {
        roots_backward(&g, &rows, x, g.w.leaf[0], 0);
        norm_backward(&g.w, head->final, targets->row + rows.first, rows.n,
                      g.w.leaf[0], dx, grad_final);
    }
}
