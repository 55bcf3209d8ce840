/* SPDX-License-Identifier: Apache-2.0 */
/* A model on a card, with numbers that are made up; what its operations are
 * counted as; and a row of bench/gpu's table. */
#ifndef WEFT_BENCH_GPU_MODEL_H
#define WEFT_BENCH_GPU_MODEL_H

#include <string.h>

#include "base/alloc.h"
#include "bench/card.h"
#include "kern/layer.h"

enum { MOST_LAYERS = 28, MOST_RUNS = 256, MOST_ROWS = 4096 };

static double peak_flop, peak_bytes;

/* bar: "", or like ">= 50" or "<= 10", of the share. */
static inline void row(const char *shape, const char *what, double s,
                       double work, double unit, const char *name, double of,
                       const char *bar)
{
    double share = 100 * work / s / of;
    bool is_met = *bar == '>' ? share >= atof(bar + 2)
                              : share <= atof(*bar ? bar + 2 : "0");
    printf("| %-5s | %-38s | %9.3f ms | %8.1f %-7s | %5.1f %% | %-5s | %-6s "
           "|\n",
           shape, what, 1e3 * s, work / s / unit, name, share, bar,
           !*bar    ? ""
           : is_met ? "met"
                    : "missed");
    fflush(stdout);
}

/* ---- A model ------------------------------------------------------------ */

/* A tile's uses; n: elements. */
struct tile {
    struct weft_layout layout;
    void *fwd, *bwd;
    float *grad, *opt; /* master and two moments */
    size_t n;
};

struct model {
    struct weft_shape s;
    const char *name;
    struct tile layer[MOST_LAYERS][WEFT_MAX_BLOCKS], norms[MOST_LAYERS];
    struct tile head[WEFT_MAX_BLOCKS], embed[WEFT_MAX_BLOCKS], final;
    struct weft_k_layer w[MOST_LAYERS];
    struct weft_k_head h;
    const void *table[WEFT_MAX_BLOCKS];
    /* the batch: text_tokens tokens of each run */
    int32_t n_layers, text_tokens;
    struct weft_k_run run[MOST_RUNS];
    struct weft_k_batch batch;
    struct weft_k_targets targets;
    int32_t run_targets[MOST_RUNS];
    struct weft_k_kv kv;
    int32_t *token; /* device memory, as all below */
    float *x[MOST_LAYERS + 1], *dx, *column[5];
    void *saved[MOST_LAYERS], *scratch;
};

static inline struct tile tile_of(const struct weft_shape *s,
                                  enum weft_tile_kind kind, int32_t block,
                                  bool matrix)
{
    struct tile t;
    weft_layout_get(s, kind, block, &t.layout);
    t.n = t.layout.n_flat;
    t.fwd = device(matrix ? t.layout.fwd_bytes : t.n * sizeof(float));
    t.bwd = matrix ? device(t.layout.bwd_bytes) : NULL;
    t.grad = device(t.n * sizeof(float));
    t.opt = matrix ? device(3 * t.n * sizeof(float)) : NULL;
    if (matrix) /* the second moment is not negative */
        must(cudaMemset(t.opt + 2 * t.n, 0x3c, t.n * sizeof(float)),
             "memory");
    return t;
}

static inline void model_init(struct model *m)
{
    const struct weft_shape *s = &m->s;
    for (int32_t b = 0; b < s->n_blocks; b++) {
        for (int32_t l = 0; l < m->n_layers; l++) {
            m->layer[l][b] = tile_of(s, WEFT_TILE_LAYER, b, true);
            m->w[l].fwd[b] = m->layer[l][b].fwd;
            m->w[l].bwd[b] = m->layer[l][b].bwd;
        }
        m->head[b] = tile_of(s, WEFT_TILE_HEAD, b, true);
        m->embed[b] = tile_of(s, WEFT_TILE_EMBED, b, false);
        m->h.fwd[b] = m->head[b].fwd;
        m->h.bwd[b] = m->head[b].bwd;
        m->table[b] = m->embed[b].fwd;
    }
    for (int32_t l = 0; l < m->n_layers; l++) {
        m->norms[l] = tile_of(s, WEFT_TILE_NORMS, 0, false);
        m->w[l].norms = m->norms[l].fwd;
    }
    m->final = tile_of(s, WEFT_TILE_FINAL, 0, false);
    m->h.final = m->final.fwd;
}

/* Rows of n_runs runs of n tokens each behind `pos` others. */
static inline void batch_init(struct model *m, int32_t n_runs, int32_t n,
                              int32_t pos)
{
    static int32_t token[MOST_ROWS], at[MOST_ROWS];
    int32_t n_rows = n_runs * n;
    for (int32_t i = 0; i < n_rows; i++) {
        token[i] = (i * 37 + 11) % m->s.vocab;
        at[i] = i;
    }
    for (int32_t i = 0; i < n_runs; i++) {
        m->run[i] = (struct weft_k_run){i, pos, n};
        m->run_targets[i] = n;
    }
    m->token = sent(token, (size_t) n_rows * 4);
    m->batch = (struct weft_k_batch){n_rows, n_runs, m->run, m->token, NULL};
    m->targets = (struct weft_k_targets){
        n_rows, sent(at, (size_t) n_rows * 4), m->token, 0, NULL};
}

/* ---- What it computes --------------------------------------------------- */

/* Matrix elements of a layer and of the head. */
static inline double layer_elements(const struct weft_shape *s)
{
    double q = (double) s->n_heads * s->head_dim;
    double kv = (double) s->n_kv_heads * s->head_dim;
    return s->hidden * (2 * q + 2 * kv + 3.0 * s->intermediate);
}

static inline double head_elements(const struct weft_shape *s)
{
    return (double) s->hidden * s->vocab;
}

/* Of one row of a text of n tokens, in one layer: to the keys before it. */
static inline double attention_flop(const struct weft_shape *s, double n)
{
    return 4.0 * s->n_heads * s->head_dim * (n + 1) / 2;
}

#endif
