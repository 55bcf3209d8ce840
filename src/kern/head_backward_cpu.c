/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backward pass of the language-model head. Logits, kept or computed again, are
 * replaced by their gradient, a chunk of rows and columns at a time, and
 * rounded to the run's dtype. Two products make the gradients of weights and
 * rows from it.
 *
 *     for rows of whole samples, or up to an even row inside one
 *       for block t of the range             (dX: one k chain per block)
 *         for columns of the block
 *           logits -> dlogits -> dW chain, dX chain
 *         add dX up the T tree, to the range's roots
 *       the whole: final norm backward, row by row
 *
 * How rows and columns are cut into chunks changes no bit: dX's chain
 * continues over chunks of columns, dW's over chunks of rows, and no chunk
 * separates the two rows of a bf16 pair.
 */
#include "kern/head.h"
#include "kern/layer.h"
#include "kern/ops.h"

enum { ROWS = 256, COLUMNS = WEFT_SOFTMAX_COLUMNS };

struct work {
    void *normed;  /* (rows, H) dtype */
    float *again;  /* (rows, COLUMNS): logits that nobody kept */
    void *rounded; /* (rows, COLUMNS) of bf16: their gradient */
    /* (rows, H): sums that wait in the T tree; 0: root */
    float *dx[WEFT_TREE_LEVELS];
    int32_t *run; /* (rows) rows of every sample of the chunk */
    void *dw;     /* scratch of the product */
};

struct task {
    const struct weft_shape *shape;
    struct weft_range range;
    const struct weft_k_head *head;
    const float *x;
    const struct weft_k_targets *targets;
    float scale;
    const float *lse, *entropy, *dlogp, *dentropy;
    float *const *grad;
};

/* Rows [first, first + n) of the targets. */
struct rows {
    int32_t first, n, n_runs;
};

static int32_t levels(const struct weft_shape *s)
{
    int32_t n = 1;
    for (int32_t t = s->n_blocks; t > 1; t = (t + 1) / 2)
        n++;
    return n;
}

static size_t work_lay(const struct weft_shape *s, int32_t n, uintptr_t base,
                       struct work *out)
{
    uintptr_t at = base;
    int64_t rows = weft_min64(n, ROWS), h = s->hidden;
    int64_t element = (int64_t) weft_dtype_bytes(s->dtype);
    *out = (struct work){0};
    out->normed = weft_head_take(&at, weft_head_align(rows * h * element));
    out->again = weft_head_take(&at, weft_head_align(rows * COLUMNS * 4));
    if (s->dtype != WEFT_F32)
        out->rounded = weft_head_take(
            &at, weft_head_align(rows * COLUMNS * element));
    for (int32_t i = 0; i < levels(s); i++)
        out->dx[i] = weft_head_take(&at, weft_head_align(rows * h * 4));
    out->run = weft_head_take(&at, weft_head_align(rows * 4));
    out->dw = (void *) at;
    return at - base;
}

size_t weft_k_head_backward_scratch_bytes(const struct weft_shape *shape,
                                          int32_t n, int32_t n_runs)
{
    struct work work;
    int64_t rows = weft_min64(n, ROWS);
    int32_t runs = (int32_t) weft_min64(n_runs, rows);
    return work_lay(shape, n, 0, &work)
         + weft_k_gemm_dw_scratch_bytes(shape->dtype, rows, runs, COLUMNS,
                                        shape->hidden);
}

/* A chunk of logits: n columns from column j of block t. */
struct chunk {
    struct rows rows;
    int32_t t;
    int64_t j, n;
    float *logits; /* (rows, n) */
    void *d; /* their gradient, (rows, ld) dtype; in f32 in their place */
    int64_t ld;
};

static struct chunk chunk_of(const struct task *k, const struct work *work,
                             struct rows rows, int32_t t, int64_t j,
                             int64_t n)
{
    const struct weft_k_targets *targets = k->targets;
    struct chunk c = {rows, t, j, n, work->again, work->rounded, COLUMNS};
    if (rows.first + rows.n <= targets->n_logits)
        c.logits = weft_head_kept(k->shape, k->range, targets, t, j)
                 + rows.first * n;
    else
        weft_head_gemm(k->shape, k->head, t, j, rows.n, n, work->normed,
                       c.logits, n);
    if (k->shape->dtype == WEFT_F32) {
        c.d = c.logits;
        c.ld = n;
    }
    return c;
}

