/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a layer on a GPU: norm, rounding, and sums over rows. Every
 * sum has the order of rows_impl.h. */
#include "kern/rmsnorm_cuda.h"

#include "kern/layer_rows_cuda.h"

enum { ROW_WARPS = 4, ELEMENTS = 256 };

/* ---- Norm: a warp per row ---------------------------------------------- */

/* d NULL, or beside it d (m, h) is rounded. */
template <enum weft_dtype DTYPE>
static __global__ void rmsnorm(int64_t m, int64_t h, float eps,
                               const float *x, const float *w, void *y,
                               const float *d, void *rounded)
{
    int lane = threadIdx.x % WEFT_WARP;
    int64_t r = (int64_t) blockIdx.x * ROW_WARPS + threadIdx.x / WEFT_WARP;
    if (r >= m)
        return; /* a whole warp */
    norm_row<DTYPE>(r, h, eps, x, w, y, lane);
#pragma unroll 4
    for (int64_t i = r * h + lane; d && i < (r + 1) * h; i += WEFT_WARP)
        store_as<DTYPE>(rounded, i, d[i]);
}

template <enum weft_dtype DTYPE>
static void rmsnorm_of(cudaStream_t stream, int64_t m, int64_t h, float eps,
                       const float *x, const float *w, void *y,
                       const float *d, void *rounded)
{
    WEFT_LAUNCH(rmsnorm<DTYPE>, blocks_for(m, ROW_WARPS),
                ROW_WARPS * WEFT_WARP, stream, m, h, eps, x, w, y, d,
                rounded);
}

void weft_norm_round_cuda(cudaStream_t stream, enum weft_dtype dtype,
                          int64_t m, int64_t h, float eps, const float *x,
                          const float *w, void *y, const float *d,
                          void *rounded)
{
    if (m > 0)
        WEFT_BY_DTYPE(dtype, rmsnorm_of, stream, m, h, eps, x, w, y, d,
                      rounded);
}

void weft_k_rmsnorm_cuda(cudaStream_t stream, enum weft_dtype dtype,
                         int64_t m, int64_t h, float eps, const float *x,
                         const float *w, void *y)
{
    weft_norm_round_cuda(stream, dtype, m, h, eps, x, w, y, NULL, NULL);
}

/* With n = x / rms: dx += (w dy - n mean(w dy n)) / rms. Keeps 1 / rms for the
 * weight's gradient. rounded: NULL, or dx in the dtype, too. */
template <enum weft_dtype DTYPE>
static __global__ void rmsnorm_dx(int64_t m, int64_t h, float eps,
                                  const float *x, const float *w,
                                  const float *dy, float *dx, float *inv_out,
                                  void *rounded)
{
    int lane = threadIdx.x % WEFT_WARP;
    int64_t r = (int64_t) blockIdx.x * ROW_WARPS + threadIdx.x / WEFT_WARP;
    if (r >= m)
        return;
    x += r * h;
    dy += r * h;
    dx += r * h;
    float inv = row_inv_rms(h, eps, x, h % 2 == 0, lane);
    float mean = row_norm_mean(h, inv, x, w, dy, lane);
#pragma unroll 4
    for (int64_t i = lane; i < h; i += WEFT_WARP) {
        float d = fmaf(x[i] * inv, mean, dy[i] * w[i]);
        d = fmaf(d, inv, dx[i]);
        dx[i] = d;
        if (rounded)
            store_as<DTYPE>(rounded, r * h + i, d);
    }
    if (lane == 0)
        inv_out[r] = inv;
}

/* ---- Sums over rows ----------------------------------------------------- */

/* A column is one chain over all rows, so there are few chains. A block has 32
 * columns: all its threads fetch the next STEPS rows while the first warp adds
 * those before. */
enum { STEPS = 64, FETCHERS = 8, EACH = STEPS / FETCHERS };

struct row_steps {
    float a[STEPS][WEFT_WARP], b[STEPS][WEFT_WARP];
};

/* sum[j] += sum over rows of dy[i][j] * x[i][j] * inv[i], as fused steps; with
 * IS_SUM only of dy. */
template <bool IS_SUM>
static __device__ __forceinline__ void row_chain(struct row_steps &step,
                                                 int64_t m, int64_t n,
                                                 int64_t ld, const float *dy,
                                                 const float *x,
                                                 const float *inv, float *sum)
{
    int lane = threadIdx.x, fetcher = threadIdx.y;
    int64_t j = (int64_t) blockIdx.x * WEFT_WARP + lane;
    bool adds = fetcher == 0 && j < n;
    float a[EACH], b[EACH], total = adds ? sum[j] : 0;
    for (int64_t first = 0; first < m + STEPS; first += STEPS) {
        for (int e = 0; e < EACH; e++) {
            int64_t i = first + e * FETCHERS + fetcher;
            bool is_there = i < m && j < n;
            a[e] = is_there ? dy[i * ld + j] : 0;
            b[e] = is_there && !IS_SUM ? x[i * ld + j] * inv[i] : 0;
        }
        int64_t before = first - STEPS;
        int n_before = (int) weft_min64(m - before, STEPS);
        for (int e = 0; adds && before >= 0 && e < n_before; e++)
            total = IS_SUM ? total + step.a[e][lane]
                           : fmaf(step.a[e][lane], step.b[e][lane], total);
        __syncthreads();
        for (int e = 0; e < EACH; e++) {
            step.a[e * FETCHERS + fetcher][lane] = a[e];
            if (!IS_SUM)
                step.b[e * FETCHERS + fetcher][lane] = b[e];
        }
        __syncthreads();
    }
    if (adds)
        sum[j] = total;
}

