/* SPDX-License-Identifier: Apache-2.0 */
/* One page of 64 keys of attention on tensor cores: scores, softmax, values.
 * Internal to attention_mma_cuda.cu, which says in what order. */
#ifndef WEFT_KERN_ATTENTION_PAGE_CUDA_H
#define WEFT_KERN_ATTENTION_PAGE_CUDA_H

#include "kern/attention_loads_cuda.h"

/* What a lane has of two items, 8 apart: of a segment, or of all so far. */
template <int N> struct part {
    float o[N][4], max[2], sum[2];
};

/* The lane's first item in its warp's 16, the first of its warp's columns;
 * others are 8 apart, and the next column is its, too. */
static __device__ __forceinline__ int item_of_lane(void)
{
    return threadIdx.x % WEFT_WARP / 4;
}
static __device__ __forceinline__ int column_of_lane(void)
{
    return threadIdx.x % 4 * 2;
}

template <int N> static __device__ __forceinline__ void clear(part<N> &p)
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            p.o[n][e] = 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        p.max[r] = -INFINITY;
        p.sum[r] = 0;
    }
}

/* ---- One page ------------------------------------------------------------ */

/* Scores of the keys key.. key + 8 N - 1 of the page. */
template <int D, int N>
static __device__ __forceinline__ void scores_of(const uint16_t (*k)[WIDE],
                                                 int key,
                                                 const uint32_t (*q)[4],
                                                 float (*s)[4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[n][e] = 0;
#pragma unroll
    for (int j = 0; j < D / 16; j++)
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t b[4];
            weft_load_b(b, &k[16 * j][key + 8 * n], WIDE);
            weft_mma(s[n], q[j], b);
            weft_mma(s[n + 1], q[j], b + 2);
        }
}

/* The lane's scores of its warp's N products, for the warps that share
 * items. */
template <int N>
static __device__ __forceinline__ void give_scores(float (*to)[PAGE + 4],
                                                   int key,
                                                   const float (*s)[4])
{
    int row = item_of_lane();
    key += column_of_lane();
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int r = 0; r < 2; r++)
            *(float2 *) &to[row + 8 * r][key + 8 * n] = {s[n][2 * r],
                                                         s[n][2 * r + 1]};
}

static __device__ __forceinline__ void take_scores(
    const float (*from)[PAGE + 4], float s[PAGE / 8][4])
{
    int row = item_of_lane(), key = column_of_lane();
#pragma unroll
    for (int n = 0; n < PAGE / 8; n++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float2 x = *(const float2 *) &from[row + 8 * r][key + 8 * n];
            s[n][2 * r] = x.x;
            s[n][2 * r + 1] = x.y;
        }
}

/* Scores become probabilities relative to the segment's maximum so far, of
 * the first limit[r] keys. old[r]: what that maximum makes of what the
 * segment had before. */
template <int N>
static __device__ __forceinline__ void softmax(float s[PAGE / 8][4],
                                               const int limit[2],
                                               float scale, part<N> &p,
                                               float old[2])
{
    int first = column_of_lane();
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float max = -INFINITY, sum = 0;
#pragma unroll
        for (int n = 0; n < PAGE / 8; n++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float &x = s[n][2 * r + c];
                x = 8 * n + first + c < limit[r] ? x * scale : -INFINITY;
                max = fmaxf(max, x);
            }
        max = fmaxf(max, __shfl_xor_sync(WEFT_FULL_WARP, max, 1));
        max = fmaxf(max, __shfl_xor_sync(WEFT_FULL_WARP, max, 2));
        max = fmaxf(max, p.max[r]);
        float from = limit[r] > 0 ? max : 0;
#pragma unroll
        for (int n = 0; n < PAGE / 8; n++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float &x = s[n][2 * r + c];
                x = weft_exp2(x - from);
                sum += x;
            }
        old[r] = weft_exp2(p.max[r] - from);
        p.sum[r] = limit[r] > 0 ? fmaf(p.sum[r], old[r], sum) : p.sum[r];
        p.max[r] = max;
    }
}