/* Makes the gradient of the chunk's logits, scaled and rounded; after it a
 * column of 0 if n is odd. */
static void make_dlogits(const struct task *k, const struct chunk *c)
{
    const struct weft_softmax_ops *ops = weft_softmax_ops();
    int64_t first = k->shape->block[c->t].vocab0 + c->j, n = c->n;
    for (int32_t i = 0; i < c->rows.n; i++) {
        int32_t at = c->rows.first + i;
        float *z = c->logits + i * n;
        float a = k->dlogp[at], b = k->dentropy ? k->dentropy[at] : 0;
        int64_t hit = k->targets->target[at] - first;
        ops->grad(z, n, k->scale, k->lse[at], b == 0 ? 0 : k->entropy[at], a,
                  b);
        if (hit >= 0 && hit < n)
            z[hit] += k->scale * a;
        if (k->shape->dtype == WEFT_F32)
            continue;
        uint16_t *d = (uint16_t *) c->d + i * c->ld;
        weft_k_ops()->to_bf16(z, (size_t) n, d);
        if (n % 2)
            d[n] = 0;
    }
}

static void add_dw(const struct task *k, const struct work *work,
                   const struct chunk *c)
{
    int64_t h = k->shape->hidden;
    struct weft_k_gemm_dw_args args = {
        .dtype = k->shape->dtype,
        .n = c->n,
        .k = h,
        .n_runs = c->rows.n_runs,
        .run_rows = work->run,
        .dy = c->d,
        .lddy = c->ld,
        .x = work->normed,
        .ldx = h,
        .grad = k->grad[c->t] + c->j * h,
        .scratch = work->dw,
    };
    weft_k_gemm_dw(&args);
}

static void add_dx(const struct task *k, const struct chunk *c, float *dx)
{
    int64_t h = k->shape->hidden;
    int64_t depth = weft_round_up(k->shape->block[c->t].n_vocab, WEFT_PANEL);
    struct weft_k_gemm_args args = {
        .dtype = k->shape->dtype,
        .y_dtype = WEFT_F32,
        .m = c->rows.n,
        .n = h,
        .n_blocks = 1,
        .x = {c->d},
        .ldx = {c->ld},
        .w = {(const char *) k->head->bwd[c->t]
              + (size_t) (c->j * WEFT_PANEL)
                    * weft_dtype_bytes(k->shape->dtype)},
        .k = {k->shape->dtype == WEFT_F32 ? c->n : weft_round_up(c->n, 2)},
        .kstride = {depth},
        .y = dx,
        .ldy = h,
        .accumulate = c->j > 0,
    };
    weft_k_gemm(&args);
}

/* One root: out (rows, H) is the sum over the root's blocks of the gradient of
 * the norm's output. */
static void root_backward(const struct task *k, const struct work *work,
                          struct rows rows, struct weft_range root,
                          float *out)
{
    const struct weft_shape *s = k->shape;
    float *dx[WEFT_TREE_LEVELS];
    int32_t depth = 0; /* number of sums that wait in the tree */
    memcpy(dx, work->dx, sizeof dx);
    dx[0] = out;
    for (int32_t b = 0; b < root.n; b++) {
        int32_t t = root.first + b;
        int64_t columns = s->block[t].n_vocab;
        for (int64_t j = 0; j < columns; j += COLUMNS) {
            int64_t n = weft_min64(COLUMNS, columns - j);
            struct chunk c = chunk_of(k, work, rows, t, j, n);
            make_dlogits(k, &c);
            add_dw(k, work, &c);
            add_dx(k, &c, dx[depth]);
        }
        for (int32_t full = b; full & 1; full >>= 1, depth--)
            weft_k_add(dx[depth - 1], dx[depth],
                       (size_t) rows.n * (size_t) s->hidden);
        depth++;
    }
}

/* All roots of the range: out, roots `stride` floats apart. */
static void rows_backward(const struct task *k, const struct work *work,
                          struct rows rows, float *out, int64_t stride)
{
    struct weft_range root[WEFT_MAX_ROOTS];
    int32_t n_roots = weft_k_roots(k->shape->n_blocks, k->range, root);
    weft_head_norm(k->shape, k->head->final, k->x,
                   k->targets->row + rows.first, rows.n, work->normed);
    for (int32_t i = 0; i < n_roots; i++)
        root_backward(k, work, rows, root[i], out + i * stride);
}

