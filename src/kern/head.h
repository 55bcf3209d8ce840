/* SPDX-License-Identifier: Apache-2.0 */
/* What the head's forward and backward share. */
#ifndef WEFT_KERN_HEAD_H
#define WEFT_KERN_HEAD_H

#include "kern/parts.h"
#include "kern/softmax.h"

WEFT_INLINE size_t weft_head_align(int64_t bytes)
{
    return (size_t) weft_round_up(bytes, 64);
}

/* Takes the next `bytes` of a scratch area; one that starts at address 0 is
 * only counted. */
WEFT_INLINE void *weft_head_take(uintptr_t *at, size_t bytes)
{
    void *p = (void *) *at;
    *at += bytes;
    return p;
}

/* A range's part of the log-probs. */
struct weft_head_part {
    struct weft_softmax *state; /* (n, blocks of the range) */
    float *hit; /* (n): scaled logits of targets in the range */
};
/* Divides its memory at `base`; returns its size in bytes. */
WEFT_INLINE size_t weft_head_part_at(struct weft_range range, int32_t n,
                                     uintptr_t base,
                                     struct weft_head_part *out)
{
    uintptr_t at = base;
    size_t bytes = weft_head_align((int64_t) n * range.n
                                   * (int64_t) sizeof *out->state);
    out->state = (struct weft_softmax *) weft_head_take(&at, bytes);
    bytes = weft_head_align((int64_t) n * 4);
    out->hit = (float *) weft_head_take(&at, bytes);
    return at - base;
}

/* The logits that targets keep of columns [j, ...) of block t, out of a
 * range's: chunks of WEFT_SOFTMAX_COLUMNS columns or what is left of the block,
 * one after another, each (n_logits, its columns). */
WEFT_INLINE float *weft_head_kept(const struct weft_shape *shape,
                                  struct weft_range range,
                                  const struct weft_k_targets *targets,
                                  int32_t t, int64_t j)
{
    int32_t first = shape->block[range.first].vocab0;
    return targets->logits
         + targets->n_logits * (shape->block[t].vocab0 - first + j);
}

/* y (n, H) in dtype = final norm of rows row[0..n-1] of x; row NULL: of rows
 * 0..n-1. */
void weft_head_norm(const struct weft_shape *shape, const float *final,
                    const float *x, const int32_t *row, int32_t n, void *y);

/* logits (m, n) f32 with leading dimension ld: columns [j, j + n) of block t's
 * vocabulary, for m rows after the final norm. j is a multiple of
 * WEFT_PANEL. */
void weft_head_gemm(const struct weft_shape *shape,
                    const struct weft_k_head *head, int32_t t, int64_t j,
                    int64_t m, int64_t n, const void *normed, float *logits,
                    int64_t ld);

#endif
