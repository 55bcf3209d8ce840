/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of bf16 models on tensor cores, over a paged KV cache: training,
 * prefill and decode. The order of a row's sums, which all three share:
 *
 *     keys   0 .. 63 | 64 .. 127 | ... | 192 .. 255 || 256 .. 319 | ...
 *            a page of 64 keys                      || segments of 256
 *
 * In a segment the pages come in order, with a running maximum: a page's
 * probabilities are rounded to bf16, its P V begins with 0 and is added to
 * the segment's output. The segments, each by itself, are merged in order. So
 * blocks may share the segments of a long sequence.
 *
 * An item is a pair of query row and query head of one KV head. A warp has
 * 16, the rows of its matrices; in decode four warps share 16: each has
 * scores of 16 keys of a page, and a quarter of the output's columns.
 */
#include "kern/attention_page_cuda.h"

enum {
    SEGMENT = WEFT_ATTENTION_SEGMENT / PAGE, /* in pages */
    ENOUGH_BLOCKS = 132 /* to share no sequence: an H200's multiprocessors */
};
/* Blocks that share a sequence. */
#ifdef WEFT_CUDA_EXECUTOR /* tests have few segments */
enum { MOST_SPLITS = 2 };
#else
enum { MOST_SPLITS = 16 };
#endif

/* ---- Segments --------------------------------------------------------- */

/* A segment's maximum and sum join those of the segments before it; outputs
 * are multiplied by `keep` (before) and `add` (the segment's). */
static __device__ __forceinline__ void join(float max, float sum,
                                            float *all_max, float *all_sum,
                                            float *keep, float *add)
{
    float most = fmaxf(*all_max, max);
    *keep = weft_exp2(*all_max - most);
    *add = weft_exp2(max - most);
    *all_sum = fmaf(*all_sum, *keep, sum * *add);
    *all_max = most;
}

template <int N>
static __device__ __forceinline__ void end_segment(part<N> &p, part<N> &all)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        p.sum[r] = warp_sum(p.sum[r], 2, 1);
        if (p.sum[r] == 0)
            continue; /* it has no key that the item sees */
        float keep, add;
        join(p.max[r], p.sum[r], &all.max[r], &all.sum[r], &keep, &add);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 2 * r; e < 2 * r + 2; e++)
                all.o[n][e] = fmaf(all.o[n][e], keep, p.o[n][e] * add);
    }
}

/* A split's part: max, sum and D outputs of a segment of run z's only row. */
static __device__ __forceinline__ float *record(
    const struct weft_attention_cuda &a, int head, int segment)
{
    int64_t i = (int64_t) blockIdx.z * a.n_kv * a.n_group + head;
    return a.parts + (i * a.n_segments + segment) * (a.head_dim + 2);
}

template <int N>
static __device__ __forceinline__ void store_part(
    const struct weft_attention_cuda &a, const struct items &at,
    const struct lane &l, int segment, part<N> &p)
{
    int column = l.share * N * 8 + column_of_lane();
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = warp_sum(p.sum[r], 2, 1);
        int i = at.first + l.first + item_of_lane() + 8 * r;
        if (i >= at.n)
            continue;
        float *to = record(a, at.head + i, segment);
        if (column == 0) {
            to[0] = p.max[r];
            to[1] = sum;
        }
#pragma unroll
        for (int n = 0; n < N; n++)
            if (column + 8 * n < a.head_dim)
                *(float2 *) &to[2 + column + 8 * n] = {p.o[n][2 * r],
                                                       p.o[n][2 * r + 1]};
    }
}

static __device__ __forceinline__ float lse_of(float max, float sum)
{
    return fmaf(max, WEFT_LN_2, weft_logf(sum));
}

template <int N>
static __device__ __forceinline__ void store(
    const struct weft_attention_cuda &a, const struct items &at,
    const struct lane &l, const part<N> &p)
{
    int column = l.share * N * 8 + column_of_lane();
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int i = at.first + l.first + item_of_lane() + 8 * r;
        if (i >= at.n)
            continue;
        int64_t row = at.row + i / a.n_group;
        int head = at.head + i % a.n_group;
        float inv = 1.0f / p.sum[r];
        uint16_t *to = (uint16_t *) a.out + row * a.ldo + head * a.head_dim;
#pragma unroll
        for (int n = 0; n < N; n++)
            if (column + 8 * n < a.head_dim)
                *(uint32_t *) &to[column + 8 * n] = weft_bf16_pair(
                    p.o[n][2 * r] * inv, p.o[n][2 * r + 1] * inv);
        if (a.lse && column == 0)
            a.lse[row * a.ldlse + head] = lse_of(p.max[r], p.sum[r]);
    }
}

/* ---- The kernels ---------------------------------------------------------- */

