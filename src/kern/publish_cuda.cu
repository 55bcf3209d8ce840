/* SPDX-License-Identifier: Apache-2.0 */
/* Converts master weights to what products on a GPU read: row-major matrices.
 * A panel of flat order is a transposed (32, k). */
#include "kern/cuda_lang.h"

enum { COLUMNS = 64, ROWS = 8 };

struct square {
    float x[COLUMNS][WEFT_PANEL + 1]; /* + 1: no bank conflicts */
};

/* Columns 64 blockIdx.x.. of panel blockIdx.y. */
template <enum weft_dtype DTYPE>
static __global__ void rows_of_panel(int64_t k, const float *flat, void *out)
{
    WEFT_SHARED(struct square, s);
    int64_t panel = blockIdx.y, k0 = (int64_t) blockIdx.x * COLUMNS;
    flat += (panel * k + k0) * WEFT_PANEL;
    for (int j = threadIdx.y; j < COLUMNS && k0 + j < k; j += ROWS)
        s.x[j][threadIdx.x] = flat[j * WEFT_PANEL + threadIdx.x];
    __syncthreads();
    int64_t j = 2 * threadIdx.x;
    for (int r = threadIdx.y; r < WEFT_PANEL; r += ROWS) {
        int64_t at = (panel * WEFT_PANEL + r) * k + k0 + j;
        if (DTYPE == WEFT_BF16 && k0 + j < k) /* k is even */
            ((uint32_t *) out)[at / 2] =
                weft_f32_to_bf16(s.x[j][r])
                | (uint32_t) weft_f32_to_bf16(s.x[j + 1][r]) << 16;
        for (int64_t e = j; DTYPE == WEFT_F32 && e < j + 2; e++)
            if (k0 + e < k)
                ((float *) out)[at + e - j] = s.x[e][r];
    }
}

template <enum weft_dtype DTYPE>
static void publish_matrix(cudaStream_t stream, const struct weft_part *p,
                           const float *flat, void *out)
{
    dim3 grid(blocks_for(p->k, COLUMNS), p->n_pad / WEFT_PANEL);
    WEFT_LAUNCH(rows_of_panel<DTYPE>, grid, dim3(WEFT_PANEL, ROWS), stream,
                p->k, flat, out);
}

void weft_k_publish_cuda(cudaStream_t stream,
                         const struct weft_layout *layout,
                         enum weft_dtype dtype, const float *master,
                         void *fwd)
{
    for (int32_t i = 0; i < layout->n_parts; i++) {
        const struct weft_part *p = &layout->part[i];
        const float *flat = master + p->offset;
        void *out = (char *) fwd + p->fwd_bytes;
        bool is_matrix = p->k > 0 && p->id != WEFT_PART_EMBED;
        if (is_matrix)
            WEFT_BY_DTYPE(dtype, publish_matrix, stream, p, flat, out);
        else
            weft_k_round_cuda(stream, p->k > 0 ? dtype : WEFT_F32,
                              (int64_t) p->n_flat, flat, out);
    }
}
