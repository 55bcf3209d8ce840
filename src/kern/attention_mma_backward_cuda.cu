/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backward pass of attention on tensor cores. Scores and their gradients are
 * recomputed for 64 rows and 64 keys at a time, by two kernels: a block of the
 * first has 64 keys, of the second 64 rows of a query head; of a grid, y is a
 * head of all tensor blocks, z a run. A warp has 16 of
 * them, whose gradients begin with 0 and never leave its registers:
 *
 *     dV += P^T dO     dK += dS^T Q     16 rows at a time, heads in order
 *     dQ += dS K                        16 keys at a time
 *
 * P and dS are rounded to bf16 first.
 */
#include "kern/attention_tiles_cuda.h"

#include "kern/attention_cuda.h"

template <int D> struct alignas(16) rows_of_head {
    pair<D> t; /* Q, dO */
    float lse[TILE], delta[TILE];
};

/* ---- delta: the dot product of out and dout, 16 lanes to a head ---------- */

static __global__ void deltas(struct weft_attention_backward_cuda a,
                              int64_t n_rows)
{
    const struct weft_attention_backward_block &b = a.block[blockIdx.y];
    int j = threadIdx.x % 16 * 8, d = a.head_dim;
    int64_t i = (int64_t) blockIdx.x * (THREADS / 16) + threadIdx.x / 16;
    int64_t n_heads = (int64_t) a.n_kv * a.n_group;
    int64_t row = i / n_heads, head = i % n_heads;
    float s = 0;
    if (row < n_rows && j < d) {
        int64_t at = row * a.ldo + head * d + j;
        for (int e = 0; e < 8; e += 4) {
            float4 x = load4_as<WEFT_BF16>(b.out, at + e);
            float4 y = load4_as<WEFT_BF16>(b.dout, at + e);
            s = fmaf(x.x, y.x, s);
            s = fmaf(x.y, y.y, s);
            s = fmaf(x.z, y.z, s);
            s = fmaf(x.w, y.w, s);
        }
    }
    s = warp_sum(s, 8, 1);
    if (row < n_rows && j == 0)
        b.delta[row * n_heads + head] = s;
}

/* Score s and gradient dp become probability and the gradient of the score. */
static __device__ __forceinline__ void gradient_of(
    const struct weft_attention_backward_cuda &a, bool is_seen, float lse,
    float delta, float *s, float *dp)
{
    float p = weft_exp2(fmaf(*s, a.scale * WEFT_LOG2_E, -lse * WEFT_LOG2_E));
    *dp = is_seen ? (*dp - delta) * (p * a.scale) : 0;
    *s = is_seen ? p : 0;
}

/* ---- dK, dV ----------------------------------------------------------------- */

/* Rows row.. of a head, the first n of 64. */
template <int D>
static __device__ __forceinline__ void fetch_head(
    rows_of_head<D> &t, const struct weft_attention_backward_cuda &a,
    const struct weft_attention_backward_block &b, int64_t row, int n,
    int head)
{
    int d = a.head_dim, n_heads = a.n_kv * a.n_group;
    begin_rows<D>(t.t.x, (const uint16_t *) b.q + row * a.ldqkv + head * d,
                  a.ldqkv, n, d);
    begin_rows<D>(t.t.y, (const uint16_t *) b.dout + row * a.ldo + head * d,
                  a.ldo, n, d);
    weft_copies_end();
    for (int i = threadIdx.x; i < TILE; i += THREADS) {
        t.lse[i] = i < n ? b.lse[(row + i) * a.ldlse + head] : 0;
        t.delta[i] = i < n ? b.delta[(row + i) * n_heads + head] : 0;
    }
    weft_copies_wait<0>();
    __syncthreads();
}

/* 16 of the tile's rows, from i on: adds to dk and dv. seen: how far the lane's
 * first row is behind its first key. Rows that are not there are 0. */
