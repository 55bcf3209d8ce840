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
#include "kern/attention_segment_cuda.h"

enum {
    ENOUGH_BLOCKS = 132 /* to share no sequence: an H200's multiprocessors */
};
/* Blocks that share a sequence. */
#ifdef WEFT_CUDA_EXECUTOR /* tests have few segments */
enum { MOST_SPLITS = 2 };
#else
enum { MOST_SPLITS = 16 };
#endif

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
                  ? (int) blockIdx.y / (a.n_kv * a.n_blocks)
                  : (int) (gridDim.x - 1 - blockIdx.x); /* longest first */
    struct items at = items_of(a, first * S::ITEMS);
    if (at.first >= at.n)
        return; /* the whole block */
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
    if (!SPLIT) /* reading them again takes fewer registers than keeping */
        store(a, items_of(a, first * S::ITEMS), l, all);
}

/* Joins the segments of run z's only row, block y, head x. */
static __global__ void join_parts(struct weft_attention_cuda a)
{
    struct weft_k_run run = a.run[blockIdx.z];
    if (run.n == 0)
        return; /* the whole block */
    int column = threadIdx.x, head = (int) blockIdx.x, d = a.head_dim;
    int64_t row = a.first_row[blockIdx.z];
    const struct weft_attention_block &b = a.block[blockIdx.y];
    float max = -INFINITY, sum = 0, o = 0;
#pragma unroll 4
    for (int s = 0; s <= run.pos / (SEGMENT * PAGE); s++) {
        const float *part = record(a, (int) blockIdx.y, head, s);
        float keep, add;
        join(part[0], part[1], &max, &sum, &keep, &add);
        if (column < d)
            o = fmaf(o, keep, part[2 + column] * add);
    }
    if (column < d)
        ((uint16_t *) b.out)[row * a.ldo + head * d + column] =
            weft_f32_to_bf16(o * (1.0f / sum));
    if (b.lse && column == 0)
        b.lse[row * a.ldlse + head] = lse_of(max, sum);
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
    unsigned n_blocks = (unsigned) a->n_blocks;
    unsigned n_kv = n_blocks * (unsigned) a->n_kv,
             n_runs = (unsigned) a->n_runs;
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
        WEFT_LAUNCH(join_parts,
                    dim3((unsigned) (a->n_kv * a->n_group), n_blocks, n_runs),
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
