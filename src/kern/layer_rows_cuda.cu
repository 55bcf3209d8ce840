/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a layer's batch on a GPU: where runs begin, angles of positions,
 * and pages of a cache that lasts for one layer. */
#include "kern/rmsnorm_cuda.h"

#include "kern/layer_rows_cuda.h"
#include "kern/rope_angles.h"

enum {
    THREADS = 256,
    WARPS = THREADS / WEFT_WARP,
    RUNS = 128,
    PAGE = WEFT_PAGE_TOKENS
};

void weft_rows_cuda_at(const struct weft_shape *s,
                       const struct weft_k_batch *batch,
                       struct weft_arena *arena, struct weft_rows_cuda *out)
{
    int64_t n_runs = batch->n_runs, n_rows = batch->n_rows;
    out->max_rows = 0;
    out->n_pages = 0;
    for (int64_t i = 0; i < n_runs; i++) {
        out->max_rows = weft_max32(out->max_rows, batch->run[i].n);
        out->n_pages += weft_ceil_div(batch->run[i].n, PAGE);
    }
    out->pages_per_slot = (int32_t) weft_ceil_div(out->max_rows, PAGE);
    out->run = (struct weft_k_run *) weft_arena_take(arena, n_runs,
                                                     sizeof *out->run);
    out->first_row = (int32_t *) weft_arena_take(arena, n_runs, 4);
    out->run_rows = (int32_t *) weft_arena_take(arena, n_runs, 4);
    out->page = (int32_t *) weft_arena_take(arena,
                                            n_runs * out->pages_per_slot, 4);
    out->at = (int32_t *) weft_arena_take(arena, n_rows, 4);
    out->cos_sin = (float *) weft_arena_take(arena, n_rows * s->head_dim, 4);
}

/* Runs as an argument, which the host fills: their structs are its own. */
struct some_runs {
    struct weft_k_run run[RUNS];
    int32_t first_row[RUNS], first_page[RUNS];
    int32_t first; /* number of the first */
    bool own_pages;
};
struct frequencies {
    float of[128]; /* D is at most 256 */
};

/* A block for so many rows of a run: an angle takes some hundred clocks, and
 * few blocks would leave most of a GPU idle. */
enum { FILL_ROWS = 64 };
static __global__ void fill(struct some_runs some, struct frequencies f,
                            int64_t d, struct weft_rows_cuda rows)
{
    int32_t i = (int32_t) blockIdx.x, to = some.first + i;
    struct weft_k_run run = some.run[i];
    int32_t first = some.first_row[i], half = (int32_t) (d / 2);
    int32_t from = (int32_t) blockIdx.y * FILL_ROWS;
    int32_t end = weft_min32(from + FILL_ROWS, run.n);
    if (some.own_pages && from == 0)
        for (int32_t p = (int32_t) threadIdx.x; p * PAGE < run.n;
             p += THREADS)
            rows.page[(int64_t) to * rows.pages_per_slot + p] =
                some.first_page[i] + p;
    for (int32_t k = from * half + (int32_t) threadIdx.x; k < end * half;
         k += THREADS) {
        int64_t row = first + k / half;
        float *cos = rows.cos_sin + row * d + k % half;
        weft_rope_angle(f.of[k % half], run.pos + k / half, cos, cos + half);
        if (k % half == 0)
            rows.at[row] = (int32_t) row;
    }
    if (threadIdx.x != 0 || from > 0)
        return;
    run.slot = some.own_pages ? to : run.slot;
    rows.run[to] = run;
    rows.first_row[to] = first;
    rows.run_rows[to] = run.n;
}

/* The same where run i has row i, or none. Blocks behind the last run have rows
 * of the norm. */
template <enum weft_dtype DTYPE>
static __global__ void fill_decode(const struct weft_k_run *runs,
                                   struct frequencies f, int64_t d,
                                   struct weft_rows_cuda rows, int32_t n,
                                   int64_t h, float eps,
                                   struct weft_rows_norm_cuda norm)
{
    if ((int32_t) blockIdx.x >= n) {
        int lane = threadIdx.x % WEFT_WARP;
        int64_t r = (int64_t) (blockIdx.x - n) * WARPS
                  + threadIdx.x / WEFT_WARP;
        if (r < n) /* a whole warp */
            norm_row<DTYPE>(r, h, eps, norm.x, norm.w, norm.out, lane);
        return;
    }
    int32_t i = (int32_t) blockIdx.x, half = (int32_t) (d / 2);
    struct weft_k_run run = runs[i];
    for (int32_t k = (int32_t) threadIdx.x; k < half; k += THREADS) {
        float *cos = rows.cos_sin + i * d + k;
        weft_rope_angle(f.of[k], run.pos, cos, cos + half);
    }
    if (threadIdx.x != 0)
        return;
    rows.at[i] = i;
    rows.run[i] = run;
    rows.first_row[i] = i;
    rows.run_rows[i] = run.n;
}

