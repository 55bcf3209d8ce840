/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backward pass of attention on a GPU, with the bits of
 * attention_backward_impl.h. Probabilities are recomputed, for 16 rows and a
 * segment of 64 keys at a time, by two kernels: a block of the first has a
 * segment and goes through heads and rows in order (dK, dV); one of the second
 * has 16 rows of a head and goes through the keys in order (dQ). Of a grid, y
 * is a head of all tensor blocks, z a run.
 */
#include "kern/attention_cuda.h"
#include "kern/cuda_lang.h"

enum {
    THREADS = 256,
    ROWS = 16,
    PAGE = WEFT_PAGE_TOKENS,
    GROUPS = THREADS / PAGE,
    EACH = ROWS / GROUPS, /* rows of a thread's scores */
    ALIGN = 4
};

template <int DMAX> struct tile {
    float q[ROWS][DMAX], dout[ROWS][DMAX];
    float lse[ROWS], delta[ROWS];
};
template <int DMAX> struct keys_tile {
    struct tile<DMAX> rows;
    float p[ROWS][PAGE], ds[ROWS][PAGE];
};
template <int DMAX> struct rows_tile {
    struct tile<DMAX> rows;
    float ds[PAGE][ROWS + ALIGN];
};

/* ---- delta: the dot product of out and dout, 16 lanes to a head ---------- */

template <enum weft_dtype DTYPE>
static __global__ void deltas(struct weft_attention_backward_cuda a,
                              int64_t n_rows)
{
    const struct weft_attention_backward_block &b = a.block[blockIdx.y];
    int lane = threadIdx.x % 16, d = a.head_dim;
    int64_t i = (int64_t) blockIdx.x * (THREADS / 16) + threadIdx.x / 16;
    int64_t n_heads = (int64_t) a.n_kv * a.n_group;
    int64_t row = i / n_heads, head = i % n_heads;
    float s = 0;
    for (int j = lane; row < n_rows && j < d; j += 16)
        s = fmaf(load_as<DTYPE>(b.out, row * a.ldo + head * d + j),
                 ((const float *) b.dout)[row * a.ldo + head * d + j], s);
    s = warp_sum(s, 8, 1);
    if (row < n_rows && lane == 0)
        b.delta[row * n_heads + head] = s;
}

/* ---- What both kernels share ---------------------------------------------- */

/* Rows row..row + n - 1 of a head; those behind it are 0. */
template <enum weft_dtype DTYPE, int DMAX>
static __device__ void fetch_rows(
    const struct weft_attention_backward_cuda &a,
    const struct weft_attention_backward_block &b, int64_t row, int n,
    int head, struct tile<DMAX> *t)
{
    int d = a.head_dim, n_heads = a.n_kv * a.n_group;
    for (int e = threadIdx.x; e < ROWS * DMAX; e += THREADS) {
        int i = e / DMAX, j = e % DMAX;
        bool is_there = i < n && j < d;
        int64_t at = row + i;
        t->q[i][j] = is_there
                       ? load_as<DTYPE>(b.q, at * a.ldqkv + head * d + j)
                       : 0;
        t->dout[i][j] = is_there ? (
                            (const float *) b.dout)[at * a.ldo + head * d + j]
                                 : 0;
    }
    for (int i = threadIdx.x; i < n; i += THREADS) {
        t->lse[i] = b.lse[(row + i) * a.ldlse + head];
        t->delta[i] = b.delta[(row + i) * n_heads + head];
    }
}

/* Probability p[i], and the gradient ds[i] of the unscaled score, of one key
 * and rows first..first + EACH - 1. key: where K's and V's row begins; -1:
 * there is none. seen: row `first` attends to the key, and so do the rows
 * after it, when this is 0 or more; -1: from the next row on, ... */
