/* SPDX-License-Identifier: Apache-2.0 */
/* Queries, keys and values of a layer on a GPU, between their products and
 * attention, and their gradients on the way back. Each number is computed as by
 * layer_attention_cpu.c and layer_unrotate_cpu.c. */
#include "kern/rmsnorm_cuda.h"

#include "kern/layer_rows_cuda.h"
#include "kern/rope_angles.h"

enum { THREADS = 128, WARPS = THREADS / WEFT_WARP, PAGE = WEFT_PAGE_TOKENS };

/* Rows row.. of the batch, n of them, of a run from position pos on, and one
 * head of a block: head number `head` of its q, k and v. */
struct part {
    int64_t row;
    int32_t n, pos, block, head;
    const int32_t *page;
};

struct norms {
    float inv[PAGE];
};

/* Of a grid whose x has 64 rows of run z and whose y is a head. */
static __device__ __forceinline__ struct part part_of(
    const struct weft_qkv_cuda &a)
{
    struct weft_k_run run = a.run[blockIdx.z];
    int64_t before = a.row - a.first_row[blockIdx.z];
    int64_t first = weft_max64((int64_t) blockIdx.x * PAGE, before);
    int64_t end = weft_min64((int64_t) (blockIdx.x + 1) * PAGE, run.n);
    end = weft_min64(end, before + a.n_rows);
    struct part at;
    at.row = a.first_row[blockIdx.z] + first;
    at.n = (int32_t) (end - first);
    at.pos = run.pos + (int32_t) first;
    at.block = 0;
    while (at.block + 1 < a.n_blocks
           && (int32_t) blockIdx.y >= a.block[at.block + 1].first_head)
        at.block++;
    at.head = (int32_t) blockIdx.y - a.block[at.block].first_head;
    at.page = a.page + (int64_t) run.slot * a.pages_per_slot;
    return at;
}

/* Adds the bias to the head's rows x (n, ld), and keeps them; inv_out[i]: 1 /
 * rms of row i. */
static __device__ __forceinline__ void begin_norm(
    const struct weft_qkv_cuda &a, const struct part &at, float *x,
    int64_t ld, float inv_out[PAGE])
{
    const struct weft_qkv_block_cuda &b = a.block[at.block];
    int d = a.head_dim, lane = threadIdx.x % WEFT_WARP;
    int64_t ld_raw = (int64_t) (b.n_heads + b.n_kv) * d;
    for (int e = threadIdx.x; (b.bias || b.raw) && e < at.n * d;
         e += THREADS) {
        int i = e / d, j = e % d;
        float y = x[i * ld + j];
        if (b.bias)
            y = y + b.bias[at.head * d + j];
        x[i * ld + j] = y;
        if (b.raw)
            b.raw[(at.row + i) * ld_raw + at.head * d + j] = y;
    }
    __syncthreads();
    for (int i = threadIdx.x / WEFT_WARP; i < at.n; i += WARPS) {
        float inv = row_inv_rms(d, a.eps, x + i * ld,
                                d % 2 == 0 && ld % 2 == 0, lane);
        if (lane == 0)
            inv_out[i] = inv;
    }
    __syncthreads();
}

/* Copies the head's rows of k or v, x (n, ld), to their pages. Neighbouring
 * threads have neighbouring rows of k, which its page holds transposed, and
 * neighbouring columns of v. */
template <enum weft_dtype DTYPE>
static __device__ __forceinline__ void write_kv(const struct weft_qkv_cuda &a,
                                                const struct part &at,
                                                int64_t ld, const void *qkv,
                                                int64_t x)
{
    const struct weft_qkv_block_cuda &b = a.block[at.block];
    int d = a.head_dim, head = at.head - b.n_heads;
    bool is_k = head < b.n_kv;
    char *to = b.kv + (size_t) (is_k ? head : head - b.n_kv) * a.head_bytes;
    for (int e = threadIdx.x; e < at.n * d; e += THREADS) {
        int i = is_k ? e % at.n : e / d, j = is_k ? e / at.n : e % d;
        int pos = at.pos + i, in_page = pos % PAGE;
        store_as<DTYPE>(to + (size_t) at.page[pos / PAGE] * a.page_bytes,
                        is_k ? j * PAGE + in_page : (PAGE + in_page) * d + j,
                        load_as<DTYPE>(qkv, x + i * ld + j));
    }
}

