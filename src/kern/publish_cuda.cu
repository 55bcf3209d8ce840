/* SPDX-License-Identifier: Apache-2.0 */
/* Converts master weights to what products on a GPU read: row-major matrices.
 * A panel of flat order is a transposed (32, k). */
#include "kern/cuda_lang.h"

enum { COLUMNS = 64, ROWS = 8, MIX_THREADS = 256 };

struct square {
    float x[COLUMNS][WEFT_PANEL + 1]; /* + 1: no bank conflicts */
};

struct pairs {
    uint32_t x[COLUMNS][WEFT_PANEL + 1];
};

/* Columns 64 blockIdx.x.. of panel blockIdx.y. */
template <enum weft_dtype DTYPE>
static __global__ void rows_of_panel(int64_t k, const float *flat, void *out)
{
    WEFT_SHARED(struct square, s);
    int64_t panel = blockIdx.y, k0 = (int64_t) blockIdx.x * COLUMNS;
    flat += (panel * k + k0) * WEFT_PANEL;
    for (int j = threadIdx.y; j < COLUMNS && k0 + j < k; j += ROWS)
        s.x[j][threadIdx.x] = flat[j * WEFT_PANEL + threadIdx.x];
    __syncthreads();
    int64_t j = 2 * threadIdx.x;
    for (int r = threadIdx.y; r < WEFT_PANEL; r += ROWS) {
        int64_t at = (panel * WEFT_PANEL + r) * k + k0 + j;
        if (DTYPE == WEFT_BF16 && k0 + j < k) /* k is even */
            ((uint32_t *) out)[at / 2] =
                weft_f32_to_bf16(s.x[j][r])
                | (uint32_t) weft_f32_to_bf16(s.x[j + 1][r]) << 16;
        for (int64_t e = j; DTYPE == WEFT_F32 && e < j + 2; e++)
            if (k0 + e < k)
                ((float *) out)[at + e - j] = s.x[e][r];
    }
}

template <enum weft_dtype DTYPE>
static void publish_panels(cudaStream_t stream, int64_t k, int32_t n_panels,
                           const float *flat, void *out)
{
    dim3 grid(blocks_for(k, COLUMNS), (unsigned) n_panels);
    WEFT_LAUNCH(rows_of_panel<DTYPE>, grid, dim3(WEFT_PANEL, ROWS), stream, k,
                flat, out);
}

/* Pairs of numbers: a panel (k, 32) to (32, k) or, with BACK, from it. Columns
 * 64 blockIdx.x.. of panel blockIdx.y. */
template <bool BACK>
static __global__ void pairs_of_panel(int64_t k, const uint32_t *in,
                                      uint32_t *out)
{
    WEFT_SHARED(struct pairs, s);
    int64_t k0 = (int64_t) blockIdx.x * COLUMNS;
    in += blockIdx.y * k * WEFT_PANEL;
    out += blockIdx.y * k * WEFT_PANEL;
    int me = threadIdx.y * WEFT_PANEL + threadIdx.x;
    for (int i = me; i < COLUMNS * WEFT_PANEL; i += ROWS * WEFT_PANEL) {
        int64_t j = BACK ? i % COLUMNS : i / WEFT_PANEL;
        int64_t r = BACK ? i / COLUMNS : i % WEFT_PANEL;
        if (k0 + j < k)
            s.x[j][r] = in[BACK ? r * k + k0 + j : (k0 + j) * WEFT_PANEL + r];
    }
    __syncthreads();
    for (int i = me; i < COLUMNS * WEFT_PANEL; i += ROWS * WEFT_PANEL) {
        int64_t j = BACK ? i / WEFT_PANEL : i % COLUMNS;
        int64_t r = BACK ? i % WEFT_PANEL : i / COLUMNS;
        if (k0 + j < k)
            out[BACK ? (k0 + j) * WEFT_PANEL + r : r * k + k0 + j] =
                s.x[j][r];
    }
}

