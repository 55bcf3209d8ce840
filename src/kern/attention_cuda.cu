/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention on a GPU over a paged KV cache: prefill, training and decode, with
 * the bits of attention_impl.h. A block has 16 items, pairs of query row and
 * query head of one KV head, and goes through the segments of 64 keys in
 * order:
 *
 *     scores    64 keys x 16 items, each a chain over D     a thread: 1 x 8
 *     softmax   of each item, 16 partial sums               16 lanes: 2 items
 *     output    D x 16 items, each a chain over keys        a thread: 1 x 16
 *
 * It uses no tensor cores, whose order of sums is not the CPU's; bf16 models
 * do, in attention_mma_cuda.cu, where their head size allows it.
 */
#include "kern/attention_items_cuda.h"

enum { THREADS = 128, ITEMS = 16, ALIGN = 4 };

template <int DMAX>
struct alignas(16) tile { /* read four numbers at a time */
    float q[ITEMS][DMAX];
    float p[PAGE][ITEMS + ALIGN]; /* scores, then probabilities */
    float max[ITEMS], sum[ITEMS], old[ITEMS];
};

/* How many keys of a segment an item may attend to, 0..64. */
static __device__ __forceinline__ int limit_of(
    const struct weft_attention_cuda &a, const struct items &at, int item,
    int segment)
{
    int left = keys_of_item(a, at, item) - segment * PAGE;
    return left < 0 ? 0 : left < PAGE ? left : PAGE;
}

/* Eight scores of one key: s[i] of the items first..first + 7. */
template <enum weft_dtype DTYPE, int DMAX>
static __device__ __forceinline__ void scores_of(const struct tile<DMAX> &t,
                                                 const void *k, int d,
                                                 int key, int first,
                                                 float s[ITEMS / 2])
{
    int j = 0;
#pragma unroll
    for (int i = 0; i < ITEMS / 2; i++)
        s[i] = 0;
    for (; j + ALIGN <= d; j += ALIGN) {
        float x[ALIGN];
#pragma unroll
        for (int e = 0; e < ALIGN; e++)
            x[e] = load_as<DTYPE>(k, (j + e) * PAGE + key);
#pragma unroll
        for (int i = 0; i < ITEMS / 2; i++) {
            float4 q = *(const float4 *) &t.q[first + i][j];
            s[i] = fmaf(q.x, x[0], s[i]);
            s[i] = fmaf(q.y, x[1], s[i]);
            s[i] = fmaf(q.z, x[2], s[i]);
            s[i] = fmaf(q.w, x[3], s[i]);
        }
    }
    for (; j < d; j++) {
        float x = load_as<DTYPE>(k, j * PAGE + key);
#pragma unroll
        for (int i = 0; i < ITEMS / 2; i++)
            s[i] = fmaf(t.q[first + i][j], x, s[i]);
    }
}

/* Turns an item's scores into exp(score - max); sixteen lanes, lane e has the
 * keys e, e + 16, e + 32, e + 48. */
template <int DMAX>
static __device__ __forceinline__ void softmax_item(struct tile<DMAX> &t,
                                                    int item, int limit,
                                                    float scale)
{
    int lane = threadIdx.x % 16;
    float x[4], max = -INFINITY, before = t.max[item];
#pragma unroll
    for (int v = 0; v < 4; v++) {
        int key = 16 * v + lane;
        x[v] = key < limit ? t.p[key][item] * scale : -INFINITY;
        max = x[v] > max ? x[v] : max;
    }
    max = warp_max(max, 8);
    max = max > before ? max : before;
#pragma unroll
    for (int v = 0; v < 4; v++)
        x[v] = weft_expf(x[v] - max);
    float sum = warp_sum(x[0] + x[1] + (x[2] + x[3]), 8, 1);
    float old = weft_expf(before - max);
    if (limit == 0) { /* the row ends before this segment */
        if (lane == 0)
            t.old[item] = 1;
        return;
    }
#pragma unroll
    for (int v = 0; v < 4; v++)
        t.p[16 * v + lane][item] = x[v];
    if (lane == 0) {
        t.old[item] = old;
        t.sum[item] = fmaf(t.sum[item], old, sum);
        t.max[item] = max;
    }
}