/* Backward pass of the final norm: writes rows row[0..n-1] of dx from the
 * gradient d (n, H) of its output. */
static void norm_backward(const struct weft_shape *s, const float *final,
                          const float *x, const int32_t *row, int32_t n,
                          const float *d, float *dx, float *grad_final)
{
    int64_t h = s->hidden;
    for (int32_t i = 0; i < n; i++)
        weft_k_rmsnorm_backward(1, h, s->rms_eps, x + row[i] * h, final,
                                d + i * h, dx + row[i] * h, grad_final);
}

/* The next chunk of rows. out receives the number of rows of each sample;
 * *run, the next sample, and *done, how many of its rows earlier chunks had,
 * are updated. A sample is cut only at an even row. */
static struct rows next_rows(int32_t first, int32_t n_runs,
                             const int32_t *run_rows, int32_t *run,
                             int32_t *done, int32_t *out)
{
    struct rows rows = {first, 0, 0};
    while (*run < n_runs && rows.n < ROWS) {
        int32_t left = run_rows[*run] - *done, room = ROWS - rows.n;
        int32_t take = left <= room ? left : room & ~1;
        if (take == 0 && left > 0)
            break;
        if (take > 0)
            out[rows.n_runs++] = take;
        rows.n += take;
        *done += take;
        if (take == left) {
            ++*run;
            *done = 0;
        }
    }
    weft_assert(rows.n > 0); /* run_rows adds up to the targets */
    return rows;
}

void weft_k_head_backward_part(const struct weft_shape *s,
                               struct weft_range range,
                               const struct weft_k_head *head, const float *x,
                               const struct weft_k_targets *targets,
                               int32_t n_runs, const int32_t *run_rows,
                               float inv_temperature, const float *lse,
                               const float *entropy, const float *dlogp,
                               const float *dentropy, float *const grad[],
                               float *roots, void *scratch)
{
    struct task k = {s,   range,   head,  x,        targets, inv_temperature,
                     lse, entropy, dlogp, dentropy, grad};
    struct work work;
    work_lay(s, targets->n, (uintptr_t) scratch, &work);
    struct rows rows = {0};
    for (int32_t run = 0, done = 0; rows.first < targets->n;
         rows.first += rows.n) {
        rows = next_rows(rows.first, n_runs, run_rows, &run, &done, work.run);
        rows_backward(&k, &work, rows, roots + rows.first * s->hidden,
                      (int64_t) targets->n * s->hidden);
    }
}

void weft_k_head_norm_backward(const struct weft_shape *s, const float *final,
                               int32_t n_rows, const float *x,
                               const struct weft_k_targets *targets,
                               int32_t n_parts,
                               const struct weft_k_part *part, float *dx,
                               float *grad_final, void *scratch)
{
    int64_t h = s->hidden, n = targets->n;
    const float *d = weft_layer_joined(s->n_blocks, n_parts, part, n * h,
                                       scratch);
    memset(dx, 0, (size_t) (n_rows * h) * sizeof *dx);
    norm_backward(s, final, x, targets->row, targets->n, d, dx, grad_final);
}

void weft_k_head_backward(
    const struct weft_shape *s, const struct weft_k_head *head,
    int32_t n_rows, const float *x, const struct weft_k_targets *targets,
    int32_t n_runs, const int32_t *run_rows, float inv_temperature,
    const float *lse, const float *entropy, const float *dlogp,
    const float *dentropy, float *dx, float *const grad[], float *grad_final,
    void *scratch)
{
    struct task k = {s,       weft_all_blocks(s), head, x,
                     targets, inv_temperature,    lse,  entropy,
                     dlogp,   dentropy,           grad};
    struct work work;
    work_lay(s, targets->n, (uintptr_t) scratch, &work);
    memset(dx, 0, (size_t) n_rows * (size_t) s->hidden * sizeof *dx);
    struct rows rows = {0};
    for (int32_t run = 0, done = 0; rows.first < targets->n;
         rows.first += rows.n) {
        rows = next_rows(rows.first, n_runs, run_rows, &run, &done, work.run);
        rows_backward(&k, &work, rows, work.dx[0], 0);
        norm_backward(s, head->final, x, targets->row + rows.first, rows.n,
                      work.dx[0], dx, grad_final);
    }
}