template <enum weft_dtype DTYPE, int DMAX>
static __device__ __forceinline__ void gradients_of(
    const struct weft_attention_backward_cuda &a,
    const struct weft_attention_backward_block &b, const struct tile<DMAX> &t,
    int64_t key, int first, int seen, float p[EACH], float ds[EACH])
{
    float s[EACH], dp[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++)
        s[i] = dp[i] = 0;
#pragma unroll 4
    for (int j = 0; key >= 0 && j < a.head_dim; j++) {
        float k = load_as<DTYPE>(b.k, key + j),
              v = load_as<DTYPE>(b.v, key + j);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            s[i] = fmaf(t.q[first + i][j], k, s[i]);
            dp[i] = fmaf(t.dout[first + i][j], v, dp[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        bool is_seen = key >= 0 && seen + i >= 0;
        float x = weft_expf(s[i] * a.scale - t.lse[first + i]);
        p[i] = is_seen ? x : 0;
        ds[i] = is_seen ? (dp[i] - t.delta[first + i]) * (x * a.scale) : 0;
    }
}

/* ---- dK, dV ----------------------------------------------------------------- */

template <enum weft_dtype DTYPE, int DMAX>
static __global__ void keys_backward(struct weft_attention_backward_cuda a)
{
    enum { KEYS = PAGE * DMAX / THREADS }; /* of a thread */
    WEFT_SHARED(struct keys_tile<DMAX>, t);
    int d = a.head_dim, me = threadIdx.x;
    int n = a.run_rows[blockIdx.z], begin = (int) blockIdx.x * PAGE;
    if (begin >= n)
        return; /* the whole block */
    int kv = (int) blockIdx.y % a.n_kv;
    const struct weft_attention_backward_block &b =
        a.block[blockIdx.y / (unsigned) a.n_kv];
    int64_t row0 = a.first_row[blockIdx.z];
    int column = me % DMAX, key0 = me / DMAX * KEYS;
    int key = begin + me % PAGE, first = me / PAGE * EACH;
    int64_t kv_column = (int64_t) kv * d;
    int64_t key_at = key < n ? (row0 + key) * a.ldqkv + kv_column : -1;
    float dk[KEYS], dv[KEYS];
#pragma unroll
    for (int k = 0; k < KEYS; k++)
        dk[k] = dv[k] = 0;
    for (int g = 0; g < a.n_group; g++)
        for (int r = begin; r < n; r += ROWS) {
            int rows = n - r < ROWS ? n - r : ROWS;
            float p[EACH], ds[EACH];
            fetch_rows<DTYPE, DMAX>(a, b, row0 + r, rows, kv * a.n_group + g,
                                    &t.rows);
            __syncthreads();
            gradients_of<DTYPE, DMAX>(a, b, t.rows, key_at, first,
                                      r + first - key, p, ds);
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                t.p[first + i][me % PAGE] = p[i];
                t.ds[first + i][me % PAGE] = ds[i];
            }
            __syncthreads();
            for (int i = 0; i < rows; i++) {
                float q = t.rows.q[i][column], o = t.rows.dout[i][column];
#pragma unroll
                for (int k = 0; k < KEYS; k++) {
                    dk[k] = fmaf(t.ds[i][key0 + k], q, dk[k]);
                    dv[k] = fmaf(t.p[i][key0 + k], o, dv[k]);
                }
            }
            __syncthreads();
        }
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
        int64_t at = (row0 + begin + key0 + k) * a.ldd + kv_column + column;
        if (begin + key0 + k < n && column < d) {
            b.dk[at] = dk[k];
            b.dv[at] = dv[k];
        }
    }
}

/* ---- dQ --------------------------------------------------------------------- */

