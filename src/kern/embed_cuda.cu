/* SPDX-License-Identifier: Apache-2.0 */
/* Token embedding on a GPU, and its gradient in the order of the rows. */
#include "kern/cuda_lang.h"
#include "kern/parts.h"

enum { THREADS = 256, SLAB = 4 * THREADS, WARPS = THREADS / WEFT_WARP };

/* What a kernel needs of the partition of the vocabulary. */
struct tables {
    int32_t n_blocks, vocab0[WEFT_MAX_BLOCKS];
    void *at[WEFT_MAX_BLOCKS];
};

static struct tables tables_of(const struct weft_shape *s,
                               const void *const at[])
{
    struct tables t = {}; /* what a launch is given is all its own */
    t.n_blocks = s->n_blocks;
    for (int32_t i = 0; i < s->n_blocks; i++) {
        t.vocab0[i] = s->block[i].vocab0;
        t.at[i] = at ? (void *) at[i] : NULL;
    }
    return t;
}

/* The token's table, and its row there. */
static __device__ __forceinline__ void *table_of(const struct tables &t,
                                                 int32_t token, int64_t *row)
{
    int32_t i = t.n_blocks - 1;
    while (token < t.vocab0[i])
        i--;
    *row = token - t.vocab0[i];
    return t.at[i];
}

struct ends {
    int32_t n, token[WEFT_MAX_ENDS];
};

/* A thread for a row's token, and for a target's state. */
static __global__ void drawn_tokens(int32_t n_rows, int32_t n_targets,
                                    struct ends ends, const int32_t *drawn,
                                    int32_t *token, uint32_t *at,
                                    struct weft_k_run *run)
{
    int32_t i = (int32_t) (blockIdx.x * THREADS + threadIdx.x);
    if (i < n_rows && token[i] < 0)
        token[i] = weft_max32(0, drawn[-1 - token[i]]);
    if (i >= n_targets)
        return;
    uint32_t *state = &at[4 * i + 3], from = *state >> 2;
    int32_t last = from > 0 ? drawn[from - 1] : -1;
    bool has_ended = last == WEFT_K_ENDED
                  || weft_k_is_end(ends.n, ends.token, last);
    *state = has_ended ? (uint32_t) WEFT_K_ROW_HAS_ENDED : *state & 3;
    if (has_ended && run) {
        struct weft_k_run none = {};
        run[i] = none;
    }
}

void weft_k_drawn_tokens_cuda(cudaStream_t stream,
                              const struct weft_k_drawn *d)
{
    int32_t n = weft_max32(d->n_rows, d->n_targets);
    struct ends ends = {};
    ends.n = d->n_ends;
    for (int32_t i = 0; i < d->n_ends; i++)
        ends.token[i] = d->end[i];
    if (n > 0)
        WEFT_LAUNCH(drawn_tokens, blocks_for(n, THREADS), THREADS, stream,
                    d->n_rows, d->n_targets, ends, d->drawn, d->token, d->at,
                    d->run);
}

/* A block has a slab of columns of one row. */
template <enum weft_dtype DTYPE>
static __global__ void embed(struct tables tables, int64_t h, int64_t n_slabs,
                             const int32_t *token, float *x)
{
    int64_t i = blockIdx.x / n_slabs, row;
    int64_t j = (int64_t) (blockIdx.x % n_slabs) * SLAB + 4 * threadIdx.x;
    const void *from = table_of(tables, token[i], &row);
    if (!from)
        return;
    if (h % 4 == 0 && j < h)
        store4_as<WEFT_F32>(x, i * h + j, load4_as<DTYPE>(from, row * h + j));
    for (int64_t e = j; h % 4 != 0 && e < j + 4 && e < h; e++)
        x[i * h + e] = load_as<DTYPE>(from, row * h + e);
}

/* The same row of the table's own rows. */
static __global__ void select_rows(struct tables tables, int64_t h,
                                   int64_t n_slabs, const int32_t *token,
                                   float *x)
{
    int64_t i = blockIdx.x / n_slabs, row;
    int64_t j = (int64_t) (blockIdx.x % n_slabs) * SLAB + 4 * threadIdx.x;
    const float *from = (const float *) table_of(tables, token[i], &row);
    for (int64_t e = j; from && e < j + 4 && e < h; e++)
        x[i * h + e] = from[i * h + e];
}