void weft_k_reorder_cuda(cudaStream_t stream,
                         const struct weft_layout *layout,
                         enum weft_dtype dtype, bool to_rows,
                         const void *from, void *to)
{
    cudaMemcpyAsync(to, from, layout->fwd_bytes, cudaMemcpyDeviceToDevice,
                    stream);
    for (int32_t i = 0; i < layout->n_parts && dtype == WEFT_BF16; i++) {
        const struct weft_part *p = &layout->part[i];
        if (p->k == 0 || p->id == WEFT_PART_EMBED)
            continue;
        const uint32_t *in = (const uint32_t *) ((const char *) from
                                                 + p->fwd_bytes);
        uint32_t *out = (uint32_t *) ((char *) to + p->fwd_bytes);
        dim3 grid(blocks_for(p->k / 2, COLUMNS), p->n_pad / WEFT_PANEL);
        dim3 block(WEFT_PANEL, ROWS);
        int64_t k = p->k / 2;
        if (to_rows)
            WEFT_LAUNCH(pairs_of_panel<false>, grid, block, stream, k, in,
                        out);
        else
            WEFT_LAUNCH(pairs_of_panel<true>, grid, block, stream, k, in,
                        out);
    }
}

/* The chunks of part p among `chunks`, where it begins with chunk *first,
 * which then is the next part's; those of a matrix are panels. */
static struct weft_range chunks_of(const struct weft_part *p,
                                   struct weft_range chunks, int32_t *first)
{
    int32_t n = p->k > 0 ? (int32_t) weft_ceil_div(p->n_pad, WEFT_PANEL) : 1;
    int32_t begin = weft_max32(chunks.first, *first);
    int32_t end = weft_min32(weft_range_end(chunks), *first + n);
    *first += n;
    struct weft_range some = {begin, weft_max32(end - begin, 0)};
    return some;
}

void weft_k_publish_cuda(cudaStream_t stream,
                         const struct weft_layout *layout,
                         enum weft_dtype dtype, struct weft_range chunks,
                         const float *master, void *fwd)
{
    size_t first = weft_layout_chunk(layout, chunks.first);
    size_t first_byte = weft_layout_chunk_byte(layout, dtype, chunks.first);
    int32_t next = 0;
    for (int32_t i = 0; i < layout->n_parts; i++) {
        const struct weft_part *p = &layout->part[i];
        struct weft_range some = chunks_of(p, chunks, &next);
        if (some.n == 0)
            continue;
        size_t begin = weft_layout_chunk(layout, some.first), n;
        const float *flat = master + (begin - first);
        void *out = (char *) fwd
                  + (weft_layout_chunk_byte(layout, dtype, some.first)
                     - first_byte);
        (void) weft_layout_chunk_part(layout, weft_range_end(some) - 1, &n);
        n += weft_layout_chunk(layout, weft_range_end(some) - 1) - begin;
        if (p->k > 0 && p->id != WEFT_PART_EMBED)
            WEFT_BY_DTYPE(dtype, publish_panels, stream, p->k, some.n, flat,
                          out);
        else
            weft_k_round_cuda(stream, p->k > 0 ? dtype : WEFT_F32,
                              (int64_t) n, flat, out);
    }
}

/* ---- Towards another model's --------------------------------------------- */

/* own (flat order) towards published numbers: of a matrix of bf16, rows of k;
 * k 0: in the same order. */
template <enum weft_dtype DTYPE>
static __global__ void mix(float mix, int64_t n, int64_t k, const void *fwd,
                           float *own)
{
    int64_t i = (int64_t) blockIdx.x * MIX_THREADS + threadIdx.x;
    if (i >= n)
        return;
    int64_t at = i;
    if (k > 0)
        at = (i / (WEFT_PANEL * k) * WEFT_PANEL + i % WEFT_PANEL) * k
           + i / WEFT_PANEL % k;
    own[i] = weft_mixed(mix, load_as<DTYPE>(fwd, at), own[i]);
}