/* Block x of a split has the segments x, x + gridDim.x, ... */
template <int D, bool DECODE, bool SPLIT>
static __global__ __launch_bounds__(DECODE ? 128 : 256) void attend(
    struct weft_attention_cuda a)
{
    typedef shape<D, DECODE> S;
    typedef tile<D, DECODE> block_tile;
    WEFT_SHARED(block_tile, t);
    int first = DECODE
                  ? (int) blockIdx.y / a.n_kv
                  : (int) (gridDim.x - 1 - blockIdx.x); /* longest first */
    struct items at = items_of(a, first * S::ITEMS);
    struct lane l = lane_of<D, DECODE>(a, at);
    int page = SPLIT ? (int) blockIdx.x * SEGMENT : 0;
    if (page * PAGE >= l.block_keys)
        return; /* the whole block */
    int step = SPLIT ? ((int) gridDim.x - 1) * SEGMENT : 0;
    uint32_t q[D / 16][4];
    begin_q(t, a, at);
    weft_copies_wait<0>();
    __syncthreads();
#pragma unroll
    for (int j = 0; j < D / 16; j++)
        weft_load_a(q[j], &t.q[l.first][16 * j], S::LD);
    __syncthreads();
    begin_k(t, keys_of(a, at, page), a.head_dim);
    part<S::OUTPUTS> now, all;
    clear(all);
    clear(now);
    while (page >= 0) {
        bool ends = page % SEGMENT == SEGMENT - 1;
        int next = page + 1 + (ends ? step : 0);
        next = next * PAGE < l.block_keys ? next : -1;
        add_page<D, DECODE>(t, a, at, l, q, page, next, now);
        if (ends || next < 0) {
            if (SPLIT)
                store_part(a, at, l, page / SEGMENT, now);
            else
                end_segment(now, all);
            clear(now);
        }
        page = next;
    }
    if (!SPLIT)
        store(a, at, l, all);
}

/* Joins the segments of run z's only row, head x. */
static __global__ void join_parts(struct weft_attention_cuda a)
{
    struct weft_k_run run = a.run[blockIdx.z];
    if (run.n == 0)
        return; /* the whole block */
    int column = threadIdx.x, head = (int) blockIdx.x, d = a.head_dim;
    int64_t row = a.first_row[blockIdx.z];
    float max = -INFINITY, sum = 0, o = 0;
#pragma unroll 4
    for (int s = 0; s <= run.pos / (SEGMENT * PAGE); s++) {
        const float *part = record(a, head, s);
        float keep, add;
        join(part[0], part[1], &max, &sum, &keep, &add);
        if (column < d)
            o = fmaf(o, keep, part[2 + column] * add);
    }
    if (column < d)
        ((uint16_t *) a.out)[row * a.ldo + head * d + column] =
            weft_f32_to_bf16(o * (1.0f / sum));
    if (a.lse && column == 0)
        a.lse[row * a.ldlse + head] = lse_of(max, sum);
}

/* ---- Launches ------------------------------------------------------------- */

static int32_t segments_of(int32_t n_keys)
{
    return (n_keys + WEFT_ATTENTION_SEGMENT - 1) / WEFT_ATTENTION_SEGMENT;
}

size_t weft_attention_parts_bytes_cuda(enum weft_dtype dtype,
                                       int32_t head_dim, int32_t n_kv,
                                       int32_t n_group, int32_t n_runs,
                                       int32_t max_rows, int32_t max_keys)
{
    int64_t most = blocks_for(ENOUGH_BLOCKS, n_kv);
    int64_t rows = n_runs < most ? n_runs : most;
    int64_t segments = segments_of(max_keys);
    bool shares = weft_attention_on_tensor_cores(dtype, head_dim)
               && max_rows <= 1 && segments > 1;
    return shares
             ? (size_t) (rows * n_kv * n_group * segments * (head_dim + 2))
                   * sizeof(float)
             : 0;
}

template <int D>
static void launch(cudaStream_t stream, const struct weft_attention_cuda *a)
{
    unsigned n_kv = (unsigned) a->n_kv, n_runs = (unsigned) a->n_runs;
    unsigned tiles = blocks_for(a->n_group, shape<D, true>::ITEMS);
    if (a->max_rows > 1) {
        typedef shape<D, false> S;
        int64_t items = (int64_t) a->max_rows * a->n_group;
        dim3 grid(blocks_for(items, S::ITEMS), n_kv, n_runs);
        WEFT_LAUNCH((attend<D, false, false>), grid, S::THREADS, stream, *a);
    } else if (!a->parts || n_kv * n_runs >= ENOUGH_BLOCKS) {
        dim3 grid(1, n_kv * tiles, n_runs);
        WEFT_LAUNCH((attend<D, true, false>), grid, 128, stream, *a);
    } else {
        struct weft_attention_cuda b = *a;
        b.n_segments = segments_of(a->max_keys);
        unsigned splits = b.n_segments < MOST_SPLITS ? b.n_segments
                                                     : MOST_SPLITS;
        dim3 grid(splits, n_kv * tiles, n_runs);
        WEFT_LAUNCH((attend<D, true, true>), grid, 128, stream, b);
        WEFT_LAUNCH(join_parts, dim3(n_kv * (unsigned) a->n_group, 1, n_runs),
                    D, stream, b);
    }
}

void weft_attention_mma_cuda(cudaStream_t stream,
                             const struct weft_attention_cuda *a)
{
    if (a->head_dim <= 64)
        launch<64>(stream, a);
    else
        launch<128>(stream, a);
}