static __global__ void add_products(int64_t m, int64_t h, const float *dy,
                                    const float *x, const float *inv,
                                    float *sum)
{
    WEFT_SHARED(struct row_steps, step);
    row_chain<false>(step, m, h, h, dy, x, inv, sum);
}

static __global__ void add_rows(int64_t m, struct weft_row_sums_cuda a)
{
    WEFT_SHARED(struct row_steps, step);
    int t = (int) blockIdx.y;
    if ((int64_t) blockIdx.x * WEFT_WARP < a.n[t])
        row_chain<true>(step, m, a.n[t], a.ld[t], a.x[t], NULL, NULL,
                        a.sum[t]);
}

template <enum weft_dtype DTYPE>
static void rmsnorm_dx_of(cudaStream_t stream, int64_t m, int64_t h,
                          float eps, const float *x, const float *w,
                          const float *dy, float *dx, float *inv_out,
                          void *rounded)
{
    WEFT_LAUNCH(rmsnorm_dx<DTYPE>, blocks_for(m, ROW_WARPS),
                ROW_WARPS * WEFT_WARP, stream, m, h, eps, x, w, dy, dx,
                inv_out, rounded);
}

void weft_norm_backward_cuda(cudaStream_t stream, enum weft_dtype dtype,
                             int64_t m, int64_t h, float eps, const float *x,
                             const float *w, const float *dy, float *dx,
                             float *dw, void *rounded, float *scratch)
{
    if (m <= 0)
        return;
    WEFT_BY_DTYPE(dtype, rmsnorm_dx_of, stream, m, h, eps, x, w, dy, dx,
                  scratch, rounded);
    if (dw)
        WEFT_LAUNCH(add_products, blocks_for(h, WEFT_WARP),
                    dim3(WEFT_WARP, FETCHERS), stream, m, h, dy, x, scratch,
                    dw);
}

void weft_k_rmsnorm_backward_cuda(cudaStream_t stream, int64_t m, int64_t h,
                                  float eps, const float *x, const float *w,
                                  const float *dy, float *dx, float *dw,
                                  float *scratch)
{
    weft_norm_backward_cuda(stream, WEFT_F32, m, h, eps, x, w, dy, dx, dw,
                            NULL, scratch);
}

void weft_k_add_rows_cuda(cudaStream_t stream, int64_t m, int64_t n,
                          const float *x, int64_t ldx, float *sum)
{
    struct weft_row_sums_cuda one = {1, {x}, {n}, {ldx}, {sum}};
    weft_add_rows_cuda(stream, m, &one);
}

void weft_add_rows_cuda(cudaStream_t stream, int64_t m,
                        const struct weft_row_sums_cuda *a)
{
    int64_t n = 0;
    for (int32_t t = 0; t < a->n_blocks; t++)
        n = weft_max64(n, a->n[t]);
    if (m > 0 && n > 0)
        WEFT_LAUNCH(add_rows,
                    dim3(blocks_for(n, WEFT_WARP), (unsigned) a->n_blocks),
                    dim3(WEFT_WARP, FETCHERS), stream, m, *a);
}

/* ---- Rounding, columns --------------------------------------------------- */

static __global__ void columns_of_rows(int64_t m, int64_t n, const float *x,
                                       int64_t ldx, float *y, int64_t ldy)
{
    int64_t j = (int64_t) blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t i = blockIdx.y; j < n && i < m; i += gridDim.y)
        y[i * ldy + j] = x[i * ldx + j];
}

void weft_k_copy_columns_cuda(cudaStream_t stream, int64_t m, int64_t n,
                              const float *x, int64_t ldx, float *y,
                              int64_t ldy)
{
    dim3 grid(blocks_for(n, ELEMENTS), (unsigned) weft_min64(m, 65535));
    if (m > 0 && n > 0)
        WEFT_LAUNCH(columns_of_rows, grid, ELEMENTS, stream, m, n, x, ldx, y,
                    ldy);
}

static __global__ void rows_of_many(int64_t m, int64_t h, int64_t each,
                                    struct weft_k_sources from, float *y)
{
    int64_t j = (int64_t) blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t i = blockIdx.y; j < h && i < m; i += gridDim.y)
        y[i * h + j] = from.x[i / each][i * h + j];
}

void weft_k_gather_rows_cuda(cudaStream_t stream, int64_t m, int64_t h,
                             int64_t each, const struct weft_k_sources *from,
                             float *y)
{
    dim3 grid(blocks_for(h, ELEMENTS), (unsigned) weft_min64(m, 65535));
    if (m > 0)
        WEFT_LAUNCH(rows_of_many, grid, ELEMENTS, stream, m, h, each, *from,
                    y);
}

template <enum weft_dtype DTYPE>
static __global__ void round_rows(int64_t n, const float *x, void *y)
{
    int64_t i = 4 * ((int64_t) blockIdx.x * ELEMENTS + threadIdx.x);
    if (i + 4 <= n)
        store4_as<DTYPE>(y, i, load4_as<WEFT_F32>(x, i));
    else
        for (; i < n; i++)
            store_as<DTYPE>(y, i, x[i]);
}

template <enum weft_dtype DTYPE>
static void round_of(cudaStream_t stream, int64_t n, const float *x, void *y)
{
    WEFT_LAUNCH(round_rows<DTYPE>, blocks_for(n, 4 * ELEMENTS), ELEMENTS,
                stream, n, x, y);
}

void weft_k_round_cuda(cudaStream_t stream, enum weft_dtype dtype, int64_t n,
                       const float *x, void *y)
{
    if (n > 0)
        WEFT_BY_DTYPE(dtype, round_of, stream, n, x, y);
}