template <int D>
static __device__ __forceinline__ void add_keys(
    const struct weft_attention_backward_cuda &a, const rows_of_head<D> &t,
    int i, int seen, const uint32_t k[D / 16][4], const uint32_t v[D / 16][4],
    float dk[D / 8][4], float dv[D / 8][4])
{
    float p[2][4], ds[2][4];
    uint32_t x[4];
    int column = i + threadIdx.x % 4 * 2;
    times_rows<D>(p, k, &t.t.x[i]);
    times_rows<D>(ds, v, &t.t.y[i]);
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int of = 8 * h + e % 2, row = column + of;
            gradient_of(a, seen + of >= e / 2 * 8, t.lse[row], t.delta[row],
                        &p[h][e], &ds[h][e]);
        }
    round_pair(x, p);
    add_times<D>(dv, x, &t.t.y[i]);
    round_pair(x, ds);
    add_times<D>(dk, x, &t.t.x[i]);
}

template <int D>
static __global__ __launch_bounds__(THREADS) void keys_backward(
    struct weft_attention_backward_cuda a)
{
    WEFT_SHARED(rows_of_head<D>, t);
    int d = a.head_dim, lane = threadIdx.x % WEFT_WARP;
    int n = a.run_rows[blockIdx.z], begin = (int) blockIdx.x * TILE;
    if (begin >= n)
        return; /* the whole block */
    int kv_head = (int) blockIdx.y % a.n_kv;
    const struct weft_attention_backward_block &b =
        a.block[(int) blockIdx.y / a.n_kv];
    int64_t row0 = a.first_row[blockIdx.z];
    int64_t kv = (int64_t) kv_head * d;
    int mine = begin + threadIdx.x / WEFT_WARP * 16;
    uint32_t k[D / 16][4], v[D / 16][4];
    float dk[D / 8][4], dv[D / 8][4];
    int64_t from = (row0 + begin) * a.ldqkv + kv;
    begin_rows<D>(t.t.x, (const uint16_t *) b.k + from, a.ldqkv, n - begin,
                  d);
    begin_rows<D>(t.t.y, (const uint16_t *) b.v + from, a.ldqkv, n - begin,
                  d);
    weft_copies_end();
    take_rows<D>(t.t, k, v);
    clear<D / 8>(dk);
    clear<D / 8>(dv);
    for (int g = 0; g < a.n_group; g++)
        for (int r = begin; r < n; r += TILE) {
            fetch_head<D>(t, a, b, row0 + r, n - r, kv_head * a.n_group + g);
#pragma unroll 1
            for (int i = 0; i < TILE; i += 16)
                if (r + i >= mine && r + i < n) /* else no row sees a key */
                    add_keys<D>(a, t, i,
                                r + i + lane % 4 * 2 - mine - lane / 4, k, v,
                                dk, dv);
            __syncthreads();
        }
    int64_t to = (row0 + mine) * a.ldd + kv;
    store_rows<D>(b.dk + to, a.ldd, n - mine, d, dk);
    store_rows<D>(b.dv + to, a.ldd, n - mine, d, dv);
}

/* ---- dQ --------------------------------------------------------------------- */

/* 16 of the tile's keys, from i on: adds to dq. seen: how far the lane's first
 * row is behind its first key. */
template <int D>
static __device__ __forceinline__ void add_rows(
    const struct weft_attention_backward_cuda &a, const pair<D> &t, int i,
    int seen, const uint32_t q[D / 16][4], const uint32_t dout[D / 16][4],
    const float lse[2], const float delta[2], float dq[D / 8][4])
{
    float p[2][4], ds[2][4];
    uint32_t x[4];
    times_rows<D>(p, q, &t.x[i]);
    times_rows<D>(ds, dout, &t.y[i]);
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            gradient_of(a, seen + e / 2 * 8 >= 8 * h + e % 2, lse[e / 2],
                        delta[e / 2], &p[h][e], &ds[h][e]);
    round_pair(x, ds);
    add_times<D>(dq, x, &t.x[i]);
}