template <enum weft_dtype DTYPE>
static void fill_decode_of(cudaStream_t stream, const struct weft_shape *s,
                           const struct weft_k_batch *batch,
                           const struct frequencies *f,
                           const struct weft_rows_cuda *rows,
                           const struct weft_rows_norm_cuda *norm)
{
    int32_t n = batch->n_runs;
    unsigned blocks = (unsigned) n + (norm ? blocks_for(n, WARPS) : 0);
    struct weft_rows_norm_cuda none = {NULL, NULL, NULL};
    weft_assert(batch->n_rows == n);
    WEFT_LAUNCH(fill_decode<DTYPE>, blocks, THREADS, stream,
                batch->device_run, *f, (int64_t) s->head_dim, *rows, n,
                (int64_t) s->hidden, s->rms_eps, norm ? *norm : none);
}

void weft_rows_cuda_fill(cudaStream_t stream, const struct weft_shape *s,
                         const struct weft_k_batch *batch, bool own_pages,
                         const struct weft_rows_cuda *rows,
                         const struct weft_rows_norm_cuda *norm)
{
    struct frequencies f;
    int32_t row = 0, page = 0;
    weft_assert(s->head_dim <= 256);
    memset(&f, 0, sizeof f);
    weft_rope_frequencies(s, f.of);
    if (batch->device_run) {
        weft_assert(!own_pages);
        WEFT_BY_DTYPE(s->dtype, fill_decode_of, stream, s, batch, &f, rows,
                      norm);
        return;
    }
    if (norm)
        weft_k_rmsnorm_cuda(stream, s->dtype, batch->n_rows, s->hidden,
                            s->rms_eps, norm->x, norm->w, norm->out);
    for (int32_t first = 0; first < batch->n_runs; first += RUNS) {
        struct some_runs some;
        int32_t n = weft_min32(RUNS, batch->n_runs - first), most = 1;
        memset(&some, 0, sizeof some);
        some.first = first;
        some.own_pages = own_pages;
        for (int32_t i = 0; i < n; i++) {
            some.run[i] = batch->run[first + i];
            some.first_row[i] = row;
            some.first_page[i] = page;
            row += some.run[i].n;
            most = weft_max32(most, some.run[i].n);
            page += (int32_t) weft_ceil_div(some.run[i].n, PAGE);
        }
        dim3 grid((unsigned) n, blocks_for(most, FILL_ROWS));
        WEFT_LAUNCH(fill, grid, THREADS, stream, some, f,
                    (int64_t) s->head_dim, *rows);
    }
}

/* ---- Columns and rows --------------------------------------------------- */

template <class T>
static __global__ void columns(int64_t size, int64_t n, const T *x,
                               int64_t ldx, T *y, int64_t ldy)
{
    int64_t i = (int64_t) blockIdx.x * THREADS + threadIdx.x;
    if (i < size)
        y[i / n * ldy + i % n] = x ? x[i / n * ldx + i % n] : 0;
}

void weft_columns_cuda(cudaStream_t stream, size_t element, int64_t m,
                       int64_t n, const void *x, int64_t ldx, void *y,
                       int64_t ldy)
{
    unsigned blocks = blocks_for(m * n, THREADS);
    if (m * n == 0)
        return;
    if (element == 2)
        WEFT_LAUNCH(columns<uint16_t>, blocks, THREADS, stream, m * n, n,
                    (const uint16_t *) x, ldx, (uint16_t *) y, ldy);
    else
        WEFT_LAUNCH(columns<uint32_t>, blocks, THREADS, stream, m * n, n,
                    (const uint32_t *) x, ldx, (uint32_t *) y, ldy);
}

static __global__ void gather(int64_t n_floats, int64_t h, const int32_t *row,
                              const float *x, float *out)
{
    int64_t i = (int64_t) blockIdx.x * THREADS + threadIdx.x;
    if (i < n_floats)
        out[i] = x[row[i / h] * h + i % h];
}

void weft_gather_cuda(cudaStream_t stream, int64_t n, int64_t h,
                      const int32_t *row, const float *x, float *out)
{
    if (n > 0)
        WEFT_LAUNCH(gather, blocks_for(n * h, THREADS), THREADS, stream,
                    n * h, h, row, x, out);
}

static __global__ void scatter(int64_t n_floats, int64_t h,
                               const int32_t *row, const float *x, float *out)
{
    int64_t i = (int64_t) blockIdx.x * THREADS + threadIdx.x;
    if (i < n_floats)
        out[row[i / h] * h + i % h] = x[i];
}

void weft_scatter_cuda(cudaStream_t stream, int64_t n, int64_t h,
                       const int32_t *row, const float *x, float *out)
{
    if (n > 0)
        WEFT_LAUNCH(scatter, blocks_for(n * h, THREADS), THREADS, stream,
                    n * h, h, row, x, out);
}
