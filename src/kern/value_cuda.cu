/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scalar head on a GPU. The rows that have a value are gathered, so that
 * norms and sums over rows are those of rows_cuda.cu.
 */
#include "kern/cuda_lang.h"
#include "kern/layer_rows_cuda.h"

enum { THREADS = 256, SUMS = 16, ROWS = THREADS / SUMS };

/* Sixteen threads have a row, each of them one partial sum. */
static __global__ void dot(int32_t n, int64_t h, const float *y,
                           const float *score, float *value_out)
{
    int64_t i = (int64_t) blockIdx.x * ROWS + threadIdx.x / SUMS;
    int part = threadIdx.x % SUMS;
    float sum = 0;
    for (int64_t j = part; i < n && j < h; j += SUMS)
        sum += y[i * h + j] * score[j];
    sum = warp_sum(sum, SUMS / 2, 1);
    if (i < n && part == 0)
        value_out[i] = sum;
}

/* y becomes dvalue y, whose sum over rows is the score vector's gradient;
 * dy = dvalue score. */
static __global__ void slopes(int64_t n_floats, int64_t h,
                              const float *dvalue, const float *score,
                              float *y, float *dy)
{
    int64_t i = (int64_t) blockIdx.x * THREADS + threadIdx.x;
    if (i >= n_floats)
        return;
    y[i] = dvalue[i / h] * y[i];
    dy[i] = dvalue[i / h] * score[i % h];
}

static int64_t score_at(const struct weft_shape *s)
{
    struct weft_layout layout;
    weft_layout_get(s, WEFT_TILE_FINAL, 0, &layout);
    return (int64_t) weft_layout_part(&layout, WEFT_PART_SCORE)->offset;
}

size_t weft_k_value_scratch_bytes_cuda(const struct weft_shape *s, int32_t n)
{
    return (size_t) n * (4 * (size_t) s->hidden + 1) * sizeof(float);
}

/* The rows, and the norm's output of them. */
static void normalise(cudaStream_t stream, const struct weft_shape *s,
                      const float *final, const float *x, int32_t n,
                      const int32_t *row, float *rows, float *y)
{
    int64_t h = s->hidden;
    weft_gather_cuda(stream, n, h, row, x, rows);
    weft_k_rmsnorm_cuda(stream, WEFT_F32, n, h, s->rms_eps, rows, final, y);
}

void weft_k_value_cuda(cudaStream_t stream, const struct weft_shape *s,
                       const float *final, const float *x, int32_t n,
                       const int32_t *row, float *value_out, void *scratch)
{
    float *rows = (float *) scratch, *y = rows + (int64_t) n * s->hidden;
    if (n <= 0)
        return;
    normalise(stream, s, final, x, n, row, rows, y);
    WEFT_LAUNCH(dot, blocks_for(n, ROWS), THREADS, stream, n,
                (int64_t) s->hidden, y, final + score_at(s), value_out);
}

void weft_k_value_backward_cuda(cudaStream_t stream,
                                const struct weft_shape *s,
                                const float *final, int32_t n_rows,
                                const float *x, int32_t n, const int32_t *row,
                                const float *dvalue, float *dx,
                                float *grad_final, void *scratch)
{
    int64_t h = s->hidden, n_floats = n * h;
    size_t bytes = (size_t) n_floats * sizeof(float);
    float *rows = (float *) scratch, *y = rows + n_floats;
    float *dy = y + n_floats, *drow = dy + n_floats;
    cudaMemsetAsync(dx, 0, (size_t) (n_rows * h) * sizeof *dx, stream);
    if (n <= 0)
        return;
    normalise(stream, s, final, x, n, row, rows, y);
    WEFT_LAUNCH(slopes, blocks_for(n_floats, THREADS), THREADS, stream,
                n_floats, h, dvalue, final + score_at(s), y, dy);
    weft_k_add_rows_cuda(stream, n, h, y, h, grad_final + score_at(s));
    cudaMemsetAsync(drow, 0, bytes, stream);
    weft_k_rmsnorm_backward_cuda(stream, n, h, s->rms_eps, rows, final, dy,
                                 drow, grad_final, drow + n_floats);
    weft_scatter_cuda(stream, n, h, row, drow, dx);
}
