/* SPDX-License-Identifier: Apache-2.0 */
/* Taking the head's buffers, for all codelets with a head. */
#ifndef WEFT_CODELETS_HEAD_H
#define WEFT_CODELETS_HEAD_H

#include "codelets/access_list.h"
#include "kern/parts.h"

/* Of how many targets a loss keeps the range's logits for its backward pass. No
 * fewer of more targets, so that a bound of these is one of the memory. */
WEFT_INLINE int32_t weft_head_n_kept(const struct weft_shape *shape,
                                     struct weft_range range, int32_t n)
{
    enum { BYTES = 64 << 20 };
    int32_t first, columns;
    if (shape->scalar_head)
        return 0;
    weft_k_vocab_range(shape, range, &first, &columns);
    return weft_min32(n, BYTES / (4 * columns));
}
/* Targets with their logits in a tile of weft_part_logits_bytes(); NULL: none
 * are kept. */
WEFT_INLINE struct weft_k_targets weft_head_targets(
    const struct weft_batch *b, const struct weft_shape *shape,
    struct weft_range range, float *logits)
{
    struct weft_k_targets targets = weft_batch_targets(b);
    targets.n_logits = logits ? weft_head_n_kept(shape, range, targets.n) : 0;
    targets.logits = logits;
    return targets;
}

/* Takes the head's published blocks and FINAL, and with `backward` the
 * transposed blocks, in the order in which
 * weft_access_list_add_layer() adds them. */
WEFT_INLINE void weft_head_take(struct weft_take *take,
                                const struct weft_shape *shape, bool backward,
                                struct weft_k_head *out)
{
    int n = shape->scalar_head ? 0 : shape->n_blocks;
    for (int b = 0; b < n; b++)
        out->fwd[b] = weft_take(take);
    out->final = weft_take(take);
    for (int b = 0; b < n && backward; b++)
        out->bwd[b] = weft_take(take);
}

#endif
