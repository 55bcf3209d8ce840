/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations of kern.h, rows.h and ops.h on a CUDA device. A function
 * weft_k_<op>_cuda() does what weft_k_<op>() says there, with these
 * differences:
 *   - pointers to numbers are device memory, and so is scratch; structs with
 *     options, and arrays of pointers, are host memory and read before return;
 *   - the work is put on `stream`, and the function returns at once. Errors of
 *     a launch stay with CUDA: cudaGetLastError();
 *   - what depends on data is read on the device (`scale` of AdamW).
 *
 * The numerics contract holds: a row's bits do not depend on how many rows
 * there are or where it lies among them. "Bits of the CPU" below: those of the
 * instruction sets with fused multiply-adds. doc/gpu.md lists the tolerances
 * of the others.
 */
#ifndef WEFT_KERN_KERN_CUDA_H
#define WEFT_KERN_KERN_CUDA_H

#include "kern/kern.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* cudaStream_t */

/* ---- Rows: bits of the CPU -------------------------------------------- */

void weft_k_rmsnorm_cuda(struct CUstream_st *stream, enum weft_dtype dtype,
                         int64_t m, int64_t h, float eps, const float *x,
                         const float *w, void *y);
/* scratch: (m) f32 */
void weft_k_rmsnorm_backward_cuda(struct CUstream_st *stream, int64_t m,
                                  int64_t h, float eps, const float *x,
                                  const float *w, const float *dy, float *dx,
                                  float *dw, float *scratch);

/* y (m, ff) = silu(gate) * up of rows that alternate 32 gates and 32 ups, and
 * its gradient (rows.h). */
void weft_k_swiglu_cuda(struct CUstream_st *stream, enum weft_dtype dtype,
                        int64_t m, int64_t ff, const void *gate_up, void *y);
void weft_k_swiglu_backward_cuda(struct CUstream_st *stream,
                                 enum weft_dtype dtype, int64_t m, int64_t ff,
                                 const void *gate_up, const float *dy,
                                 void *dgate_up);

/* Rotates n_heads heads of size d at the front of each of m rows x (m, ld), in
 * place; row i by the angles cos_sin + at[i] * d (d / 2 cosines, then as many
 * sines). inverse: by the negative angle. */
void weft_k_rope_cuda(struct CUstream_st *stream, int64_t m, int64_t n_heads,
                      int64_t d, int64_t ld, const float *cos_sin,
                      const int32_t *at, bool inverse, float *x);

/* y (n) = dtype(x) */
void weft_k_round_cuda(struct CUstream_st *stream, enum weft_dtype dtype,
                       int64_t n, const float *x, void *y);
/* sum (n) += row i of x (m, ldx), rows in order: the gradient of a bias. */
void weft_k_add_rows_cuda(struct CUstream_st *stream, int64_t m, int64_t n,
                          const float *x, int64_t ldx, float *sum);

#ifdef __cplusplus
}
#endif
#endif
