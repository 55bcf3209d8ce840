/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer's step; the arithmetic is in stream_impl.h. */
#include "kern/ops.h"

void weft_k_adamw(const struct weft_k_adamw *o, size_t n, float scale,
                  const float *grad, float *master, float *m, float *v)
{
    weft_k_ops()->adamw(o, n, scale, grad, master, m, v);
}