template <enum weft_dtype DTYPE>
static void embed_of(cudaStream_t stream, const struct tables *tables,
                     int64_t h, int32_t n, const int32_t *token, float *x)
{
    int64_t n_slabs = blocks_for(h, SLAB);
    WEFT_LAUNCH(embed<DTYPE>, (unsigned) (n * n_slabs), THREADS, stream,
                *tables, h, n_slabs, token, x);
}

void weft_k_embed_select_cuda(cudaStream_t stream, const struct weft_shape *s,
                              int32_t n, const int32_t *token,
                              int32_t n_parts, const struct weft_k_part *part,
                              float *x)
{
    int64_t h = s->hidden;
    struct tables tables = tables_of(s, NULL);
    for (int32_t p = 0; p < n_parts; p++)
        for (int32_t t = 0; t < part[p].range.n && part[p].roots != x; t++)
            tables.at[part[p].range.first + t] = (void *) part[p].roots;
    if (n > 0)
        WEFT_LAUNCH(select_rows, (unsigned) (n * blocks_for(h, SLAB)),
                    THREADS, stream, tables, h, blocks_for(h, SLAB), token,
                    x);
}

void weft_k_embed_cuda(cudaStream_t stream, const struct weft_shape *s,
                       const void *const table[], int32_t n,
                       const int32_t *token, float *x)
{
    struct tables tables = tables_of(s, table);
    if (n > 0)
        WEFT_BY_DTYPE(s->dtype, embed_of, stream, &tables, s->hidden, n,
                      token, x);
}

struct hits {
    unsigned mask[WARPS]; /* which of the next THREADS rows */
    int is_repeated;
};

/* Adds columns [j, j + 4) of row i to g; those from h on are left out. */
static __device__ __forceinline__ void add_columns(const float *dx, int64_t i,
                                                   int64_t h, int64_t j,
                                                   float g[4])
{
    for (int e = 0; e < 4; e++)
        if (j + e < h)
            g[e] += dx[i * h + j + e];
}

/* The block of the first row that has a token adds all rows that have it. */
static __global__ void embed_backward(struct tables tables, int64_t h,
                                      int64_t n_slabs, int64_t n,
                                      const int32_t *token, const float *dx)
{
    WEFT_SHARED(struct hits, hits);
    int64_t i = blockIdx.x / n_slabs, row;
    int64_t j = (int64_t) (blockIdx.x % n_slabs) * SLAB + 4 * threadIdx.x;
    int32_t mine = token[i];
    float *grad = (float *) table_of(tables, mine, &row);
    if (threadIdx.x == 0)
        hits.is_repeated = !grad;
    __syncthreads();
    for (int64_t k = threadIdx.x; k < i; k += THREADS)
        if (token[k] == mine)
            hits.is_repeated = 1;
    __syncthreads();
    if (hits.is_repeated)
        return; /* the whole block */
    float g[4] = {0, 0, 0, 0};
    add_columns(grad, row, h, j, g);
    for (int64_t first = i; first < n; first += THREADS) {
        int64_t k = first + threadIdx.x;
        unsigned mask = __ballot_sync(WEFT_FULL_WARP,
                                      k < n && token[k] == mine);
        if (threadIdx.x % WEFT_WARP == 0)
            hits.mask[threadIdx.x / WEFT_WARP] = mask;
        __syncthreads();
        for (int w = 0; w < WARPS; w++)
            for (unsigned m = hits.mask[w]; m != 0; m &= m - 1)
                add_columns(dx, first + w * WEFT_WARP + __ffs((int) m) - 1, h,
                            j, g);
        __syncthreads();
    }
    for (int e = 0; e < 4; e++)
        if (j + e < h)
            grad[row * h + j + e] = g[e];
}

void weft_k_embed_backward_cuda(cudaStream_t stream,
                                const struct weft_shape *s, int32_t n,
                                const int32_t *token, const float *dx,
                                float *const grad[])
{
    struct tables tables = tables_of(s, (const void *const *) grad);
    int64_t n_slabs = blocks_for(s->hidden, SLAB);
    if (n > 0)
        WEFT_LAUNCH(embed_backward, (unsigned) (n * n_slabs), THREADS, stream,
                    tables, (int64_t) s->hidden, n_slabs, (int64_t) n, token,
                    dx);
}