template <enum weft_dtype DTYPE, int DMAX>
static __global__ void rows_backward(struct weft_attention_backward_cuda a)
{
    enum { MINE = ROWS * DMAX / THREADS }; /* rows of a thread */
    WEFT_SHARED(struct rows_tile<DMAX>, t);
    int d = a.head_dim, me = threadIdx.x, n_heads = a.n_kv * a.n_group;
    int head = (int) blockIdx.y % n_heads;
    const struct weft_attention_backward_block &b =
        a.block[(int) blockIdx.y / n_heads];
    int n = a.run_rows[blockIdx.z], r = (int) blockIdx.x * ROWS;
    if (r >= n)
        return; /* the whole block */
    int64_t row0 = a.first_row[blockIdx.z];
    int64_t kv_column = (int64_t) (head / a.n_group) * d;
    int rows = n - r < ROWS ? n - r : ROWS;
    int column = me % DMAX, mine = me / DMAX * MINE;
    int first = me / PAGE * EACH;
    float dq[MINE];
#pragma unroll
    for (int i = 0; i < MINE; i++)
        dq[i] = 0;
    fetch_rows<DTYPE, DMAX>(a, b, row0 + r, rows, head, &t.rows);
    __syncthreads();
    for (int begin = 0; begin <= r; begin += PAGE) {
        int key = begin + me % PAGE,
            keys = n - begin < PAGE ? n - begin : PAGE;
        float p[EACH], ds[EACH];
        gradients_of<DTYPE, DMAX>(
            a, b, t.rows, key < n ? (row0 + key) * a.ldqkv + kv_column : -1,
            first, r + first - key, p, ds);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            t.ds[me % PAGE][first + i] = ds[i];
        __syncthreads();
#pragma unroll 4
        for (int j = 0; j < keys; j++) {
            int64_t at = (row0 + begin + j) * a.ldqkv + kv_column + column;
            float k = column < d ? load_as<DTYPE>(b.k, at) : 0;
#pragma unroll
            for (int i = 0; i < MINE; i++)
                dq[i] = fmaf(t.ds[j][mine + i], k, dq[i]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < MINE; i++)
        if (mine + i < rows && column < d)
            b.dq[(row0 + r + mine + i) * a.ldd + head * d + column] = dq[i];
}

/* ---- Launches ----------------------------------------------------------------- */

template <enum weft_dtype DTYPE, int DMAX>
static void launch(cudaStream_t stream,
                   const struct weft_attention_backward_cuda *a)
{
    unsigned n_kv = (unsigned) (a->n_blocks * a->n_kv);
    dim3 segments(blocks_for(a->max_rows, PAGE), n_kv, (unsigned) a->n_runs);
    dim3 rows(blocks_for(a->max_rows, ROWS), n_kv * (unsigned) a->n_group,
              (unsigned) a->n_runs);
    WEFT_LAUNCH((keys_backward<DTYPE, DMAX>), segments, THREADS, stream, *a);
    WEFT_LAUNCH((rows_backward<DTYPE, DMAX>), rows, THREADS, stream, *a);
}

template <enum weft_dtype DTYPE>
static void backward_of(cudaStream_t stream,
                        const struct weft_attention_backward_cuda *a,
                        int64_t n_rows)
{
    int64_t heads = n_rows * a->n_kv * a->n_group;
    WEFT_LAUNCH(deltas<DTYPE>,
                dim3(blocks_for(heads, THREADS / 16), (unsigned) a->n_blocks),
                THREADS, stream, *a, n_rows);
    if (a->head_dim <= 64)
        launch<DTYPE, 64>(stream, a);
    else if (a->head_dim <= 128)
        launch<DTYPE, 128>(stream, a);
    else
        launch<DTYPE, 256>(stream, a);
}

void weft_k_attention_backward_cuda(
    cudaStream_t stream, const struct weft_attention_backward_cuda *a,
    int64_t n_rows)
{
    if (a->n_runs == 0)
        return;
    if (weft_attention_on_tensor_cores(a->dtype, a->head_dim))
        weft_attention_mma_backward_cuda(stream, a, n_rows);
    else
        WEFT_BY_DTYPE(a->dtype, backward_of, stream, a, n_rows);
}
