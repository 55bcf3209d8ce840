/* SPDX-License-Identifier: Apache-2.0 */
/* Segments of 256 keys of attention on tensor cores: how they are merged, kept
 * for another kernel to merge, and stored. Internal to
 * attention_mma_cuda.cu. */
#ifndef WEFT_KERN_ATTENTION_SEGMENT_CUDA_H
#define WEFT_KERN_ATTENTION_SEGMENT_CUDA_H

#include "kern/attention_page_cuda.h"

enum { SEGMENT = WEFT_ATTENTION_SEGMENT / PAGE /* in pages */ };

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
    const struct weft_attention_cuda &a, int block, int head, int segment)
{
    int64_t run = (int64_t) blockIdx.z * a.n_blocks + block;
    int64_t i = run * a.n_kv * a.n_group + head;
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
        float *to = record(a, at.block, at.head + i, segment);
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
    const struct weft_attention_block &b = a.block[at.block];
    int column = l.share * N * 8 + column_of_lane();
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int i = at.first + l.first + item_of_lane() + 8 * r;
        if (i >= at.n)
            continue;
        int64_t row = at.row + i / a.n_group;
        int head = at.head + i % a.n_group;
        float inv = 1.0f / p.sum[r];
        uint16_t *to = (uint16_t *) b.out + row * a.ldo + head * a.head_dim;
#pragma unroll
        for (int n = 0; n < N; n++)
            if (column + 8 * n < a.head_dim)
                *(uint32_t *) &to[column + 8 * n] = weft_bf16_pair(
                    p.o[n][2 * r] * inv, p.o[n][2 * r + 1] * inv);
        if (b.lse && column == 0)
            b.lse[row * a.ldlse + head] = lse_of(p.max[r], p.sum[r]);
    }
}

#endif