template <enum weft_dtype DTYPE>
static __global__ void finish_qkv(struct weft_qkv_cuda a)
{
    WEFT_SHARED(struct norms, norms);
    const float *inv = norms.inv;
    struct part at = part_of(a);
    if (at.n <= 0)
        return; /* the whole block */
    const struct weft_qkv_block_cuda &b = a.block[at.block];
    int d = a.head_dim, half = d / 2;
    int64_t ld = (int64_t) (b.n_heads + 2 * b.n_kv) * d;
    float *x = b.product + (at.row - a.row) * ld + at.head * d;
    const float *bias = b.bias ? b.bias + at.head * d : NULL;
    int64_t to = at.row * ld + at.head * d;
    bool rotates = at.head < b.n_heads + b.n_kv;
    const float *w = at.head < b.n_heads ? a.qnorm : a.knorm;
    if (rotates && w) {
        begin_norm(a, at, x, ld, norms.inv);
        bias = NULL;
    }
    for (int e = threadIdx.x; rotates && e < at.n * half; e += THREADS) {
        int i = e / half, j = e % half;
        const float *angle = a.cos_sin + (at.row + i) * d;
        float p = x[i * ld + j], q = x[i * ld + half + j];
        if (bias) {
            p = p + bias[j];
            q = q + bias[half + j];
        }
        if (w) {
            p = p * inv[i] * w[j];
            q = q * inv[i] * w[half + j];
        }
        weft_rope_rotate(angle[j], angle[half + j], &p, &q);
        store_as<DTYPE>(b.qkv, to + i * ld + j, p);
        store_as<DTYPE>(b.qkv, to + i * ld + half + j, q);
    }
    for (int e = threadIdx.x; !rotates && e < at.n * d; e += THREADS) {
        int i = e / d, j = e % d;
        float y = x[i * ld + j];
        store_as<DTYPE>(b.qkv, to + i * ld + j, bias ? y + bias[j] : y);
    }
    if (at.head < b.n_heads)
        return; /* the whole block */
    __syncthreads();
    write_kv<DTYPE>(a, at, ld, b.qkv, to);
}

template <enum weft_dtype DTYPE>
static void qkv_of(cudaStream_t stream, const struct weft_qkv_cuda *a)
{
    const struct weft_qkv_block_cuda *last = &a->block[a->n_blocks - 1];
    int32_t n_heads = last->first_head + last->n_heads + 2 * last->n_kv;
    dim3 grid(blocks_for(a->max_rows, PAGE), (unsigned) n_heads,
              (unsigned) a->n_runs);
    WEFT_LAUNCH(finish_qkv<DTYPE>, grid, THREADS, stream, *a);
}

void weft_qkv_cuda(cudaStream_t stream, const struct weft_qkv_cuda *a)
{
    if (a->n_runs > 0)
        WEFT_BY_DTYPE(a->dtype, qkv_of, stream, a);
}

/* ---- Gradients ----------------------------------------------------------- */

/* A thread per pair of a row of block y of the grid. */
template <enum weft_dtype DTYPE>
static __global__ void unrotate(struct weft_unrotate_cuda a, int64_t m,
                                int64_t half, const float *cos_sin)
{
    struct weft_unrotate_block_cuda b = a.block[blockIdx.y];
    int64_t pair = (int64_t) blockIdx.x * THREADS + threadIdx.x;
    int64_t i = pair % half, head = pair / half % b.n_heads;
    int64_t row = pair / half / b.n_heads;
    if (row >= m)
        return;
    int64_t at = (row * b.n_heads + head) * 2 * half + i;
    float p = b.x[at], q = b.x[at + half];
    if (head < b.n_rotated) {
        const float *angle = cos_sin + row * 2 * half;
        weft_rope_rotate(angle[i], -angle[half + i], &p, &q);
        b.x[at] = p;
        b.x[at + half] = q;
    }
    if (!b.rounded)
        return;
    store_as<DTYPE>(b.rounded, at, p);
    store_as<DTYPE>(b.rounded, at + half, q);
}

template <enum weft_dtype DTYPE>
static void unrotate_of(cudaStream_t stream, int64_t m, int64_t d,
                        const float *cos_sin,
                        const struct weft_unrotate_cuda *a)
{
    int64_t most = 0;
    for (int32_t b = 0; b < a->n_blocks; b++)
        most = weft_max64(most, a->block[b].n_heads);
    dim3 grid(blocks_for(m * most * (d / 2), THREADS),
              (unsigned) a->n_blocks);
    if (m * most > 0)
        WEFT_LAUNCH(unrotate<DTYPE>, grid, THREADS, stream, *a, m, d / 2,
                    cos_sin);
}

void weft_unrotate_cuda(cudaStream_t stream, enum weft_dtype dtype, int64_t m,
                        int64_t d, const float *cos_sin,
                        const struct weft_unrotate_cuda *a)
{
    WEFT_BY_DTYPE(dtype, unrotate_of, stream, m, d, cos_sin, a);
}