template <enum weft_dtype DTYPE, int DMAX>
static __global__ void attention(struct weft_attention_cuda a)
{
    enum {
        COLUMNS = DMAX < THREADS ? DMAX : THREADS,
        EACH = DMAX / COLUMNS,             /* columns of a thread */
        MINE = ITEMS / (THREADS / COLUMNS) /* items of a thread */
    };
    WEFT_SHARED(struct tile<DMAX>, t);
    int d = a.head_dim, me = threadIdx.x;
    struct items at = items_of(a, (int32_t) blockIdx.x * ITEMS);
    const void *q = a.block[at.block].q;
    float *lse = a.block[at.block].lse;
    if (at.first >= at.n)
        return; /* the whole block */

    for (int e = me; e < ITEMS * DMAX; e += THREADS) {
        int item = at.first + e / DMAX, j = e % DMAX;
        int64_t row = at.row + item / a.n_group;
        bool is_there = item < at.n && j < d;
        t.q[e / DMAX][j] = is_there ? load_as<DTYPE>(
                               q, row * a.ldq
                                      + (at.head + item % a.n_group) * d + j)
                                    : 0;
    }
    if (me < ITEMS) {
        t.max[me] = -INFINITY;
        t.sum[me] = 0;
    }
    float o[EACH][MINE];
#pragma unroll
    for (int c = 0; c < EACH; c++)
#pragma unroll
        for (int i = 0; i < MINE; i++)
            o[c][i] = 0;
    int column = me % COLUMNS, mine = me / COLUMNS * MINE;
    int last_there = last_item(at, ITEMS);
    int last = (keys_of_item(a, at, last_there) - 1) / PAGE;
    __syncthreads();

    for (int segment = 0; segment <= last; segment++) {
        const char *k = keys_of(a, at, segment);
        const void *v = k
                      + (size_t) (d * PAGE) * (DTYPE == WEFT_BF16 ? 2 : 4);
        float s[ITEMS / 2];
        int key = me % PAGE, first = me / PAGE * (ITEMS / 2);
        scores_of<DTYPE, DMAX>(t, k, d, key, first, s);
#pragma unroll
        for (int i = 0; i < ITEMS / 2; i++)
            t.p[key][first + i] = s[i];
        __syncthreads();
        for (int item = me / 16; item < ITEMS; item += THREADS / 16)
            softmax_item<DMAX>(t, item, limit_of(a, at, item, segment),
                               a.scale);
        __syncthreads();
        int limit[MINE], n_keys = limit_of(a, at, last_there, segment);
#pragma unroll
        for (int i = 0; i < MINE; i++) {
            limit[i] = limit_of(a, at, mine + i, segment);
#pragma unroll
            for (int c = 0; c < EACH; c++)
                o[c][i] *= t.old[mine + i];
        }
#pragma unroll 4
        for (int j = 0; j < n_keys; j++) {
            float x[EACH];
#pragma unroll
            for (int c = 0; c < EACH; c++) {
                int e = column + c * COLUMNS;
                x[c] = e < d ? load_as<DTYPE>(v, j * d + e) : 0;
            }
#pragma unroll
            for (int i = 0; i < MINE; i++)
#pragma unroll
                for (int c = 0; c < EACH; c++)
                    if (j < limit[i])
                        o[c][i] = fmaf(t.p[j][mine + i], x[c], o[c][i]);
        }
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < MINE; i++) {
        int item = at.first + mine + i;
        if (item >= at.n)
            continue;
        int64_t row = at.row + item / a.n_group;
        int head = at.head + item % a.n_group;
        float inv = 1.0f / t.sum[mine + i];
#pragma unroll
        for (int c = 0; c < EACH; c++) {
            int e = column + c * COLUMNS;
            if (e < d)
                store_as<DTYPE>(a.block[at.block].out,
                                row * a.ldo + head * d + e, o[c][i] * inv);
        }
        if (lse && column == 0)
            lse[row * a.ldlse + head] = t.max[mine + i]
                                      + weft_logf(t.sum[mine + i]);
    }
}

template <enum weft_dtype DTYPE>
static void attention_of(cudaStream_t stream,
                         const struct weft_attention_cuda *a)
{
    int64_t items = (int64_t) a->max_rows * a->n_group;
    dim3 grid(blocks_for(items, ITEMS), (unsigned) (a->n_kv * a->n_blocks),
              (unsigned) a->n_runs);
    if (a->head_dim <= 64)
        WEFT_LAUNCH((attention<DTYPE, 64>), grid, THREADS, stream, *a);
    else if (a->head_dim <= 128)
        WEFT_LAUNCH((attention<DTYPE, 128>), grid, THREADS, stream, *a);
    else
        WEFT_LAUNCH((attention<DTYPE, 256>), grid, THREADS, stream, *a);
}

void weft_k_attention_cuda(cudaStream_t stream,
                           const struct weft_attention_cuda *a)
{
    if (a->n_runs == 0)
        return;
    if (weft_attention_on_tensor_cores(a->dtype, a->head_dim))
        weft_attention_mma_cuda(stream, a);
    else
        WEFT_BY_DTYPE(a->dtype, attention_of, stream, a);
}
