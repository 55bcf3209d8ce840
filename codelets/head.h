/* SPDX-License-Identifier: Apache-2.0 */
/* Taking the head's buffers, for all codelets with a head. */
#ifndef WEFT_CODELETS_HEAD_H
#define WEFT_CODELETS_HEAD_H

#include "codelets/access_list.h"

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
