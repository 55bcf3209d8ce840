/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products with published matrices: the order in which tiles are computed. A
 * group of rows of X that stays in the cache is multiplied by one panel after
 * another. The sums of a panel's blocks are added by the tree as a binary
 * counter counts: two sums over equally many blocks are added as soon as both
 * are there. So the stack of sums that wait has at most log2 T + 1 entries:
 *
 *     block   0      1      2        3          4 ...
 *     stack   0      01     01 2     0123       0123 4
 */
#include <string.h>

#include "kern/ops.h"

enum {
    GROUP_ROWS = 96,         /* the most rows of a group */
    GROUP_BYTES = 384 << 10, /* of x; a panel fits into the L2 beside them */
    PANEL_BYTES = 512 << 10, /* a larger panel is read once per group */
    CHAIN_STEPS = 1024,      /* steps of a panel that all rows take at once */
    STREAM_AHEAD = 8192      /* bytes; a step takes less time than a load */
};

_Static_assert(1 << (WEFT_TREE_LEVELS - 1) == WEFT_MAX_BLOCKS, "the T tree");

/* Rows [row, row + n_rows) of the product with one panel. */
struct part {
    const struct weft_k_gemm_args *a;
    const struct weft_k_ops *ops;
    int64_t row, n_rows;
    int64_t panel;
    int64_t part, n_parts; /* of the rows that are computed for this panel */
};

/* What tile i of n prefetches in `steps` steps over w: its share of as many
 * steps, which all n tiles will read next, `distance` steps later. */
static struct weft_k_next next_of(const char *w, int64_t distance,
                                  int64_t steps, int64_t i, int64_t n)
{
    struct weft_k_next next = {w + STREAM_AHEAD, WEFT_PANEL_BYTES};
    if (n > 1) {
        next.step = weft_ceil_div(WEFT_PANEL_BYTES, n);
        next.at = w + distance * WEFT_PANEL_BYTES + i * next.step * steps;
    }
    return next;
}

/* c (n_rows, 32) = the chain over block b, which starts from c if `cont`. */
static void chain(const struct part *p, int b, float *c, int64_t ldc,
                  bool cont)
{
    const struct weft_k_gemm_args *a = p->a;
    weft_k_tile_fn tile = p->ops->tile[a->dtype];
    int64_t element = (int64_t) weft_dtype_bytes(a->dtype);
    int64_t ldx = a->ldx[b] * element;
    int64_t steps = a->k[b] * element / WEFT_STEP_BYTES;
    int64_t depth = a->kstride[b] ? a->kstride[b] : a->k[b];
    depth = depth * element / WEFT_STEP_BYTES;
    const char *x = (const char *) a->x[b] + p->row * ldx;
    const char *w = (const char *) a->w[b]
                  + p->panel * depth * WEFT_PANEL_BYTES;
    int64_t n_tiles = weft_ceil_div(p->n_rows, p->ops->tile_rows);
    int64_t s = 0;
    do {
        int64_t n = weft_min64(steps - s, CHAIN_STEPS);
        const char *at = w + s * WEFT_PANEL_BYTES;
        for (int64_t t = 0, row = 0; t < n_tiles; t++) {
            int64_t end = p->n_rows * (t + 1) / n_tiles;
            struct weft_k_next next = p->n_parts > 1
                                        ? next_of(at, depth, n, p->part,
                                                  p->n_parts)
                                        : next_of(at, n, n, t, n_tiles);
            tile((int) (end - row), n, x + row * ldx + s * WEFT_STEP_BYTES,
                 ldx, at, c + row * ldc, ldc, cont || s > 0, next);
            row = end;
        }
        s += n;
    } while (s < steps);
}

/* Sums over all blocks; acc[0] receives the tree's root. */
static void tree(const struct part *p, float acc[][GROUP_ROWS * WEFT_PANEL])
{
    size_t n = (size_t) p->n_rows * WEFT_PANEL;
    int depth = 0;
    for (int b = 0; b < p->a->n_blocks; b++) {
        chain(p, b, acc[depth++], WEFT_PANEL, b == 0 && p->a->accumulate);
        for (int done = b + 1; done % 2 == 0; done /= 2, depth--)
            p->ops->add(acc[depth - 2], acc[depth - 1], n);
    }
    for (; depth > 1; depth--)
        p->ops->add(acc[depth - 2], acc[depth - 1], n);
}

/* Computes the rows' product with the panel, and writes it to y. */
static void block(const struct part *p)
{
    const struct weft_k_gemm_args *a = p->a;
    int64_t column = p->panel * WEFT_PANEL;
    int64_t n = weft_min64(WEFT_PANEL, a->n - column);
    int64_t at = p->row * a->ldy + column;
    if (a->n_blocks == 1 && n == WEFT_PANEL && a->y_dtype == WEFT_F32
        && !a->bias && !a->residual) {
        chain(p, 0, (float *) a->y + at, a->ldy, a->accumulate);
        return;
    }
    _Alignas(64) float acc[WEFT_TREE_LEVELS][GROUP_ROWS * WEFT_PANEL];
    for (int64_t i = 0; a->accumulate && i < p->n_rows; i++) {
        memset(acc[0] + i * WEFT_PANEL, 0, WEFT_PANEL * sizeof(float));
        memcpy(acc[0] + i * WEFT_PANEL, (float *) a->y + at + i * a->ldy,
               (size_t) n * sizeof(float));
    }
    tree(p, acc);
    int64_t y_bytes = (int64_t) weft_dtype_bytes(a->y_dtype);
    for (int64_t i = 0; i < p->n_rows; i++, at += a->ldy)
        p->ops->finish(n, acc[0] + i * WEFT_PANEL,
                       a->bias ? a->bias + column : NULL,
                       a->residual ? a->residual + at : NULL, a->y_dtype,
                       (char *) a->y + at * y_bytes);
}

/* Computes rows [row, end) for all panels; for each panel the rows are cut
 * into n_parts parts. */
static void group(struct part *p, int64_t row, int64_t end, int64_t n_parts)
{
    int64_t n_panels = weft_ceil_div(p->a->n, WEFT_PANEL);
    p->n_parts = n_parts;
    for (p->panel = 0; p->panel < n_panels; p->panel++) {
        p->row = row;
        for (p->part = 0; p->part < n_parts; p->part++) {
            int64_t next = row + (end - row) * (p->part + 1) / n_parts;
            p->n_rows = next - p->row;
            block(p);
            p->row = next;
        }
    }
}

void weft_k_gemm(const struct weft_k_gemm_args *a)
{
    struct part p = {.a = a, .ops = weft_k_ops()};
    int64_t rows = p.ops->tile_rows, row_bytes = 1;
    for (int b = 0; b < a->n_blocks; b++)
        row_bytes += a->k[b] * (int64_t) weft_dtype_bytes(a->dtype);
    int64_t most = GROUP_BYTES / row_bytes / rows * rows;
    most = weft_min64(weft_max64(most, 2 * rows), GROUP_ROWS);
    int64_t n_groups = weft_ceil_div(a->m, most);
    for (int64_t g = 0, row = 0; g < n_groups; g++) {
        int64_t end = weft_min64(
            a->m, weft_round_up(a->m * (g + 1) / n_groups, rows));
        bool whole = row_bytes * WEFT_PANEL > PANEL_BYTES;
        if (end > row)
            group(&p, row, end, whole ? 1 : weft_ceil_div(end - row, rows));
        row = end;
    }
}