template <enum weft_dtype DTYPE>
static void mix_part(cudaStream_t stream, float by, const struct weft_part *p,
                     const void *fwd, float *own)
{
    int64_t n = (int64_t) p->n_flat;
    bool rows = DTYPE == WEFT_BF16 && p->id != WEFT_PART_EMBED;
    WEFT_LAUNCH(mix<DTYPE>, blocks_for(n, MIX_THREADS), MIX_THREADS, stream,
                by, n, (int64_t) (rows ? p->k : 0), fwd, own);
}

void weft_k_mix_cuda(cudaStream_t stream, const struct weft_layout *layout,
                     enum weft_dtype dtype, float by, const void *fwd,
                     float *own)
{
    for (int32_t i = 0; i < layout->n_parts; i++) {
        const struct weft_part *p = &layout->part[i];
        WEFT_BY_DTYPE(p->k > 0 ? dtype : WEFT_F32, mix_part, stream, by, p,
                      (const char *) fwd + p->fwd_bytes, own + p->offset);
    }
}

/* ---- The transposed tile ------------------------------------------------ */

/* Where element (row, column) of an (n, k) matrix lies; depth k or more. */
template <enum weft_dtype DTYPE>
static __device__ __forceinline__ int64_t place_of(int64_t row,
                                                   int64_t column,
                                                   int64_t depth)
{
    if (DTYPE == WEFT_BF16)
        return row * depth + column;
    return (row / WEFT_PANEL * depth + column) * WEFT_PANEL
         + row % WEFT_PANEL;
}

struct tile {
    float x[WEFT_PANEL][WEFT_PANEL + 1];
};

/* 32 rows and columns of fwd (n_pad, k) to bwd (k_pad, n_pad), 0 behind k. */
template <enum weft_dtype DTYPE>
static __global__ void transpose(int64_t n_pad, int64_t k, const void *fwd,
                                 void *bwd)
{
    WEFT_SHARED(struct tile, s);
    int64_t k0 = (int64_t) blockIdx.x * WEFT_PANEL;
    int64_t n0 = (int64_t) blockIdx.y * WEFT_PANEL;
    for (int j = threadIdx.y; j < WEFT_PANEL; j += ROWS) {
        /* what is contiguous goes to neighbouring threads */
        int row = DTYPE == WEFT_BF16 ? j : (int) threadIdx.x;
        int column = DTYPE == WEFT_BF16 ? (int) threadIdx.x : j;
        s.x[row][column] = k0 + column < k ? load_as<DTYPE>(
                               fwd, place_of<DTYPE>(n0 + row, k0 + column, k))
                                           : 0;
    }
    __syncthreads();
    for (int j = threadIdx.y; j < WEFT_PANEL; j += ROWS) {
        int row = DTYPE == WEFT_BF16 ? j : (int) threadIdx.x;
        int column = DTYPE == WEFT_BF16 ? (int) threadIdx.x : j;
        store_as<DTYPE>(bwd, place_of<DTYPE>(k0 + row, n0 + column, n_pad),
                        s.x[column][row]);
    }
}

template <enum weft_dtype DTYPE>
static void transpose_matrix(cudaStream_t stream, const struct weft_part *p,
                             const void *fwd, void *bwd)
{
    dim3 grid(p->k_pad / WEFT_PANEL, p->n_pad / WEFT_PANEL);
    WEFT_LAUNCH(transpose<DTYPE>, grid, dim3(WEFT_PANEL, ROWS), stream,
                (int64_t) p->n_pad, (int64_t) p->k, fwd, bwd);
}

void weft_k_transpose_cuda(cudaStream_t stream,
                           const struct weft_layout *layout,
                           enum weft_dtype dtype, const void *fwd, void *bwd)
{
    for (int32_t i = 0; i < layout->n_parts; i++) {
        const struct weft_part *p = &layout->part[i];
        if (p->k > 0 && p->id != WEFT_PART_EMBED)
            WEFT_BY_DTYPE(dtype, transpose_matrix, stream, p,
                          (const char *) fwd + p->fwd_bytes,
                          (char *) bwd + p->bwd_bytes);
    }
}