/* Three blocks on a multiprocessor. */
template <int D>
static __global__ __launch_bounds__(THREADS, 3) void rows_backward(
    struct weft_attention_backward_cuda a)
{
    WEFT_SHARED(pair<D>, t);
    int d = a.head_dim, lane = threadIdx.x % WEFT_WARP;
    int n_heads = a.n_kv * a.n_group, head = (int) blockIdx.y % n_heads;
    const struct weft_attention_backward_block &b =
        a.block[(int) blockIdx.y / n_heads];
    int n = a.run_rows[blockIdx.z];
    int begin = (int) (gridDim.x - 1 - blockIdx.x) * TILE; /* longest first */
    if (begin >= n)
        return; /* the whole block */
    int64_t row0 = a.first_row[blockIdx.z];
    int64_t kv = (int64_t) (head / a.n_group) * d;
    int mine = begin + threadIdx.x / WEFT_WARP * 16;
    uint32_t q[D / 16][4], dout[D / 16][4];
    float dq[D / 8][4], lse[2], delta[2];
    int64_t row = row0 + begin;
    begin_rows<D, 2>(t.x, (const uint16_t *) b.q + row * a.ldqkv + head * d,
                     a.ldqkv, n - begin, d);
    begin_rows<D, 2>(t.y, (const uint16_t *) b.dout + row * a.ldo + head * d,
                     a.ldo, n - begin, d);
    weft_copies_end();
    take_rows<D>(t, q, dout);
    for (int r = 0; r < 2; r++) {
        int i = mine + lane / 4 + 8 * r;
        lse[r] = i < n ? b.lse[(row0 + i) * a.ldlse + head] : 0;
        delta[r] = i < n ? b.delta[(row0 + i) * n_heads + head] : 0;
    }
    clear<D / 8>(dq);
    for (int key = 0; key <= begin; key += TILE) {
        int64_t from = (row0 + key) * a.ldqkv + kv;
        begin_rows<D, 2>(t.x, (const uint16_t *) b.k + from, a.ldqkv, n - key,
                         d);
        begin_rows<D, 2>(t.y, (const uint16_t *) b.v + from, a.ldqkv, n - key,
                         d);
        weft_copies_end();
        weft_copies_wait<0>();
        __syncthreads();
#pragma unroll 1
        for (int i = 0; i < TILE; i += 16)
            if (key + i < mine + 16) /* else no row sees a key */
                add_rows<D>(a, t, i, mine + lane / 4 - key - i - lane % 4 * 2,
                            q, dout, lse, delta, dq);
        __syncthreads();
    }
    store_rows<D>(b.dq + (row0 + mine) * a.ldd + head * d, a.ldd, n - mine, d,
                  dq);
}

/* ---- Launches ----------------------------------------------------------------- */

template <int D>
static void launch(cudaStream_t stream,
                   const struct weft_attention_backward_cuda *a)
{
    unsigned tiles = blocks_for(a->max_rows, TILE);
    unsigned n_kv = (unsigned) (a->n_blocks * a->n_kv),
             n_runs = (unsigned) a->n_runs;
    WEFT_LAUNCH(keys_backward<D>, dim3(tiles, n_kv, n_runs), THREADS, stream,
                *a);
    WEFT_LAUNCH(rows_backward<D>,
                dim3(tiles, n_kv * (unsigned) a->n_group, n_runs), THREADS,
                stream, *a);
}

void weft_attention_mma_backward_cuda(
    cudaStream_t stream, const struct weft_attention_backward_cuda *a,
    int64_t n_rows)
{
    int64_t heads = n_rows * a->n_kv * a->n_group;
    WEFT_LAUNCH(deltas,
                dim3(blocks_for(heads, THREADS / 16), (unsigned) a->n_blocks),
                THREADS, stream, *a, n_rows);
    if (a->head_dim <= 64)
        launch<64>(stream, a);
    else
        launch<128>(stream, a);
}
