/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weight gradients: G += dY^T X, with the tiles of ops.h. Steps of a tile are
 * tokens, its 32 columns are rows of the gradient (one panel) and its rows are
 * columns of the gradient. Both operands are packed, a chunk of tokens at a
 * time; every chunk adds to the gradient in place.
 */
#include <string.h>

#include "kern/ops.h"

enum {
    CHUNK_STEPS = 512, /* tokens, or pairs of them, packed at once */
    PACK_STEPS = 16,
    GROUP_BYTES = 256 << 10 /* of packed x that each pass over dy uses */
};

size_t weft_k_gemm_dw_scratch_bytes(enum weft_dtype dtype, int64_t n_rows,
                                    int32_t n_runs, int64_t n, int64_t k)
{
    int64_t steps = dtype == WEFT_F32 ? n_rows : (n_rows + n_runs) / 2;
    steps = weft_min64(steps, CHUNK_STEPS);
    int64_t width = weft_round_up(n, WEFT_PANEL) + k + WEFT_TILE_ROWS;
    return (size_t) (steps * width * WEFT_STEP_BYTES);
}

/* A position among the tokens of all runs. */
struct walk {
    int32_t run, in_run, row;
};

/* Writes the rows of the next steps, at most CHUNK_STEPS; returns how many
 * steps there are. */
static int64_t next_steps(const struct weft_k_gemm_dw_args *a,
                          struct walk *at, int32_t *row0, int32_t *row1)
{
    int64_t n = 0;
    while (n < CHUNK_STEPS && at->run < a->n_runs) {
        int32_t left = a->run_rows[at->run] - at->in_run;
        if (left <= 0) {
            at->run++;
            at->in_run = 0;
            continue;
        }
        int32_t take = a->dtype == WEFT_F32 || left == 1 ? 1 : 2;
        row0[n] = at->row;
        row1[n++] = take == 2 ? at->row + 1 : -1;
        at->row += take;
        at->in_run += take;
    }
    return n;
}

/* A chunk of packed tokens. */
struct chunk {
    const struct weft_k_ops *ops;
    int64_t steps;
    const char *dy; /* [n / 32][steps][32] steps of 4 bytes */
    const char *x;  /* [k / tile_rows][steps][tile_rows] */
};

/* Adds the chunk to a tile of the gradient: columns from k0 of a panel. */
static void tile(const struct weft_k_gemm_dw_args *a, const struct chunk *c,
                 int64_t panel, int64_t k0)
{
    int rows = (int) weft_min64(c->ops->tile_rows, a->k - k0);
    int64_t n = weft_min64(WEFT_PANEL, a->n - panel * WEFT_PANEL);
    const char *dy = c->dy + panel * c->steps * WEFT_PANEL_BYTES;
    const char *x = c->x + k0 * c->steps * WEFT_STEP_BYTES;
    float *grad = a->grad + (panel * a->k + k0) * WEFT_PANEL;
    weft_k_tile_fn run = c->ops->tile_packed[a->dtype];
    /* The next tile's gradient. */
    int64_t bytes_ahead = rows * WEFT_PANEL_BYTES;
    struct weft_k_next next = {(const char *) grad + bytes_ahead,
                               weft_ceil_div(bytes_ahead, c->steps)};
    if (n == WEFT_PANEL) {
        run(rows, c->steps, x, 0, dy, grad, WEFT_PANEL, true, next);
        return;
    }
    /* The panel's padding must not change. */
    float part[WEFT_TILE_ROWS * WEFT_PANEL];
    size_t bytes = (size_t) n * sizeof(float);
    memcpy(part, grad, (size_t) rows * WEFT_PANEL * sizeof(float));
    run(rows, c->steps, x, 0, dy, part, WEFT_PANEL, true, next);
    for (int i = 0; i < rows; i++)
        memcpy(grad + i * WEFT_PANEL, part + i * WEFT_PANEL, bytes);
}

/* Packs n columns of a matrix as groups of `width`, each [steps][width];
 * returns the end of what was written. Only a few rows are packed at a time,
 * so that they are still in the cache for the next group. */
static char *pack(const struct weft_k_gemm_dw_args *a,
                  const struct weft_k_ops *ops, int64_t steps,
                  const int32_t *row0, const int32_t *row1, const void *from,
                  int64_t ld, int64_t n, int64_t width, char *to)
{
    int64_t element = (int64_t) weft_dtype_bytes(a->dtype);
    int64_t step = width * WEFT_STEP_BYTES;
    for (int64_t s = 0; s < steps; s += PACK_STEPS) {
        int64_t some = weft_min64(PACK_STEPS, steps - s);
        char *at = to + s * step;
        for (int64_t j = 0; j < n; j += width, at += steps * step)
            ops->pack_steps(a->dtype, some, row0 + s, row1 + s,
                            (const char *) from + j * element, ld, n - j,
                            width, at);
    }
    return to + weft_ceil_div(n, width) * steps * step;
}

void weft_k_gemm_dw(const struct weft_k_gemm_dw_args *a)
{
    int32_t row0[CHUNK_STEPS], row1[CHUNK_STEPS];
    struct walk at = {0};
    struct chunk c = {.ops = weft_k_ops(), .dy = a->scratch};
    int64_t width = c.ops->tile_rows;
    int64_t n_panels = weft_ceil_div(a->n, WEFT_PANEL);
    while ((c.steps = next_steps(a, &at, row0, row1)) > 0) {
        c.x = pack(a, c.ops, c.steps, row0, row1, a->dy, a->lddy, a->n,
                   WEFT_PANEL, a->scratch);
        pack(a, c.ops, c.steps, row0, row1, a->x, a->ldx, a->k, width,
             a->scratch + (c.x - c.dy));
        int64_t tiles = weft_max64(
            1, GROUP_BYTES / (c.steps * width * WEFT_STEP_BYTES));
        for (int64_t k0 = 0; k0 < a->k; k0 += tiles * width) {
            int64_t end = weft_min64(a->k, k0 + tiles * width);
            for (int64_t p = 0; p < n_panels; p++)
                for (int64_t k = k0; k < end; k += width)
                    tile(a, &c, p, k);
        }
    }
}