/* Adds P V of a page; the lane's columns begin at `column`. */
template <int N, int LD>
static __device__ __forceinline__ void add_values(
    const uint16_t (*v)[LD], int column, const float s[PAGE / 8][4],
    const int limit[2], const float old[2], part<N> &p)
{
    uint32_t a[PAGE / 16][4];
#pragma unroll
    for (int k = 0; k < PAGE / 16; k++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            a[k][e] = weft_bf16_pair(s[2 * k + e / 2][e % 2 * 2],
                                     s[2 * k + e / 2][e % 2 * 2 + 1]);
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        float x[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
#pragma unroll
        for (int k = 0; k < PAGE / 16; k++) {
            uint32_t b[4];
            weft_load_b(b, &v[16 * k][column + 8 * n], LD);
            weft_mma(x[0], a[k], b);
            weft_mma(x[1], a[k], b + 2);
        }
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                p.o[n + h][e] = limit[e / 2] > 0
                                  ? fmaf(p.o[n + h][e], old[e / 2], x[h][e])
                                  : p.o[n + h][e];
    }
}

/* ---- All of it -------------------------------------------------------------- */

/* Of a warp: first item, share; the keys that the lane's items see, 8 apart;
 * the most that an item of the block does. */
struct lane {
    int first, share, keys[2], block_keys;
};

template <int D, bool DECODE>
static __device__ __forceinline__ struct lane lane_of(
    const struct weft_attention_cuda &a, const struct items &at)
{
    typedef shape<D, DECODE> S;
    int warp = threadIdx.x / WEFT_WARP, last = last_item(at, S::ITEMS);
    struct lane l;
    l.share = warp % S::SHARE;
    l.first = warp / S::SHARE * 16;
    l.keys[0] = keys_of_item(a, at, l.first + item_of_lane());
    l.keys[1] = keys_of_item(a, at, l.first + item_of_lane() + 8);
    l.block_keys = keys_of_item(a, at, last);
    return l;
}

/* Adds the page, whose K has been begun, to the segment's part; begins the K
 * of page `next`, unless that is -1. */
template <int D, bool DECODE>
static __device__ __forceinline__ void add_page(
    tile<D, DECODE> &t, const struct weft_attention_cuda &a,
    const struct items &at, const struct lane &l, const uint32_t q[D / 16][4],
    int page, int next, part<shape<D, DECODE>::OUTPUTS> &p)
{
    typedef shape<D, DECODE> S;
    int before = page * PAGE;
    int limit[2] = {l.keys[0] - before, l.keys[1] - before};
    bool any = DECODE
            || __ballot_sync(WEFT_FULL_WARP, limit[0] > 0 || limit[1] > 0);
    float s[S::SCORES][4], old[2];
    weft_copies_wait<0>();
    __syncthreads(); /* K is there, and the last V not used any more */
    begin_v(t, keys_of(a, at, page), a.head_dim, l.block_keys - before);
    if (any)
        scores_of<D, S::KEYS / 8>(t.k, l.share * S::KEYS, q, s);
    if (DECODE)
        give_scores<S::KEYS / 8>(t.s, l.share * S::KEYS, s);
    __syncthreads(); /* K is not used any more */
    if (next >= 0)
        begin_k(t, keys_of(a, at, next), a.head_dim);
    else
        weft_copies_end();
    if (DECODE)
        take_scores(t.s, s);
    if (any)
        softmax(s, limit, a.scale * WEFT_LOG2_E, p, old);
    weft_copies_wait<1>();
    __syncthreads(); /* V is there */
    if (any)
        add_values<S::OUTPUTS, S::LD>(t.v, l.share * S::COLUMNS, s, limit,
                                      old, p);
}

#endif
