/* SPDX-License-Identifier: Apache-2.0 */
/* Products as the library has them. Internal to the kernels. */
#ifndef WEFT_KERN_BLASLT_CUDA_H
#define WEFT_KERN_BLASLT_CUDA_H

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <stdbool.h>
#include <stdint.h>

struct weft_err;

/* D (m, n) = [D +] op(A) (m, k) op(B) (k, n), column-major, `batch` times: A
 * and D are then stride_a and stride_d numbers apart, B is the same.
 *
 * Products of one kind have algorithms that give a row the same bits, however
 * many rows there are (blaslt_choice_cuda.h). A kind is all of this but the
 * number of tokens, `add`, and where D's columns lie (ldd), of which only the
 * alignment counts, up to 16 bytes. So these have the same bits by
 * construction, whatever else a process computes:
 *
 * - logits that are drawn from and those of training, which are in pieces of
 *   the same columns (head_products_cuda.c);
 * - a block's products in prefill, decode, training, inference and recompute,
 *   which are one function, whether their result is a leaf of a sum or the
 *   result itself;
 * - those of a member of a tp group, of a stage and of a layer that is whole:
 *   a product is one tensor block's, whoever has it;
 * - sums that begin with a tile's numbers and those that begin with none.
 *
 * Others are different kinds, whose orders of sums may differ, and nothing
 * relies on their bits: of other numbers of tensor blocks, of f32 and bf16,
 * gradients of weights. The scalar head of critics and reward models is a
 * kernel of ours. */
struct weft_blaslt_product {
    cudaDataType_t in, out;
    int32_t trans_a, trans_b, add, batch;
    int32_t is_deep; /* tokens are k, else n */
    int32_t card;    /* written by weft_blaslt_multiply() */
    int64_t m, n, k, lda, ldb, ldd, stride_a, stride_d;
};

/* With `only`, products of this thread are chosen from here on and not
 * computed, and no kernel is launched. */
void weft_blaslt_choose(bool only);
bool weft_blaslt_chooses(void);
/* Kinds of products whose algorithm has been chosen. */
int weft_blaslt_n_kinds(void);

/* Opens the library: the system's of that name, or else the file. It is kept
 * open, and used from here on. Errors: there is neither (WEFT_ENOTFOUND), or it
 * lacks functions (WEFT_EUNSUPPORTED); the one before is used then. */
int weft_blaslt_open(const char *name, const char *path,
                     struct weft_err *err);

/* Puts a product on a stream; a NULL: only chooses its algorithm. Errors:
 * weft_k_products_error_cuda(). */
void weft_blaslt_multiply(struct weft_blaslt_product product,
                          cudaStream_t stream, const void *a, const void *b,
                          void *d);

#endif
