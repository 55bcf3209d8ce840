/* SPDX-License-Identifier: Apache-2.0 */
/* Rows: which instruction set's. */
#include "kern/rows.h"

#include <config.h>

const struct weft_row_ops *weft_row_ops(void)
{
#ifdef WEFT_HAVE_X86_KERNELS
    switch (weft_k_isa()) {
    case WEFT_ISA_AVX512_BF16:
    case WEFT_ISA_AVX512:
        return &weft_rows_avx512;
    case WEFT_ISA_AVX2:
        return &weft_rows_avx2;
    default:
        break;
    }
#endif
    return &weft_rows_c;
}

void weft_k_rmsnorm(enum weft_dtype dtype, int64_t m, int64_t h, float eps,
                    const float *x, const float *w, void *y)
{
    weft_row_ops()->rmsnorm(dtype, m, h, eps, x, w, y);
}

void weft_k_rmsnorm_backward(int64_t m, int64_t h, float eps, const float *x,
                             const float *w, const float *dy, float *dx,
                             float *dw)
{
    weft_row_ops()->rmsnorm_backward(m, h, eps, x, w, dy, dx, dw);
}
